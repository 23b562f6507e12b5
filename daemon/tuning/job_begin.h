/* SPDX-License-Identifier: Apache-2.0 */
/* What a job is told before it runs, and what is known of its key by then. */
#ifndef GEMMD_DAEMON_TUNING_JOB_BEGIN_H
#define GEMMD_DAEMON_TUNING_JOB_BEGIN_H

#include "daemon/daemon.h"
#include "daemon/tuning/job.h"

/* job->request, with budgets filled in, and job->stamp. ERROR_NO_CONFIG, ERROR_NO_MEMORY. */
int tuning_unpack(struct daemon *d, struct job *j, struct error *err);
/* job->stamp and trial_stamp of what is measured now: of this target ("": the device's choice), and
 * right within the tolerances of the request. */
int tuning_stamp(struct daemon *d, struct job *j, const char *target, struct error *err);
/* What is known already of an unpacked job: the answer (while it was queued another one found it),
 * or a config to look at first: under the tighter tolerances now asked for, or a pin made under
 * another stamp. True: *answer is it. */
bool tuning_known_now(struct daemon *d, struct job *j, struct wire_buf *answer);
/* Only whether it is answered: of a job that has begun, and goes on with what it has if not. */
bool tuning_answered(struct daemon *d, const struct job *j, struct wire_buf *answer);
/* The same as tuning_known_now of a job that does not run and has not begun. */
bool tuning_known(struct daemon *d, struct job *j, struct wire_buf *answer);

#endif
