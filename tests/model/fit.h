/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fitting the model's constants to measured times, and judging them. Deterministic: the same
 * measurements give the same constants, to the last bit on one machine.
 */
#ifndef GEMMD_TESTS_MODEL_FIT_H
#define GEMMD_TESTS_MODEL_FIT_H

#include "tests/model/measured.h"

enum { FIT_CONSTANTS = sizeof(struct hopper_constants) / sizeof(double) };

struct fit_constant {
    const char *name;
    double least, start, most;
    const char *what;
};
extern const struct fit_constant fit_constants[FIT_CONSTANTS];

/* The loss of one problem: how far predicted times are from measured ones, most of all near the
 * best, and what choosing by them would cost. */
double fit_loss(const struct measured_problem *p, const struct hopper_constants *c);

void fit_start(struct hopper_constants *c); /* where a fit begins, whatever was fitted before */
/* Improves *c over the problems of all sets but those of the model `without` (NULL: all), but for
 * the constants that are held (NULL: none). Returns the mean loss. */
double fit(const struct measured *sets, uint32_t n_sets, const char *without, const bool held[],
           struct hopper_constants *c);

#endif
