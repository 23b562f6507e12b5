/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/base/inputs.h"

uint64_t inputs_seed(const struct device *d, const struct request *q)
{
    const struct family *f = family_of_problem(&q->problem);
    const uint64_t asked = (uint64_t)q->query.seed;
    if (d && d->ops->rows_seed) {
        return d->ops->rows_seed(d, asked);
    }
    return f && f->wary_seed ? f->wary_seed(&q->problem, asked) : asked;
}

uint64_t inputs_drawn(const struct device *d, const struct request *q, uint64_t seed)
{
    return d->ops->rows_seed ? (uint64_t)q->query.seed : seed;
}
