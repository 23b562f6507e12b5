/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GEMMD_TESTS_GPU_HOPPER_STAGES_H
#define GEMMD_TESTS_GPU_HOPPER_STAGES_H

#include "tests/gpu/hopper/watch.h"

extern const struct stage stage_check, stage_soak, stage_variants, stage_sample, stage_time;

/* Gives the step-th variant of the first set, which the stages check and soak launch. --compile
 * compiles all of them.
 */
bool check_variant(int step, struct variant *out, char *name, size_t size);

#endif
