/* SPDX-License-Identifier: Apache-2.0 */
/* Variations of a search's best config, tried at the end: run-time settings of the family that no
 * space has (family_target.variation). In the space, each setting would multiply the number of
 * points, for a per cent or two on few problems. For a single config they cost some milliseconds
 * and no compile. */
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
