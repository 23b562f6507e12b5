/* SPDX-License-Identifier: Apache-2.0 */
/* Deaths of the runner in a job: who is to blame, and when there are too many. */
#ifndef GEMMD_DAEMON_TUNING_BLAME_H
#define GEMMD_DAEMON_TUNING_BLAME_H

#include "daemon/tuning/tuner.h"

/* The candidate that was running when the runner died: a failed trial, and never again. */
void tuning_blame(struct tuner *x, struct job *j, const struct death *why, const struct attempt *a);
/* A death with a candidate to blame is progress: it is not tried again. So many of them end the
 * search early, with the best of what worked. The device is to blame when nobody else is: no
 * candidate was named, none has worked, or what worked before does not work now. True: the job is
 * over. */
bool tuning_too_many(struct job *j, const struct death *why, struct error *err);

#endif
