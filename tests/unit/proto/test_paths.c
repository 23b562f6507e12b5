/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of files, and untrusted directories. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/paths.h"
#include "tests/unit/proto/common.h"

static char base[64]; /* a fresh directory for each test */
static char out[PATHS_MAX];
static struct error err;

static int set_up(void **state)
{
    (void)state;
    strcpy(base, "/tmp/gemmd-test-paths-XXXXXX");
    setenv("GEMMD_SYSTEM", "0", 1);
    unsetenv("GEMMD_SOCKET");
    unsetenv("XDG_STATE_HOME");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("GEMMD_CACHE_DIR");
    setenv("XDG_RUNTIME_DIR", "/", 1); /* exists everywhere */
    return mkdtemp(base) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof(command), "rm -rf %s", base);
    return system(command);
}

static const char *in_base(const char *rest)
{
    static char path[PATHS_MAX];
    snprintf(path, sizeof(path), "%s%s", base, rest);
    return path;
}

/* ---- names ----------------------------------------------------------------------------------- */

static void test_system_mode(void **state)
{
    (void)state;
    setenv("GEMMD_SYSTEM", "1", 1);
    assert_ok(err, paths_runtime_dir(out, &err));
    assert_string_equal(out, "/run/gemmd");
    assert_ok(err, paths_state_dir(out, &err));
    assert_string_equal(out, "/var/lib/gemmd");
    assert_ok(err, paths_cache_dir(out, &err));
    assert_string_equal(out, "/var/cache/gemmd");
    assert_ok(err, paths_socket("GPU-1234", out, &err));
    assert_string_equal(out, "/run/gemmd/GPU-1234.sock");
    unsetenv("GEMMD_SYSTEM");
    assert_ok(err, paths_state_dir(out, &err));
    assert_int_equal(strcmp(out, "/var/lib/gemmd") == 0, geteuid() == 0);
}

static void test_user_mode(void **state)
{
    (void)state;
    setenv("XDG_RUNTIME_DIR", base, 1);
    setenv("XDG_STATE_HOME", "/s", 1);
    setenv("XDG_CACHE_HOME", "/c", 1);
    assert_ok(err, paths_runtime_dir(out, &err));
    assert_string_equal(out, in_base("/gemmd"));
    assert_ok(err, paths_socket("cpu", out, &err));
    assert_string_equal(out, in_base("/gemmd/cpu.sock"));
    assert_ok(err, paths_state_dir(out, &err));
    assert_string_equal(out, "/s/gemmd");
    assert_ok(err, paths_cache_dir(out, &err));
    assert_string_equal(out, "/c/gemmd");
}

static void test_defaults_of_home(void **state)
{
    (void)state;
    setenv("HOME", "/home/x", 1);
    setenv("XDG_STATE_HOME", "relative", 1); /* does not count */
    setenv("XDG_CACHE_HOME", "", 1);
    assert_ok(err, paths_state_dir(out, &err));
    assert_string_equal(out, "/home/x/.local/state/gemmd");
    assert_ok(err, paths_cache_dir(out, &err));
    assert_string_equal(out, "/home/x/.cache/gemmd");
    unsetenv("HOME");
    assert_ok(err, paths_cache_dir(out, &err)); /* HOME is that of the user database */
    assert_int_equal(out[0], '/');
}

static void test_named_cache_dir(void **state)
{
    (void)state;
    setenv("XDG_CACHE_HOME", "/c", 1);
    setenv("GEMMD_CACHE_DIR", "/own", 1);
    for (int i = 0; i < 2; i++) {
        setenv("GEMMD_SYSTEM", i ? "1" : "0", 1);
        assert_ok(err, paths_cache_dir(out, &err));
        assert_string_equal(out, "/own");
    }
    setenv("GEMMD_CACHE_DIR", "own", 1);
    assert_int_equal(paths_cache_dir(out, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "GEMMD_CACHE_DIR=own is no absolute path"));
}

static void test_socket(void **state)
{
    (void)state;
    char longer[200];
    memset(longer, 'x', sizeof(longer));
    longer[0] = '/';
    longer[SOCKET_PATH_MAX] = 0;
    setenv("GEMMD_SOCKET", longer, 1);
    assert_ok(err, paths_socket("cpu", out, &err)); /* 107 bytes: the maximum */
    assert_string_equal(out, longer);
    longer[SOCKET_PATH_MAX] = 'x';
    longer[SOCKET_PATH_MAX + 1] = 0;
    setenv("GEMMD_SOCKET", longer, 1);
    assert_error(err, ERROR_INVALID, "108 bytes long, the kernel takes at most 107",
                 paths_socket("cpu", out, &err));
    assert_error(err, ERROR_INVALID, "108 bytes", paths_check_socket(longer, &err));
    assert_error(err, ERROR_INVALID, "empty", paths_check_socket("", &err));
    setenv("GEMMD_SOCKET", "", 1); /* like an unset variable */
    assert_error(err, ERROR_INVALID, "names no socket", paths_socket("../cpu", out, &err));
    assert_error(err, ERROR_INVALID, "names no socket", paths_socket("", out, &err));
    longer[SOCKET_PATH_MAX] = 0;
    assert_error(err, ERROR_INVALID, "at most 107", paths_socket(longer + 1, out, &err));
}

static void test_too_long(void **state)
{
    (void)state;
    static char longer[2 * PATHS_MAX];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[0] = '/';
    setenv("XDG_STATE_HOME", longer, 1);
    assert_error(err, ERROR_INVALID, "longer than 1023 bytes", paths_state_dir(out, &err));
    assert_error(err, ERROR_INVALID, "longer than 1023 bytes", paths_make_dir(longer, 0700, &err));
}

/* ---- directories ----------------------------------------------------------------------------- */

static unsigned mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return (unsigned)st.st_mode & 07777;
}

static void test_make_dir(void **state)
{
    (void)state;
    umask(022);
    assert_ok(err, paths_make_dir(in_base("/a/b/c"), 0700, &err));
    assert_int_equal(mode_of(in_base("/a/b/c")), 0700);
    assert_ok(err, paths_make_dir(in_base("/a/b/c"), 0700, &err)); /* again */
    assert_ok(err, paths_make_dir(in_base("/a/b/d//"), 0750, &err));
    assert_int_equal(mode_of(in_base("/a/b/d")), 0750);
    assert_error(err, ERROR_INVALID, "not an absolute path", paths_make_dir("a/b", 0700, &err));
    assert_error(err, ERROR_INVALID, "not an absolute path", paths_make_dir("", 0700, &err));
}

static void test_dirs_refused(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_base("/open"), 0700), 0);
    assert_int_equal(chmod(in_base("/open"), 0770), 0);
    assert_error(err, ERROR_DENIED, "chmod go-w", paths_make_dir(in_base("/open"), 0700, &err));
    assert_int_equal(chmod(in_base("/open"), 0702), 0);
    assert_error(err, ERROR_DENIED, "mode 0702", paths_make_dir(in_base("/open/"), 0700, &err));
    /* /tmp has this mode, which must stay: no chmod is advised */
    assert_int_equal(chmod(in_base("/open"), 01777), 0);
    assert_error(err, ERROR_DENIED, "(mode 1777); use a directory of your own",
                 paths_make_dir(in_base("/open"), 0700, &err));
    int fd = open(in_base("/file"), O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_error(err, ERROR_DENIED, "is not a directory",
                 paths_make_dir(in_base("/file"), 0700, &err));
    assert_error(err, ERROR_IO, "cannot create the directory",
                 paths_make_dir(in_base("/file/below"), 0700, &err));
}

/* Asserts that the cache directory is accepted (part: NULL), or refused with the text `part`, in a
 * process of this user with GEMMD_SYSTEM=`mode`: "1" for the system's gemmd, "0" for a user's. */
static void expect_cache_dir(const char *mode, uid_t user, const char *part)
{
    pid_t child = fork();
    if (child == 0) {
        if (user != geteuid() && (setresgid(user, user, user) || setresuid(user, user, user))) {
            _exit(100);
        }
        err = ERROR_NULL;
        setenv("GEMMD_SYSTEM", mode, 1);
        int r = paths_check_cache_dir(in_base("/cache"), &err);
        bool well = part ? r == ERROR_DENIED && strstr(err.text, part) : r == 0;
        _exit(well ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) {
        fail_msg("mode %s, user %u, %s: status %d", mode, (unsigned)user, part ? part : "fine",
                 status);
    }
}

static void test_cache_dirs_refused(void **state)
{
    (void)state;
    uid_t us = geteuid(), other = 54321;
    expect_cache_dir("0", us, NULL); /* missing */
    expect_cache_dir("1", us, NULL);
    assert_int_equal(mkdir(in_base("/cache"), 0755), 0);
    expect_cache_dir("0", us, NULL);
    expect_cache_dir("1", us, NULL);
    assert_int_equal(chmod(in_base("/cache"), 0775), 0);
    expect_cache_dir("0", us, "chmod go-w");
    expect_cache_dir("1", us, "chmod go-w");
    if (us != 0) {
        return; /* only root can act as another user */
    }
    assert_int_equal(chmod(base, 0755), 0);
    expect_cache_dir("0", other, "use a directory of your own");
    expect_cache_dir("1", other, "use a directory of your own");
    assert_int_equal(chmod(in_base("/cache"), 0755), 0);
    expect_cache_dir("0", other, NULL); /* others may read a directory of root */
    assert_int_equal(chown(in_base("/cache"), 12345, 12345), 0);
    expect_cache_dir("0", other, "belongs to user 12345, not to us (54321)");
    expect_cache_dir("0", 0, "belongs to user 12345, not to us (0)");
    expect_cache_dir("1", other,
                     "belongs to user 12345"); /* that user could replace the cached kernels */
    expect_cache_dir("1", 0, "belongs to user 12345");
    assert_int_equal(chmod(in_base("/cache"), 0757), 0);
    expect_cache_dir("1", 0, "belongs to user 12345");
}

static void test_links(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_base("/real"), 0700), 0);
    assert_int_equal(symlink("real", in_base("/link")), 0);
    assert_int_equal(symlink("nowhere", in_base("/dangling")), 0);
    /* a link that this user made to a moved directory is accepted */
    assert_ok(err, paths_make_dir(in_base("/link"), 0700, &err));
    assert_int_equal(chmod(in_base("/real"), 0777), 0);
    assert_error(err, ERROR_DENIED, "written to by others",
                 paths_make_dir(in_base("/link"), 0700, &err));
    assert_error(err, ERROR_IO, "dangling", paths_make_dir(in_base("/dangling"), 0700, &err));
    if (geteuid() != 0) {
        return;
    }
    assert_int_equal(chmod(in_base("/real"), 0700), 0);
    assert_int_equal(lchown(in_base("/link"), 54321, 54321), 0);
    assert_error(err, ERROR_DENIED, "symbolic link of user 54321",
                 paths_make_dir(in_base("/link/"), 0700, &err));
}

/* ---- /tmp/gemmd-$UID ------------------------------------------------------------------------- */

enum { NOBODY = 54321 }; /* a user that no machine has: we may use its name in /tmp */

/* Calls paths_runtime_dir as user NOBODY. Returns its code, or -100 when the path or error
 * message lacks `part`. */
static int runtime_dir_as_nobody(const char *part)
{
    pid_t child = fork();
    if (child == 0) {
        unsetenv("XDG_RUNTIME_DIR");
        if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)) {
            _exit(100);
        }
        err = ERROR_NULL;
        int r = paths_runtime_dir(out, &err);
        _exit(strstr(r == 0 ? out : err.text, part) ? -r : 100);
    }
    int status = 0;
    assert_true(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return -WEXITSTATUS(status);
}

static void test_tmp_dir(void **state)
{
    (void)state;
    static const char dir[] = "/tmp/gemmd-54321";
    if (geteuid() != 0) {
        skip(); /* only root can act as another user */
    }
    assert_true(rmdir(dir) == 0 || unlink(dir) == 0 || access(dir, F_OK) != 0);
    assert_int_equal(runtime_dir_as_nobody(dir), 0); /* the directory does not exist yet */
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(runtime_dir_as_nobody("belongs to user 0"), ERROR_DENIED);
    assert_int_equal(chown(dir, NOBODY, NOBODY), 0);
    assert_int_equal(runtime_dir_as_nobody(dir), 0);
    assert_int_equal(chmod(dir, 0720), 0);
    assert_int_equal(runtime_dir_as_nobody("chmod go-w"), ERROR_DENIED);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(symlink(base, dir), 0);
    assert_int_equal(lchown(dir, NOBODY, NOBODY), 0);
    assert_int_equal(runtime_dir_as_nobody("not a directory"), ERROR_DENIED); /* not even our own */
    assert_int_equal(unlink(dir), 0);
}

static void test_runtime_dir_missing(void **state)
{
    (void)state;
    char expected[64];
    snprintf(expected, sizeof(expected), "/tmp/gemmd-%u", (unsigned)geteuid());
    setenv("XDG_RUNTIME_DIR", in_base("/nowhere"), 1);
    if (access(expected, F_OK) == 0) {
        skip(); /* in use: no verdict */
    }
    assert_ok(err, paths_runtime_dir(out, &err));
    assert_string_equal(out, expected);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_system_mode),     TEST(test_user_mode),    TEST(test_defaults_of_home),
        TEST(test_named_cache_dir), TEST(test_socket),       TEST(test_too_long),
        TEST(test_make_dir),        TEST(test_dirs_refused), TEST(test_cache_dirs_refused),
        TEST(test_links),           TEST(test_tmp_dir),      TEST(test_runtime_dir_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
