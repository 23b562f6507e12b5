/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measured launch that stands for an unmeasured launch: the same kernel except for the order of
 * tiles and the way to write tiles, with the most similar settings and stores.
 */
#ifndef GEMMD_TESTS_MODEL_ALIKE_H
#define GEMMD_TESTS_MODEL_ALIKE_H

#include "kernels/families/grouped_gemm/hopper/host/hopper.h"

struct alike {
    struct hopper_tile tile; /* of the unmeasured launch */
    double apart; /* distance to the nearest measured launch; 0: equal, INFINITY: there is none */
    double us;    /* microseconds of the nearest measured launch; NAN: there is none */
};

struct alike alike_to(const struct hopper_tile *tile);
/* Looks at another measured launch, and keeps its time if the launch is the nearest so far. */
void alike_look(struct alike *a, const struct hopper_tile *tile, double us);

#endif
