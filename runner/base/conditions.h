/* SPDX-License-Identifier: Apache-2.0 */
/* The conditions under which a job measures: clocks, temperature and power, which trials record,
 * and doubts about a result, which the answer shows. */
#ifndef GEMMD_RUNNER_BASE_CONDITIONS_H
#define GEMMD_RUNNER_BASE_CONDITIONS_H

#include "kernels/device.h"
#include "proto/request.h"

/* Before a job begins: writes a warning about other users of the device; "" when there are none. */
void conditions_before(struct device *d, char doubt[160]);
/* True when other processes have a context on the device or keep the device busy; `says` explains.
 * False where the device cannot tell (a host, replay, a GPU without NVML). */
bool conditions_in_use(struct device *d, char says[160]);
/* Records the conditions in a trial that has just been measured. */
void conditions_note(struct device *d, struct trial *t);
/* Writes a doubt from a measured trial, when `doubt` is empty. */
void conditions_after(const struct trial *t, char doubt[160]);

/* ---- seed of the inputs and of the routing --------------------------------------------------- */

/* The seed from which the workload (rows of each expert) is drawn. A replay device has the seed of
 * its recording; else the family may choose a seed with a harder case than most (family.h,
 * wary_seed). `d` may be NULL: a plan for an absent device. */
uint64_t conditions_seed(const struct device *d, const struct request *q);
/* The seed for device_ops.prepare(), given `seed` from conditions_seed(): the same, except on a
 * replay device. That has fixed inputs, and draws its noise by the query's seed. */
uint64_t conditions_drawn_seed(const struct device *d, const struct request *q, uint64_t seed);

#endif
