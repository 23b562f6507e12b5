/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates of a strategy as points of a space: which candidates share a variant, how near
 * candidates are, and which candidate a point is. */
#ifndef GEMMD_RUNNER_STRATEGY_GRID_H
#define GEMMD_RUNNER_STRATEGY_GRID_H

#include "kernels/space.h"

#define GRID_NONE UINT32_MAX

struct grid {
    const struct space *space; /* borrowed */
    const uint32_t *point;     /* borrowed: by candidate */
    uint32_t n;                /* candidates */
    uint32_t n_compile;        /* compile-time parameters; run-time parameters follow */
    uint32_t *rank;    /* owned: candidate, by point; GRID_NONE: the point is no candidate */
    uint32_t *variant; /* owned: variant number, by candidate; in the order of the points */
    uint32_t n_variants;
};

int grid_init(struct grid *g, const struct space *space, const uint32_t *point, uint32_t n,
              struct error *err);
void grid_deinit(struct grid *g);

const struct space_point *grid_at(const struct grid *g, uint32_t candidate);
/* GRID_NONE: the point is no candidate. */
uint32_t grid_find(const struct grid *g, const struct space_point *at);
/* The number of parameters in which the variants of two candidates differ. */
uint32_t grid_compile_distance(const struct grid *g, uint32_t a, uint32_t b);
/* The number of run-time parameters in which two candidates differ. */
uint32_t grid_settings_distance(const struct grid *g, uint32_t a, uint32_t b);

#endif
