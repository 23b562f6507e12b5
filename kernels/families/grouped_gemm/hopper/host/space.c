/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legal configs that are in the space. hopper_check() accepts only configs that compile and give
 * right results, but most of them cannot win. Without these the space is compiled and searched in a
 * third of the time. A person may still ask for any legal config.
 *
 * Every tile that can win, in every schedule, has a usual config: all stages that fit, one block in
 * flight, TMA stores, two staging buffers, all rows multiplied, no copy. The usual config has one
 * staging buffer where that makes room for a stage, and no TMA stores where threads write sooner.
 * Each single departure wins somewhere on an H200, alone or with a second: no block in flight,
 * skipped rows and dynamic tiles, copies, other numbers of buffers. Three departures would have to
 * gain together; no measured winner has three.
 */
#include "kernels/families/grouped_gemm/hopper/host/hopper.h"

enum {
    /* swap_ab in ping-pong: least registers that a thread's sums take. Tiles with fewer load more
     * bytes for each multiplication. */
    SWAPPED_SUMS_LEAST = 160,
    SPLIT_TILE_MOST = 128, /* most rows and most columns of a tile with split sums */
    SPLIT_DEPARTURES = 1,
    /* least mean rows of an expert for staggered tiles: with fewer rows, tiles of 256 rows are
     * not filled */
    STAGGERED_ROWS_LEAST = 1024,
    STAGGERED_COLS_LEAST = 128,
    /* least mean rows of an expert for deferred tiles, which need not be full */
    DEFERRED_ROWS_LEAST = 128,
    /* least mean rows of an expert for clusters of two: most experts then have two tiles of rows */
    PAIRED_ROWS_LEAST = 192,
    /* least rows of a dense product for clusters of two: fewer rows make too few tiles */
    PAIRED_DENSE_LEAST = 1024,
    STAGES_LEAST = 3, /* least num_stages in the space */
    STAGING_USUAL = 2,
    DEPARTURES_MAX = 2,
    /* scattered output: no limit in practice. Stores and buffers are fixed there, so few
     * settings can depart from their usual values. */
    DEPARTURES_SCATTER = 4,
};

int hopper_fit_stages(const struct gemm *v, const struct hopper_tile *t,
                      const struct device_info *info, int staging)
{
    struct hopper_tile other = *t;
    other.staging = staging;
    other.stages = HOPPER_STAGES_MOST;
    while (other.stages > 1 && hopper_shared_bytes(v, &other) > info->smem_optin) {
        other.stages--;
    }
    return other.stages;
}

/* A dense product with split sums: with few stages, two thread blocks fit on an SM. */
static bool is_dense_split(const struct gemm *v, const struct hopper_tile *t)
{
    return v->experts == 1 && t->ksplit > 1;
}

/* The number of blocks of the reduction that a thread block sums. More stages would stay empty. */
static int64_t part_blocks(const struct gemm *v, const struct hopper_tile *t)
{
    return (hopper_depth_blocks(v) + t->ksplit - 1) / t->ksplit;
}

static int stages_worth(const struct gemm *v, const struct hopper_tile *t,
                        const struct device_info *info)
{
    const int fit = hopper_fit_stages(v, t, info, t->staging);
    return is_dense_split(v, t) && part_blocks(v, t) < fit ? (int)part_blocks(v, t) : fit;
}

int64_t hopper_expect_tiles(const struct gemm *v, int r, int c)
{
    const int64_t experts = v->m < v->experts ? v->m : v->experts;
    const int64_t rows = experts > 0 ? (v->m + experts - 1) / experts : 0;
    return experts * ((rows + r - 1) / r) * ((v->out_cols + c - 1) / c);
}

bool hopper_split_pays(const struct gemm *v, const struct device_info *info, int r, int c,
                       int ksplit)
{
    /* fp8_row: scales come after the whole sum */
    const bool whole = v->quant->is_scaled && !v->quant->sum_block;
    return !whole && hopper_expect_tiles(v, r, c) * (ksplit / 2) < info->sm_count;
}

static int hopper_space_check_split(const struct gemm *v, const struct hopper_tile *t,
                                    const struct device_info *info, struct rejection *why)
{
    const int64_t blocks = hopper_depth_blocks(v);
    const struct rule rules[] = {
        {t->r > SPLIT_TILE_MOST || t->c > SPLIT_TILE_MOST, "split_tile",
         "NUM_KSPLIT=# with a tile of # x #: smaller tiles are more, and their sums less to add up",
         t->ksplit, t->r, t->c},
        {!hopper_split_pays(v, info, t->r, t->c, t->ksplit), "split_enough",
         "NUM_KSPLIT=#: about # tiles of # x # keep # SMs busy with half as many parts", t->ksplit,
         hopper_expect_tiles(v, t->r, t->c), t->r, t->c, info->sm_count},
        {blocks < 2 * t->ksplit, "split_short",
         "NUM_KSPLIT=# parts of # blocks: half as many have no more than four each, and less to "
         "add up",
         t->ksplit, blocks},
    };
    return t->ksplit > 1 ? gemm_rules_reject(rules, sizeof(rules) / sizeof(rules[0]), why) : 0;
}

/* swap_ab: only large tiles are in the space. A tile multiplies only rows that its expert has, so
 * fewer routed rows (t->c) only leave room for more stages. With few rows every tile waits for
 * weights. */
static int check_swapped(const struct hopper_tile *t, struct rejection *why)
{
    const bool enough = t->consumers == 1 ? t->r == 128 && t->c == 64
                        : t->pingpong     ? t->r == 128 && t->accumulators >= SWAPPED_SUMS_LEAST
                                          : t->r == 256 || t->c == 256;
    const struct rule rule = {
        !enough || t->c % 32, "swapped_tile",
        "swap_ab=true with # routed rows and # columns: tiles are cut to the rows that exist, so "
        "larger ones load less and lose nothing",
        t->c, t->r};
    return gemm_rules_reject(&rule, 1, why);
}

/* Rules for the shape of a tile without swap_ab. Some hold only in forward and dX, where an
 * expert's last tile is cut short. */
static int hopper_space_check_usual(const struct gemm *v, const struct hopper_tile *t,
                                    struct rejection *why)
{
    const bool dw = v->mode == GEMM_DW;
    const struct rule rules[] = {
        {t->consumers == 1 && t->r > (dw ? 128 : 64), "one_consumer_tall",
         "# rows with one multiplying warpgroup: in ping-pong two such take turns, and one writes "
         "while the other multiplies",
         t->r},
        {t->pingpong && t->tma_store && t->staging > STAGING_USUAL, "staging_in_turns",
         "staging_buffers=# in ping-pong: stores are hidden by the other warpgroup's turn, # are "
         "enough",
         t->staging, STAGING_USUAL},
        {!dw && (t->r == 192 || (t->r == 256 && t->c < 192)), "tall_unswapped",
         "# routed rows and # columns: with swap_ab=true such a tile is cut to the rows that an "
         "expert has",
         t->r, t->c},
        {!dw && t->c == 64 && t->pingpong, "narrow_in_turns",
         "# x 64 in ping-pong: its multiplications are too short to write behind; 64 x 128 loads "
         "as much and computes as much",
         t->r},
        {t->r > 128 && t->c == 64 && t->pingpong, "tall_and_narrow",
         "# x 64: 128 x 64 has room for more stages, and 256 x 128 loads less", t->r},
    };
    return gemm_rules_reject(rules, sizeof(rules) / sizeof(rules[0]), why);
}

static bool usual_staging(const struct gemm *v, const struct hopper_tile *t,
                          const struct device_info *info, int fit)
{
    return t->staging == STAGING_USUAL ||
           (t->staging < STAGING_USUAL && hopper_fit_stages(v, t, info, STAGING_USUAL) < fit);
}

/* True for the usual way to store rows that are not scattered. */
static bool usual_stores(const struct gemm *v, const struct hopper_tile *t,
                         const struct device_info *info, int fit)
{
    return hopper_threads_write(v, t) ? !t->tma_store
                                      : t->tma_store && usual_staging(v, t, info, fit);
}

bool hopper_stagger_pays(const struct gemm *v)
{
    return v->m / (v->experts > 0 ? v->experts : 1) >= STAGGERED_ROWS_LEAST;
}

/* schedule=staggered is in the space with two consumers only: with one, no other consumer
 * multiplies while it writes a tile. Losses on an H200 (tests/model/h200_staggered.json.xz): fewer
 * stages with more buffers took at least 10 % longer; skipped rows of tiles dealt in turn 2 to 7 %;
 * one buffer about 1 %. */
static int check_staggered(const struct gemm *v, const struct hopper_tile *t,
                           const struct device_info *info, struct rejection *why)
{
    const int fit = stages_worth(v, t, info);
    const struct rule rules[] = {
        {t->consumers == 1 || t->c < STAGGERED_COLS_LEAST, "staggered_small",
         "schedule=staggered with a tile of # x #: larger ones load less, and writing them takes "
         "long enough to multiply behind it",
         t->r, t->c},
        {t->stages < fit || (!v->scatter && (!t->tma_store || !usual_staging(v, t, info, fit))) ||
             (t->skip_rows && !t->dynamic),
         "staggered_usual",
         "schedule=staggered: of # x # what won is # stages, # staging buffers, TMA stores, and "
         "skip_rows=true with tile_scheduler=dynamic only",
         t->r, t->c, fit, STAGING_USUAL},
    };
    return gemm_rules_reject(rules, sizeof(rules) / sizeof(rules[0]), why);
}

bool hopper_defer_pays(const struct gemm *v)
{
    const int64_t rows = v->m / (v->experts > 0 ? v->experts : 1);
    return v->mode != GEMM_DW && v->experts > 1 && rows >= DEFERRED_ROWS_LEAST &&
           rows < STAGGERED_ROWS_LEAST;
}

/* schedule=deferred: on an H200 tiles of 256 columns win, if their sums leave registers for pieces
 * of the previous tile. Tiles of 128 rows lose: with about 256 rows an expert, half of the experts
 * need a third tile. */
static int hopper_space_check_deferred(const struct gemm *v, const struct hopper_tile *t,
                                       const struct device_info *info, struct rejection *why)
{
    const int fit = hopper_fit_stages(v, t, info, 1);
    const struct rule rules[] = {
        {t->r != 256 || (t->c != 144 && t->c != 160), "deferred_tile",
         "schedule=deferred with a tile of # rows and # columns: what won is 144 or 160 rows and "
         "256 columns",
         t->c, t->r},
        {t->stages < fit || (!v->scatter && t->tma_store) ||
             (t->c == 144 && t->dynamic && hopper_sharers(t) == 1),
         "deferred_usual",
         "schedule=deferred: what won is # stages with one staging buffer, use_tma_store=false, "
         "and tile_scheduler=dynamic with 160 rows only, or cluster_shape_mn=2x1",
         fit},
    };
    return gemm_rules_reject(rules, sizeof(rules) / sizeof(rules[0]), why);
}

bool hopper_pair_pays(const struct gemm *v)
{
    const int64_t rows = v->m / (v->experts > 0 ? v->experts : 1);
    return v->mode != GEMM_DW && rows >= (v->experts > 1 ? PAIRED_ROWS_LEAST : PAIRED_DENSE_LEAST);
}

/* In clusters of two, ping-pong and tiles of 128 columns are left out: they hardly save time. */
static int check_paired(const struct gemm *v, const struct hopper_tile *t,
                        const struct device_info *info, struct rejection *why)
{
    if (hopper_sharers(t) == 1 || v->mode == GEMM_DW) {
        return 0;
    }
    const int fit = stages_worth(v, t, info);
    const bool shape = t->r != 256 || t->c < 144, fewer = t->stages < fit;
    const bool stores = !v->scatter && !usual_stores(v, t, info, fit);
    const bool threads = hopper_threads_write(v, t);
    const struct rule rules[] = {
        {t->pingpong, "paired_tile",
         "cluster_shape_mn=2x1 with # rows and # columns in ping-pong: what won is 144 rows or "
         "more and 256 columns, cooperative or deferred",
         t->c, t->r},
        {shape, "paired_tile",
         "cluster_shape_mn=2x1 with # rows and # columns: what won is 144 rows or more and 256 "
         "columns, cooperative or deferred",
         t->c, t->r},
        {threads && (fewer || stores), "paired_usual",
         "cluster_shape_mn=2x1: what won has all stages that fit, #, and use_tma_store=false", fit},
        {fewer || stores, "paired_usual",
         "cluster_shape_mn=2x1: what won has all stages that fit, #, and what is usual of staging "
         "buffers and stores",
         fit},
    };
    return gemm_rules_reject(rules, sizeof(rules) / sizeof(rules[0]), why);
}

static int hopper_space_check_tile(const struct gemm *v, const struct hopper_tile *t,
                                   const struct device_info *info, struct rejection *why)
{
    if (t->staggered) {
        return check_staggered(v, t, info, why);
    }
    if (t->deferred) {
        return hopper_space_check_deferred(v, t, info, why);
    }
    if (t->swap_ab) {
        return check_swapped(t, why);
    }
    return hopper_space_check_usual(v, t, why);
}

/* More stages hide more latency and cost nothing. One stage less, and half as many, are tried too:
 * they ask less of L2 and memory at once. */
static int check_stages(const struct gemm *v, const struct hopper_tile *t, int fit,
                        struct rejection *why)
{
    const bool scatter = v->scatter && t->ksplit == 1;
    const struct rule rules[] = {
        {is_dense_split(v, t) && t->stages > part_blocks(v, t) && t->stages > STAGES_LEAST,
         "stages_idle", "num_stages=#, and NUM_KSPLIT=# leaves each part # blocks of the sum",
         t->stages, t->ksplit, part_blocks(v, t)},
        {t->stages > HOPPER_STAGES_MOST && (t->r > 64 || t->c > 64), "stages_deep",
         "num_stages=# for a tile of # x #: so many are for 64 x 64", t->stages, t->r, t->c},
        {!scatter && t->stages < fit - 1 && t->stages != (fit + 1) / 2, "stages_given_away",
         "num_stages=# where # fit: of fewer, # and # are tried", t->stages, fit, fit - 1,
         (fit + 1) / 2},
    };
    return gemm_rules_reject(rules, sizeof(rules) / sizeof(rules[0]), why);
}

/* Counts a config's departures from the usual config, a line for each choice. A choice that can
 * only help alone counts as two. */
static int count_departures(const struct gemm *v, const struct hopper_tile *t,
                            const struct device_info *info, int fit)
{
    const bool stores = !v->scatter && t->ksplit == 1 && !usual_stores(v, t, info, fit);
    int n = 0;
    n += t->stages < fit;
    n += t->stages < fit - 1 && !v->scatter && !is_dense_split(v, t);
    n += !t->in_flight && !t->staggered && !t->deferred &&
         hopper_sharers(t) == 1; /* other tiles won with both values of in_flight */
    /* skip_rows and dynamic both save time on an expert's last rows, so both count as one */
    n += t->skip_rows || t->dynamic;
    n += t->permute_copy;
    n += t->consumers == 1 && t->r > 64;
    n += stores;
    n += t->permute_copy && (stores || t->stages < fit); /* this pair never won */
    n += t->dynamic && stores && !t->tma_store;          /* such configs never won */
    return n;
}

int hopper_worth(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why)
{
    struct gemm v;
    struct hopper_tile t;
    gemm_view(p, &v);
    hopper_tile_make(&v, config, &t);
    const int fit = stages_worth(&v, &t, info);
    const int most = t.ksplit > 1 ? SPLIT_DEPARTURES
                     : v.scatter  ? DEPARTURES_SCATTER
                                  : DEPARTURES_MAX;
    int r = hopper_space_check_tile(&v, &t, info, why);
    r = r ? r : check_paired(&v, &t, info, why);
    r = r ? r : hopper_space_check_split(&v, &t, info, why);
    r = r ? r : check_stages(&v, &t, fit, why);
    if (r) {
        return r;
    }
    const int n = count_departures(&v, &t, info, fit);
    const struct rule rule = {
        n > most,
        "departures",
        "# departures from this tile's usual config (all stages, one block in flight, its usual "
        "stores, # staging buffers, all rows multiplied, no copy): up to # are tried together",
        n,
        STAGING_USUAL,
        most};
    return gemm_rules_reject(&rule, 1, why);
}
