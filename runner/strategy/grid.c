/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "runner/strategy/grid.h"

const struct space_point *grid_at(const struct grid *g, uint32_t candidate)
{
    return &g->space->points[g->point[candidate]];
}

static int by_point(const void *a, const void *b, void *ctx)
{
    const struct grid *g = ctx;
    return memcmp(grid_at(g, *(const uint32_t *)a), grid_at(g, *(const uint32_t *)b),
                  sizeof(struct space_point));
}

static void number_variants(struct grid *g)
{
    for (uint32_t i = 0; i < g->n; i++) { /* points of a variant are adjacent */
        bool same = i > 0 && grid_compile_distance(g, g->sorted[i - 1], g->sorted[i]) == 0;
        g->n_variants += !same;
        g->variant[g->sorted[i]] = g->n_variants - 1;
    }
}

int grid_init(struct grid *g, const struct space *space, const uint32_t *point, uint32_t n,
              struct error *err)
{
    *g = (struct grid){.space = space, .point = point, .n = n};
    g->sorted = malloc((n + 1) * sizeof(*g->sorted));
    g->variant = malloc((n + 1) * sizeof(*g->variant));
    if (!g->sorted || !g->variant) {
        grid_deinit(g);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", n);
    }
    while (g->n_compile < space->n_params && !space->params[g->n_compile].run_time) {
        g->n_compile++;
    }
    for (uint32_t i = 0; i < n; i++) {
        g->sorted[i] = i;
    }
    qsort_r(g->sorted, n, sizeof(*g->sorted), by_point, g);
    number_variants(g);
    return 0;
}

void grid_deinit(struct grid *g)
{
    free(g->sorted);
    free(g->variant);
    g->sorted = g->variant = NULL;
}

uint32_t grid_find(const struct grid *g, const struct space_point *at)
{
    uint32_t low = 0, high = g->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = memcmp(grid_at(g, g->sorted[middle]), at, sizeof(*at));
        if (order == 0) {
            return g->sorted[middle];
        }
        *(order < 0 ? &low : &high) = order < 0 ? middle + 1 : middle;
    }
    return GRID_NONE;
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
