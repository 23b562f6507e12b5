/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of a tuning share. */
#ifndef GEMMD_DAEMON_TUNING_END_H
#define GEMMD_DAEMON_TUNING_END_H

#include "daemon/scheduler.h"
#include "daemon/tuning.h"

/* Counts and forgets the job; who waits has been answered. */
void tuning_ended(struct daemon *d, struct job *j, enum job_end how);
/* It ends by the deaths of its runners. */
void tuning_died(struct daemon *d, struct job *j, const struct error *e);
/* After a look at the known best only: the whole search. */
void tuning_search(struct daemon *d, struct job *j, const char *reason);
/* NaN for everything that was not measured. */
void trial_times_unknown(struct trial *t);

#endif
