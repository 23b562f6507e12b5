/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is to be expected of configs that were not measured, from those that were: a Gaussian
 * process over the logarithms of times, whose mean is the analytic model. Configs that differ in
 * few parameters err alike. The model errs by a constant, by single values of what is compiled,
 * whose errors add up, and by what values are together, which falls by the same factor with each
 * more that differs, so that what one variant shows of a setting is expected of its like, too.
 *
 * It looks at the SURROGATE_MOST candidates that are predicted fastest: of the others nothing is
 * hoped, and nothing learnt. A value that is only expected (a proposal that is out) leaves the mean
 * and takes away doubt, so that a batch is not one config and its likes; surrogate_forget takes
 * expectations back.
 */
#ifndef GEMMD_RUNNER_STRATEGY_SURROGATE_H
#define GEMMD_RUNNER_STRATEGY_SURROGATE_H

#include "runner/strategy/grid.h"

enum { SURROGATE_MOST = 8192 };

struct surrogate {
    const struct grid *grid;        /* borrowed */
    uint32_t n;                     /* members: candidates that it looks at */
    uint32_t *member;               /* owned: their numbers */
    uint32_t *place;                /* owned, by candidate: among the members, or GRID_NONE */
    double unit;                    /* between the first value and its prediction; NaN: none yet */
    uint32_t n_rows, room, n_known; /* rows: known values, then expected ones */
    double *mean, *variance;        /* owned, by member; logarithms */
    double *rows;                   /* owned: of the Cholesky factor, n of each value */
};

/* predicted: of all candidates; borrowed for the call. */
int surrogate_init(struct surrogate *s, const struct grid *grid, const double predicted[],
                   struct error *err);
void surrogate_deinit(struct surrogate *s);
/* A candidate took so long, in any unit that all values have in common. No memory: not learnt. */
void surrogate_learn(struct surrogate *s, uint32_t candidate, double value);
/* A candidate's value will come. */
void surrogate_expect(struct surrogate *s, uint32_t candidate);
void surrogate_forget(struct surrogate *s); /* what was expected */
/* What a candidate may reach: so many standard deviations below the mean, as a logarithm that
 * compares with surrogate_value. INFINITY: nothing is known of it. */
double surrogate_hope(const struct surrogate *s, uint32_t candidate, double deviations);
/* By how much it is expected to fall below `value`, which is most often not at all: of a logarithm,
 * so about a part. INFINITY: nothing is known of it. */
double surrogate_gain(const struct surrogate *s, uint32_t candidate, double value);
double surrogate_value(const struct surrogate *s, double value);

#endif
