/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and their deadlines. A request joins the job of its search, or makes a new job for the
 * scheduler. When its deadline passes first, the best lower tier answers the request, and the
 * tuning goes on. */
#ifndef GEMMD_DAEMON_TUNING_WAITERS_H
#define GEMMD_DAEMON_TUNING_WAITERS_H

#include "daemon/answers/tiers.h"
#include "daemon/tuning/scheduler.h"

struct waiters {
    struct daemon *daemon;       /* borrowed */
    struct scheduler *scheduler; /* borrowed: owns the jobs */
    struct tiers *tiers;         /* borrowed */
    uv_timer_t deadlines;        /* the earliest deadline of all waiters */
};

/* A request for a search. */
struct wanted {
    struct request *request; /* problem = the true problem; changed */
    const struct problem *bucket;
    const struct key *key; /* with id */
    bool pin, again, background;
    bool quiet; /* the job may run only while no other process uses the device */
    /* borrowed: the account of the user, which is charged with a new job */
    struct account *account;
    /* The client that waits; NULL: no client. */
    struct session *session;
    uint32_t id;
};

void waiters_init(struct waiters *x, struct scheduler *s, struct tiers *t);
void waiters_stop(struct waiters *x); /* closes the timer; no request may wait any more */

/* Joins the job of this search, or makes a job. Errors: ERROR_BUSY, the error of `off`, and errors
 * that can be foreseen (no valid config; an invalid restriction or given config). */
int waiters_join(struct waiters *x, const struct wanted *w, struct error *err);
/* Appends the stored answer of the search of scratch->request (and bucket), whose winner did not
 * become the key's answer (cache/partials.c). False: not stored, or the request wants a new search
 * (`again`; a given list). */
bool waiters_known(struct daemon *d, struct wire_buf *out);
/* Like waiters_known for a restricted search, also with `again`: for requests that do not wait for
 * the new search. */
bool waiters_recall(struct daemon *d, struct answer *out);

#endif
