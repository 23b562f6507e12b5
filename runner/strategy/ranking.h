/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which the points of a space are looked at, by a tuning and by whoever compiles ahead
 * of it: by the analytic model, a time that it does not know last, ties in the order of the space,
 * so that the same problem is searched in the same order everywhere; then the front is mixed
 * (diverse.h).
 */
#ifndef GEMMD_RUNNER_STRATEGY_RANKING_H
#define GEMMD_RUNNER_STRATEGY_RANKING_H

#include "runner/strategy/diverse.h"

struct ranking_setup {         /* all borrowed */
    const struct space *space; /* with its points */
    const struct family_target *target;
    const struct problem *problem;
    const struct device_info *info;
    const struct workload *workload; /* NULL: the routing profile's expectation */
    /* Points that get no place; NULL: none. */
    bool (*leave_out)(const void *ctx, uint32_t point);
    const void *ctx;
};

/* Of a time: infinity where the model gives none. */
double ranking_known(double us);
/* *out: *n of them, owned by the caller, never NULL. ERROR_NO_MEMORY. */
int ranking_make(const struct ranking_setup *s, struct ranked **out, uint32_t *n,
                 struct error *err);

#endif
