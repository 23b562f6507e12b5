/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a daemon; clients of absent, full, newer or restarted daemons. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/gemmd.h"
#include "tests/unit/client/fixture.h"

static void test_no_daemon_listens(void **state)
{
    struct fake *f = *state;
    struct gemmd_options o = options_for(f, 2000);
    struct gemmd_error e;
    struct gemmd *g = (struct gemmd *)f;
    double began = fake_ms();
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_UNREACHABLE);
    assert_true(fake_ms() - began < 500);
    assert_null(g);
    assert_int_equal(e.code, GEMMD_UNREACHABLE);
    assert_non_null(strstr(e.text, f->path));
    assert_false(gemmd_error_survives(e.code));
    assert_int_equal(gemmd_connect(&g, &o, NULL), GEMMD_UNREACHABLE);
}

static void test_path_too_long(void **state)
{
    (void)state;
    char path[200];
    memset(path, 'a', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd_error e;
    struct gemmd *g;
    o.socket = path;
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "107"));
}

static void test_found_by_device(void **state)
{
    struct fake *f = *state;
    char dir[108];
    snprintf(dir, sizeof(dir), "%s", f->path);
    *strrchr(dir, '/') = '\0';
    setenv("GEMMD_SYSTEM", "0", 1);
    setenv("XDG_RUNTIME_DIR", dir, 1);
    unsetenv("GEMMD_SOCKET");
    char sub[128];
    snprintf(sub, sizeof(sub), "%s/gemmd", dir);
    assert_int_equal(mkdir(sub, 0700), 0);
    char path[108];
    snprintf(path, sizeof(path), "%s", f->path);
    snprintf(f->path, sizeof(f->path), "%.80s/gemmd/GPU-1234.sock", dir);
    f->handler = answer_seven;
    fake_start(f);

    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd_error e;
    struct gemmd *g = NULL;
    o.device = "cuda:GPU-1234";
    assert_int_equal(gemmd_connect(&g, &o, &e), 0);
    gemmd_close(g);
    o.device = "cpu"; /* no daemon listens: the error names both paths */
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_UNREACHABLE);
    assert_non_null(strstr(e.text, "/gemmd/cpu.sock"));
    assert_non_null(strstr(e.text, "/run/gemmd/cpu.sock"));
    o.device = "tpu:0";
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_INVALID);
    o.device = NULL;
    setenv("GEMMD_SOCKET", f->path, 1);
    assert_int_equal(gemmd_connect(&g, &o, &e), 0);
    gemmd_close(g);
    unsetenv("GEMMD_SOCKET");
    fake_stop(f);
    rmdir(sub);
    snprintf(f->path, sizeof(f->path), "%s", path);
}

/* Another user makes this user's runtime directory in a shared XDG_RUNTIME_DIR, and listens. */
static void test_another_users_daemon(void **state)
{
    enum { OTHER = 54321 };
    struct fake *f = *state;
    if (geteuid() != 0) {
        skip(); /* only root can act as another user */
    }
    char dir[108], sub[128], path[108];
    snprintf(path, sizeof(path), "%s", f->path);
    snprintf(dir, sizeof(dir), "%s", f->path);
    *strrchr(dir, '/') = '\0';
    snprintf(sub, sizeof(sub), "%s/gemmd", dir);
    snprintf(f->path, sizeof(f->path), "%.80s/gemmd/cpu.sock", dir);
    setenv("GEMMD_SYSTEM", "0", 1);
    setenv("XDG_RUNTIME_DIR", dir, 1);
    unsetenv("GEMMD_SOCKET");
    f->handler = answer_seven;
    assert_int_equal(chmod(dir, 0711), 0);
    assert_int_equal(mkdir(sub, 0755), 0);
    assert_int_equal(chown(sub, OTHER, OTHER), 0);
    assert_int_equal(seteuid(OTHER), 0);
    fake_start(f);
    assert_int_equal(seteuid(0), 0);

    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd_error e;
    struct gemmd *g = NULL;
    o.device = "cpu";
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_DENIED);
    assert_non_null(strstr(e.text, "user 54321 listens on"));
    o.device = "any";
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_DENIED);
    o.socket = f->path; /* the job trusts the path that it names */
    assert_int_equal(gemmd_connect(&g, &o, &e), 0);
    gemmd_close(g);
    o.socket = NULL;
    setenv("GEMMD_SOCKET", f->path, 1);
    assert_int_equal(gemmd_connect(&g, &o, &e), 0);
    gemmd_close(g);
    unsetenv("GEMMD_SOCKET");
    fake_stop(f);
    rmdir(sub);
    snprintf(f->path, sizeof(f->path), "%s", path);
}

/* Other daemons, each for another device, listen beside the test's own daemon. */
static void test_any_daemon(void **state)
{
    struct fake *f = *state;
    struct fake other = {.handler = answer_seven};
    char dir[108];
    snprintf(dir, sizeof(dir), "%s", f->path);
    *strrchr(dir, '/') = '\0';
    setenv("GEMMD_SYSTEM", "0", 1);
    setenv("XDG_RUNTIME_DIR", dir, 1);
    unsetenv("GEMMD_SOCKET");
    char sub[128], stale[160], path[108];
    snprintf(sub, sizeof(sub), "%s/gemmd", dir);
    assert_int_equal(mkdir(sub, 0700), 0);
    snprintf(path, sizeof(path), "%s", f->path);
    snprintf(f->path, sizeof(f->path), "%.80s/gemmd/GPU-1.sock", dir);
    snprintf(other.path, sizeof(other.path), "%.80s/gemmd/GPU-2.sock", dir);
    snprintf(stale, sizeof(stale), "%s/GPU-3.sock", sub);
    fclose(fopen(stale, "w")); /* the file of a daemon that no longer runs */
    f->handler = answer_seven;

    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd_error e;
    struct gemmd *g = NULL;
    o.device = "any";
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_UNREACHABLE);
    assert_non_null(strstr(e.text, "cpu.sock"));
    assert_int_equal(gemmd_open_lazy(&g, &o, &e), 0);
    assert_int_equal(call(g, "status", 0, &e), GEMMD_UNREACHABLE);
    fake_start(f);
    assert_int_equal(call(g, "status", 0, &e), 0); /* looks for sockets again */
    fake_start(&other);
    assert_int_equal(call(g, "status", 0, &e), 0); /* stays with the daemon that it found */
    gemmd_close(g);
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "GPU-1"));
    assert_non_null(strstr(e.text, "GPU-2"));
    assert_null(strstr(e.text, "GPU-3"));
    fake_stop(&other);
    fake_stop(f);
    unlink(stale);
    rmdir(sub);
    snprintf(f->path, sizeof(f->path), "%s", path);
}

static void test_silent_hello(void **state)
{
    struct fake *f = *state;
    f->handler = say_nothing;
    f->mute = true;
    fake_start(f);
    struct gemmd_options o = options_for(f, 150);
    struct gemmd_error e;
    struct gemmd *g;
    double began = fake_ms();
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_DEADLINE);
    double took = fake_ms() - began;
    assert_true(took >= 149 && took < 150 + SLACK_MS);
    assert_non_null(strstr(e.text, f->path)); /* the error names the socket, as no pid is known */
    assert_non_null(strstr(e.text, "ss -xlp"));
    fake_stop(f);
}

static void speak_version_9(struct fake *f, int fd, const struct rpc_message *m)
{
    (void)f;
    fake_welcome(fd, m->id, 9);
}

static void refuse_version(struct fake *f, int fd, const struct rpc_message *m)
{
    (void)f;
    fake_error(fd, m->id, ERROR_VERSION, "this gemmd speaks version 2 only");
}

static void test_other_version(void **state)
{
    struct fake *f = *state;
    f->mute = true;
    struct gemmd_options o = options_for(f, 1000);
    struct gemmd_error e;
    struct gemmd *g;
    f->handler = speak_version_9;
    fake_start(f);
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_VERSION_MISMATCH);
    assert_non_null(strstr(e.text, "9"));
    fake_stop(f);
    f->handler = refuse_version;
    fake_start(f);
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_VERSION_MISMATCH);
    assert_non_null(strstr(e.text, "version 2 only"));
    fake_stop(f);
}

/* A listener that never accepts: its queue fills, and connects fail with EAGAIN. */
static void test_full_queue(void **state)
{
    struct fake *f = *state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), fillers[8];
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(listener, 1), 0);
    for (int i = 0; i < 8; i++) {
        fillers[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(fillers[i], (struct sockaddr *)&a, sizeof(a));
    }
    struct gemmd_options o = options_for(f, 100);
    struct gemmd_error e;
    struct gemmd *g;
    double began = fake_ms();
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_DEADLINE);
    double took = fake_ms() - began;
    assert_true(took >= 99 && took < 100 + SLACK_MS);
    assert_non_null(strstr(e.text, "full"));
    for (int i = 0; i < 8; i++) {
        close(fillers[i]);
    }
    close(listener);
}

/* ---- restarted daemons ---------------------------------------------------------------------- */

static void test_restart_goes_unnoticed(void **state)
{
    struct fake *f = *state;
    f->handler = answer_seven;
    fake_start(f);
    struct gemmd *g = fixture_connect(f, 0);
    struct gemmd_error e;
    assert_int_equal(call(g, "evict", 0, &e), 0);
    fake_stop(f);
    assert_int_equal(call(g, "evict", 0, &e), GEMMD_UNREACHABLE);
    fake_start(f);
    assert_int_equal(call(g, "evict", 0, &e), 0);
    fake_stop(f);
    /* the daemon restarts between two calls: no request was lost, so libgemmd can send again */
    fake_start(f);
    assert_int_equal(call(g, "evict", 0, &e), 0);
    assert_int_equal(f->connections, 1);
    assert_int_equal(f->hellos, 1);
    gemmd_close(g);
    fake_stop(f);
}

static void die_on_second(struct fake *f, int fd, const struct rpc_message *m)
{
    if (atomic_load(&f->requests) == 2) {
        shutdown(fd, SHUT_RDWR);
    } else {
        fake_result_int(fd, m->id, "seven", 7);
    }
}

static void test_only_readers_are_repeated(void **state)
{
    struct fake *f = *state;
    f->handler = die_on_second;
    fake_start(f);
    struct gemmd *g = fixture_connect(f, 0);
    struct gemmd_error e;
    assert_int_equal(call(g, "status", 0, &e), 0);
    assert_int_equal(call(g, "status", 0, &e), 0); /* lost, and sent again */
    assert_int_equal(f->requests, 3);
    gemmd_close(g);
    fake_stop(f);

    fake_start(f);
    g = fixture_connect(f, 0);
    assert_int_equal(call(g, "evict", 0, &e), 0);
    assert_int_equal(call(g, "evict", 0, &e), GEMMD_DISCONNECTED); /* may have been done */
    assert_int_equal(f->requests, 2);
    gemmd_close(g);
    fake_stop(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_no_daemon_listens),
        FIXTURE_TEST(test_path_too_long),
        FIXTURE_TEST(test_found_by_device),
        FIXTURE_TEST(test_another_users_daemon),
        FIXTURE_TEST(test_any_daemon),
        FIXTURE_TEST(test_silent_hello),
        FIXTURE_TEST(test_other_version),
        FIXTURE_TEST(test_full_queue),
        FIXTURE_TEST(test_restart_goes_unnoticed),
        FIXTURE_TEST(test_only_readers_are_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
