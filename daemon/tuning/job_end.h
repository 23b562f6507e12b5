/* SPDX-License-Identifier: Apache-2.0 */
/* How a tuning ends. */
#ifndef GEMMD_DAEMON_TUNING_JOB_END_H
#define GEMMD_DAEMON_TUNING_JOB_END_H

#include "daemon/tuning/tuner.h"

/* Counts and forgets the job; who waits has been answered. */
void tuning_ended(struct tuner *x, struct job *j, enum job_end how);
/* It ends without a result: JOB_FAILED, or JOB_DIED by the deaths of its runners. */
void tuning_failed(struct tuner *x, struct job *j, const struct error *e, enum job_end how);
/* The runner has found the best: it is made durable, then who waits is answered. */
void tuning_result(struct tuner *x, const struct tune_result *r);

#endif
