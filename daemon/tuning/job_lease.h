/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single flight across the daemons of one database. Before a job is searched here, its key is
 * leased from the ledger; when another daemon has it, the job steps aside (scheduler->leased_out),
 * and the device goes on with the next one. It comes back when the key's answer is told, or when
 * the lease is given back without one.
 *
 * A job that was set aside keeps its lease while somebody waits for it. Else it gives it back: a
 * device that is idle elsewhere may work for who waits there. It takes the lease again when it
 * comes back, or is answered meanwhile.
 *
 * Only searches that make the key's answer: a pin and a restricted search are this daemon's own.
 */
#ifndef GEMMD_DAEMON_TUNING_JOB_LEASE_H
#define GEMMD_DAEMON_TUNING_JOB_LEASE_H

#include "daemon/tuning/scheduler.h"

struct job_lease {
    struct daemon *daemon;       /* borrowed */
    struct scheduler *scheduler; /* borrowed: it has the jobs */
    uv_timer_t recheck;          /* of these; renews the lease of the running job */
    void (*leased)(void *ctx, struct job *j);
    void *ctx;
};

/* `leased`: the running job may go on: its key is its own, or cannot be leased. */
void job_lease_init(struct job_lease *e, struct scheduler *s,
                    void (*leased)(void *ctx, struct job *j), void *ctx);
/* Gives back what the running job holds, and closes the timer. */
void job_lease_stop(struct job_lease *e);

/* The running job: leases its key, anew if it was set aside. Then `leased`, or it steps aside. */
void job_lease_take(struct job_lease *e, struct job *j);
/* A job ends, or steps back: what it holds is given back. */
void job_lease_release(struct job_lease *e, struct job *j);
/* A job was set aside, or the last one who waited for it has gone. */
void job_lease_left(struct job_lease *e, struct job *j);

/* A key's answer was published, by whichever daemon: answers the waiting jobs that it answers.
 * `searched`: it is what a search found, which those have waited for who want one, known or not. */
void job_lease_learned(struct job_lease *e, const char *key, bool searched);
/* The lease of a key ("": of some) has ended: its jobs may run here. */
void job_lease_freed(struct job_lease *e, const char *key);

#endif
