/* SPDX-License-Identifier: Apache-2.0 */
/* Decides when a search is set aside; aside.h has the reasons. */
#include <math.h>

#include "runner/job_inner.h"

enum {
    AFTER_MS = 40,    /* a build that takes longer was not found in the cache */
    WORTH_MS = 200,   /* shorter waits do not set the search aside */
    TRIALS_LEAST = 6, /* trials that an order must have measured before it is set aside to wait */
    TURN_MS = 10000,  /* an order's turn on the device: longer than most searches take */
};

/* True when this order has measured enough candidates and the reference. */
static bool has_measured(const struct job *j, uint32_t trials)
{
    return j->done >= j->done_before + trials && isfinite(j->reference_us);
}

bool job_turn_is_over(const struct job *j)
{
    const double prepared = j->turn_began_ms - j->order_began_ms,
                 had = runner_now_ms(j->runner) - j->turn_began_ms;
    return j->runner->others_wait && had >= fmax(TURN_MS, prepared) && has_measured(j, 1);
}

int64_t job_patience(const struct job *j, struct candidate *const queue[], uint32_t n)
{
    const struct compilers_ops *compilers = j->runner->compilers;
    double left = INFINITY, ran = 0;
    if (!j->runner->others_wait || j->given || !has_measured(j, TRIALS_LEAST)) {
        return ASIDE_NEVER;
    }
    for (uint32_t i = 0; i < n; i++) {
        double ms = compilers->left_ms(j, queue[i]);
        left = isnan(ms) ? 0 : fmin(left, ms);
        ran = fmax(ran, compilers->ran_ms(j, queue[i]));
    }
    if (left < WORTH_MS) {
        return ASIDE_NEVER;
    }
    struct build *longest;
    bool taken = ran == 0 && compile_pool_longest(j->runner->pool, &longest) >= AFTER_MS;
    if (ran >= AFTER_MS || taken /* other compiles occupy the compilers */) {
        return 0;
    }
    return AFTER_MS - (int64_t)ran; /* the variant may be found in the cache */
}
