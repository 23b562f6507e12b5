/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for idle devices. A search that has to wait is also a row of `wanted` in the database,
 * where another daemon of the class with an idle device finds it. The search also stays in the
 * local queue. The first daemon to begin the search leases the key (job_lease.h), and its answer is
 * for all daemons. No daemon plans for others. */
#ifndef GEMMD_DAEMON_TUNING_OFFERS_H
#define GEMMD_DAEMON_TUNING_OFFERS_H

#include "daemon/tuning/waiters.h"

struct offers {
    struct daemon *daemon;       /* borrowed */
    struct scheduler *scheduler; /* borrowed */
    struct waiters *waiters;     /* borrowed */
    struct accounts *accounts;   /* borrowed: of the users whose searches are taken */
    bool ready;                  /* the daemon serves clients; before that it takes no search */
    /* the daemon asks the ledger for a search; it must ask once more after that */
    bool asking, again;
    uint64_t offered, taken;
};

void offers_init(struct offers *o, struct waiters *waiters, struct accounts *accounts);
void offers_ready(struct offers *o); /* called when the daemon serves */
/* call for a search that cannot begin at once */
void offers_queued(struct offers *o, struct job *j);
void offers_dropped(struct offers *o, struct job *j); /* called when a job is dropped */
/* Takes the oldest search elsewhere, when this daemon is idle or another daemon offers a search. */
void offers_take(struct offers *o);

#endif
