/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a tuning share: the tuner, and trials on their way into the ledger. */
#ifndef GEMMD_DAEMON_TUNING_TUNER_H
#define GEMMD_DAEMON_TUNING_TUNER_H

#include "daemon/answers/tiers.h"
#include "daemon/tuning/job_lease.h"
#include "daemon/tuning/job.h"
#include "daemon/tuning/scheduler.h"
#include "daemon/tuning/supervisor.h"

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

#endif
