/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "runner/strategy/strategy.h"

const struct space_point *grid_at(const struct grid *g, uint32_t candidate)
{
    return &g->space->points[g->point[candidate]];
}

static int grid_compare_points(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct space_point));
}

/* Numbers the variants in the order of the space, whose points of one variant are adjacent. */
static void number_variants(struct grid *g)
{
    for (uint32_t i = 0, last = GRID_NONE; i < g->space->n; i++) {
        const uint32_t c = g->rank[i];
        if (c != GRID_NONE) {
            g->n_variants += last == GRID_NONE || grid_compile_distance(g, last, c) > 0;
            g->variant[c] = g->n_variants - 1;
            last = c;
        }
    }
}

int grid_init(struct grid *g, const struct space *space, const uint32_t *point, uint32_t n,
              struct error *err)
{
    *g = (struct grid){.space = space, .point = point, .n = n};
    g->rank = malloc((space->n + 1) * sizeof(*g->rank));
    g->variant = malloc((n + 1) * sizeof(*g->variant));
    if (!g->rank || !g->variant) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", n);
    }
    while (g->n_compile < space->n_params && !space->params[g->n_compile].run_time) {
        g->n_compile++;
    }
    for (uint32_t i = 0; i < space->n; i++) {
        g->rank[i] = GRID_NONE;
    }
    for (uint32_t c = 0; c < n; c++) {
        g->rank[point[c]] = c;
    }
    number_variants(g);
    return 0;
}

void grid_deinit(struct grid *g)
{
    free(g->rank);
    free(g->variant);
}

uint32_t grid_find(const struct grid *g, const struct space_point *at)
{
    const struct space_point *all = g->space->points,
                             *p = bsearch(at, all, g->space->n, sizeof(*at), grid_compare_points);
    return p ? g->rank[p - all] : GRID_NONE;
}

static uint32_t count_differing(const struct grid *g, uint32_t a, uint32_t b, uint32_t first,
                                uint32_t end)
{
    const struct space_point *x = grid_at(g, a), *y = grid_at(g, b);
    uint32_t n = 0;
    for (uint32_t i = first; i < end; i++) {
        n += x->at[i] != y->at[i];
    }
    return n;
}

uint32_t grid_compile_distance(const struct grid *g, uint32_t a, uint32_t b)
{
    return count_differing(g, a, b, 0, g->n_compile);
}

uint32_t grid_settings_distance(const struct grid *g, uint32_t a, uint32_t b)
{
    return count_differing(g, a, b, g->n_compile, g->space->n_params);
}
