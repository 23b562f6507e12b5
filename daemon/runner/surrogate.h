/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is to be expected of variants that were not measured, from those that were: a Gaussian
 * process over the logarithms of times, whose mean is the analytic model. Variants that differ in few
 * parameters err alike: the correlation of their errors falls by the same factor with each that
 * differs. Values are known up to what a measurement scatters, and what is a variant's own.
 *
 * A belief that nothing was learnt from (a proposal that is out) leaves the mean and takes away doubt,
 * so that a batch is not one variant and its likes.
 */
#ifndef GEMMD_RUNNER_SURROGATE_H
#define GEMMD_RUNNER_SURROGATE_H

#include "daemon/runner/grid.h"

struct surrogate {
    const struct grid *grid;        /* borrowed */
    const uint32_t *representative; /* borrowed: a candidate of each variant */
    uint32_t n;                     /* variants */
    uint32_t n_rows, room;
    double *mean, *variance; /* owned, by variant */
    double *rows;            /* owned: of the Cholesky factor, n of each observation */
};

int surrogate_init(struct surrogate *s, const struct grid *grid, const uint32_t *representative,
                   struct error *err);
void surrogate_deinit(struct surrogate *s);
/* Forgets all; the mean is `prior` (logarithms, by variant). */
void surrogate_begin(struct surrogate *s, const double prior[]);
/* A variant has this value; NAN: it will have one. No memory: it is not learnt. */
void surrogate_learn(struct surrogate *s, uint32_t variant, double value);
/* What a variant may well reach: a standard deviation below the mean. */
double surrogate_hope(const struct surrogate *s, uint32_t variant);

#endif
