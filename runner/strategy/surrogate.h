/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expected times of configs that were not measured, from configs that were: a Gaussian process over
 * the logarithms of times, with the analytic model as its mean. The model errs alike for configs
 * that differ in few parameters. Its error has three parts: a constant; a sum over single
 * compile-time values; and a part of their combination, which shrinks by the same factor with each
 * parameter that differs. So a measured setting of one variant changes the expectation for similar
 * variants.
 *
 * The process covers the SURROGATE_MOST candidates that are predicted fastest, and ignores the
 * rest. surrogate_expect adds a pending proposal (proposed, not yet measured): the mean stays, the
 * variance shrinks, so that a step does not propose only similar configs. surrogate_forget removes
 * the pending proposals.
 */
#ifndef GEMMD_RUNNER_STRATEGY_SURROGATE_H
#define GEMMD_RUNNER_STRATEGY_SURROGATE_H

#include "runner/strategy/strategy.h"

enum { SURROGATE_MOST = 8192 };

struct surrogate {
    const struct grid *grid;        /* borrowed */
    uint32_t n;                     /* members: the candidates that the process covers */
    uint32_t *member;               /* owned: candidate of each member */
    uint32_t *place;                /* owned: member of each candidate, or GRID_NONE */
    double unit;                    /* log(first value / its prediction); NaN: no value yet */
    uint32_t n_rows, room, n_known; /* rows of known values, then of pending proposals */
    double *mean, *variance;        /* owned, by member; of the logarithm of the time */
    /* owned: rows of the covariance's Cholesky factor, n numbers for each value or proposal */
    double *rows;
};

/* predicted: the predicted times of all candidates, borrowed for the call. After an error, too, the
 * caller calls surrogate_deinit. */
int surrogate_init(struct surrogate *s, const struct grid *grid, const double predicted[],
                   struct error *err);
void surrogate_deinit(struct surrogate *s);
/* Adds a measured time, in any unit that all values share. Without memory the value is ignored. */
void surrogate_learn(struct surrogate *s, uint32_t candidate, double value);
/* Marks a candidate as pending: the head of this file. */
void surrogate_expect(struct surrogate *s, uint32_t candidate);
void surrogate_forget(struct surrogate *s); /* removes the pending proposals */
/* A candidate's predicted logarithm of time less `deviations` standard deviations, in the unit of
 * surrogate_value(). INFINITY: the surrogate does not know the candidate. */
double surrogate_hope(const struct surrogate *s, uint32_t candidate, double deviations);
/* By how much a candidate's logarithm of time is expected to be below `value`: 0.1 means that the
 * candidate takes about a tenth less time. INFINITY: the surrogate does not know the candidate. */
double surrogate_gain(const struct surrogate *s, uint32_t candidate, double value);
/* The logarithm of a measured time, in the unit of the predicted times. */
double surrogate_value(const struct surrogate *s, double value);

#endif
