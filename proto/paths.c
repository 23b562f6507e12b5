/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any user can make the directory /tmp/gemmd-$UID, so gemmd uses it only if it passes the rule of
 * trust.h. A directory that does not exist yet passes: paths_make_dir then creates it, or fails.
 */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/limits.h"
#include "proto/paths.h"
#include "proto/trust.h"

static bool system_mode(void)
{
    const char *wish = getenv("GEMMD_SYSTEM");
    if (wish && wish[0]) {
        return strcmp(wish, "0") != 0;
    }
    return geteuid() == 0;
}

static int paths_refuse_long(const char *what, struct error *err)
{
    return error_set(err, ERROR_INVALID, "the path of the %s is longer than %d bytes", what,
                     PATHS_MAX - 1);
}

static int paths_join_two(char out[PATHS_MAX], const char *a, const char *b, const char *what,
                          struct error *err)
{
    int n = snprintf(out, PATHS_MAX, "%s%s", a, b);
    return n < 0 || n >= PATHS_MAX ? paths_refuse_long(what, err) : 0;
}

/* Reads an XDG variable. Ignores a relative path, as the specification demands. */
static const char *paths_read_xdg(const char *name)
{
    const char *v = getenv(name);
    return v && v[0] == '/' ? v : NULL;
}

static const char *paths_find_home(void)
{
    const char *v = getenv("HOME");
    if (v && v[0] == '/') {
        return v;
    }
    const struct passwd *user = getpwuid(geteuid());
    return user && user->pw_dir && user->pw_dir[0] == '/' ? user->pw_dir : NULL;
}

static int paths_find_tmp(char out[PATHS_MAX], struct error *err)
{
    snprintf(out, PATHS_MAX, "/tmp/gemmd-%u", (unsigned)geteuid());
    struct stat st;
    if (lstat(out, &st) != 0) {
        return errno == ENOENT ? 0 : error_set(err, ERROR_IO, "%s: %s", out, strerror(errno));
    }
    if (st.st_uid != geteuid()) { /* also refuses root's: gemmd could not write there */
        return error_set(
            err, ERROR_DENIED,
            "%s belongs to user %u, not to us (%u); set XDG_RUNTIME_DIR to a directory of "
            "your own",
            out, (unsigned)st.st_uid, (unsigned)geteuid());
    }
    if (!S_ISDIR(st.st_mode)) { /* also refuses a symbolic link of the user */
        return error_set(err, ERROR_DENIED, "%s is not a directory; remove it", out);
    }
    return trust_folder(out, TRUST_STRICT, 0, NULL, err);
}

int paths_runtime_dir(char out[PATHS_MAX], struct error *err)
{
    if (system_mode()) {
        return paths_join_two(out, SYSTEM_RUNTIME_DIR, "", "runtime directory", err);
    }
    const char *dir = paths_read_xdg("XDG_RUNTIME_DIR");
    struct stat st;
    if (dir && stat(dir, &st) == 0 && S_ISDIR(st.st_mode)) {
        return paths_join_two(out, dir, "/gemmd", "runtime directory", err);
    }
    return paths_find_tmp(out, err);
}

/* Finds the folder `system` in system mode; else $variable/gemmd, or ~/fallback/gemmd. */
static int paths_find_dir(char out[PATHS_MAX], const char *system, const char *variable,
                          const char *fallback, const char *what, struct error *err)
{
    const char *dir = system_mode() ? "" : paths_read_xdg(variable);
    if (dir) {
        return paths_join_two(out, dir, dir[0] ? "/gemmd" : system, what, err);
    }
    dir = paths_find_home();
    if (!dir) {
        return error_set(err, ERROR_INVALID, "no %s: set %s or HOME to an absolute path", what,
                         variable);
    }
    return paths_join_two(out, dir, fallback, what, err);
}

int paths_state_dir(char out[PATHS_MAX], struct error *err)
{
    return paths_find_dir(out, "/var/lib/gemmd", "XDG_STATE_HOME", "/.local/state/gemmd",
                          "state directory", err);
}

int paths_cache_dir(char out[PATHS_MAX], struct error *err)
{
    const char *given = getenv("GEMMD_CACHE_DIR");
    if (given && given[0] && given[0] != '/') {
        return error_set(err, ERROR_INVALID, "GEMMD_CACHE_DIR=%.200s is no absolute path", given);
    }
    if (given && given[0]) {
        return paths_join_two(out, given, "", "cache directory", err);
    }
    return paths_find_dir(out, "/var/cache/gemmd", "XDG_CACHE_HOME", "/.cache/gemmd",
                          "cache directory", err);
}

int paths_check_cache_dir(const char *path, struct error *err)
{
    int r = trust_folder(path, TRUST_STRICT, 0, NULL, err);
    return r == TRUST_MISSING ? 0 : r;
}

int paths_check_socket(const char *path, struct error *err)
{
    size_t n = strlen(path);
    if (n > SOCKET_PATH_MAX) {
        return error_set(
            err, ERROR_INVALID,
            "the socket path is %zu bytes long, the kernel takes at most %d: %.64s...; "
            "choose a shorter one (GEMMD_SOCKET or --socket)",
            n, SOCKET_PATH_MAX, path);
    }
    return n > 0 ? 0 : error_set(err, ERROR_INVALID, "the socket path is empty");
}

int paths_socket(const char *name, char out[PATHS_MAX], struct error *err)
{
    const char *given = getenv("GEMMD_SOCKET");
    if (given && given[0]) {
        int r = paths_check_socket(given, err);
        return r < 0 ? r : paths_join_two(out, given, "", "socket", err);
    }
    if (!name[0] || strchr(name, '/')) {
        return error_set(err, ERROR_INVALID, "'%.64s' names no socket: expected a GPU UUID or cpu",
                         name);
    }
    char dir[PATHS_MAX];
    int r = paths_runtime_dir(dir, err);
    if (r < 0) {
        return r;
    }
    int n = snprintf(out, PATHS_MAX, "%s/%s.sock", dir, name);
    return n < 0 || n >= PATHS_MAX ? paths_refuse_long("socket", err)
                                   : paths_check_socket(out, err);
}

int paths_make_dir(const char *path, unsigned mode, struct error *err)
{
    if (path[0] != '/') {
        return error_set(err, ERROR_INVALID, "'%.64s' is not an absolute path", path);
    }
    if (strlen(path) >= PATHS_MAX) {
        return paths_refuse_long("directory", err);
    }
    return trust_folder(path, TRUST_STRICT, mode, NULL, err);
}

bool paths_is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

bool paths_make_near(const char *place, char out[PATHS_MAX])
{
    char self[PATHS_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(self, '/');
    return snprintf(out, PATHS_MAX, "%.*s/%s", slash ? (int)(slash - self) : 0, self, place) <
               PATHS_MAX &&
           slash;
}

bool paths_find_near(const char *place, char out[PATHS_MAX])
{
    return paths_make_near(place, out) && paths_is_program(out);
}

bool paths_find_runner(char out[PATHS_MAX])
{
    return paths_find_near("gemmd-runner", out) ||
           paths_find_near("../libexec/gemmd/gemmd-runner", out) ||
           paths_find_near("../runner/gemmd-runner", out);
}
