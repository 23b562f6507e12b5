/* SPDX-License-Identifier: Apache-2.0 */
/* What a client does with daemons that are absent, silent, slow, broken, restarted or newer. */
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
#include "tests/unit/client/fake.h"

enum { SLACK_MS = 300 }; /* of a deadline, on a loaded machine */

static struct gemmd_options options_for(const struct fake *f, int deadline_ms)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    o.socket = f->path;
    o.deadline_ms = deadline_ms;
    return o;
}

static struct gemmd *connect_to(const struct fake *f, int deadline_ms)
{
    struct gemmd_options o = options_for(f, deadline_ms);
    struct gemmd_error e;
    struct gemmd *g = NULL;
    if (gemmd_connect(&g, &o, &e)) {
        fail_msg("%s", e.text);
    }
    return g;
}

static int call(struct gemmd *g, const char *method, int deadline_ms, struct gemmd_error *e)
{
    char *json = NULL;
    int r = gemmd_call(g, method, NULL, deadline_ms, &json, NULL, NULL, e);
    gemmd_free(json);
    return r;
}

static int setup(void **state)
{
    struct fake *f = calloc(1, sizeof(*f));
    fake_path(f->path);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fake *f = *state;
    fake_path_remove(f->path);
    free(f);
    return 0;
}

static void answer_seven(struct fake *f, int fd, const struct rpc_message *m)
{
    (void)f;
    fake_result_int(fd, m->id, "seven", 7);
}

static void say_nothing(struct fake *f, int fd, const struct rpc_message *m)
{
    (void)f;
    (void)fd;
    (void)m;
}

/* ---- reaching one --------------------------------------------------------------------------- */

static void test_nobody_listens(void **state)
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
    o.device = "cpu"; /* nobody there: both places are named */
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

/* Other daemons beside the test's own: sockets of a device each. */
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
    fclose(fopen(stale, "w")); /* a daemon that is gone */
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
    assert_int_equal(call(g, "status", 0, &e), 0); /* it looks again */
    fake_start(&other);
    assert_int_equal(call(g, "status", 0, &e), 0); /* and stays with it */
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

/* A listener that accepts nobody: its queue fills, and connects fail with EAGAIN. */
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

/* ---- slow ones ------------------------------------------------------------------------------ */

static void trickle(struct fake *f, int fd, const struct rpc_message *m)
{
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, m->id);
    wire_put_map(&b, 1);
    wire_put_kv_str(&b, "text", "one byte after the other, for longer than anyone waits");
    for (size_t i = 0; i < b.len && !atomic_load(&f->stopping); i++) {
        fake_send_bytes(fd, b.data + i, 1);
        fake_sleep_ms(15);
    }
    wire_buf_deinit(&b);
}

static void test_trickle_keeps_the_deadline(void **state)
{
    struct fake *f = *state;
    f->handler = trickle;
    fake_start(f);
    struct gemmd *g = connect_to(f, 0);
    struct gemmd_error e;
    double began = fake_ms();
    assert_int_equal(call(g, "status", 120, &e), GEMMD_DEADLINE);
    double took = fake_ms() - began;
    assert_true(took >= 119 && took < 120 + SLACK_MS);
    assert_non_null(strstr(e.text, "status"));
    assert_non_null(strstr(e.text, "120 ms"));
    gemmd_close(g);
    fake_stop(f);
}

static void late_then_prompt(struct fake *f, int fd, const struct rpc_message *m)
{
    if (atomic_load(&f->requests) == 1) {
        fake_sleep_ms(50); /* below what counts as hanging */
        fake_result_int(fd, m->id, "answer", 1);
    } else {
        fake_result_int(fd, m->id, "answer", 2);
    }
}

static void test_late_answer_is_dropped(void **state)
{
    struct fake *f = *state;
    f->handler = late_then_prompt;
    fake_start(f);
    struct gemmd *g = connect_to(f, 0);
    struct gemmd_error e;
    assert_int_equal(call(g, "status", 20, &e), GEMMD_DEADLINE);
    char *json = NULL;
    assert_int_equal(gemmd_call(g, "status", NULL, 2000, &json, NULL, NULL, &e), 0);
    assert_string_equal(json, "{\"answer\":2}");
    assert_int_equal(f->connections, 1);
    gemmd_free(json);
    gemmd_close(g);
    fake_stop(f);
}

/* A tuning has no deadline of its own, but silence is probed. */
static void test_hanging_daemon_is_noticed(void **state)
{
    struct fake *f = *state;
    f->handler = say_nothing;
    fake_start(f);
    struct gemmd *g = connect_to(f, 100);
    f->mute = true; /* from now on not even `hello` */
    struct gemmd_error e;
    double began = fake_ms();
    assert_int_equal(call(g, "tune", 0, &e), GEMMD_DEADLINE);
    double took = fake_ms() - began;
    assert_true(took >= 199 && took < 200 + 2 * SLACK_MS);
    assert_non_null(strstr(e.text, "hangs"));
    gemmd_close(g);
    fake_stop(f);
}

static void tune_for_400_ms(struct fake *f, int fd, const struct rpc_message *m)
{
    static uint32_t tuning;
    static double began;
    if (strcmp(m->method, "tune") == 0) {
        tuning = m->id;
        began = fake_ms();
        return;
    }
    atomic_fetch_add(&f->hellos, 1);
    fake_welcome(fd, m->id, PROTOCOL_VERSION);
    if (fake_ms() - began > 300) {
        fake_result_int(fd, tuning, "tuned", 1);
    }
}

static void test_living_daemon_is_waited_for(void **state)
{
    struct fake *f = *state;
    f->handler = tune_for_400_ms;
    f->mute = true;
    fake_start(f);
    struct gemmd *g = connect_to(f, 100);
    struct gemmd_error e;
    assert_int_equal(call(g, "tune", 0, &e), 0);
    assert_true(f->hellos >= 4); /* the greeting, and a probe for every 100 ms of silence */
    gemmd_close(g);
    fake_stop(f);
}

/* ---- broken ones ---------------------------------------------------------------------------- */

struct bytes {
    const char *data;
    size_t n;
    int code; /* what it must lead to */
    bool ends;
};

static void send_bytes(struct fake *f, int fd, const struct rpc_message *m)
{
    const struct bytes *b = f->ctx;
    (void)m;
    if (atomic_load(&f->requests) == 1) {
        fake_send_bytes(fd, b->data, b->n);
        if (b->ends) {
            shutdown(fd, SHUT_RDWR);
        }
    } else {
        fake_result_int(fd, m->id, "seven", 7);
    }
}

static void test_broken_answers(void **state)
{
    static const struct bytes cases[] = {
        {"\xc1", 1, GEMMD_MALFORMED, false},                 /* the reserved byte */
        {"\xdd\x20\x00\x00\x00", 5, GEMMD_TOO_LARGE, false}, /* array of 2^29 */
        {"\xdb\x7f\xff\xff\xff", 5, GEMMD_TOO_LARGE, false}, /* a text of 2 GiB */
        {"\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91", 10, GEMMD_MALFORMED, false}, /* too deep */
        {"\xc7\x01\x05z", 4, GEMMD_MALFORMED, false}, /* an extension type */
        {"HTTP/1.1 400 Bad Request\r\n", 26, GEMMD_MALFORMED, false},
        {"\x94\x01", 2, GEMMD_DISCONNECTED, true}, /* cut short */
        {"", 0, GEMMD_DISCONNECTED, true},
    };
    struct fake *f = *state;
    f->handler = send_bytes;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        f->ctx = (void *)(uintptr_t)&cases[i];
        fake_start(f);
        struct gemmd *g = connect_to(f, 2000);
        struct gemmd_error e;
        int r = call(g, "evict", 0, &e);
        if (r != cases[i].code) {
            fail_msg("case %zu: %d (%s), not %d", i, r, e.text, cases[i].code);
        }
        assert_int_equal(call(g, "evict", 0, &e), 0); /* on a new connection */
        assert_int_equal(f->connections, 2);
        gemmd_close(g);
        fake_stop(f);
    }
}

static void fail_by_code(struct fake *f, int fd, const struct rpc_message *m)
{
    fake_error(fd, m->id, *(int *)f->ctx, "the reason");
}

static void test_errors_come_through(void **state)
{
    struct fake *f = *state;
    int code = 0;
    f->ctx = &code;
    f->handler = fail_by_code;
    fake_start(f);
    struct gemmd *g = connect_to(f, 0);
    for (code = GEMMD_INTERNAL; code >= GEMMD_QUARANTINED; code--) {
        struct gemmd_error e;
        int before = f->connections;
        if (code == GEMMD_UNREACHABLE || code == GEMMD_DISCONNECTED) {
            continue; /* the client's own */
        }
        assert_int_equal(call(g, "status", 0, &e), code);
        assert_int_equal(e.code, code);
        assert_string_equal(e.text, "the reason");
        int again = code; /* whether it reconnected shows in the call after it */
        code = GEMMD_NOT_FOUND;
        assert_int_equal(call(g, "status", 0, &e), GEMMD_NOT_FOUND);
        code = again;
        assert_int_equal(f->connections - before, gemmd_error_survives(code) ? 0 : 1);
    }
    gemmd_close(g);
    fake_stop(f);
}

static void test_error_names(void **state)
{
    (void)state;
    assert_string_equal(gemmd_error_name(0), "ok");
    assert_string_equal(gemmd_error_name(GEMMD_UNREACHABLE), "unreachable");
    assert_string_equal(gemmd_error_name(GEMMD_VERSION_MISMATCH), "version");
    assert_string_equal(gemmd_error_name(-1000), "internal");
}

/* ---- restarted ones ------------------------------------------------------------------------- */

static void test_restart_goes_unnoticed(void **state)
{
    struct fake *f = *state;
    f->handler = answer_seven;
    fake_start(f);
    struct gemmd *g = connect_to(f, 0);
    struct gemmd_error e;
    assert_int_equal(call(g, "evict", 0, &e), 0);
    fake_stop(f);
    assert_int_equal(call(g, "evict", 0, &e), GEMMD_UNREACHABLE);
    fake_start(f);
    assert_int_equal(call(g, "evict", 0, &e), 0);
    fake_stop(f);
    fake_start(f); /* between two calls: the request was not sent, so it can be sent anew */
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
    struct gemmd *g = connect_to(f, 0);
    struct gemmd_error e;
    assert_int_equal(call(g, "status", 0, &e), 0);
    assert_int_equal(call(g, "status", 0, &e), 0); /* lost, and asked again */
    assert_int_equal(f->requests, 3);
    gemmd_close(g);
    fake_stop(f);

    fake_start(f);
    g = connect_to(f, 0);
    assert_int_equal(call(g, "evict", 0, &e), 0);
    assert_int_equal(call(g, "evict", 0, &e), GEMMD_DISCONNECTED); /* may have been done */
    assert_int_equal(f->requests, 2);
    gemmd_close(g);
    fake_stop(f);
}

/* ---- requests ------------------------------------------------------------------------------- */

static void test_too_large_request_is_not_sent(void **state)
{
    struct fake *f = *state;
    f->handler = answer_seven;
    fake_start(f);
    struct gemmd *g = connect_to(f, 0);
    struct gemmd_error e;
    char *json, *params = malloc(80 * 1024);
    memset(params, 'x', 80 * 1024 - 1);
    memcpy(params, "{\"a\":\"", 6);
    strcpy(params + 79 * 1024, "\"}");
    assert_int_equal(gemmd_call(g, "put", params, 0, &json, NULL, NULL, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "65536"));
    assert_int_equal(f->requests, 0);
    assert_int_equal(call(g, "put", 0, &e), 0);
    assert_int_equal(f->connections, 1);
    free(params);
    gemmd_close(g);
    fake_stop(f);
}

static void test_bad_calls(void **state)
{
    struct fake *f = *state;
    f->handler = answer_seven;
    fake_start(f);
    struct gemmd *g = connect_to(f, 0);
    struct gemmd_error e;
    char *json;
    assert_int_equal(gemmd_call(g, "put", "{\"a\":", 0, &json, NULL, NULL, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_call(g, NULL, NULL, 0, &json, NULL, NULL, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_call(NULL, "put", NULL, 0, &json, NULL, NULL, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_call(g, "put", NULL, 0, NULL, NULL, NULL, &e), GEMMD_INVALID);
    assert_null(gemmd_close(NULL));
    gemmd_close(g);
    struct gemmd_options o = options_for(f, -1);
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_INVALID);
    o.deadline_ms = 0;
    o.size = 3;
    assert_int_equal(gemmd_connect(&g, &o, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "GEMMD_OPTIONS_INIT"));
    fake_stop(f);
}

/* ---- progress ------------------------------------------------------------------------------- */

static void send_progress(int fd, uint32_t id, int64_t done)
{
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_notify(&b, "progress");
    wire_put_map(&b, 7);
    wire_put_kv_int(&b, "request", id);
    wire_put_kv_str(&b, "phase", "measure");
    wire_put_kv_int(&b, "done", done);
    wire_put_kv_int(&b, "total", 10);
    wire_put_kv_real(&b, "best_us", 12.5);
    wire_put_kv_str(&b, "eta_ms", NULL);
    wire_put_kv_str(&b, "config", "BLOCK_SIZE_M=64");
    fake_send(fd, &b);
}

static void progress_then_answer(struct fake *f, int fd, const struct rpc_message *m)
{
    (void)f;
    send_progress(fd, m->id, 1);
    send_progress(fd, m->id + 1, 99); /* another request's */
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_notify(&b, "news_of_a_newer_gemmd");
    wire_put_map(&b, 0);
    fake_send(fd, &b);
    send_progress(fd, m->id, 2);
    fake_result_int(fd, m->id, "tuned", 1);
}

struct seen {
    struct gemmd *g;
    int calls, last, inner;
};

static void see(void *ctx, const struct gemmd_progress *p)
{
    struct seen *s = ctx;
    struct gemmd_error e;
    s->calls++;
    s->last = (int)p->done;
    assert_string_equal(p->phase, "measure");
    assert_int_equal(p->total, 10);
    assert_true(p->best_us == 12.5);
    assert_true(p->eta_ms != p->eta_ms);
    assert_string_equal(p->config, "BLOCK_SIZE_M=64");
    s->inner = call(s->g, "status", 0, &e);
}

static void test_progress(void **state)
{
    struct fake *f = *state;
    f->handler = progress_then_answer;
    fake_start(f);
    struct seen s = {.g = connect_to(f, 0)};
    struct gemmd_error e;
    char *json = NULL;
    assert_int_equal(gemmd_call(s.g, "tune", "{\"progress\":true}", 0, &json, see, &s, &e), 0);
    assert_int_equal(s.calls, 2);
    assert_int_equal(s.last, 2);
    assert_int_equal(s.inner, GEMMD_BUSY); /* and not a deadlock */
    gemmd_free(json);
    gemmd_close(s.g);
    fake_stop(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nobody_listens),
        TEST(test_path_too_long),
        TEST(test_found_by_device),
        TEST(test_any_daemon),
        TEST(test_silent_hello),
        TEST(test_other_version),
        TEST(test_full_queue),
        TEST(test_trickle_keeps_the_deadline),
        TEST(test_late_answer_is_dropped),
        TEST(test_hanging_daemon_is_noticed),
        TEST(test_living_daemon_is_waited_for),
        TEST(test_broken_answers),
        TEST(test_errors_come_through),
        TEST(test_error_names),
        TEST(test_restart_goes_unnoticed),
        TEST(test_only_readers_are_repeated),
        TEST(test_too_large_request_is_not_sent),
        TEST(test_bad_calls),
        TEST(test_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
