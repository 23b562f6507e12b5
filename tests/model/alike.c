/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/alike.h"

#include <math.h>

bool alike_kernel(const struct hopper_tile *a, const struct hopper_tile *b)
{
    return a->r == b->r && a->c == b->c && a->consumers == b->consumers &&
           a->pingpong == b->pingpong && a->stages == b->stages && a->in_flight == b->in_flight &&
           a->skip_rows == b->skip_rows && a->dynamic == b->dynamic &&
           a->ksplit == b->ksplit && a->permute_copy == b->permute_copy &&
           a->swap_ab == b->swap_ab && a->deferred == b->deferred && a->staggered == b->staggered &&
           hopper_sharers(a) == hopper_sharers(b);
}

double alike_apart(const struct hopper_tile *a, const struct hopper_tile *b)
{
    return fabs(log2((double)a->group / b->group)) + 8 * (a->raster_columns != b->raster_columns) +
           16 * (a->sort_experts != b->sort_experts) + 32 * (a->staging != b->staging) +
           64 * (a->tma_store != b->tma_store);
}
