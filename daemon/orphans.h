/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children that gemmd did not start. Where it is the first process of a container, or a child
 * subreaper, the kernel gives it the processes whose parents have ended before them: of a runner
 * that was killed, those that compile. Nobody else waits for them, and each would stay a zombie for
 * as long as gemmd lives. A gemmd that is given none does nothing here.
 */
#ifndef GEMMD_DAEMON_ORPHANS_H
#define GEMMD_DAEMON_ORPHANS_H

#include <stdbool.h>
#include <uv.h>

struct orphans {
    uv_signal_t ended; /* SIGCHLD */
    uv_timer_t again;
};

/* All processes that this one starts are the loop's from now on, or are waited for before the loop
 * goes on. */
void orphans_init(struct orphans *o, uv_loop_t *loop);
void orphans_close(struct orphans *o);
/* Waits for those that have ended. True: there may be more, to be seen when libuv has waited for a
 * child of its own. */
bool orphans_reap(uv_loop_t *loop);

#endif
