/* SPDX-License-Identifier: Apache-2.0 */
/* Order statistics of a few samples. */
#ifndef GEMMD_RUNNER_BASE_STATS_H
#define GEMMD_RUNNER_BASE_STATS_H

#include <stdint.h>

struct stats {
    double median, q25, q75;
};

/* Median and quartiles, interpolated between the two nearest samples. With n = 0 all are NaN. Only
 * the first STATS_MAX samples count. */
enum { STATS_MAX = 256 };
struct stats stats_of(const double *samples, uint32_t n);
double stats_median(const double *samples, uint32_t n);

/* How much launches of the same kernel differ, pooled over all visits of all kernels of a run. A
 * visit is one series of launches of one kernel. */
struct scatter {
    double squares; /* sum of the squares of relative deviations from the visit's mean */
    uint32_t free;  /* degrees of freedom */
};

void scatter_add(struct scatter *s, const double *samples, uint32_t n);
/* The standard deviation of a launch's time, as a fraction of that time; INFINITY: too few
 * launches. */
double scatter_of(const struct scatter *s);

#endif
