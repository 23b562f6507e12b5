/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fits the model's constants to measured times, and judges them. Deterministic: the same
 * measurements give the same constants, to the last bit on a machine.
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

/* The loss of a problem: the error of predicted times, weighted by nearness to the best, and the
 * regret of choosing a config by predicted times. */
double fit_loss(const struct measured_problem *p, const struct hopper_constants *c);

void fit_start(struct hopper_constants
                   *c); /* the constants at which a fit starts, whatever earlier fits found */
/* Improves *c over the problems of all sets, except problems of the language model `without` (NULL:
 * none). Does not move constants with held[] true (NULL: all may move). Returns the mean loss. */
double fit(const struct measured *sets, uint32_t n_sets, const char *without, const bool held[],
           struct hopper_constants *c);

#endif
