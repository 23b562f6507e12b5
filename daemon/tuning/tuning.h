/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The course of the running job: history from the ledger, the order to the runner, trials, deaths
 * of the runner, making the best durable, answers to the waiters.
 *
 * Callbacks of the ledger and of the supervisor carry no job: they mean scheduler->running. A job
 * stays there until no callback is pending (scheduler_ended).
 */
#ifndef GEMMD_DAEMON_TUNING_TUNING_H
#define GEMMD_DAEMON_TUNING_TUNING_H

#include "daemon/answers/tiers.h"
#include "daemon/tuning/job_lease.h"
#include "daemon/tuning/job.h"
#include "daemon/tuning/scheduler.h"
#include "daemon/tuning/supervisor.h"

/* ---- tuner.c --------------------------------------------------------------------------------- */

/* Shared parts of a tuning's files: the tuner, and the recording of trials. */

struct tuner {
    struct daemon *daemon; /* all borrowed */
    struct scheduler *scheduler;
    struct job_lease *job_lease;
    struct supervisor *supervisor;
    struct tiers *tiers;
};

/* true when the kernel ran and was right, also when it was stopped early */
bool tuning_worked(const struct trial *t);
/* Writes a trial of the job to the ledger and remembers the trial. Changes `t`. */
void tuning_record(struct tuner *x, struct job *j, struct trial *t);
void tuning_avoid(struct job *j, const char *variant); /* no later runner tries the variant */

/* ---- tuning.c -------------------------------------------------------------------------------- */

void tuning_begin(struct tuner *x, struct job *j);  /* the job gets the device */
void tuning_cancel(struct tuner *x, struct job *j); /* the job has no waiters any more */
/* The running job may go on: its key is leased, or cannot be leased (job_lease.h). */
void tuning_leased(struct tuner *x, struct job *j);
/* A job was queued: the running job may be set aside. */
void tuning_others(struct tuner *x);
/* Events of the runner; ctx: the tuner. */
extern const struct supervisor_hooks tuning_hooks;

/* ---- runner_order.c -------------------------------------------------------------------------- */

/* The order for the runner, and the finished trials in it. */

enum {
    /* so many deaths without a working config turn the search to random configs */
    FAVOURITES_MAX = 8,
};

/* Adds a finished trial to the order, so that it is not repeated. */
void tuning_remember(struct job *j, const struct trial *t);
/* Drops the finished trials of an order that is too large: measuring again is better than no
 * tuning. False: no trials to drop. */
bool tuning_forget(struct job *j);
/* Packs the params of the runner's `tune`. ERROR_NO_MEMORY; ERROR_INVALID: too many configs. */
int tuning_order(struct tiers *t, struct job *j, struct wire_buf *out, struct error *err);

/* ---- blame.c --------------------------------------------------------------------------------- */

/* Deaths of the runner in a job: the candidate to blame, and the limit of deaths. */

/* Records the candidate of a runner's death as a failed trial, and quarantines its variant. */
void tuning_blame(struct tuner *x, struct job *j, const struct death *why, const struct attempt *a);
/* True: too many deaths, the job is over. A death with a candidate to blame is progress, since the
 * candidate is not tried again. Many such deaths end the search early, with the best so far. The
 * device is to blame when no candidate was named, none has worked, or earlier working configs fail
 * now. */
bool tuning_too_many(struct job *j, const struct death *why, struct error *err);

/* ---- job_end.c ------------------------------------------------------------------------------- */

/* The end of a tuning. */

/* Counts and frees the job. All waiters must have their answers. */
void tuning_ended(struct tuner *x, struct job *j, enum job_end how);
/* Ends a job without a result: JOB_FAILED, or JOB_DIED by the deaths of its runners. */
void tuning_failed(struct tuner *x, struct job *j, const struct error *e, enum job_end how);
/* The runner has found the best: makes the best durable, then answers the waiters. */
void tuning_result(struct tuner *x, const struct tune_result *r);

#endif
