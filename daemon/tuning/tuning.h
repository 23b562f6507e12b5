/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The course of the running job: history from the ledger, order to the runner, trials as they come,
 * deaths of the runner, the best made durable, answers to who waits.
 *
 * Callbacks of the ledger and of the supervisor carry no job: they mean scheduler->running. A job
 * leaves that place only when nothing is under way for it (scheduler_ended).
 */
#ifndef GEMMD_DAEMON_TUNING_TUNING_H
#define GEMMD_DAEMON_TUNING_TUNING_H

#include "daemon/answers/tiers.h"
#include "daemon/tuning/job_lease.h"
#include "daemon/tuning/job.h"
#include "daemon/tuning/scheduler.h"
#include "daemon/tuning/supervisor.h"

/* ---- tuner.c --------------------------------------------------------------------------------- */

/* What the files of a tuning share: the tuner, and trials on their way into the ledger. */

struct tuner {
    struct daemon *daemon; /* all borrowed */
    struct scheduler *scheduler;
    struct job_lease *job_lease;
    struct supervisor *supervisor;
    struct tiers *tiers;
};

bool tuning_worked(const struct trial *t); /* it ran, and was right as far as it got */
/* A trial of the job: into the ledger, and not repeated. `t` is used up. */
void tuning_record(struct tuner *x, struct job *j, struct trial *t);
void tuning_avoid(struct job *j, const char *variant); /* no runner tries it again */

/* ---- tuning.c -------------------------------------------------------------------------------- */

void tuning_begin(struct tuner *x, struct job *j);  /* it has the device */
void tuning_cancel(struct tuner *x, struct job *j); /* nobody wants it any more */
/* The running job may go on: its key is its own, or cannot be leased (job_lease.h). */
void tuning_leased(struct tuner *x, struct job *j);
/* A job was queued: the running one may be set aside. */
void tuning_others(struct tuner *x);
/* What the runner says; ctx: the tuner. */
extern const struct supervisor_hooks tuning_hooks;

/* ---- runner_order.c -------------------------------------------------------------------------- */

/* What the runner is told to do: the order, and the finished trials in it. */

enum {
    FAVOURITES_MAX = 8, /* deaths of the runner with nothing that worked: then it looks elsewhere */
};

/* A finished trial, that is not repeated. */
void tuning_remember(struct job *j, const struct trial *t);
/* Thousands of old trials: they would rather be measured again than not at all. False: there are
 * none to forget, so that the order does not get smaller by it. */
bool tuning_forget(struct job *j);
/* The params of the runner's `tune`. ERROR_NO_MEMORY; ERROR_INVALID: too many configs are given. */
int tuning_order(struct tiers *t, struct job *j, struct wire_buf *out, struct error *err);

/* ---- blame.c --------------------------------------------------------------------------------- */

/* Deaths of the runner in a job: who is to blame, and when there are too many. */

/* The candidate that was running when the runner died: a failed trial, and never again. */
void tuning_blame(struct tuner *x, struct job *j, const struct death *why, const struct attempt *a);
/* A death with a candidate to blame is progress: it is not tried again. So many of them end the
 * search early, with the best of what worked. The device is to blame when nobody else is: no
 * candidate was named, none has worked, or what worked before does not work now. True: the job is
 * over. */
bool tuning_too_many(struct job *j, const struct death *why, struct error *err);

/* ---- job_end.c ------------------------------------------------------------------------------- */

/* How a tuning ends. */

/* Counts and forgets the job; who waits has been answered. */
void tuning_ended(struct tuner *x, struct job *j, enum job_end how);
/* It ends without a result: JOB_FAILED, or JOB_DIED by the deaths of its runners. */
void tuning_failed(struct tuner *x, struct job *j, const struct error *e, enum job_end how);
/* The runner has found the best: it is made durable, then who waits is answered. */
void tuning_result(struct tuner *x, const struct tune_result *r);

#endif
