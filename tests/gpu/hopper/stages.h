/* SPDX-License-Identifier: Apache-2.0 */
/* The stages, in the order they are done in. */
#ifndef GEMMD_TESTS_GPU_HOPPER_STAGES_H
#define GEMMD_TESTS_GPU_HOPPER_STAGES_H

#include "tests/gpu/hopper/watch.h"

extern const struct stage stage_check, stage_soak, stage_variants, stage_sample, stage_time;

/* The variants that stages check and soak find in the first set: what --compile compiles. */
bool check_variant(int step, struct variant *out, char *name, size_t size);

#endif
