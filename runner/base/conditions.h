/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under which conditions a job measures: what its trials keep of them, and whether they speak
 * against its result.
 */
#ifndef GEMMD_RUNNER_BASE_CONDITIONS_H
#define GEMMD_RUNNER_BASE_CONDITIONS_H

#include "kernels/device.h"
#include "proto/request.h"

/* A sentence about who else uses the device before a job begins; "": nothing speaks against it. */
void conditions_before(struct device *d, char doubt[160]);
/* Whether other processes have a context on the device or keep it busy, and a sentence that says
 * so. False where that is not known. */
bool conditions_in_use(struct device *d, char says[160]);
/* Into a trial that has just been measured. */
void conditions_note(struct device *d, struct trial *t);
/* The same from a measured trial, when there is no doubt yet. */
void conditions_after(const struct trial *t, char doubt[160]);

/* ---- its inputs: the seed of what is drawn, and its routing -----------------------------------
 */

/* For what a request asks: a recorded device has its own; else the family may take one whose case
 * is harder than most (family.h, wary_seed). `d` may be NULL: a plan for a device elsewhere. */
uint64_t conditions_seed(const struct device *d, const struct request *q);
/* What prepare() is given, where conditions_seed() is `seed`: that; but a recorded device, whose
 * inputs are its own, draws its noise by what was asked. */
uint64_t conditions_drawn_seed(const struct device *d, const struct request *q, uint64_t seed);

#endif
