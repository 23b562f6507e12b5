/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which measured launch stands for one that was not measured: of the same kernel, but for the order
 * of tiles and how they are written, the one whose settings and stores are most like its own.
 */
#ifndef GEMMD_TESTS_MODEL_ALIKE_H
#define GEMMD_TESTS_MODEL_ALIKE_H

#include "kernels/families/grouped_gemm/hopper/host/tile.h"

struct alike {
    struct hopper_tile tile; /* of the launch that it is about */
    double apart; /* how unlike it the nearest is; 0: not at all, INFINITY: there is none */
    double us;    /* that one's time; NAN: there is none */
};

struct alike alike_to(const struct hopper_tile *tile);
/* Another launch that was measured. */
void alike_look(struct alike *a, const struct hopper_tile *tile, double us);

#endif
