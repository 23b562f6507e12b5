/* SPDX-License-Identifier: Apache-2.0 */
/* Periodic work: tunes keys with low confidence again, ends an idle daemon, checks the socket's
 * path, and feeds systemd's watchdog. */
#ifndef GEMMD_DAEMON_CHORES_H
#define GEMMD_DAEMON_CHORES_H

#include "daemon/methods/daemon_parts.h"

/* ---- remeasure.c ----------------------------------------------------------------------------- */

/*
 * Tunes keys with low confidence (cache/confidence.h) again, by an ordinary background job, when
 * the device has been idle for --remeasure-s. One key at a time, each at most REMEASURE_TRIES times
 * in this life of gemmd. Any result becomes the key's new row.
 *
 * An idle gemmd does not show that other programs are idle. So the job is `quiet` (tuning/job.h):
 * if other processes have a context on the GPU, or keep the GPU busy, the runner ends the job
 * before it makes a context. Such an attempt does not count towards REMEASURE_TRIES. It doubles the
 * next wait, at most PUT_OFF_MAX times. Connected clients do not count: a client that uses the
 * device has a context there, and a client that only watches gemmd disturbs no measurement.
 */

enum { REMEASURE_TRIES = 3, PUT_OFF_MAX = 5 };

struct remeasure {
    size_t at;        /* the next slot of the cache */
    uint64_t busy_ms; /* last time when the device had work; 0: not looked yet */
};

/* True: keys with low confidence may exist, and the settings allow new measurements. */
bool remeasure_is_needed(const struct remeasure *x, const struct daemon_parts *p);
/* Called periodically while needed: looks at some keys, and queues a job. */
void remeasure_look(struct remeasure *x, struct daemon_parts *p);

/* ---- chores.c -------------------------------------------------------------------------------- */

struct chores {
    struct daemon_parts *parts; /* borrowed */
    struct remeasure remeasure;
    uv_timer_t timer; /* idle exit, doubtful answers; runs only while needed */
    bool counting;    /* waiting for the ledger's count of unsaved rows */
    uv_timer_t path;
    uv_timer_t watchdog;
};

void chores_init(struct chores *c, struct daemon_parts *p);
/* Starts the timer if periodic work is needed. */
void chores_watch(struct chores *c);
void chores_close(struct chores *c);

#endif
