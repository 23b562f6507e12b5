/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searches for idle devices. A search that has to wait here is also a row of `wanted` in the
 * database, where another daemon of the class finds it when its device has nothing to do. It stays
 * here, too: whoever comes to it first leases the key (job_lease.h), and its answer is everybody's.
 * Nobody plans.
 */
#ifndef GEMMD_DAEMON_TUNING_OFFERS_H
#define GEMMD_DAEMON_TUNING_OFFERS_H

#include "daemon/tuning/waiters.h"

struct offers {
    struct daemon *daemon;       /* borrowed */
    struct scheduler *scheduler; /* borrowed */
    struct waiters *waiters;     /* borrowed */
    struct accounts *accounts;   /* borrowed: of those whose searches are taken */
    bool ready;                  /* the daemon serves: before, it takes no search */
    bool asking, again;          /* the database is asked for one; and once more */
    uint64_t offered, taken;
};

void offers_init(struct offers *o, struct waiters *waiters, struct accounts *accounts);
void offers_ready(struct offers *o);                  /* the daemon serves */
void offers_queued(struct offers *o, struct job *j);  /* a search that cannot begin at once */
void offers_dropped(struct offers *o, struct job *j); /* a job is no more */
/* There is nothing to do here, or a search waits elsewhere: takes the oldest one. */
void offers_take(struct offers *o);

#endif
