/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analytic default: the config that the model finds fastest among tiles that have won a
 * measurement, with all run-time settings of each. The default is not chosen from the whole space:
 * the model is least reliable where nothing was measured, and choosing must not take long.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/model/model.h"

struct winner {
    int r, c, warps; /* r, c: rows and columns of the output in a tile */
    const char *schedule;
    int stages, staging, in_flight;
    enum { NO = 0, SKIP = 1, DYNAMIC = 2, BOTH = SKIP | DYNAMIC, SWAP = 4, SWAP_DYNAMIC = 6 } tails;
    int split; /* NUM_KSPLIT; 0: 1 */
    bool pair; /* cluster_shape_mn=2x1: two thread blocks share their weights */
};

/* Forward and dX: a greedy cover of the measured winners, and of tiles within 1 % of the winner for
 * many problems. Clusters of two and deferred tiles come first: they won 134 of 204 searches on
 * H200s and an H100. The last tile is the smallest and always fits. */
static const struct winner of_rows[] = {
    {192, 256, 12, "cooperative", 3, 1, 0, SWAP_DYNAMIC, .pair = true},
    {192, 256, 12, "cooperative", 3, 1, 0, SWAP, .pair = true},
    {160, 256, 12, "cooperative", 4, 1, 0, SWAP_DYNAMIC, .pair = true},
    {160, 256, 12, "deferred", 4, 1, 0, SWAP_DYNAMIC, .pair = true},
    {144, 256, 12, "deferred", 4, 1, 0, SWAP, .pair = true},
    {144, 256, 12, "deferred", 4, 1, 1, SWAP_DYNAMIC, .pair = true},
    {144, 256, 12, "deferred", 4, 1, 0, SWAP},
    {256, 192, 12, "cooperative", 3, 1, 0, BOTH},
    {256, 128, 12, "cooperative", 4, 2, 0, SWAP_DYNAMIC},
    {160, 256, 12, "cooperative", 4, 1, 1, SWAP},
    {160, 256, 12, "cooperative", 4, 1, 1, SWAP_DYNAMIC},
    {160, 256, 12, "cooperative", 4, 1, 0, SWAP},
    {192, 256, 12, "cooperative", 3, 2, 1, SWAP},
    {192, 256, 12, "cooperative", 3, 2, 1, SWAP_DYNAMIC},
    {192, 256, 12, "cooperative", 3, 1, 1, SWAP_DYNAMIC},
    {192, 128, 12, "pingpong", 4, 2, 1, SWAP},
    {192, 128, 12, "pingpong", 5, 1, 1, SWAP},
    {160, 128, 12, "pingpong", 5, 2, 1, SWAP},
    {160, 128, 12, "pingpong", 5, 1, 1, SWAP},
    {256, 128, 12, "cooperative", 4, 2, 1, SWAP},
    {256, 128, 12, "cooperative", 4, 2, 1, SWAP_DYNAMIC},
    {64, 256, 12, "cooperative", 5, 1, 1, SWAP},
    {64, 128, 8, "cooperative", 8, 2, 1, SWAP},
    {256, 192, 12, "cooperative", 3, 1, 1, NO},
    {256, 192, 12, "cooperative", 3, 1, 1, DYNAMIC},
    {256, 192, 12, "cooperative", 3, 1, 1, BOTH},
    {128, 256, 12, "cooperative", 4, 2, 1, NO},
    {128, 256, 12, "cooperative", 4, 2, 1, BOTH},
    {128, 192, 12, "pingpong", 4, 1, 1, NO},
    {128, 128, 12, "pingpong", 5, 2, 1, SKIP},
    {128, 128, 12, "cooperative", 6, 2, 1, NO},
    {64, 256, 12, "pingpong", 4, 2, 1, NO},
    {64, 256, 8, "cooperative", 5, 1, 1, NO},
    {64, 128, 8, "cooperative", 8, 2, 1, NO},
    {64, 64, 8, "cooperative", 8, 1, 1, NO, 2},
    {64, 64, 8, "cooperative", 8, 1, 1, NO, 4},
    {64, 128, 8, "cooperative", 6, 1, 1, NO, 4},
    {64, 64, 8, "cooperative", 8, 1, 1, NO},
};

static const struct winner of_weights[] = {
    {128, 256, 12, "cooperative", 4, 2, 1, NO},   {128, 256, 12, "cooperative", 4, 2, 1, SKIP},
    {128, 256, 12, "cooperative", 4, 2, 0, NO},   {128, 256, 12, "cooperative", 3, 4, 1, NO},
    {256, 192, 12, "cooperative", 3, 1, 1, NO},   {256, 128, 12, "cooperative", 4, 1, 1, NO},
    {256, 128, 12, "cooperative", 4, 1, 1, SKIP}, {128, 192, 12, "pingpong", 4, 1, 1, NO},
    {128, 192, 12, "pingpong", 4, 2, 1, NO},      {128, 192, 12, "pingpong", 4, 1, 1, SKIP},
    {192, 128, 12, "pingpong", 4, 1, 1, NO},      {128, 128, 12, "pingpong", 5, 2, 1, NO},
    {128, 128, 12, "pingpong", 5, 2, 1, SKIP},    {128, 128, 12, "cooperative", 6, 2, 1, NO},
    {64, 256, 12, "pingpong", 4, 2, 1, NO},       {64, 192, 12, "pingpong", 5, 2, 1, NO},
    {64, 256, 8, "cooperative", 5, 1, 1, NO},     {64, 128, 8, "cooperative", 8, 2, 1, NO},
    {64, 64, 8, "cooperative", 8, 1, 1, NO},
};
enum {
    ROWS_WINNERS = sizeof(of_rows) / sizeof(of_rows[0]),
    WEIGHTS_WINNERS = sizeof(of_weights) / sizeof(of_weights[0]),
    WINNERS_MOST = ROWS_WINNERS > WEIGHTS_WINNERS ? ROWS_WINNERS : WEIGHTS_WINNERS,
};

static void put_tile(const struct gemm *v, const struct winner *w, struct record *config)
{
    const int size[GEMM_ROLES] = {w->r, w->c, HOPPER_DEPTH};
    hopper_put_tile(v, size, w->warps, w->stages, w->schedule, config);
    record_put_int(config, "staging_buffers", v->scatter ? 1 : w->staging);
    record_put_int(config, "in_flight", w->in_flight);
    record_put_bool(config, "skip_rows", w->tails & SKIP);
    if (v->mode != GEMM_DW) {
        record_put_text(config, "tile_scheduler", w->tails & DYNAMIC ? "dynamic" : "static");
        record_put_int(config, "NUM_KSPLIT", w->split ? w->split : 1);
        record_put_bool(config, "swap_ab", w->tails & SWAP);
    }
    record_put_text(config, "cluster_shape_mn", w->pair ? "2x1" : "1x1");
    record_put_bool(config, "use_tma_store", !v->scatter && !w->split);
    hopper_put_loads(v, config);
}

void hopper_put_loads(const struct gemm *v, struct record *config)
{
    if (v->mode != GEMM_DX) {
        record_put_bool(config, "use_tma_load_x", !v->gather_x);
    }
    if (v->mode != GEMM_DW) {
        record_put_bool(config, "use_tma_load_w", true);
    }
    if (v->mode != GEMM_FORWARD) {
        record_put_bool(config, "use_tma_load_dy", !v->gather_dy);
    }
}

void hopper_put_run_time(const struct gemm *v, const struct hopper_tile *t, struct record *config)
{
    record_put_int(config, "GROUP_SIZE_M", t->group);
    record_put_text(config, "raster", t->raster_columns ? "columns" : "rows");
    if (v->mode == GEMM_DW) {
        record_put_text(config, "expert_order", t->sort_experts ? "size" : "index");
    }
}

/* values of GROUP_SIZE_M: the first is usual; in dW 1 is usual */
static const int groups[] = {8, 1, 4, 16};

double hopper_best_run_time(const struct hopper_facts *f, struct hopper_tile *t)
{
    const bool sorts = f->v.mode == GEMM_DW && f->v.experts <= HOPPER_SORT_MAX;
    struct hopper_tile one = *t;
    double best = hopper_expected(f, t);
    for (int i = 0; i < 8 * (1 + sorts); i++) {
        one.group = groups[i % 4];
        one.raster_columns = i & 4;
        one.sort_experts = i & 8;
        const double us = hopper_expected(f, &one);
        if (us < best) {
            best = us;
            *t = one;
        }
    }
    return best;
}

struct candidate {
    double us; /* predicted time with usual run-time settings */
    const struct winner *winner;
    bool copy;
};

static int hopper_compare_times(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->us != y->us) {
        return x->us < y->us ? -1 : 1;
    }
    return (x->winner > y->winner) - (x->winner < y->winner);
}

static void make_tile(const struct hopper_facts *f, const struct candidate *c,
                      struct record *config, struct hopper_tile *t)
{
    put_tile(&f->v, c->winner, config);
    if (f->v.gather_x || f->v.gather_dy) {
        record_put_bool(config, "permute_copy", c->copy);
    }
    hopper_tile_make(&f->v, config, t);
    if (hopper_threads_write(&f->v, t)) {
        record_put_bool(config, "use_tma_store", false);
        record_put_int(config, "staging_buffers", 1);
        hopper_tile_make(&f->v, config, t);
    }
    t->group = f->v.mode == GEMM_DW ? 1 : groups[0];
}

/* True unless experts have too few rows for the tile's cluster of two, or for its
 * schedule=deferred. */
static bool hopper_winner_pays(const struct gemm *v, const struct winner *w)
{
    return (!w->pair || hopper_pair_pays(v)) &&
           (strcmp(w->schedule, "deferred") != 0 || hopper_defer_pays(v));
}

static int hopper_rank_winners(const struct hopper_facts *f, struct candidate out[2 * WINNERS_MOST])
{
    int ranked = 0;
    const bool dw = f->v.mode == GEMM_DW;
    const struct winner *winners = dw ? of_weights : of_rows;
    const int n = dw ? WEIGHTS_WINNERS : ROWS_WINNERS;
    const int all = n * (f->v.gather_x || f->v.gather_dy ? 2 : 1);
    for (int i = 0; i < all; i++) {
        struct record config;
        struct hopper_tile t;
        struct candidate c = {.winner = &winners[i % n], .copy = i >= n};
        if (hopper_winner_pays(&f->v, c.winner)) {
            make_tile(f, &c, &config, &t);
            c.us = hopper_expected(f, &t);
            out[ranked++] = c;
        }
    }
    qsort(out, (size_t)ranked, sizeof(*out), hopper_compare_times);
    return ranked;
}

/* Writes the best of the first few legal tiles of all[], with its best run-time settings, which
 * save only a few per cent of the time, to *config. `worthy`: consider only tiles that a search
 * would look at. Returns the time; INFINITY if no tile is left, with the reason in *why. */
static double best_of(const struct hopper_facts *f, const struct problem *p,
                      const struct device_info *info, const struct candidate all[], int n,
                      bool worthy, struct record *config, struct rejection *why)
{
    enum { TRIED = 3 };
    double best = INFINITY;
    for (int i = 0, tried = 0; i < n && tried < TRIED; i++) {
        struct record point;
        struct hopper_tile t;
        make_tile(f, &all[i], &point, &t);
        hopper_put_run_time(&f->v, &t, &point);
        if (hopper_check(p, &point, info, why) || (worthy && hopper_worth(p, &point, info, why))) {
            continue; /* this tile is illegal with any settings */
        }
        const double us = hopper_best_run_time(f, &t);
        hopper_put_run_time(&f->v, &t, &point);
        tried++;
        if (us < best) {
            best = us;
            record_copy(config, &point);
        }
    }
    return best;
}

int hopper_choose(const struct problem *p, const struct device_info *info, struct record *config,
                  struct error *err)
{
    struct hopper_facts f;
    struct candidate all[2 * WINNERS_MOST];
    struct rejection why = {.code = ERROR_NO_CONFIG};
    hopper_facts_init(&f, p, info, NULL);
    const int n = hopper_rank_winners(&f, all);
    /* with one expert, configs with NUM_KSPLIT that hopper_worth() refuses have won measurements */
    const bool several = f.v.experts > 1;
    if ((several && best_of(&f, p, info, all, n, true, config, &why) < INFINITY) ||
        best_of(&f, p, info, all, n, false, config, &why) < INFINITY) {
        return 0;
    }
    return error_set(err, ERROR_NO_CONFIG, "no config of the hopper kernel fits: %s", why.text);
}
