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

#include "daemon/tuning/tuner.h"

void tuning_begin(struct tuner *x, struct job *j);  /* it has the device */
void tuning_cancel(struct tuner *x, struct job *j); /* nobody wants it any more */
/* The running job may go on: its key is its own, or cannot be leased (job_lease.h). */
void tuning_leased(struct tuner *x, struct job *j);
/* A job was queued: the running one may be set aside. */
void tuning_others(struct tuner *x);
/* What the runner says; ctx: the tuner. */
extern const struct supervisor_hooks tuning_hooks;

#endif
