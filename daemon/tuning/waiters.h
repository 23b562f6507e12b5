/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wanted, and who waits for it until when: a request joins the job that does its search, or
 * makes one for the scheduler. When its deadline passes first, it is answered by the best lower
 * tier, and the tuning goes on.
 */
#ifndef GEMMD_DAEMON_TUNING_WAITERS_H
#define GEMMD_DAEMON_TUNING_WAITERS_H

#include "daemon/answers/tiers.h"
#include "daemon/tuning/scheduler.h"

struct waiters {
    struct daemon *daemon;       /* borrowed */
    struct scheduler *scheduler; /* borrowed: it has the jobs */
    struct tiers *tiers;         /* borrowed */
    uv_timer_t deadlines;        /* the earliest of all waiters */
};

/* How a request wants its search. */
struct wanted {
    struct request *request; /* problem = the true one; used up */
    const struct problem *bucket;
    const struct key *key; /* with id */
    bool pin, again, background;
    bool quiet;              /* only if nobody else uses the device */
    struct account *account; /* whose it is: borrowed, charged when it becomes a job */
    /* Whom to answer; NULL: nobody. */
    struct session *session;
    uint32_t id;
};

void waiters_init(struct waiters *x, struct scheduler *s, struct tiers *t);
void waiters_stop(struct waiters *x); /* closes its timer; nobody may wait any more */

/* Joins the job that does this search, or makes one. Errors: ERROR_BUSY, what `off` says, and what
 * can be known to fail beforehand (no valid config; a restriction or a given config that is
 * wrong). */
int waiters_join(struct waiters *x, const struct wanted *w, struct error *err);
/* What the search of scratch->request (and bucket) came to before, when its winner did not become
 * the key's answer (cache/partials.c): appended to `out`. false: it is not known, or is to be made
 * in any case (`again`; a given list). */
bool waiters_known(struct daemon *d, struct wire_buf *out);
/* The same of a restricted search, also when it is to be made again: for who does not wait for
 * that. */
bool waiters_recall(struct daemon *d, struct answer *out);

#endif
