/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done by the clock: what a damaged database has lost is written again, an idle daemon
 * ends, the socket's path is looked at, and systemd is told that the loop turns.
 */
#ifndef GEMMD_DAEMON_CHORES_H
#define GEMMD_DAEMON_CHORES_H

#include "daemon/methods/daemon_parts.h"

/* ---- remeasure.c ----------------------------------------------------------------------------- */

/*
 * Keys whose confidence is low (cache/confidence.h) are tuned again, by a background job as any
 * other, when the device has had nothing to do for --remeasure-s: one key at a time, each
 * REMEASURE_TRIES times at most in this life of gemmd. Whatever comes of it is the key's new row.
 *
 * gemmd had no work, which says nothing of other programs. So the job is `quiet` (tuning/job.h):
 * the runner ends it before it has a context on the GPU, if other processes have one, or keep it
 * busy. That is no try; the next one comes after twice the time, and so on, up to PUT_OFF_MAX times
 * twice. Connected clients count for nothing here: one that uses the device has a context on it,
 * and one that only watches gemmd disturbs no measurement.
 */

enum { REMEASURE_TRIES = 3, PUT_OFF_MAX = 5 };

struct remeasure {
    size_t at;        /* slot of the cache that comes next */
    uint64_t busy_ms; /* when the device was seen to have work; 0: not looked yet */
};

/* There may be such keys, and they are to be looked for. */
bool remeasure_is_needed(const struct remeasure *x, const struct daemon_parts *p);
/* Every now and then while it is needed: looks at some keys, and queues a job. */
void remeasure_look(struct remeasure *x, struct daemon_parts *p);

/* ---- chores.c -------------------------------------------------------------------------------- */

struct chores {
    struct daemon_parts *parts; /* borrowed */
    struct remeasure remeasure;
    uv_timer_t timer; /* idle exit, lost answers, doubtful ones; runs only while one needs it */
    bool counting;    /* the ledger is asked what is unsaved */
    uv_timer_t path;
    uv_timer_t watchdog;
};

void chores_init(struct chores *c, struct daemon_parts *p);
/* There may be something to look after now. */
void chores_watch(struct chores *c);
void chores_close(struct chores *c);

#endif
