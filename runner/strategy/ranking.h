/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which the points of a space are looked at, by a tuning and by whoever compiles ahead
 * of it: by the analytic model, a time that it does not know last, ties in the order of the space,
 * so that the same problem is searched in the same order everywhere; then the front is mixed
 * (diverse_order).
 */
#ifndef GEMMD_RUNNER_STRATEGY_RANKING_H
#define GEMMD_RUNNER_STRATEGY_RANKING_H

#include "kernels/space.h"

struct ranked {
    double predicted; /* microseconds */
    uint32_t point;   /* of the space */
};

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

/*
 * The order of a search that can afford few measurements: good by the model first, but not many of
 * a kind before anything else has been tried.
 */

enum {
    DIVERSE_CHOICES = 128, /* places that are filled this way; the rest keeps its order */
    DIVERSE_FROM = 4096,   /* from so many of the first by prediction */
    DIVERSE_NEAR = 2,      /* points are alike that differ in no more parameters than this */
};

/* Reorders what is sorted by prediction. The first stays the first, ties keep their order, and the
 * same input always makes the same order. ERROR_NO_MEMORY leaves it as it was. */
int diverse_order(const struct space_point points[], struct ranked *ranked, uint32_t n,
                  struct error *err);

#endif
