/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the buffers of small problems while a stage runs many variants on each problem. */
#ifndef GEMMD_TESTS_GPU_HOPPER_SHELF_H
#define GEMMD_TESTS_GPU_HOPPER_SHELF_H

#include "tests/gpu/hopper/watch.h"

enum { SHELF_SHAPES = VARIANT_SHAPES + 1 };
_Static_assert((int)SOAK_SHAPES <= (int)VARIANT_SHAPES, "a place for each problem of either stage");

struct data *shelf_get(struct lab *lab, int kind, int which, const struct shape *shape);
void shelf_clear(void);

#endif
