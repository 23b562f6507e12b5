/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spreading: a daemon with more to tune than its device does offers jobs to daemons of the same
 * database and device class whose devices are idle. Nobody plans: who runs out of work says so
 * (`idle`), who has too much offers that one a job, the last of its queue. The job stays where it
 * is, too: whoever comes to it first leases the key (elsewhere.h), and its answer is everybody's.
 *
 * What is said travels through the ledger (ledger/ledger.h, `tell`) to all daemons of the database.
 * A word that is lost, or comes late, costs an offer that nobody takes.
 */
#ifndef GEMMD_DAEMON_TUNING_SPREAD_H
#define GEMMD_DAEMON_TUNING_SPREAD_H

#include "daemon/requests/followers.h"
#include "daemon/tuning/wanting.h"

enum { SPREAD_IDLE_MAX = 64 };

struct spread {
    struct daemon *daemon;             /* borrowed */
    struct scheduler *scheduler;       /* borrowed */
    struct wanting *wanting;           /* borrowed */
    const struct followers *followers; /* borrowed */
    struct accounts *accounts;         /* borrowed: of those whose jobs are taken */
    unsigned n_idle;
    char idle[SPREAD_IDLE_MAX][40]; /* owners who had nothing to do when they were heard last */
    bool ready;     /* the daemon serves: before, it neither says anything nor takes a job */
    bool told_idle; /* that we have nothing to do */
    uint64_t offered, taken;
};

void spread_init(struct spread *s, struct wanting *wanting, const struct followers *followers,
                 struct accounts *accounts);
void spread_ready(struct spread *s);                 /* the daemon serves: who is idle? */
void spread_queued(struct spread *s, struct job *j); /* a job that cannot begin at once */
void spread_busy(struct spread *s);                  /* a job has the device */
void spread_idle(struct spread *s);                  /* there is nothing to do */
void spread_heard(struct spread *s, const struct wire_obj *said);

#endif
