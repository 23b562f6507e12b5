/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/families/grouped_gemm/hopper/model/model.h"

#include <math.h>

const struct hopper_corrections *hopper_corrections_used = &hopper_corrections_h200;

/* A trait (model.h) is a value in a group of traits, such as "rows of a tile", and a number. These
 * are the groups' sizes. A config whose value is not below the size has no trait of that group. */
enum {
    ROWS = 4,                 /* rows of a tile: 64, 128, 192, 256 */
    COLS = 8,                 /* columns of a tile, in steps of 32 */
    SHAPES = ROWS * COLS * 2, /* rows, columns, and swap_ab or not */
    /* one consumer; two consumers that share a tile; two that take turns (ping-pong) */
    TEAMS = 3,
    STAGES = HOPPER_STAGES_DEEP + 1,
    STAGINGS = 5,
    WALKS = 10, /* GROUP_SIZE_M 1, 2, 4, 8, 16 and more, in either direction */
    FLAG = 2,
    STORES = 4, /* dW: stores of one slab or two; output rows aligned to 256 bytes or not */
};

static const double ROWS_LEAST = 16,
                    /* corrections apply from ROWS_LEAST to ROWS_MOST mean rows of an expert:
                     * recorded are 32 to 1024 */
    ROWS_MOST = 1448;

struct traits {
    uint16_t *out;
    /* n: number of traits written to `out`; base: traits of all groups before the next group */
    uint32_t n, base;
};

static void traits_put_value(struct traits *x, uint32_t size, uint32_t value)
{
    if (value < size) {
        x->out[x->n++] = (uint16_t)(x->base + value);
    }
    x->base += size;
}

static uint32_t traits_shape_of(const struct hopper_tile *t)
{
    const int r = t->r / 64 - 1, c = t->c / 32 - 1;
    const bool known = r >= 0 && r < ROWS && c >= 0 && c < COLS;
    return known ? (uint32_t)((r * COLS + c) * 2 + t->swap_ab) : SHAPES;
}

static uint32_t team_of(const struct hopper_tile *t)
{
    return t->pingpong ? 2 : t->consumers > 1;
}

static uint32_t walk_of(const struct hopper_tile *t)
{
    uint32_t steps = 0;
    for (int group = t->group; group > 1 && steps < 4; group /= 2) {
        steps++;
    }
    return 2 * steps + t->raster_columns;
}

/* Joins a (below size_a) and b (below size_b) to a number below size_a * size_b; returns this
 * product if a or b is out of its range, so that the config gets no trait. */
static uint32_t traits_join_values(uint32_t a, uint32_t size_a, uint32_t b, uint32_t size_b)
{
    return a < size_a && b < size_b ? a * size_b + b : size_a * size_b;
}

uint32_t hopper_traits(const struct hopper_facts *f, const struct hopper_tile *t,
                       uint16_t out[HOPPER_TRAITS_MOST])
{
    struct traits x = {.out = out};
    const uint32_t shape = traits_shape_of(t), team = team_of(t), walk = walk_of(t);
    const uint32_t stages = (uint32_t)t->stages,
                   tile = traits_join_values(shape, SHAPES, team, TEAMS);
    const bool sums = f->v.mode == GEMM_DW;
    traits_put_value(&x, ROWS, shape < SHAPES ? shape / (COLS * 2) : ROWS);
    traits_put_value(&x, COLS, shape < SHAPES ? shape / 2 % COLS : COLS);
    traits_put_value(&x, FLAG, t->swap_ab);
    traits_put_value(&x, TEAMS, team);
    traits_put_value(&x, STAGES, stages);
    traits_put_value(&x, STAGINGS, (uint32_t)t->staging);
    traits_put_value(&x, FLAG, t->in_flight > 0);
    traits_put_value(&x, FLAG, t->skip_rows);
    traits_put_value(&x, FLAG, t->dynamic);
    traits_put_value(&x, FLAG, t->gather);
    /* landscapes recorded tiles of hopper_threads_write() with TMA stores */
    traits_put_value(&x, FLAG, t->tma_store || (!f->v.scatter && hopper_threads_write(&f->v, t)));
    traits_put_value(&x, WALKS, walk);
    traits_put_value(&x, FLAG * FLAG,
                     traits_join_values(t->swap_ab, FLAG, t->raster_columns, FLAG));
    traits_put_value(&x, FLAG * FLAG, traits_join_values(t->pingpong, FLAG, t->dynamic, FLAG));
    traits_put_value(&x, SHAPES * TEAMS, tile);
    traits_put_value(&x, SHAPES * TEAMS * FLAG,
                     traits_join_values(tile, SHAPES * TEAMS, t->gather, FLAG));
    traits_put_value(&x, SHAPES * STAGES, traits_join_values(shape, SHAPES, stages, STAGES));
    /* The order of tiles matters more in dW, where an expert's tiles all read the same few rows. */
    const uint32_t order = sums ? t->sort_experts : FLAG;
    traits_put_value(&x, FLAG, order);
    traits_put_value(&x, FLAG * SHAPES, traits_join_values(order, FLAG, shape, SHAPES));
    traits_put_value(&x, FLAG * WALKS, traits_join_values(order, FLAG, walk, WALKS));
    traits_put_value(&x, SHAPES * WALKS,
                     sums ? traits_join_values(shape, SHAPES, walk, WALKS) : SHAPES * WALKS);
    /* Where rows straddle memory's units of 256 bytes, other tiles are best for gathered rows than
     * for rows in order. */
    const bool straddles = sums && f->v.k * (int64_t)dtype_size(f->v.out) % 256 != 0;
    const uint32_t stores = sums ? (t->store_slabs > 1) * 2u + straddles : STORES;
    traits_put_value(&x, STORES * TEAMS, traits_join_values(stores, STORES, team, TEAMS));
    traits_put_value(&x, SHAPES * TEAMS * FLAG,
                     straddles ? traits_join_values(tile, SHAPES * TEAMS, t->gather, FLAG)
                               : SHAPES * TEAMS * FLAG);
    return x.n;
}

static double corrections_clamp(double v, double least, double most)
{
    return fmin(fmax(v, least), most);
}

static double rows_of_expert(const struct hopper_facts *f)
{
    return (double)f->v.m / (double)f->v.experts;
}

void hopper_aspects(const struct hopper_facts *f, double out[HOPPER_ASPECTS])
{
    const double size = (double)f->v.n * (double)f->v.k;
    out[0] = 1;
    out[1] = corrections_clamp((log2(rows_of_expert(f)) - 7) / 2, -1, 1.5);
    out[2] = corrections_clamp((log2(size) - 22) / 2, 0, 2.5);
}

/* Corrections learnt from recordings with fp8 operands made searches over other keys worse, so
 * tiles with scales have none. hopper_time() already models the limits of products of more rows and
 * of dense products, and errs less than corrections learnt from few rows. Below ROWS_MOST
 * hopper_time() errs more: in dW with 1024 rows an expert, searches on an H100 looked at tiles that
 * are 3 % slower. */
static bool is_like_recorded(const struct hopper_facts *f, const struct hopper_tile *t)
{
    const double rows = rows_of_expert(f);
    return !t->scales && f->v.experts > 1 && rows >= ROWS_LEAST && rows <= ROWS_MOST;
}

double hopper_expected(const struct hopper_facts *f, const struct hopper_tile *t)
{
    const double us = hopper_time(f, t, hopper_constants_of(t));
    uint16_t traits[HOPPER_TRAITS_MOST];
    double aspects[HOPPER_ASPECTS], sum = 0;
    if (!hopper_corrections_used || !is_like_recorded(f, t)) {
        return us;
    }
    const uint32_t n = hopper_traits(f, t, traits);
    hopper_aspects(f, aspects);
    for (uint32_t i = 0; i < n; i++) {
        const float *by = hopper_corrections_used->by[f->v.mode][traits[i]];
        for (int a = 0; a < HOPPER_ASPECTS; a++) {
            sum += by[a] * aspects[a];
        }
    }
    return us * exp(sum);
}
