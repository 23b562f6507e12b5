/* SPDX-License-Identifier: Apache-2.0 */
/* A runner's silence, and gemmd's own pauses. The test sets the loop's time: a turn takes a
 * millisecond, a sleep its own length, whatever else runs on this machine. */
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "daemon/tuning/runner_link.h"

enum { LIMIT_MS = 400, SHORT_MS = 100, AWAY_FOR_MS = 900, PATIENCE_MS = 20 * 1000 };

static struct {
    uv_loop_t loop;
    struct turns turns;
    struct runner_link link;
    uint64_t watch_again_ms; /* each message of the runner sets its limit of silence to this */
    int messages, silences;
    bool ended, closed;
} x;

static uint64_t test_ns = UINT64_C(1000000000);

/* Replaces the C library's clock_gettime, which libuv calls. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    t->tv_sec = (time_t)(test_ns / 1000000000);
    t->tv_nsec = (long)(test_ns % 1000000000);
    return 0;
}

static void on_message(struct runner_link *l, const struct rpc_message *m)
{
    (void)m;
    x.messages++;
    runner_link_watch(l, x.watch_again_ms);
}

static void on_fault(struct runner_link *l, int code, const char *text)
{
    (void)l;
    (void)code;
    fail_msg("%s", text);
}

static void on_silent(struct runner_link *l)
{
    x.silences++;
    runner_link_kill(l, PATIENCE_MS);
}

static void on_stuck(struct runner_link *l)
{
    (void)l;
    fail_msg("it does not end");
}

static void on_ended(struct runner_link *l)
{
    (void)l;
    x.ended = true;
}

static void on_closed(struct runner_link *l)
{
    (void)l;
    x.closed = true;
}

static const struct runner_link_hooks hooks = {.message = on_message,
                                               .fault = on_fault,
                                               .silent = on_silent,
                                               .stuck = on_stuck,
                                               .ended = on_ended,
                                               .closed = on_closed};

static void begin(const char *script)
{
    const char *args[] = {"sh", "-c", script, NULL};
    struct error err = ERROR_NULL;
    memset(&x, 0, sizeof(x));
    uv_loop_init(&x.loop);
    turns_init(&x.turns, &x.loop);
    runner_link_init(&x.link, &x.loop, &x.turns, &hooks);
    assert_ok(runner_link_start(&x.link, "/bin/sh", args, &err), &err);
}

/* Runs the loop until `what` is true; returns the ms. */
static uint64_t run_until(bool (*what)(void))
{
    const uint64_t began = test_ns;
    while (!what() && test_ns < began + PATIENCE_MS * UINT64_C(1000000)) {
        uv_run(&x.loop, UV_RUN_NOWAIT);
        usleep(1000); /* child processes get at least as much real time */
        test_ns += 1000000;
    }
    assert_true(what());
    return (test_ns - began) / 1000000;
}

static bool has_spoken(void)
{
    return x.messages > 0;
}

static bool has_ended(void)
{
    return x.ended;
}

static bool is_silent(void)
{
    return x.silences > 0;
}

static void end(void)
{
    runner_link_kill(&x.link, PATIENCE_MS);
    run_until(has_ended);
    runner_link_close(&x.link);
    turns_close(&x.turns);
    uv_run(&x.loop, UV_RUN_DEFAULT);
    assert_true(x.closed);
    assert_int_equal(uv_loop_close(&x.loop), 0);
}

#define SAY "printf '\\223\\002\\247attempt\\200' >&3; "

/* Advances the loop's time without a turn of the loop, as after SIGSTOP and SIGCONT. */
static void sleep_ms(unsigned ms)
{
    test_ns += ms * UINT64_C(1000000);
}

static void wait_for_message(void)
{
    int fd;
    assert_int_equal(uv_fileno((uv_handle_t *)&x.link.pipe, &fd), 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
}

static void silence_is_told_in_time(void **state)
{
    (void)state;
    begin("exec sleep 1000");
    runner_link_watch(&x.link, LIMIT_MS);
    assert_in_range(run_until(is_silent), LIMIT_MS - 20, LIMIT_MS + AWAY_MS);
    end();
}

static void a_watch_of_several_slices_has_its_full_length(void **state)
{
    (void)state;
    begin("exec sleep 1000");
    runner_link_watch(&x.link, 1500);
    assert_in_range(run_until(is_silent), 1480, 1500 + AWAY_MS);
    end();
}

static void what_lies_unread_is_heard_first(void **state)
{
    (void)state;
    begin(SAY SAY "exec sleep 1000");
    runner_link_watch(&x.link, SHORT_MS);
    wait_for_message();
    sleep_ms(SHORT_MS + AWAY_MS / 2); /* late, and no absence */
    x.watch_again_ms = 0;
    uv_run(&x.loop, UV_RUN_NOWAIT);
    assert_int_equal(x.silences, 0);
    run_until(has_spoken);
    if (x.messages < 2) {
        wait_for_message();
    }
    sleep_ms(SHORT_MS);
    uv_run(&x.loop, UV_RUN_NOWAIT);
    assert_int_equal(x.messages, 2);
    assert_int_equal(x.silences, 0);
    end();
}

static void a_pause_of_gemmd_is_no_silence_of_the_runner(void **state)
{
    (void)state;
    begin("exec sleep 1000");
    runner_link_watch(&x.link, LIMIT_MS);
    sleep_ms(AWAY_FOR_MS);
    uv_run(&x.loop, UV_RUN_NOWAIT);
    assert_int_equal(x.silences, 0);
    assert_in_range(run_until(is_silent), LIMIT_MS - 20, LIMIT_MS + AWAY_MS);
    end();
}

static void an_absence_that_ends_in_time_counts_as_little(void **state)
{
    (void)state;
    begin("exec sleep 1000");
    runner_link_watch(&x.link, 1600);
    sleep_ms(1500);
    assert_in_range(run_until(is_silent), 1580, 1600 + AWAY_MS);
    end();
}

static void a_loop_that_is_always_late_hears_of_silence_all_the_same(void **state)
{
    (void)state;
    begin("exec sleep 1000");
    runner_link_watch(&x.link, LIMIT_MS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(x.silences, 0);
        sleep_ms(AWAY_FOR_MS);
        uv_run(&x.loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(x.silences, 1);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_is_told_in_time),
        cmocka_unit_test(a_watch_of_several_slices_has_its_full_length),
        cmocka_unit_test(what_lies_unread_is_heard_first),
        cmocka_unit_test(a_pause_of_gemmd_is_no_silence_of_the_runner),
        cmocka_unit_test(an_absence_that_ends_in_time_counts_as_little),
        cmocka_unit_test(a_loop_that_is_always_late_hears_of_silence_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
