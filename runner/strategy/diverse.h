/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a search that can afford few measurements: good by the model first, but not many of
 * a kind before anything else has been tried.
 */
#ifndef GEMMD_RUNNER_STRATEGY_DIVERSE_H
#define GEMMD_RUNNER_STRATEGY_DIVERSE_H

#include "kernels/space.h"

enum {
    DIVERSE_CHOICES = 128, /* places that are filled this way; the rest keeps its order */
    DIVERSE_FROM = 4096,   /* from so many of the first by prediction */
    DIVERSE_NEAR = 2,      /* points are alike that differ in no more parameters than this */
};

struct ranked {
    double predicted; /* microseconds */
    uint32_t point;   /* of the space */
};

/* Reorders what is sorted by prediction. The first stays the first, ties keep their order, and the
 * same input always makes the same order. ERROR_NO_MEMORY leaves it as it was. */
int diverse_order(const struct space_point points[], struct ranked *ranked, uint32_t n,
                  struct error *err);

#endif
