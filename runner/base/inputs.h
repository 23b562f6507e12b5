/* SPDX-License-Identifier: Apache-2.0 */
/* What a job's times are of: the seed of its inputs and its routing. */
#ifndef GEMMD_RUNNER_BASE_INPUTS_H
#define GEMMD_RUNNER_BASE_INPUTS_H

#include "kernels/device.h"
#include "proto/request.h"

/* For what a request asks: a recorded device has its own; else the family may take one whose case
 * is harder than most (family.h, wary_seed). `d` may be NULL: a plan for a device elsewhere. */
uint64_t inputs_seed(const struct device *d, const struct request *q);
/* What prepare() is given, where inputs_seed() is `seed`: that; but a recorded device, whose inputs
 * are its own, draws its noise by what was asked. */
uint64_t inputs_drawn(const struct device *d, const struct request *q, uint64_t seed);

#endif
