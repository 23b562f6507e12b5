/* SPDX-License-Identifier: Apache-2.0 */
/* The steps before the loop (life.h). Their order matters. The device is probed before the socket's
 * path is chosen, since the default path names the device. The lock of the socket's path is taken
 * before the database is opened, so that a second daemon reports the first daemon and not a locked
 * file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/base/probe.h"
#include "daemon/life.h"
#include "kernels/modules.h"

/* The arguments of the steps that fill in settings without a fixed default; --print-config shows
 * the result. */
struct settling {
    struct config *config;
    struct config_sources *from;
    struct device_info *device;
    struct error *err;
};

/* Sets an empty setting to `value`. Its source is the environment variable if that is set, else
 * "default". A given setting also becomes `value` (a path made absolute), and keeps its source. */
static int start_settle_key(const struct settling *x, const char *name, char of[PATHS_MAX],
                            const char *value, const char *variable)
{
    const char *set = variable ? getenv(variable) : NULL;
    if (of[0]) {
        snprintf(of, PATHS_MAX, "%s", value);
        return 0;
    }
    return config_set(x->config, x->from, name, value, set && set[0] ? variable : "default",
                      x->err);
}

/* Finds the runner, in this order: --runner, $GEMMD_RUNNER, gemmd's folder, libexec/gemmd next to
 * bin, the build tree. */
static int start_settle_runner(const struct settling *x)
{
    struct config *c = x->config;
    const char *given = c->runner[0] ? c->runner : getenv("GEMMD_RUNNER");
    if (given && given[0] && !paths_is_program(given)) {
        return error_set(x->err, ERROR_IO, "the runner %s is no program that can be started",
                         given);
    }
    if (given && given[0]) {
        return given == c->runner ? 0
                                  : start_settle_key(x, "runner", c->runner, given, "GEMMD_RUNNER");
    }
    char path[PATHS_MAX];
    if (paths_find_runner(path)) {
        return start_settle_key(x, "runner", c->runner, path, NULL);
    }
    return error_set(x->err, ERROR_IO,
                     "gemmd-runner was not found beside gemmd (the last place was %s); name it by "
                     "--runner or GEMMD_RUNNER",
                     path);
}

/* Probes the device of --device; without --device the first GPU, and when there is none, the
 * CPU. */
static int start_settle_device(const struct settling *x)
{
    struct config *c = x->config;
    const char *spec = c->device[0] ? c->device : "cuda:0";
    int status = probe_device(c->runner, spec, PROBE_LIMIT_MS, x->device, x->err);
    if (status == ERROR_NO_DEVICE && !c->device[0]) {
        log_notice("no GPU (%s): using the CPU; --device chooses", x->err->text);
        spec = "cpu";
        status = probe_device(c->runner, spec, PROBE_LIMIT_MS, x->device, x->err);
    }
    return status || spec == c->device ? status
                                       : start_settle_key(x, "device", c->device, spec, NULL);
}

/* Makes a path absolute, since clients in other working directories use it, too. */
static int make_whole(const char *key, const char *path, char out[PATHS_MAX], struct error *err)
{
    char here[PATHS_MAX] = "";
    const bool whole = path[0] == '/';
    if (!whole && !getcwd(here, sizeof(here))) {
        return error_set(err, ERROR_IO, "%s is \"%s\", and the working directory is not known: %s",
                         key, path, strerror(errno));
    }
    if (snprintf(out, PATHS_MAX, "%s%s%s", here, whole ? "" : "/", path) >= PATHS_MAX) {
        return error_set(err, ERROR_INVALID, "%s is longer than %d bytes", key, PATHS_MAX - 1);
    }
    return 0;
}

static int start_settle_cache_dir(const struct settling *x)
{
    char dir[PATHS_MAX], *given = x->config->cache_dir;
    int r = given[0] ? make_whole("cache-dir", given, dir, x->err) : paths_cache_dir(dir, x->err);
    return r ? r : start_settle_key(x, "cache-dir", given, dir, "GEMMD_CACHE_DIR");
}

int start_settle_database(struct config *c, struct config_sources *from, struct error *err)
{
    const struct settling x = {c, from, NULL, err};
    char dir[PATHS_MAX], path[PATHS_MAX];
    if (c->database[0]) {
        return 0;
    }
    int r = paths_state_dir(dir, err);
    snprintf(path, sizeof(path), "%.1000s/gemmd.db", dir);
    return r ? r : start_settle_key(&x, "database", c->database, path, NULL);
}

static int start_settle_socket(const struct settling *x)
{
    char path[PATHS_MAX], socket[PATHS_MAX];
    char *given = x->config->socket;
    const char *name = given[0] ? "socket" : "GEMMD_SOCKET";
    int r = given[0] ? 0 : paths_socket(x->device->uuid, path, x->err);
    r = r ? r : make_whole(name, given[0] ? given : path, socket, x->err);
    return r ? r : start_settle_key(x, "socket", given, socket, "GEMMD_SOCKET");
}

int start_settle(struct config *c, struct config_sources *from, struct device_info *device,
                 struct error *err)
{
    const struct settling x = {c, from, device, err};
    int r = start_settle_cache_dir(&x);
    r = r ? r : start_settle_database(c, from, err);
    r = r ? r : start_settle_runner(&x);
    r = r ? r : start_settle_device(&x);
    return r || (c->offline && !c->socket[0]) ? r : start_settle_socket(&x);
}

/* Chooses the socket of an --offline daemon, which prints the path to its clients. */
static int choose_private_socket(struct config *c, struct error *err)
{
    char dir[PATHS_MAX];
    int r = paths_runtime_dir(dir, err);
    if (r == 0) {
        snprintf(c->socket, sizeof(c->socket), "%.900s/offline-%d.sock", dir, (int)getpid());
    }
    return r;
}

/* ---- folders --------------------------------------------------------------------------------- */

/* Makes a default folder; the error says how to choose another. */
static int make_usual(const char *path, unsigned mode, const char *option, const char *variable,
                      struct error *err)
{
    struct error why = ERROR_NULL;
    if (paths_make_dir(path, mode, &why) == 0) {
        return 0;
    }
    return error_set(err, why.code, "%.300s; choose another place by --%s, or set %s", why.text,
                     option, variable);
}

/* Checks that the database of --offline exists: else a mistyped name would be served as a new,
 * empty database. */
static int check_offline(const struct config *c, struct error *err)
{
    if (c->offline && access(c->database, F_OK) < 0) {
        return error_set(err, ERROR_IO, "there is no database %s to serve --offline: %s",
                         c->database, strerror(errno));
    }
    return 0;
}

static int make_usual_state_dir(struct error *err)
{
    char dir[PATHS_MAX];
    int status = paths_state_dir(dir, err);
    return status ? status : make_usual(dir, 0700, "database", "XDG_STATE_HOME", err);
}

/* Makes the folders of cache and database. `own_cache`, `own_database`: the settings name the
 * place, so it is no default. */
static int start_make_folders(const struct config *c, bool own_cache, bool own_database,
                              struct error *err)
{
    int status = own_cache ? paths_make_dir(c->cache_dir, 0750, err)
                           : make_usual(c->cache_dir, 0750, "cache-dir", "GEMMD_CACHE_DIR", err);
    if (status == 0) {
        status = own_database ? check_offline(c, err) : make_usual_state_dir(err);
    }
    status = status ? status : modules_check(c->cache_dir, err);
    if (status == 0) {
        modules_tidy(c->cache_dir);
    }
    return status;
}

enum {
    /* files kept for the event loop, the database, its other owners (store/owner.c), locks, a
     * runner's start, modules, and refused connections */
    FILES_RESERVED = 40,
    FILES_LEAST = 28, /* open files that gemmd needs to start, and to tune for a single client */
};

/* Checks the hard limit of open files at the very start: with fewer, libuv's loop and handles would
 * fail later, with unclear errors. */
static int check_files(struct error *err)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_max < FILES_LEAST) {
        return error_set(
            err, ERROR_IO,
            "only %llu files may be open, and gemmd needs %d and one for each connection: "
            "raise the hard limit (LimitNOFILE=, ulimit -Hn)",
            (unsigned long long)r.rlim_max, FILES_LEAST);
    }
    return 0;
}

static unsigned raise_files(unsigned connections)
{
    struct rlimit r;
    rlim_t wanted = (rlim_t)connections + FILES_RESERVED;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0) {
        return connections;
    }
    if (r.rlim_cur < wanted && r.rlim_cur < r.rlim_max) {
        struct rlimit more = {wanted < r.rlim_max ? wanted : r.rlim_max, r.rlim_max};
        r = setrlimit(RLIMIT_NOFILE, &more) == 0 ? more : r;
    }
    if (r.rlim_cur >= wanted) {
        return connections;
    }
    unsigned room = r.rlim_cur > FILES_RESERVED ? (unsigned)(r.rlim_cur - FILES_RESERVED) : 1;
    log_warning("at most %u connections, not %u: only %llu files may be open; raise the hard limit "
                "(LimitNOFILE=, ulimit -Hn) or lower --max-connections",
                room, connections, (unsigned long long)r.rlim_cur);
    return room;
}

enum {
    /* a user's requests that wait for the ledger: some tenths of a second of its work */
    ASKED_MAX = 1024,
    LEASES_MAX = 2048,       /* a user's leased keys: the ledger renews each every few seconds */
    WAITING_MAX = 2048,      /* a user's acquires that wait for leases */
    SUBSCRIPTIONS_MAX = 512, /* a user's subscriptions, each sent every new answer */
};

static unsigned start_share_of(int64_t given, unsigned whole)
{
    return given && given < whole ? (unsigned)given : given ? whole : whole - whole / 4;
}

void start_limits(const struct config *c, struct session_limits *out)
{
    out->sessions = raise_files((unsigned)c->max_connections);
    out->message_ms = (uint64_t)c->message_ms;
    out->answer_ms = (uint64_t)c->answer_ms;
    out->user.connections = start_share_of(c->user_connections, out->sessions);
    out->user.jobs = start_share_of(c->user_jobs, QUEUE_MAX);
    out->user.leases = LEASES_MAX;
    out->user.waiting = WAITING_MAX;
    out->user.subscriptions = SUBSCRIPTIONS_MAX;
    out->user.most[ACCOUNT_IN] = out->user.most[ACCOUNT_OUT] = (size_t)c->user_mib << 20;
    out->user.most[ACCOUNT_ASKED] = ASKED_MAX;
}

int start_prepare(struct daemon_parts *p, struct config *c, struct config_sources *from,
                  struct error *err)
{
    struct daemon *d = &p->daemon;
    const bool own_cache = c->cache_dir[0], own_database = c->database[0];
    const bool own_socket = c->socket[0];
    int status = check_files(err);
    status = status ? status : start_settle(c, from, &d->device, err);
    if (status == 0 && !c->socket[0]) {
        status = choose_private_socket(c, err);
    }
    status = status ? status : start_make_folders(c, own_cache, own_database, err);
    if (status < 0) {
        return status;
    }
    const struct family_target *t = family_target_find(families[0], &d->device, NULL);
    if (t) {
        family_stamp(families[0], t, &d->device, d->stamp);
    }
    /* Only measurements on a real GPU disturb each other, so only a real GPU is locked. `device` is
     * the setting (cuda:0): a replayed GPU also has the kind cuda. */
    bool exclusive = strncmp(c->device, "cuda", 4) == 0 && !c->offline;
    status = server_lock(&p->server, c->socket, d->device.uuid, exclusive, err);
    p->server.own_name = status == 0 && c->offline && !own_socket;
    return status;
}
