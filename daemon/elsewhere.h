/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single flight across the daemons of one database. Before a job is searched here, its key is
 * leased from the ledger; when another daemon has it, the job steps aside (scheduler->elsewhere),
 * and the device goes on with the next one. It comes back when the key's answer is told, or when
 * the lease is given back without one.
 *
 * Only searches that make the key's answer: a pin and a restricted search are this daemon's own.
 */
#ifndef GEMMD_DAEMON_ELSEWHERE_H
#define GEMMD_DAEMON_ELSEWHERE_H

#include "daemon/scheduler.h"

/* The running job: leases its key. What follows comes through tuning_leased. */
void elsewhere_lease(struct daemon *d, struct job *j);
/* A job ends, or steps back: what it holds is given back. */
void elsewhere_unlease(struct daemon *d, struct job *j);

/* A key's answer was published, by whichever daemon: answers the waiting jobs that it answers. */
void scheduler_learned(struct scheduler *s, const char *key);
/* The lease of a key ("": of some) has ended: its jobs may run here. */
void scheduler_freed(struct scheduler *s, const char *key);

void elsewhere_init(struct scheduler *s);
void elsewhere_stop(struct scheduler *s); /* closes its timer */

#endif
