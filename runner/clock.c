/* SPDX-License-Identifier: Apache-2.0 */
/* The time that a runner goes by, and how long it may take for something. */
#include "runner/runner.h"

double runner_now_ms(const struct runner *r)
{
    return r->compilers->now_ms(r);
}

int64_t runner_limit(const struct runner *r, double limit_ms)
{
    int64_t cap = r->opt.hang_limit_ms;
    return cap > 0 && (double)cap < limit_ms ? cap : (int64_t)limit_ms;
}
