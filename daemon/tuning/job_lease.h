/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single flight across the daemons of a database. Before a job runs here, its key is leased from
 * the ledger. When another daemon has the lease, the job steps aside (scheduler->leased_out), and
 * the device continues with the next job. The job comes back when the key's answer is published, or
 * when the lease ends without an answer.
 *
 * A job that was set aside keeps its lease while it has waiters. Without waiters the lease is given
 * back, so that an idle device elsewhere may work for waiters there. When the job comes back, it
 * takes the lease again, or was answered meanwhile.
 *
 * Pins and restricted searches are local to this daemon: only searches for a key's answer are
 * leased.
 */
#ifndef GEMMD_DAEMON_TUNING_JOB_LEASE_H
#define GEMMD_DAEMON_TUNING_JOB_LEASE_H

#include "daemon/tuning/scheduler.h"

struct job_lease {
    struct daemon *daemon;       /* borrowed */
    struct scheduler *scheduler; /* borrowed: owns the jobs */
    uv_timer_t recheck;          /* retries leases; renews the leases of this daemon */
    void (*leased)(void *ctx, struct job *j);
    void *ctx;
};

/* Calls `leased` when the running job may go on, with a lease or when the key cannot be leased. */
void job_lease_init(struct job_lease *e, struct scheduler *s,
                    void (*leased)(void *ctx, struct job *j), void *ctx);
/* Gives back the leases of all jobs, and closes the timer. */
void job_lease_stop(struct job_lease *e);

/* Leases the key of the running job. Then calls `leased`, or the job steps aside. */
void job_lease_take(struct job_lease *e, struct job *j);
/* Gives back the lease of a job that ends or steps back. */
void job_lease_release(struct job_lease *e, struct job *j);
/* Called when a job was set aside, or its last waiter has left. */
void job_lease_left(struct job_lease *e, struct job *j);

/* Called when any daemon has published a key's answer: answers the jobs that accept the answer.
 * `searched`: the answer is from a search, so it also answers jobs that asked to search again. */
void job_lease_learned(struct job_lease *e, const char *key, bool searched);
/* Called when the lease of a key ("": of some key) has ended: its jobs may run here. */
void job_lease_freed(struct job_lease *e, const char *key);

#endif
