/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for children that gemmd did not start. The first process of a container, or a child
 * subreaper, becomes the parent of processes that outlive their parents: for example a killed
 * runner's compilers. Without a wait each would stay a zombie for the life of gemmd. Any other
 * gemmd does nothing here.
 */
#ifndef GEMMD_DAEMON_ORPHANS_H
#define GEMMD_DAEMON_ORPHANS_H

#include <stdbool.h>
#include <uv.h>

struct orphans {
    uv_signal_t ended; /* SIGCHLD */
    uv_timer_t again;
};

/* From now on every process that gemmd starts must belong to the loop, or be waited for before the
 * loop goes on. */
void orphans_init(struct orphans *o, uv_loop_t *loop);
void orphans_close(struct orphans *o);
/* Waits for the ended children. True: more may follow once libuv has waited for a child of its
 * own. */
bool orphans_reap(uv_loop_t *loop);

#endif
