/* SPDX-License-Identifier: Apache-2.0 */
/* Legal configs of the target "hopper_fp8", the errors of all others, and the configs that are in
 * the space. */
#include "kernels/families/grouped_gemm/hopper/fp8/fp8.h"

static const char target_name[] = "hopper_fp8";

static const char *const known[] = {"BLOCK_SIZE_K",    "BLOCK_SIZE_M",   "BLOCK_SIZE_N",
                                    "GROUP_SIZE_M",    "NUM_KSPLIT",     "cluster_shape_mn",
                                    "expert_order",    "num_stages",     "num_warps",
                                    "raster",          "schedule",       "skip_rows",
                                    "staging_buffers", "swap_ab",        "tile_scheduler",
                                    "use_tma_load_dy", "use_tma_load_w", "use_tma_load_x",
                                    "use_tma_store",   "w_eviction",     NULL};
static const char *const schedules[] = {"cooperative", NULL};
static const struct hopper_value_rules value_rules = {
    .target = target_name,
    .roles = {[GEMM_ROWS] = {64, 256, 64, true, "64, 128, 192 or 256"},
              [GEMM_COLS] = {64, 256, 64, true,
                             "64, 128, 192 or 256; also 32 in forward and dX of one expert whose "
                             "input rows are in order, with swap_ab=false"},
              [GEMM_SUM] = {FP8_DEPTH, FP8_DEPTH, FP8_DEPTH, true,
                            "128 for the dimension that this mode sums over"}},
    .swapped_rows = {32, 192, HOPPER_GRAIN, true,
                     "with swap_ab=true a multiple of 16 from 32 to 192"},
    .schedules = schedules,
};

static const struct int_rule narrow_cols = {FP8_NARROW, 256, FP8_NARROW, true,
                                            "32, 64, 128, 192 or 256"};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

bool fp8_takes_narrow(const struct gemm *v)
{
    return v->experts == 1 && v->mode != GEMM_DW && !v->gather_x && !v->gather_dy;
}

/* Refuses types and sizes that the kernel cannot multiply or write. */
static int fp8_check_problem(const struct gemm *v, struct rejection *why)
{
    const bool dw = v->mode == GEMM_DW;
    const int64_t sum = gemm_count_terms(v);
    const struct rule rules[] = {
        {!v->quant->is_scaled, "quant",
         "quant=none: this kernel takes fp8 operands with scales; the target hopper takes others"},
        {v->out != DTYPE_BF16 && !(dw && v->out == DTYPE_FP32), "dtype_out",
         "the fp8 kernel writes bf16, in dW also fp32"},
        {v->accumulate && v->out != DTYPE_FP32, "accumulate_fp32",
         "accumulate without dtype_out=fp32: the fp8 kernel adds in fp32 only"},
        {sum % 16, "sum_16",
         "mode forward sums over K, dX over N: # elements are no multiple of 16 bytes; pad them",
         sum},
        {v->out_cols % 8, "columns_8",
         "the output has # columns, no multiple of 8: this kernel writes pieces of 16 bytes; pad "
         "them",
         v->out_cols},
        {dw && (v->gather_x || v->gather_dy), "sums_permuted",
         "dW of fp8 takes dy and x transposed, in the order of experts: set permute_x and "
         "permute_y "
         "to false"},
    };
    return gemm_rules_reject(rules, COUNT(rules), why);
}

static int fp8_check_loads(const struct gemm *v, const struct hopper_values *h,
                           struct rejection *why)
{
    const struct rule rule = {
        !hopper_bool(h, FIELD_use_tma_load_w, true) ||
            (!v->gather_x && !hopper_bool(h, FIELD_use_tma_load_x, true)) ||
            (!v->gather_dy && !hopper_bool(h, FIELD_use_tma_load_dy, true)),
        "tma_loads",
        "use_tma_load_*=false: the fp8 kernel loads contiguous operands by TMA only; leave it out "
        "or set it to true"};
    return gemm_rules_reject(&rule, 1, why);
}

static int fp8_check_tile(const struct gemm *v, const struct hopper_tile *t,
                          const struct device_info *info, struct rejection *why)
{
    const bool dw = v->mode == GEMM_DW;
    const int slab = hopper_slab_cols(v);
    const int pieces = (t->swap_ab ? t->rows_each / 64 * ((t->c + 63) / 64) : t->c / slab) * 2;
    const int64_t blocks = (gemm_count_terms(v) + FP8_DEPTH - 1) / FP8_DEPTH; /* of the sum */
    const bool split = t->ksplit > 1;
    const struct rule rules[] = {
        {t->swap_ab && (dw || !v->quant->sum_block), "swap_mode",
         "swap_ab=true is for quant=fp8_block in forward and dX: set it to false"},
        {t->swap_ab && (split || t->skip_rows), "swap_others",
         "swap_ab=true cuts tiles to the rows that exist, and takes NUM_KSPLIT=1 and "
         "skip_rows=false"},
        {!t->swap_ab && t->c % 64 && (t->c != FP8_NARROW || t->tma_store), "narrow_cols",
         "a tile of # columns: take 64, 128, 192 or 256, or 32 with use_tma_store=false", t->c},
        {hopper_sharers(t) > 1 && (dw || t->cluster_r > 1 || t->c <= 64 || t->r % 128),
         "cluster_tile",
         "cluster_shape_mn is for forward and dX: 2x1 with swap_ab=true for tiles of 128 or 256 "
         "columns and more than 64 rows, which share weights; 1x2 with swap_ab=false for tiles of "
         "128 or 256 rows and more than 64 columns, which share rows; take such a tile, or 1x1"},
        {hopper_sharers(t) > 1 && !t->swap_ab && (t->gather || split), "cluster_others",
         "cluster_shape_mn=1x2 shares rows that TMA loads: it takes rows in order and "
         "NUM_KSPLIT=1"},
        {t->r % (64 * t->consumers), "rows_per_warpgroup",
         "a tile cannot be split: # rows (swap_ab=true: columns) among # warpgroups of 64; take "
         "num_warps=8 or a larger "
         "tile",
         t->r, t->consumers},
        {fp8_count_sums(t) > FP8_SUMS_MOST, "registers",
         "a warpgroup with # x # of the tile holds # sums per thread beside # temporary ones, # "
         "fit in all: take a smaller tile or more warps",
         t->rows_each, t->c, t->accumulators, t->c / 2, FP8_SUMS_MOST,
         .required = fp8_count_sums(t), .limit = FP8_SUMS_MOST},
        {t->swap_ab && (v->scatter || hopper_sharers(t) > 1) && t->c > FP8_SWAPPED_MOST,
         "registers", /* ptxas spilled */
         "swap_ab=true with # rows leaves no registers for scattered rows, nor for "
         "cluster_shape_mn=2x1: take up to #",
         t->c, FP8_SWAPPED_MOST, .required = t->c, .limit = FP8_SWAPPED_MOST},
        {t->tma_store && fp8_count_sums(t) > FP8_GATHERED_SUMS_MOST &&
             (t->gather ? t->dynamic || t->skip_rows
                        : t->dynamic && t->swap_ab && hopper_sharers(t) > 1),
         "registers", /* ptxas spilled */
         "# x # of the tile leave no registers for TMA stores with tile_scheduler=dynamic or "
         "skip_rows=true of permuted rows, nor with dynamic tiles of cluster_shape_mn=2x1: set "
         "use_tma_store=false",
         t->rows_each, t->c, .required = fp8_count_sums(t), .limit = FP8_GATHERED_SUMS_MOST},
        {split && fp8_count_sums(t) > FP8_SPLIT_SUMS_MOST, "registers", /* ptxas spilled */
         "NUM_KSPLIT=# with # x # of the tile in a warpgroup leaves no registers to exchange sums: "
         "take a smaller tile",
         t->ksplit, t->rows_each, t->c, .required = fp8_count_sums(t),
         .limit = FP8_SPLIT_SUMS_MOST},
        {t->skip_rows && (t->r == 64 || dw), "skip_rows",
         "skip_rows=true is for forward and dX with tiles of more than 64 rows: set it to false"},
        {!t->tma_store && t->staging != 1, "staging_without_tma",
         "staging_buffers=# without use_tma_store: threads store what they staged at once; set it "
         "to 1",
         t->staging},
        {t->tma_store && t->staging > pieces, "staging_too_many",
         "staging_buffers=# is more than two tiles of # columns fill", t->staging, t->c},
        {split && dw, "split_mode",
         "NUM_KSPLIT=# is for forward and dX: dW sums over each expert's rows, which may be none; "
         "set it to 1",
         t->ksplit},
        {split && (t->dynamic || t->tma_store), "split_schedule",
         "NUM_KSPLIT=# needs tile_scheduler=static and use_tma_store=false: the thread blocks that "
         "share a tile walk the tiles in step, and their threads add up the parts",
         t->ksplit},
        {split && !v->quant->sum_block, "split_rows",
         "NUM_KSPLIT=# is for quant=fp8_block: scales of rows come after the whole sum; set it to "
         "1",
         t->ksplit},
        {split && blocks < t->ksplit, "split_depth",
         "NUM_KSPLIT=# parts of a sum over # blocks of #: each part has one at least; take up to #",
         t->ksplit, blocks, FP8_DEPTH, blocks},
        {t->smem > info->smem_optin, "shared_memory",
         "tile # x # with # stages and # staging buffers needs # bytes of shared memory, the "
         "device "
         "has #: take fewer stages or buffers, or a smaller tile",
         t->r, t->c, t->stages, t->staging, t->smem, info->smem_optin, .required = t->smem,
         .limit = info->smem_optin},
    };
    return gemm_rules_reject(rules, COUNT(rules), why);
}

int fp8_check(const struct problem *p, const struct record *config, const struct device_info *info,
              struct rejection *why)
{
    struct gemm v;
    struct hopper_values h;
    struct hopper_tile t;
    gemm_view(p, &v);
    int r = fp8_check_problem(&v, why);
    r = r ? r : gemm_rules_order(&v, "", "wgmma", target_name, "take quant=none", why);
    r = r ? r : gemm_rules_check(&v, config, known, NULL, why);
    if (r) {
        return r;
    }
    hopper_values_read(config, &h);
    struct hopper_value_rules rules = value_rules;
    if (fp8_takes_narrow(&v) && !hopper_bool(&h, FIELD_swap_ab, false)) {
        rules.roles[GEMM_COLS] = narrow_cols;
    }
    r = hopper_check_values(&v, &h, &rules, why);
    r = r ? r : fp8_check_loads(&v, &h, why);
    r = r ? r : hopper_check_mode(&v, &h, why);
    if (r) {
        return r;
    }
    fp8_tile_of(&v, &h, &t);
    return fp8_check_tile(&v, &t, info, why);
}

/* Takes a problem for which the smallest config that all problems have is legal, as hopper_takes()
 * does. */
int fp8_takes(const struct problem *p, const struct device_info *info, struct rejection *why)
{
    struct record smallest;
    struct gemm v;
    gemm_view(p, &v);
    hopper_put_tile(&v, (int[]){64, 64, FP8_DEPTH}, 8, 2, "cooperative", &smallest);
    return fp8_check(p, &smallest, info, why);
}

/* As in the space of 16-bit operands, a tile has a usual config: all stages that fit, its usual
 * staging buffers or one where that makes room for a stage, TMA stores. Up to two departures are
 * tried together. */
int fp8_worth(const struct problem *p, const struct record *config, const struct device_info *info,
              struct rejection *why)
{
    enum { DEPARTURES_MOST = 2 };
    struct gemm v, twin;
    struct hopper_tile t;
    gemm_view(p, &v);
    fp8_tile_make(&v, config, &t);
    fp8_twin(&v, &twin);
    const int fit = hopper_fit_stages(&twin, &t, info, t.staging);
    const int usual = fp8_usual_staging(&twin, &t);
    const bool sends = hopper_sends(&twin, &t);
    const int64_t tiles = hopper_expect_tiles(&v, t.r, t.c);
    const bool stores = !v.scatter && t.ksplit == 1 && (!t.tma_store || t.staging != usual);
    const int n = (t.stages < fit) + stores + (t.skip_rows || t.dynamic);
    const bool dw = v.mode == GEMM_DW;
    const struct rule rules[] = {
        {t.consumers == 1 && t.r > (t.swap_ab ? 128 : 64), "one_consumer_tall",
         "# rows with one multiplying warpgroup: two multiply them sooner", t.r},
        {!t.swap_ab && t.c == FP8_NARROW && t.r > 128, "narrow_tall",
         "# x #: tiles of up to 128 rows are shared by more SMs", t.r, t.c},
        {!t.swap_ab && t.c == FP8_NARROW && hopper_expect_tiles(&v, t.r, 64) >= info->sm_count,
         "narrow_enough",
         "# x #: # tiles of # x 64 already give each of # SMs a tile, and load less", t.r, t.c,
         hopper_expect_tiles(&v, t.r, 64), t.r, info->sm_count},
        {t.swap_ab && (t.consumers == 1 ? t.r != 128 || t.c != 64
                       : t.r == 256     ? t.c < 96
                                        : t.c < 160),
         "swapped_tile",
         "swap_ab=true with # routed rows and # columns: tiles are cut to the rows that exist, so "
         "larger ones load less and lose nothing",
         t.c, t.r},
        {v.experts == 1 && t.swap_ab, "swapped_dense",
         "swap_ab=true with one expert: tiles of 64 rows took 10 % less time"},
        {v.experts == 1 && t.dynamic, "drawn_dense",
         "tile_scheduler=dynamic with one expert: all tiles are alike, and drawing them took 5 % "
         "longer"},
        {!dw && !t.swap_ab && t.tma_store && !sends && (t.skip_rows || t.dynamic), "stored_cut",
         "use_tma_store=true of gathered rows with skip_rows=true or tile_scheduler=dynamic: "
         "threads wrote such tiles sooner"},
        {!dw && !t.swap_ab && !t.tma_store && !v.scatter && !t.gather && t.ksplit == 1 &&
             t.r * t.c >= (v.experts == 1 ? 128 * 192 : 128 * 128),
         "written_large", "use_tma_store=false with # x #: TMA stored such tiles sooner", t.r, t.c},
        {!dw && !t.swap_ab && t.consumers == 2 && t.dynamic && !t.skip_rows, "drawn_whole",
         "tile_scheduler=dynamic without skip_rows: tiles that are cut vary in length, and are "
         "worth drawing"},
        {!dw && !t.swap_ab && v.experts > 1 && t.r == 256 && t.c < 128 && v.out_cols >= 128,
         "tall_and_narrow", "# x #: tiles of 256 x 128 took 10 % less time", t.r, t.c},
        {dw && v.out_cols >= 128 && (t.c < 128 || (t.r == 64 && t.c > 128)), "narrow_sums",
         "# x # in dW: tiles of 64 x 128, or of more rows and columns, took 3 % less time", t.r,
         t.c},
        {hopper_sharers(&t) > 1 && (t.swap_ab || t.r * t.c < 128 * 128 || t.stages < fit),
         "pair_tile",
         "cluster_shape_mn with # x #: pairs saved time with all stages, in tiles of 128 x 128 "
         "and more without swap_ab",
         t.r, t.c},
        {t.tma_store && !(dw && v.out == DTYPE_FP32) && t.staging != 1 && t.staging != usual,
         "staging_other",
         "staging_buffers=#: # are usual for this tile, and one makes room for a stage", t.staging,
         usual},
        {sends && t.staging == 1 && fit == hopper_fit_stages(&twin, &t, info, usual), "staging_one",
         "staging_buffers=1: # leave as many stages", usual},
        {t.stages < fit - 1, "stages_given_away", "num_stages=# where # fit", t.stages, fit},
        {t.ksplit > 1 && tiles * (t.ksplit / 2) >= info->sm_count, "split_enough",
         "NUM_KSPLIT=#: about # tiles of # x # keep # SMs busy with half as many parts", t.ksplit,
         tiles, t.r, t.c, info->sm_count},
        {n > DEPARTURES_MOST, "departures",
         "# departures from this tile's usual config (all stages, its usual stores, all rows "
         "multiplied): up to # are tried together",
         n, DEPARTURES_MOST},
    };
    return gemm_rules_reject(rules, COUNT(rules), why);
}
