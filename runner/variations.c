/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a search's best config is tried with at its end, when the strategy wants nothing more:
 * run-time settings of the family's that are in no space (family_target.variation). Each would make
 * the space so many times as large, for a per cent or two on few problems; of one config they are
 * some milliseconds, and nothing is compiled for them.
 */
#include "runner/job_inner.h"

static bool may_be_measured(const struct job *j, const struct record *config)
{
    const struct device *d = j->runner->device;
    struct rejection why;
    return plan_check(&j->plan, config, &why) == 0 && plan_eligible(&j->plan, config) &&
           (!d->ops->knows || d->ops->knows(d, &j->order->request.problem, config));
}

uint32_t job_variations(const struct job *j, const struct record *config,
                        struct record out[VARIATIONS_MAX])
{
    const struct family_target *t = j->target;
    uint32_t n = 0;
    if (!t->variation || j->given) {
        return 0;
    }
    for (uint32_t i = 0;
         n < VARIATIONS_MAX && t->variation(&j->order->request.problem, config, i, &out[n]); i++) {
        n += may_be_measured(j, &out[n]);
    }
    return n;
}
