/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GEMMD_TESTS_GPU_HOPPER_STAGES_H
#define GEMMD_TESTS_GPU_HOPPER_STAGES_H

#include "tests/gpu/hopper/watch.h"

extern const struct stage stage_check, stage_soak, stage_variants, stage_sample, stage_time;

/* Lists the variants of the first set that the stages check and soak need; --compile compiles them.
 */
bool check_variant(int step, struct variant *out, char *name, size_t size);

#endif
