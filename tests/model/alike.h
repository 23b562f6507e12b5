/* SPDX-License-Identifier: Apache-2.0 */
/* Which measured launch stands for one that was not measured. */
#ifndef GEMMD_TESTS_MODEL_ALIKE_H
#define GEMMD_TESTS_MODEL_ALIKE_H

#include "kernels/families/grouped_gemm/hopper_tile.h"

/* The same but for the order of tiles and how they are written. */
bool alike_kernel(const struct hopper_tile *a, const struct hopper_tile *b);
/* How unlike the settings and stores of two launches are; 0: not at all. */
double alike_apart(const struct hopper_tile *a, const struct hopper_tile *b);

#endif
