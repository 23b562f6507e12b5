/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tuning job: from an order to a best. The parts, in the order in which they run:
 *
 *   job.c             begin (family, target, plan, prepare) and end (result, or why there is none)
 *   strategy/plan.c   which configs may be measured, in the model's order
 *   search.c          reference, hints, then the strategy's proposals: compile ahead, measure
 *   candidates.c      a config on its way through the compilers
 *   compilers_*.c     these compilers, and the clock: of this host, of a recorded one
 *   patience.c        whether to wait for them, or to give way to another search
 *   measure.c         one candidate on the device: load, probe, verify, samples
 *   outcomes.c        what is known of each config
 *   held.c            trials from before the reference's
 *   finals.c          the best few again, in alternating blocks
 *   gate.c            whether their winner replaces the best that the key had
 *   notices.c         what is said about it on the socket
 *
 * The reference is the analytic default, or the config that an earlier run of this key used as its
 * reference, or, when that does not work, the first config that does. Times are compared within
 * this run; a resumed job takes what earlier runs measured by its ratio to the reference, and so
 * measures the reference again, as a trial of stage "reference", which is no new evidence about a
 * candidate. What wins on old evidence is measured again in the finals.
 *
 * The default cannot lose: the reference competes like any other config, unless a restriction or a
 * given list excludes it.
 */
#ifndef GEMMD_RUNNER_JOB_H
#define GEMMD_RUNNER_JOB_H

#include "runner/runner.h"

/* Runs an order. 0 and the result, or ERROR_*. ERROR_DEVICE_LOST: the process must end. */
int job_run(struct runner *r, const struct tune_order *o, struct tune_result *out,
            struct error *err);

#endif
