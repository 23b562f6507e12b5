/* SPDX-License-Identifier: Apache-2.0 */
/* Order statistics of a few samples. */
#ifndef GEMMD_RUNNER_BASE_STATS_H
#define GEMMD_RUNNER_BASE_STATS_H

#include <stdint.h>

struct stats {
    double median, q25, q75;
};

/* n may be 0: all NaN. Linear interpolation between order statistics; `samples` is not changed.
 * At most STATS_MAX are looked at. */
enum { STATS_MAX = 256 };
struct stats stats_of(const double *samples, uint32_t n);
double stats_median(const double *samples, uint32_t n);

/* How far launches of one kernel in one visit scatter, pooled over visits. */
struct scatter {
    double squares; /* of relative deviations from the visit's mean */
    uint32_t free;  /* degrees of freedom */
};

void scatter_add(struct scatter *s, const double *samples, uint32_t n);
/* The standard deviation of a launch, as a part of its time; infinite: too little has been seen. */
double scatter_of(const struct scatter *s);

#endif
