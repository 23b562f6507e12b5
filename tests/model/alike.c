/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/alike.h"

#include <math.h>

static bool same_kernel(const struct hopper_tile *a, const struct hopper_tile *b)
{
    return a->r == b->r && a->c == b->c && a->consumers == b->consumers &&
           a->pingpong == b->pingpong && a->stages == b->stages && a->in_flight == b->in_flight &&
           a->skip_rows == b->skip_rows && a->dynamic == b->dynamic && a->ksplit == b->ksplit &&
           a->permute_copy == b->permute_copy && a->swap_ab == b->swap_ab &&
           a->deferred == b->deferred && a->staggered == b->staggered &&
           hopper_sharers(a) == hopper_sharers(b);
}

static double settings_apart(const struct hopper_tile *a, const struct hopper_tile *b)
{
    return fabs(log2((double)a->group / b->group)) + 8 * (a->raster_columns != b->raster_columns) +
           16 * (a->sort_experts != b->sort_experts) + 32 * (a->staging != b->staging) +
           64 * (a->tma_store != b->tma_store);
}

struct alike alike_to(const struct hopper_tile *tile)
{
    return (struct alike){.tile = *tile, .apart = INFINITY, .us = NAN};
}

void alike_look(struct alike *a, const struct hopper_tile *tile, double us)
{
    const double apart = same_kernel(&a->tile, tile) ? settings_apart(&a->tile, tile) : INFINITY;
    if (apart < a->apart) {
        a->apart = apart;
        a->us = us;
    }
}
