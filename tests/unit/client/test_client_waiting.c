/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on daemons that are slow, silent or broken; errors and progress. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/gemmd.h"
#include "tests/unit/client/fixture.h"

/* ---- slow daemons --------------------------------------------------------------------------- */

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
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_error e;
    double began = fake_ms();
    assert_int_equal(call(g, "status", 120, &e), GEMMD_DEADLINE);
    double took = fake_ms() - began;
    assert_true(took >= 119 && took < 120 + SLACK_MS);
    assert_late(&e, "status", 120);
}

static void late_then_prompt(struct fake *f, int fd, const struct rpc_message *m)
{
    if (atomic_load(&f->requests) == 1) {
        fake_sleep_ms(50); /* shorter than the silence after which a daemon counts as hanging */
        fake_result_int(fd, m->id, "answer", 1);
    } else {
        fake_result_int(fd, m->id, "answer", 2);
    }
}

static void test_late_answer_is_dropped(void **state)
{
    struct fake *f = *state;
    f->handler = late_then_prompt;
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_error e;
    assert_int_equal(call(g, "status", 20, &e), GEMMD_DEADLINE);
    char *json = NULL;
    assert_int_equal(gemmd_call(g, "status", NULL, 2000, &json, NULL, NULL, &e), 0);
    assert_string_equal(json, "{\"answer\":2}");
    assert_int_equal(f->connections, 1);
    gemmd_free(json);
}

/* A silence beyond the limit ends the connection and its leases, as gemmd.h says. */
static void test_silence_ends_the_connection(void **state)
{
    struct fake *f = *state;
    f->handler = say_nothing;
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_error e;
    assert_int_equal(call(g, "status", 120, &e), GEMMD_DEADLINE);
    f->handler = answer_seven;
    assert_int_equal(call(g, "status", 2000, &e), 0);
    assert_int_equal(f->connections, 2);
}

/* A `tune` call has no deadline, but libgemmd probes a silent daemon. */
static void test_hanging_daemon_is_noticed(void **state)
{
    struct fake *f = *state;
    f->handler = say_nothing;
    struct gemmd *g = fixture_open(f, 100);
    f->mute = true; /* from now on the fake leaves even `hello` unanswered */
    struct gemmd_error e;
    double began = fake_ms();
    assert_int_equal(call(g, "tune", 0, &e), GEMMD_DEADLINE);
    double took = fake_ms() - began;
    assert_true(took >= 199 && took < 200 + 2 * SLACK_MS);
    assert_non_null(strstr(e.text, "hangs"));
}

static void get_default(struct gemmd *g)
{
    struct gemmd_problem p = small_problem();
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    assert_int_equal(gemmd_get(g, &p, &q, &a, NULL), 0);
    check_default(&a);
}

/* After a missed deadline libgemmd returns defaults for six deadlines if that exceeds a second. */
static void test_hanging_daemon_is_left_alone_for_longer(void **state)
{
    struct fake *f = *state;
    f->handler = say_nothing;
    f->mute = true;
    fake_start(f);
    struct gemmd_options o = options_for(f, 300);
    struct gemmd *g = NULL;
    assert_int_equal(gemmd_open_lazy(&g, &o, NULL), 0);
    get_default(g);
    double late = fake_ms();
    fake_sleep_ms(1100);
    get_default(g);
    if (fake_ms() - late < 6 * 300) { /* else the machine was so busy that the pause may be over */
        assert_int_equal(f->connections, 1);
    }
    fake_sleep_ms(6 * 300 + 300);
    get_default(g);
    assert_int_equal(f->connections, 2);
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
    struct gemmd *g = fixture_open(f, 100);
    struct gemmd_error e;
    assert_int_equal(call(g, "tune", 0, &e), 0);
    assert_true(f->hellos >= 4); /* the greeting, and a probe for every 100 ms of silence */
}

/* ---- broken daemons ------------------------------------------------------------------------- */

struct bytes {
    const char *data;
    size_t n;
    int code; /* expected code */
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
        {"\xdb\x7f\xff\xff\xff", 5, GEMMD_TOO_LARGE, false}, /* announces a text of 2 GiB */
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
        struct gemmd *g = fixture_connect(f, 2000);
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
    struct gemmd *g = fixture_open(f, 0);
    for (code = GEMMD_INTERNAL; code >= GEMMD_QUARANTINED; code--) {
        struct gemmd_error e;
        int before = f->connections;
        if (code == GEMMD_UNREACHABLE || code == GEMMD_DISCONNECTED) {
            continue; /* only the client makes these errors */
        }
        assert_int_equal(call(g, "status", 0, &e), code);
        assert_int_equal(e.code, code);
        assert_string_equal(e.text, "the reason");
        int again = code; /* the next call reconnects if the error ended the connection */
        code = GEMMD_NOT_FOUND;
        assert_int_equal(call(g, "status", 0, &e), GEMMD_NOT_FOUND);
        code = again;
        assert_int_equal(f->connections - before, gemmd_error_survives(code) ? 0 : 1);
    }
}

static void test_error_names(void **state)
{
    (void)state;
    assert_string_equal(gemmd_error_name(0), "ok");
    assert_string_equal(gemmd_error_name(GEMMD_UNREACHABLE), "unreachable");
    assert_string_equal(gemmd_error_name(GEMMD_VERSION_MISMATCH), "version");
    assert_string_equal(gemmd_error_name(-1000), "internal");
}

/* ---- requests ------------------------------------------------------------------------------- */

static void test_too_large_request_is_not_sent(void **state)
{
    struct fake *f = *state;
    f->handler = answer_seven;
    struct gemmd *g = fixture_open(f, 0);
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
}

static void test_bad_calls(void **state)
{
    struct fake *f = *state;
    f->handler = answer_seven;
    fake_start(f);
    struct gemmd *g = fixture_connect(f, 0);
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
    struct seen s = {.g = fixture_connect(f, 0)};
    struct gemmd_error e;
    char *json = NULL;
    assert_int_equal(gemmd_call(s.g, "tune", "{\"progress\":true}", 0, &json, see, &s, &e), 0);
    assert_int_equal(s.calls, 2);
    assert_int_equal(s.last, 2);
    assert_int_equal(s.inner, GEMMD_BUSY); /* fails, and does not wait for ever */
    gemmd_free(json);
    gemmd_close(s.g);
    fake_stop(f);
}

/* ---- improvements ---------------------------------------------------------------------------- */

enum { FLOOD_MS = 2000, FLOOD_AT_ONCE = 256 };

static void flood(struct fake *f, int fd, const struct rpc_message *m)
{
    const struct fake_answer a = {.tier = "exact", .source = "tuned"};
    struct wire_buf b = WIRE_BUF_NULL;
    for (int i = 0; i < FLOOD_AT_ONCE; i++) {
        rpc_put_notify(&b, "improved");
        wire_put_map(&b, 2);
        wire_put_str(&b, "problem");
        wire_put_map(&b, 0);
        wire_put_str(&b, "answer");
        fake_put_answer(&b, &a);
    }
    fake_result_int(fd, m->id, "subscribed", 1);
    double began = fake_ms();
    while (!atomic_load(&f->stopping) && !atomic_load((atomic_bool *)f->ctx) &&
           fake_ms() - began < FLOOD_MS) {
        fake_send_bytes(fd, b.data, b.len);
    }
    wire_buf_deinit(&b);
}

static void count_improved(void *ctx, const char *problem_json, const struct gemmd_answer *answer)
{
    (void)problem_json;
    (void)answer;
    usleep(200); /* slower than the fake sends: there is always a next message */
    ++*(int *)ctx;
}

/* However fast messages arrive, the call returns in time. */
static void test_improvements_end_in_time(void **state)
{
    struct fake *f = *state;
    static atomic_bool enough; /* true: the fake's handler ends */
    int heard = 0, n = 0;
    struct gemmd_error e;
    f->handler = flood;
    f->ctx = &enough;
    struct gemmd *g = fixture_open(f, 0);
    double began = fake_ms();
    assert_int_equal(gemmd_improvements(g, 100, count_improved, &heard, &n, &e), 0);
    double took = fake_ms() - began;
    atomic_store(&enough, true);
    assert_true(took < 100 + SLACK_MS);
    assert_true(n > 0 && heard == n);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* A job may close a standard stream and still write to its number. */
static void test_no_socket_is_a_standard_stream(void **state)
{
    struct fake *f = *state;
    f->handler = answer_seven;
    fixture_open(f, 0);
    pid_t child = fork(); /* the fake in this process takes descriptors, too */
    if (child == 0) {
        close(STDIN_FILENO);
        struct gemmd *g = fixture_connect(f, 0);
        struct gemmd_error e;
        bool well = call(g, "status", 0, &e) == 0 && fcntl(STDIN_FILENO, F_GETFD) < 0;
        _exit(well ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_trickle_keeps_the_deadline),
        FIXTURE_TEST(test_late_answer_is_dropped),
        FIXTURE_TEST(test_silence_ends_the_connection),
        FIXTURE_TEST(test_hanging_daemon_is_noticed),
        FIXTURE_TEST(test_hanging_daemon_is_left_alone_for_longer),
        FIXTURE_TEST(test_living_daemon_is_waited_for),
        FIXTURE_TEST(test_broken_answers),
        FIXTURE_TEST(test_errors_come_through),
        FIXTURE_TEST(test_error_names),
        FIXTURE_TEST(test_too_large_request_is_not_sent),
        FIXTURE_TEST(test_bad_calls),
        FIXTURE_TEST(test_progress),
        FIXTURE_TEST(test_improvements_end_in_time),
        FIXTURE_TEST(test_no_socket_is_a_standard_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
