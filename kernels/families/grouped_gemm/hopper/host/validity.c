/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "hopper": legal configs, and the errors of all others.
 *
 * Legality is exact for shared memory, to the byte. Registers follow two rules that ptxas enforces.
 * A wgmma must fit into a thread's registers at launch. A consumer's accumulators must fit into its
 * registers after it has taken the producer's. A variant's compiler log shows the real spills.
 */
#include <stdio.h>

#include "kernels/families/grouped_gemm/hopper/host/hopper.h"

/* the 240 registers of a consumer's thread, less the registers for other values */
enum { ACCUMULATORS_MAX = 192 };

/* Checks a word. A required word keeps configs of other targets out. */
static int hopper_check_text(const struct hopper_values *h, enum hopper_field f,
                             const char *const values[], bool required, const char *target,
                             struct rejection *why)
{
    if (h->of[f].type == VALUE_NONE && !required) {
        return 0;
    }
    for (const char *const *v = values; *v; v++) {
        if (hopper_says(h, f, *v)) {
            return 0;
        }
    }
    char use[64] = "";
    for (size_t i = 0, n = 0; values[i] && n < sizeof(use); i++) {
        const char *between = i == 0 ? "" : values[i + 1] ? ", " : " or ";
        n += (size_t)snprintf(use + n, sizeof(use) - n, "%s%s", between, values[i]);
    }
    return h->of[f].type == VALUE_NONE
               ? gemm_rules_missing(hopper_field_names[f], target, use, why)
               : gemm_rules_refuse(hopper_field_names[f], &h->of[f], target, use, why);
}

static const struct hopper_value_rules value_rules = {
    .target = "hopper",
    .roles = {[GEMM_ROWS] = {64, 256, 64, true, "64, 128, 192 or 256"},
              [GEMM_COLS] = {64, 256, 64, true, "64, 128, 192 or 256"},
              [GEMM_SUM] = {HOPPER_DEPTH, HOPPER_DEPTH, 64, true,
                            "64 for the dimension that this mode sums over"}},
    .swapped_rows = {32, 256, HOPPER_GRAIN, true,
                     "with swap_ab=true a multiple of 16 from 32 to 256"},
    .schedules = hopper_schedules,
};
static const struct {
    enum hopper_field field;
    struct int_rule rule;
} int_rules[] = {
    {FIELD_num_warps, {8, 12, 4, true, "8 or 12: 4 that load and 4 or 8 that multiply"}},
    {FIELD_num_stages, {2, 16, 0, true, "2 to 16, as shared memory allows"}},
    {FIELD_staging_buffers, {1, 8, .use = "1 to 8, as shared memory allows"}},
    {FIELD_in_flight, {0, 1, .use = "0 or 1"}},
    {FIELD_GROUP_SIZE_M, {1, 64, .use = "1 to 64"}},
    {FIELD_NUM_KSPLIT, {1, HOPPER_KSPLIT_MOST, POWER_OF_TWO, .use = "1, 2, 4 or 8"}},
    {FIELD_dynamic_rounds, {0, HOPPER_ROUNDS_MOST, .use = "0 to 64: rounds of tiles, 0 for all"}},
    {FIELD_l2_ahead, {0, HOPPER_AHEAD_MOST, .use = "0 to 64: blocks, in dW experts"}},
    {FIELD_load_warps, {1, HOPPER_LOADERS_MOST, .use = "1 to 4"}},
    {FIELD_stage_rows, {HOPPER_HALF, HOPPER_DEPTH, HOPPER_HALF, .use = "32 or 64"}},
    {FIELD_store_slabs, {1, 2, .use = "1 or 2"}},
    {FIELD_tile_rows,
     {0, 256, HOPPER_GRAIN, .use = "a multiple of 16, or 0 for all of BLOCK_SIZE_M"}},
};

static const struct {
    enum hopper_field field;
    const char *const *words;
} text_rules[] = {
    {FIELD_cluster_shape_mn, hopper_clusters}, {FIELD_raster, hopper_rasters},
    {FIELD_tile_scheduler, hopper_schedulers}, {FIELD_w_eviction, hopper_evictions},
    {FIELD_expert_order, hopper_orders},
};
static const enum hopper_field bools[] = {FIELD_skip_rows, FIELD_permute_copy, FIELD_swap_ab,
                                          FIELD_store_evict_first};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

int hopper_check_values(const struct gemm *v, const struct hopper_values *h,
                        const struct hopper_value_rules *rules, struct rejection *why)
{
    const bool swap = hopper_bool(h, FIELD_swap_ab, false);
    int r = 0;
    for (int i = 0; i < GEMM_ROLES && r == 0; i++) {
        const enum gemm_role role = gemm_roles[v->mode][i];
        r = gemm_rules_int(swap && role == GEMM_ROWS ? &rules->swapped_rows : &rules->roles[role],
                           gemm_block_names[i], &h->of[hopper_blocks[i]], rules->target, why);
        r = rejection_settled(why, r, "swap_ab");
    }
    for (size_t i = 0; i < COUNT(int_rules) && r == 0; i++) {
        const enum hopper_field f = int_rules[i].field;
        r = gemm_rules_int(&int_rules[i].rule, hopper_field_names[f], &h->of[f], rules->target,
                           why);
    }
    /* Required, so that no config of the portable kernel passes as a config of this target. */
    r = r ? r : hopper_check_text(h, FIELD_schedule, rules->schedules, true, rules->target, why);
    for (size_t i = 0; i < COUNT(text_rules) && r == 0; i++) {
        r = hopper_check_text(h, text_rules[i].field, text_rules[i].words, false, rules->target,
                              why);
    }
    for (size_t i = 0; i < COUNT(bools) && r == 0; i++) {
        const enum value_type type = h->of[bools[i]].type;
        if (type != VALUE_NONE && type != VALUE_BOOL) {
            r = rejection_set(why, ERROR_INVALID, "flag_type", "%s must be true or false",
                              hopper_field_names[bools[i]]);
        }
    }
    return r;
}

static int check_load(const struct hopper_values *h, enum hopper_field f, bool here, bool gathered,
                      struct rejection *why)
{
    if (!here || gathered || hopper_bool(h, f, true)) {
        return 0; /* the mode rules refuse true for a gathered operand */
    }
    return rejection_set(why, ERROR_INVALID, "tma_loads",
                         "%s=false: the hopper kernel loads "
                         "contiguous operands by TMA only; leave it out or set it to true",
                         hopper_field_names[f]);
}

static int check_loads(const struct gemm *v, const struct hopper_values *h, struct rejection *why)
{
    int r = check_load(h, FIELD_use_tma_load_x, v->mode != GEMM_DX, v->gather_x, why);
    r = r ? r : check_load(h, FIELD_use_tma_load_w, v->mode != GEMM_DW, false, why);
    return r ? r : check_load(h, FIELD_use_tma_load_dy, v->mode != GEMM_FORWARD, v->gather_dy, why);
}

/* Refuses values that are of another mode, and orders that cannot be had. */
int hopper_check_mode(const struct gemm *v, const struct hopper_values *h, struct rejection *why)
{
    const bool dw = v->mode == GEMM_DW, sorted = hopper_says(h, FIELD_expert_order, "size");
    const struct rule rules[] = {
        {dw && hopper_says(h, FIELD_tile_scheduler, "dynamic"), "tile_scheduler",
         "tile_scheduler=dynamic is for forward and dX: in dW use expert_order=size"},
        {!dw && hopper_bool(h, FIELD_store_evict_first, false), "store_evict_first",
         "store_evict_first=true is for dW: elsewhere the output is what others read next; leave "
         "it out"},
        {dw && h->of[FIELD_w_eviction].type != VALUE_NONE, "w_eviction",
         "w_eviction is of the weights that forward and dX load: leave it out in dW"},
        {sorted && !dw, "expert_order",
         "expert_order=size is for dW: only there tiles differ in length"},
        {sorted && v->experts > HOPPER_SORT_MAX, "expert_order",
         "expert_order=size sorts up to # experts, and there are #: take index", HOPPER_SORT_MAX,
         v->experts},
    };
    return gemm_rules_reject(rules, COUNT(rules), why);
}

/* Refuses values that contradict the problem or each other. */
static int check_others(const struct gemm *v, const struct hopper_values *h, struct rejection *why)
{
    const bool dw = v->mode == GEMM_DW, gathers = v->gather_x || v->gather_dy;
    const bool copy = hopper_bool(h, FIELD_permute_copy, false);
    const bool sorted = hopper_says(h, FIELD_expert_order, "size");
    const int ahead = hopper_int(h, FIELD_l2_ahead, 0);
    /* Elements of the gathered operand: the kernel counts their bytes by 16, in 32 bits (launch.c
     * also checks rows with a stride). */
    const int64_t gathered = v->gather_x ? v->x_rows * v->k : v->gather_dy ? v->m * v->n : 0;
    const struct rule rules[] = {
        {ahead && dw && sorted, "l2_ahead",
         "l2_ahead=# with expert_order=size: experts are asked for in the order of their rows; set "
         "it to 0, or expert_order=index",
         ahead},
        {dw && (ahead & (ahead - 1)), "l2_ahead",
         "l2_ahead=# in dW: it counts experts, by a power of two", ahead},
        {ahead && !dw && gathers && !copy, "l2_ahead",
         "l2_ahead=# with a gathered operand: it is of TMA's loads; set it to 0, or "
         "permute_copy=true",
         ahead},
        {!copy && gathered > (INT64_C(1) << 36) / (int64_t)dtype_size(v->in), "gathered_size",
         "permute_copy=false: the operand whose rows are gathered has more than 64 GiB"},
        {copy && !gathers, "permute_copy",
         "permute_copy=true: this problem gathers no operand, there is nothing to copy"},
    };
    return gemm_rules_reject(rules, COUNT(rules), why);
}

static int check_problem(const struct gemm *v, struct rejection *why)
{
    if (v->in != DTYPE_BF16 && v->in != DTYPE_FP16) {
        return rejection_set(why, ERROR_INVALID, "dtype_in",
                             "dtype_in is %s: the hopper kernel takes bf16 and fp16",
                             dtype_name(v->in));
    }
    if (v->accumulate && v->out != DTYPE_FP32) {
        return rejection_set(why, ERROR_INVALID, "accumulate_fp32",
                             "accumulate with dtype_out %s: the hopper kernel adds in fp32 only; "
                             "set dtype_out=fp32, or use the portable kernel",
                             dtype_name(v->out));
    }
    return gemm_rules_rows_16(v, why);
}

static int check_swap(const struct gemm *v, const struct hopper_tile *t, struct rejection *why)
{
    const struct rule rules[] = {
        {t->swap_ab && v->mode == GEMM_DW, "swap_mode",
         "swap_ab=true is for forward and dX: dW's tiles are of weights, none is cut short by an "
         "expert's rows; set it to false"},
        {!t->swap_ab && t->height != t->r, "tile_rows",
         "tile_rows=# is for swap_ab=true: other tiles have BLOCK_SIZE_M rows; leave it out",
         t->height},
        {t->swap_ab && t->height > t->c, "tile_rows",
         "tile_rows=# are more than the kernel's BLOCK_SIZE_M=#: take fewer, or 0 for all",
         t->height, t->c},
        {t->swap_ab && t->ksplit > 1, "swap_split",
         "swap_ab=true with NUM_KSPLIT=#: sums are split by rows, not by columns; set one of them "
         "to what it is by default",
         t->ksplit},
    };
    return gemm_rules_reject(rules, COUNT(rules), why);
}

static int check_warpgroups(const struct hopper_tile *t, struct rejection *why)
{
    if (t->pingpong && t->consumers != 2) {
        return rejection_set(why, ERROR_INVALID, "pingpong_warps",
                             "schedule=pingpong needs num_warps=12: two warpgroups take turns");
    }
    if (!t->pingpong && t->r % (64 * t->consumers)) {
        return rejection_set(why, ERROR_INVALID, "rows_per_warpgroup",
                             "a tile of %d %s cannot be split among %d warpgroups of 64: take "
                             "num_warps=8, schedule=pingpong or a larger tile",
                             t->r, t->swap_ab ? "columns" : "rows", t->consumers);
    }
    if (t->accumulators > ACCUMULATORS_MAX) {
        return rejection_resource(why, "registers", t->accumulators, ACCUMULATORS_MAX,
                                  "a warpgroup with %d x %d of the tile holds %d sums per thread, "
                                  "%d fit: take %sa smaller tile",
                                  t->rows_each, t->c, t->accumulators, ACCUMULATORS_MAX,
                                  t->consumers < 2 ? "more warps or "
                                  : t->pingpong    ? "cooperative or "
                                                   : "");
    }
    return 0;
}

static int check_skip(const struct hopper_tile *t, struct rejection *why)
{
    const struct rule rules[] = {
        {t->swap_ab && t->skip_rows, "skip_rows",
         "skip_rows=true with swap_ab=true, which leaves at most 15 rows to skip; set one of them "
         "to false"},
        {t->skip_rows && t->r == 64, "skip_rows",
         "skip_rows=true with tiles of 64 rows: it leaves out whole 64 of more rows that do not "
         "exist; set it to false"},
    };
    return gemm_rules_reject(rules, COUNT(rules), why);
}

/* The number of pieces in a consumer's part of a tile; each piece takes a staging buffer. */
static int hopper_count_pieces(const struct gemm *v, const struct hopper_tile *t)
{
    return t->swap_ab ? t->rows_each / 64 * ((t->c + 63) / 64)
                      : t->rows_each / t->rows_written * (t->c / hopper_slab_cols(v));
}

/* Checks the settings of a tile's loads and stores, and of schedule=staggered, in which a consumer
 * multiplies half of its rows while the other half is written. */
static int check_tile(const struct gemm *v, const struct hopper_tile *t, struct rejection *why)
{
    const bool dw = v->mode == GEMM_DW;
    const int slab = hopper_slab_cols(v);
    const struct rule rules[] = {
        {!t->tma_store && t->staging != 1, "staging_without_tma",
         "staging_buffers=# without use_tma_store: threads store what they staged at once; set it "
         "to 1",
         t->staging},
        {t->tma_store && t->staging > hopper_count_pieces(v, t) * 2, "staging_too_many",
         "staging_buffers=# is more than two tiles of # columns fill", t->staging,
         hopper_tile_cols(t)},
        {t->store_slabs != 1 && !hopper_can_pair(v, t), "store_slabs",
         "store_slabs=2 is for dW's output by TMA, from an even number of staging_buffers: K must "
         "be a multiple of # and BLOCK_SIZE_K of #; leave it out",
         slab, 2 * slab},
        {t->stage_rows != HOPPER_DEPTH && (!dw || t->staggered), "stage_rows",
         "stage_rows=# is for dW, in schedules other than staggered: leave it out", t->stage_rows},
        {t->gather && t->loaders != HOPPER_LOADERS_MOST, "load_warps",
         "load_warps=# with a gathered operand: all four gather; leave it out", t->loaders},
        {!t->gather && !dw && t->loaders != 1, "load_warps",
         "load_warps=# is for dW, where tiles may be shorter than what it takes to load one; leave "
         "it out",
         t->loaders},
        {!t->gather && !hopper_loaders_fit(t, t->loaders), "load_warps",
         "load_warps=# with num_stages=# and stage_rows=#: they take # places in turn; take no "
         "more than there are, and with schedule=pingpong or cluster_shape_mn a number that "
         "divides them",
         t->loaders, t->stages, t->stage_rows, hopper_places(t)},
        {t->staggered && (t->swap_ab || t->ksplit > 1 || hopper_sharers(t) > 1), "stagger_others",
         "schedule=staggered takes swap_ab=false, NUM_KSPLIT=1 and cluster_shape_mn=1x1; set them "
         "so, or take cooperative"},
        {t->staggered && t->rows_each != 128, "stagger_rows",
         "schedule=staggered with # rows of a tile for each multiplying warpgroup: it takes 128, "
         "two halves; take a tile of # rows, or cooperative",
         t->rows_each, 128 * t->consumers},
        {t->staggered && !dw &&
             hopper_depth_blocks(v) < 2, /* staggered.cu needs a block at each end of a tile */
         "stagger_short",
         "schedule=staggered takes two blocks of # to sum over, there is one; take cooperative",
         HOPPER_DEPTH},
    };
    return gemm_rules_reject(rules, COUNT(rules), why);
}

/* For deferred tiles, dynamic and stored by TMA, whose sums and kept pieces fill a thread's
 * registers: true if ptxas spilled more than 16 bytes with t->staging buffers (NVRTC 13.0). */
static bool deferred_spills(const struct hopper_tile *t)
{
    const bool pair = hopper_sharers(t) > 1, flat = t->rows_each == 64 && t->c == 256;
    if (t->gather) {
        return t->staging == 1 && (flat || (t->rows_each == 128 && t->c == 128 && !pair));
    }
    return t->staging > 1 && ((flat && !pair) || (t->rows_each == 128 && t->c == 176 && pair));
}

/* Checks schedule=deferred, which writes a tile while the next tile is multiplied. */
static int hopper_check_deferred(const struct gemm *v, const struct hopper_tile *t,
                                 struct rejection *why)
{
    const int kept = hopper_kept(t), most = t->gather ? HOPPER_SUMS_GATHERED : HOPPER_SUMS_MOST;
    const int full = t->accumulators + kept * HOPPER_PAIRS;
    const struct rule rules[] = {
        {v->mode == GEMM_DW, "deferred_mode",
         "schedule=deferred is for forward and dX: take cooperative or staggered"},
        {!t->swap_ab, "deferred_swap", /* swap_ab's own rules come before */
         "schedule=deferred takes swap_ab=true: other tiles were measured not to gain by it; set "
         "that, or take cooperative or staggered"},
        {kept < 1, "registers",
         "schedule=deferred with # sums in a thread leaves no registers for a piece of 64 x 64 "
         "that waits: take a smaller tile, or cooperative",
         t->accumulators, .required = t->accumulators + HOPPER_PAIRS, .limit = most},
        {t->c % 64 == 16 && t->dynamic && hopper_sharers(t) > 1 &&
             t->gather, /* ptxas spilled such kernels' registers */
         "registers",
         "schedule=deferred with # rows and a gathered operand leaves no registers for "
         "tile_scheduler=dynamic with cluster_shape_mn=2x1: take static, 1x1 or 160 rows",
         t->c, .required = HOPPER_SUMS_MOST, .limit = HOPPER_SUMS_GATHERED},
        {t->consumers == 2 && t->dynamic && t->tma_store && deferred_spills(t), "registers",
         "schedule=deferred with a tile of # x # and staging_buffers=# leaves no registers for "
         "tile_scheduler=dynamic: take static, or staging_buffers=#",
         t->c, t->r, t->staging, t->gather ? 2 : 1, .required = full, .limit = full - HOPPER_PAIRS},
    };
    return t->deferred ? gemm_rules_reject(rules, COUNT(rules), why) : 0;
}

/* Checks NUM_KSPLIT, by which the thread blocks of a cluster share the sums of a tile. */
static int hopper_check_split(const struct gemm *v, const struct hopper_tile *t,
                              struct rejection *why)
{
    const int64_t blocks = hopper_depth_blocks(v);
    const struct rule rules[] = {
        {v->mode == GEMM_DW, "split_mode",
         "NUM_KSPLIT=# is for forward and dX: dW sums over each expert's rows, which may be none; "
         "set it to 1",
         t->ksplit},
        {t->pingpong || t->dynamic, "split_schedule",
         "NUM_KSPLIT=# needs schedule=cooperative and tile_scheduler=static: the thread blocks "
         "that share a tile walk the tiles in step",
         t->ksplit},
        {t->tma_store, "split_store",
         "NUM_KSPLIT=# with use_tma_store=true: threads add up the parts and store them; set it to "
         "false",
         t->ksplit},
        {blocks < t->ksplit, "split_depth",
         "NUM_KSPLIT=# parts of a sum over # blocks of #: each part has one at least; take up to #",
         t->ksplit, blocks, HOPPER_DEPTH, blocks},
    };
    return t->ksplit > 1 ? gemm_rules_reject(rules, COUNT(rules), why) : 0;
}

/* Checks cluster_shape_mn, by which the two thread blocks of a cluster have a tile each and share
 * an operand: in forward and dX the weights of an expert. */
static int check_cluster(const struct gemm *v, const struct hopper_tile *t, struct rejection *why)
{
    /* dy: in dW the two tiles share dy; otherwise x */
    const bool dw = v->mode == GEMM_DW, dy = t->cluster_c > 1;
    const struct rule rules[] = {
        {!dw && (!t->swap_ab || t->cluster_r > 1), "cluster_mode",
         "cluster_shape_mn in forward and dX is 2x1 with swap_ab=true: two thread blocks have "
         "adjacent tiles of an expert's rows and share its weights; set both, or 1x1"},
        {!dw && (t->c <= 64 || t->r % 128), "cluster_tile",
         "cluster_shape_mn=2x1 with a tile of # rows and # columns: two share the weights of 128 "
         "or 256 columns, for more than 64 rows each; take such a tile, or 1x1",
         t->c, t->r},
        {dw && dy && v->gather_dy && !t->permute_copy, "cluster_gather",
         "cluster_shape_mn=1x2 shares dy, which is gathered by threads: set permute_copy=true, or "
         "cluster_shape_mn=1x1"},
        {dw && !dy && v->gather_x && !t->permute_copy, "cluster_gather",
         "cluster_shape_mn=2x1 shares x, which is gathered by threads: set permute_copy=true, or "
         "cluster_shape_mn=1x1"},
        {dw && dy && (t->r % 128 || v->n % 64), "cluster_halves",
         "cluster_shape_mn=1x2 shares dy, half of its 64-column slabs from each: that takes a tile "
         "of 128 or 256 of its columns, and N a multiple of 64; set it to 1x1"},
        {dw && !dy && (t->c % 128 || v->k % 64), "cluster_halves",
         "cluster_shape_mn=2x1 shares x, half of its 64-column slabs from each: that takes a tile "
         "of 128 or 256 of its columns, and K a multiple of 64; set it to 1x1"},
    };
    return hopper_sharers(t) > 1 ? gemm_rules_reject(rules, COUNT(rules), why) : 0;
}

static const char by_16[] = "wgmma, 16 by 16";

/* wgmma takes 16 terms at a time, whatever the tile, its operand A and its schedule. Only split
 * sums have another order: each part for itself, then the parts (hopper/split.cu). Writes "" for
 * operands of other types. */
static void write_order(const struct gemm *v, int parts, char out[], size_t size)
{
    snprintf(out, size,
             v->quant->is_scaled ? ""
             : parts > 1         ? "wgmma, 16 by 16, %d parts"
                                 : by_16,
             parts);
}

void hopper_exactness(const struct problem *p, const struct record *config, struct exactness *out)
{
    struct gemm v;
    char order[sizeof(out->order)];
    gemm_view(p, &v);
    write_order(&v, (int)record_int(config, "NUM_KSPLIT", 1), order, sizeof(order));
    gemm_rules_exactness(&v, order, out);
}

static int check_order(const struct gemm *v, const struct hopper_tile *t, struct rejection *why)
{
    char order[sizeof(((struct exactness *)0)->order)];
    write_order(v, t->ksplit, order, sizeof(order));
    return gemm_rules_order(v, order, by_16, "hopper", "set NUM_KSPLIT=1", why);
}

static int check_rounds(const struct hopper_tile *t, struct rejection *why)
{
    if (t->last_rounds == 0 || (t->dynamic && hopper_sharers(t) > 1)) {
        return 0;
    }
    return rejection_set(why, ERROR_INVALID, "dynamic_rounds",
                         "dynamic_rounds=%d is for tile_scheduler=dynamic with "
                         "cluster_shape_mn=2x1: others take all tiles alike; leave it out",
                         t->last_rounds);
}

/* True for tiles whose kernels ptxas compiled with more than 16 bytes of spilled registers
 * (tests/compile/compile_space checks this). */
static bool hopper_tile_spills(const struct gemm *v, const struct hopper_tile *t)
{
    const bool dw = v->mode == GEMM_DW, tall = t->rows_each == 192;
    if (t->accumulators <= HOPPER_ACCUMULATORS_MANY || t->swap_ab) {
        return false;
    }
    if (t->tma_store) {
        if (t->staggered && dw) {
            return t->gather;
        }
        return t->gather && !dw && (t->pingpong || t->staggered) && t->skip_rows && !tall;
    }
    return hopper_sharers(t) > 1 || (t->gather && !dw) ||
           (tall && (t->gather || dw || v->fuse_mul_post)) ||
           (t->skip_rows && (dw || (v->fuse_mul_post && t->pingpong)));
}

/* When a tile does not fit, a walk over the space may skip the later values of num_stages, or with
 * several buffers of staging_buffers: they need at least as much shared memory. Dynamic tiles and
 * split sums need extra memory, so their misfit says nothing about other configs. */
static int check_shared(const struct hopper_tile *t, const struct device_info *info,
                        struct rejection *why)
{
    if (t->smem <= info->smem_optin) {
        return 0;
    }
    const int r = rejection_resource(
        why, "shared_memory", t->smem, info->smem_optin,
        "tile %d x %d with %d stages and %d staging buffers needs %lld bytes of shared memory, the "
        "device has %lld: take fewer stages or buffers, or a smaller tile",
        t->r, t->c, t->stages, t->staging, (long long)t->smem, (long long)info->smem_optin);
    if (t->dynamic || t->ksplit > 1) {
        return r;
    }
    return rejection_settled(why, r, t->staging == 1 ? "num_stages" : "staging_buffers");
}

static int check_resources(const struct gemm *v, const struct hopper_tile *t,
                           const struct device_info *info, struct rejection *why)
{
    const int r = check_shared(t, info, why);
    if (r) {
        return r;
    }
    if (hopper_tile_spills(v, t)) {
        return rejection_resource(
            why, "registers", t->accumulators, HOPPER_ACCUMULATORS_MANY,
            "what threads keep of the rows that they load, store or skip does not fit into "
            "registers beside %d sums each: set use_tma_store=true, permute_copy=true or "
            "skip_rows=false, or take a smaller tile",
            t->accumulators);
    }
    return 0;
}

int hopper_check(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why)
{
    struct gemm v;
    gemm_view(p, &v);
    int r = gemm_rules_check(&v, config, hopper_field_names, NULL, why);
    if (r) {
        return r;
    }
    struct hopper_values h;
    hopper_values_read(config, &h);
    r = check_problem(&v, why);
    r = r ? r : hopper_check_values(&v, &h, &value_rules, why);
    r = r ? r : check_loads(&v, &h, why);
    r = r ? r : check_others(&v, &h, why);
    r = r ? r : hopper_check_mode(&v, &h, why);
    if (r) {
        return r;
    }
    struct hopper_tile t;
    hopper_tile_of(&v, &h, &t);
    r = check_swap(&v, &t, why);
    r = r ? r : rejection_settled(why, check_warpgroups(&t, why), "schedule");
    r = r ? r : rejection_settled(why, check_skip(&t, why), "skip_rows");
    r = r ? r : check_tile(&v, &t, why);
    r = r ? r : hopper_check_deferred(&v, &t, why);
    r = r ? r : hopper_check_split(&v, &t, why);
    r = r ? r : check_order(&v, &t, why);
    r = r ? r : check_cluster(&v, &t, why);
    r = r ? r : check_rounds(&t, why);
    return r ? r : check_resources(&v, &t, info, why);
}

/* Takes a problem for which the smallest config is legal. That config fits wherever any config
 * fits, so its errors are errors of the problem: types, sums into bf16, rows that TMA cannot read,
 * more experts than fit into shared memory. So the rules are in a single place. The portable kernel
 * takes all other problems. A batch-invariant problem must not change the kernel with M: its
 * gathered rows may be copied, so that a large operand is no reason to refuse it. */
int hopper_takes(const struct problem *p, const struct device_info *info, struct rejection *why)
{
    struct gemm v;
    struct record smallest;
    gemm_view(p, &v);
    hopper_put_tile(&v, (int[]){64, 64, HOPPER_DEPTH}, 8, 2, "cooperative", &smallest);
    if (v.batch_invariant && (v.gather_x || v.gather_dy)) {
        record_put_bool(&smallest, "permute_copy", true);
    }
    return hopper_check(p, &smallest, info, why);
}
