/* SPDX-License-Identifier: Apache-2.0 */
/* Medians and quartiles of launch times. These have a long tail of slow launches, which would
 * distort a mean. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/stats.h"

enum { SCATTER_KNOWN = 8 }; /* a standard deviation of fewer launches is inexact */

static int stats_compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double stats_quantile(const double *sorted, uint32_t n, double q)
{
    double at = q * (n - 1);
    uint32_t low = (uint32_t)at;
    uint32_t high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

struct stats stats_of(const double *samples, uint32_t n)
{
    if (n == 0) {
        return (struct stats){NAN, NAN, NAN};
    }
    double sorted[STATS_MAX];
    n = n < STATS_MAX ? n : STATS_MAX;
    memcpy(sorted, samples, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), stats_compare_doubles);
    return (struct stats){stats_quantile(sorted, n, 0.5), stats_quantile(sorted, n, 0.25),
                          stats_quantile(sorted, n, 0.75)};
}

void scatter_add(struct scatter *s, const double *samples, uint32_t n)
{
    double mean = 0;
    for (uint32_t i = 0; i < n; i++) {
        mean += samples[i] / n;
    }
    if (!(mean > 0) || !isfinite(mean)) {
        return; /* the clock gave no time */
    }
    for (uint32_t i = 0; i < n; i++) {
        double off = samples[i] / mean - 1;
        s->squares += off * off;
    }
    s->free += n > 0 ? n - 1 : 0;
}

double scatter_of(const struct scatter *s)
{
    return s->free < SCATTER_KNOWN ? INFINITY : sqrt(s->squares / s->free);
}

double stats_median(const double *samples, uint32_t n)
{
    return stats_of(samples, n).median;
}
