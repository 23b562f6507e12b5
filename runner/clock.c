/* SPDX-License-Identifier: Apache-2.0 */
/* The time that a runner goes by, and how long it may take for something. */
#include <time.h>

#include "runner/runner.h"

double runner_now_ms(const struct runner *r)
{
    struct timespec t;
    if (r->replay) {
        return lanes_now(&r->lanes, r->device);
    }
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int64_t runner_limit(const struct runner *r, double limit_ms)
{
    int64_t cap = r->opt.hang_limit_ms;
    return cap > 0 && (double)cap < limit_ms ? cap : (int64_t)limit_ms;
}
