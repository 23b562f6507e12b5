/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "runner/strategy/ranking.h"

double ranking_known(double us)
{
    return isnan(us) ? INFINITY : us;
}

static int ranking_compare(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->predicted != y->predicted) {
        return x->predicted < y->predicted ? -1 : 1;
    }
    return (x->point > y->point) - (x->point < y->point);
}

static uint32_t ranking_sort(const struct ranking_setup *s, const double us[], struct ranked *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->space->n; i++) {
        if (!s->leave_out || !s->leave_out(s->ctx, i)) {
            out[n++] = (struct ranked){ranking_known(us[i]), i};
        }
    }
    qsort(out, n, sizeof(*out), ranking_compare);
    return n;
}

int ranking_make(const struct ranking_setup *s, struct ranked **out, uint32_t *n, struct error *err)
{
    const uint32_t points = s->space->n;
    double *us = calloc(points + 1, sizeof(*us));
    *out = calloc(points + 1, sizeof(**out));
    int r =
        us && *out ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory to rank %u configs", points);
    if (r == 0) {
        space_predict(s->space, s->target, s->problem, s->info, s->workload, us);
        *n = ranking_sort(s, us, *out);
        r = diverse_order(s->space->points, *out, *n, err);
    }
    free(us);
    if (r) {
        free(*out);
        *out = NULL;
    }
    return r;
}
