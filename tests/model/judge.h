/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regret of following the model: for each measured problem, how much slower than the best
 * measured config is the model's first choice, or the best of its first four, eight, sixteen.
 */
#ifndef GEMMD_TESTS_MODEL_JUDGE_H
#define GEMMD_TESTS_MODEL_JUDGE_H

#include "tests/model/measured.h"

enum { JUDGE_FIRST, JUDGE_4, JUDGE_8, JUDGE_16, JUDGE_TYPICAL, JUDGE_CHOICE, JUDGES };
extern const char *const judge_names[JUDGES];

struct verdict {
    double regret[JUDGES]; /* by judge; 0.01: one per cent slower than the best; NAN: unknown */
    uint32_t best,
        first; /* indices into times[]: of the fastest config, and of the model's first choice */
    uint32_t rank; /* place of the fastest config in the model's order, from 0 */
    bool exact; /* true: choose()'s config was measured; false: only its kernel with other settings
                 */
};
/* Judges the model with the constants `c`; NULL: with the constants and corrections that
 * predictions use. */
void judge(const struct measured_problem *p, const struct hopper_constants *c, struct verdict *out);

/* Sums up many verdicts: the median, 95th percentile and maximum of each kind of regret. */
struct summary {
    uint32_t n[JUDGES];
    double median[JUDGES], p95[JUDGES], most[JUDGES];
};
void judge_sum(const struct verdict *all, uint32_t n, struct summary *out);

#endif
