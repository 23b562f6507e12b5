/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks which child has ended without reaping it (WNOWAIT), then reaps this child alone, unless it
 * is libuv's: libuv reaps its own children. The loop's active handles show these, so no list is
 * needed. All waits for children run on the loop's thread (base/probe.c before the loop runs), so
 * nothing changes between look and wait. waitpid(-1) would also reap libuv's children, and libuv
 * would never see a runner's end. /proc is no help: some systems do not list a process's children
 * there.
 *
 * waitid shows a single ended child. While that is libuv's, it hides the others. libuv's SIGCHLD
 * handler reaps it in the same turn of the loop or the next, hence a second look.
 */
#include "daemon/life.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AGAIN_MS = 10 };

struct child {
    pid_t pid;
    bool found;
};

static void orphans_compare_pid(uv_handle_t *handle, void *arg)
{
    struct child *w = arg;
    if (uv_handle_get_type(handle) == UV_PROCESS && uv_is_active(handle)) {
        w->found = w->found || uv_process_get_pid((uv_process_t *)handle) == w->pid;
    }
}

static bool is_libuvs(uv_loop_t *loop, pid_t pid)
{
    struct child w = {.pid = pid};
    uv_walk(loop, orphans_compare_pid, &w);
    return w.found;
}

/* Returns the pid of an ended child, and does not reap it; 0: none. */
static pid_t find_ended(void)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 ? info.si_pid : 0;
}

bool orphans_reap(uv_loop_t *loop)
{
    pid_t pid;
    while ((pid = find_ended()) != 0) {
        if (is_libuvs(loop, pid) || waitpid(pid, NULL, WNOHANG) != pid) {
            return true;
        }
    }
    return false;
}

static void on_again(uv_timer_t *timer)
{
    if (orphans_reap(timer->loop)) {
        uv_timer_start(timer, on_again, AGAIN_MS, 0);
    }
}

static void orphans_on_ended(uv_signal_t *signal, int number)
{
    struct orphans *o = signal->data;
    on_again(&o->again);
}

static bool is_given_orphans(void)
{
    int subreaper = 0;
    return getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &subreaper) == 0 && subreaper);
}

void orphans_init(struct orphans *o, uv_loop_t *loop)
{
    uv_signal_init(loop, &o->ended);
    uv_timer_init(loop, &o->again);
    o->ended.data = o;
    if (is_given_orphans()) {
        uv_signal_start(&o->ended, orphans_on_ended, SIGCHLD);
        uv_timer_start(&o->again, on_again, 0, 0); /* for children that ended before */
    }
}

void orphans_close(struct orphans *o)
{
    uv_close((uv_handle_t *)&o->ended, NULL);
    uv_close((uv_handle_t *)&o->again, NULL);
}
