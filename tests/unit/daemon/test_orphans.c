/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon reaps orphans (children that no code waits for), and no children of libuv. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <uv.h>

#include "common.h"
#include "daemon/life.h"

enum { STATUS = 7, ROUNDS = 40, STRANGERS = 3, PATIENCE_S = 20 };

/* Makes this process the parent of processes whose own parent, a child of this process, ends. */
static void be_subreaper(bool on)
{
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, on, 0, 0, 0), 0);
}

static pid_t start_stranger(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    assert_true(pid > 0);
    return pid;
}

static void await_zombie(pid_t pid)
{
    assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){.si_pid = 0}, WEXITED | WNOWAIT), 0);
}

static bool exists(pid_t pid)
{
    return kill(pid, 0) == 0;
}

struct own {
    uv_process_t process;
    int ends;
    int64_t status;
};

static void on_exit_of(uv_process_t *process, int64_t status, int signal)
{
    struct own *o = process->data;
    o->ends++;
    o->status = signal ? -signal : status;
    uv_close((uv_handle_t *)process, NULL);
}

static void start_own(struct own *o, uv_loop_t *loop, const char *script)
{
    const char *args[] = {"sh", "-c", script, NULL};
    uv_process_options_t options = {
        .file = "/bin/sh", .args = (char **)(uintptr_t)args, .exit_cb = on_exit_of};
    *o = (struct own){.process.data = o};
    assert_int_equal(uv_spawn(loop, &o->process, &options), 0);
}

static bool has_children(void)
{
    return waitid(P_ALL, 0, &(siginfo_t){.si_pid = 0}, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Runs the loop until these children have ended and, with `alone`, no child is left. Gives up after
 * PATIENCE_S; callers assert the result. */
static void run_until_ended(uv_loop_t *loop, const struct own own[], int n, bool alone)
{
    const uint64_t until = uv_hrtime() + (uint64_t)PATIENCE_S * 1000000000;
    int ended = 0;
    while ((ended < n || (alone && has_children())) && uv_hrtime() < until) {
        uv_run(loop, UV_RUN_NOWAIT);
        usleep(1000);
        ended = 0;
        for (int i = 0; i < n; i++) {
            ended += own[i].ends > 0;
        }
    }
    for (int i = 0; i < n; i++) {
        assert_int_equal(own[i].ends, 1);
    }
}

static void close_loop(uv_loop_t *loop)
{
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

static void a_child_that_libuv_waits_for_is_left_to_it(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct own own;
    uv_loop_init(&loop);
    start_own(&own, &loop, "exit 7");
    await_zombie(own.process.pid);
    pid_t behind = start_stranger();
    await_zombie(behind);
    assert_true(orphans_reap(&loop));
    assert_true(exists(own.process.pid));
    run_until_ended(&loop, &own, 1, false);
    assert_int_equal(own.status, STATUS);
    /* before libuv took its own ended child, waitid may have shown that child only */
    assert_false(orphans_reap(&loop));
    assert_false(exists(behind));
    close_loop(&loop);
}

/* A single SIGCHLD reports both children. Our handler runs before libuv's: libuv runs signal
 * handles in the order of their addresses. */
static void a_child_hidden_behind_a_child_of_libuv_is_found_later(void **state)
{
    (void)state;
    struct {
        struct orphans orphans;
        uv_loop_t loop;
    } x;
    struct own own;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    uv_loop_init(&x.loop);
    be_subreaper(true);
    orphans_init(&x.orphans, &x.loop);
    be_subreaper(false);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    start_own(&own, &x.loop, "exit 7");
    await_zombie(own.process.pid);
    await_zombie(start_stranger());
    sigprocmask(SIG_UNBLOCK, &ends, NULL);
    run_until_ended(&x.loop, &own, 1, true);
    assert_false(has_children());
    assert_int_equal(own.status, STATUS);
    orphans_close(&x.orphans);
    close_loop(&x.loop);
}

static void who_still_runs_is_left_alone(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct own own;
    uv_loop_init(&loop);
    start_own(&own, &loop, "exec sleep 1000");
    pid_t stranger = start_stranger();
    await_zombie(stranger);
    assert_false(orphans_reap(&loop));
    assert_false(exists(stranger));
    assert_true(exists(own.process.pid));
    kill(own.process.pid, SIGKILL);
    run_until_ended(&loop, &own, 1, false);
    assert_int_equal(own.status, -SIGKILL);
    close_loop(&loop);
}

static void a_child_that_libuv_was_told_to_forget_is_a_stranger(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct own own;
    uv_loop_init(&loop);
    start_own(&own, &loop, "exit 7");
    const pid_t pid = own.process.pid;
    await_zombie(pid);
    uv_close((uv_handle_t *)&own.process, NULL);
    assert_false(orphans_reap(&loop));
    assert_false(exists(pid));
    close_loop(&loop);
    assert_int_equal(own.ends, 0);
}

/* A child of libuv's leaves children behind, as a runner does. They end before, with or after their
 * parent. */
static void all_are_waited_for_and_no_status_is_lost(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct orphans orphans;
    struct own own[ROUNDS];
    uv_loop_init(&loop);
    be_subreaper(true);
    pid_t early = start_stranger();
    await_zombie(early);
    orphans_init(&orphans, &loop);
    for (int i = 0; i < ROUNDS; i++) {
        start_own(&own[i], &loop,
                  i % 2 ? "sleep 0.02 & sleep 0 & exit 7" : "true & sleep 0.01; exit 7");
        for (int j = 0; j < STRANGERS; j++) {
            start_stranger();
        }
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    run_until_ended(&loop, own, ROUNDS, true);
    assert_false(has_children());
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(own[i].status, STATUS);
    }
    be_subreaper(false);
    orphans_close(&orphans);
    close_loop(&loop);
}

static void who_is_given_no_orphans_does_nothing(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct orphans orphans;
    if (getpid() == 1) {
        skip();
    }
    uv_loop_init(&loop);
    orphans_init(&orphans, &loop);
    /* the handles of orphans do not keep the loop alive */
    assert_int_equal(uv_run(&loop, UV_RUN_NOWAIT), 0);
    pid_t stranger = start_stranger();
    await_zombie(stranger);
    uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(waitpid(stranger, NULL, 0), stranger);
    orphans_close(&orphans);
    close_loop(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_that_libuv_waits_for_is_left_to_it),
        cmocka_unit_test(a_child_hidden_behind_a_child_of_libuv_is_found_later),
        cmocka_unit_test(who_still_runs_is_left_alone),
        cmocka_unit_test(a_child_that_libuv_was_told_to_forget_is_a_stranger),
        cmocka_unit_test(all_are_waited_for_and_no_status_is_lost),
        cmocka_unit_test(who_is_given_no_orphans_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
