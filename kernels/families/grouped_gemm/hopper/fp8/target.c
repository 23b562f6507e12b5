/* SPDX-License-Identifier: Apache-2.0 */
/* The target "hopper_fp8" of the cuda device: its tunables, variants and launches. fp8.h lists the
 * files of the target. */
#include <stdio.h>
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/fp8/fp8.h"
#include "kernels/families/grouped_gemm/hopper/host/params.h"
#include "kernels/families/grouped_gemm/portable/portable.h"

/* ---- tunables -------------------------------------------------------------------------------- */

static const int rows_values[] = {64, 128, 256, -1};
static const int routed_rows_values[] = {64, 96, 128, 160, 192, 256, -1}; /* some with swap_ab */
static const int cols_values[] = {64, 128, 192, 256, -1};
static const int dense_cols_values[] = {FP8_NARROW, 64, 128, 192, 256, -1};
static const int depth_values[] = {FP8_DEPTH, -1};
static const int warps_values[] = {8, 12, -1};
static const int stages_values[] = {2, 3, 4, 5, 6, 7, HOPPER_STAGES_MOST, -1};
static const int staging_values[] = {1, 2, 3, 4, -1};
static const int loaded_staging_values[] = {1, 2, FP8_STAGING_LOADED, 6, -1};
static const int *const role_values[GEMM_ROLES] = {rows_values, cols_values, depth_values};

static uint32_t fp8_tunables(const struct problem *p, const struct device_info *info,
                             struct param out[PARAMS_MAX])
{
    static const char *const schedules[] = {"cooperative", NULL};
    static const char *const no_pairs[] = {"1x1", NULL}, *const pairs[] = {"1x1", "2x1", "1x2",
                                                                           NULL};
    struct gemm v;
    uint32_t n = 0;
    gemm_view(p, &v);
    const bool dw = v.mode == GEMM_DW;
    for (int i = 0; i < GEMM_ROLES; i++) {
        const enum gemm_role role = gemm_roles[v.mode][i];
        const bool routed = role == GEMM_ROWS && !dw && v.quant->sum_block;
        const bool narrow = role == GEMM_COLS && fp8_takes_narrow(&v);
        gemm_add_ints(out, &n, gemm_block_names[i], false,
                      routed   ? routed_rows_values
                      : narrow ? dense_cols_values
                               : role_values[role],
                      gemm_block_help[i]);
    }
    if (!dw && v.quant->sum_block) {
        hopper_add_bool(out, &n, "swap_ab", true, true,
                        "weights are wgmma's A, and tiles are cut to 16 of the routed rows");
    }
    gemm_add_ints(out, &n, "num_warps", false, warps_values, "4 that load, the rest multiplies");
    hopper_add_texts(
        out, &n, "schedule", false, schedules,
        "multiplying warpgroups share a tile: one promotes while the other multiplies");
    gemm_add_ints(out, &n, "num_stages", false, stages_values,
                  "blocks of operands in shared memory");
    gemm_add_ints(out, &n, "staging_buffers", false,
                  dw && v.out == DTYPE_FP32 ? loaded_staging_values : staging_values,
                  "pieces of the output in shared memory, per multiplying warpgroup");
    hopper_add_bool(out, &n, "skip_rows", true, !dw,
                    "64 rows of a tile that do not exist are not multiplied");
    if (!dw) {
        hopper_add_texts(out, &n, "tile_scheduler", false, hopper_schedulers,
                         "tiles are dealt in turn, or taken as thread blocks come free");
        hopper_add_split(&v, info, out, &n);
        hopper_add_texts(out, &n, "cluster_shape_mn", false,
                         hopper_pair_pays(&v) ? pairs : no_pairs,
                         "thread blocks that share weights (2x1) or rows (1x2)");
    }
    hopper_add_common(&v, false, out, &n);
    return n;
}

/* ---- the variant ----------------------------------------------------------------------------- */

static int fp8_variant(const struct problem *p, const struct record *config, const char *arch,
                       struct variant *out, struct error *err)
{
    struct gemm v, twin;
    struct hopper_tile t;
    (void)err;
    gemm_view(p, &v);
    fp8_twin(&v, &twin);
    fp8_tile_make(&v, config, &t);
    hopper_variant_of(&twin, &t, grouped_gemm_hopper_fp8_source, arch, out);
    const size_t n = strlen(out->options);
    snprintf(out->options + n, sizeof(out->options) - n, " -DFP8=1 -DSCALES=%d",
             (int)t.scales - HOPPER_SCALE_BLOCKS);
    return 0;
}

/* ---- the launch ------------------------------------------------------------------------------ */

/* Bytes between the scales of rows, blocks and experts, from strides in elements. */
static struct hopper_scale_layout layout_of(const void *data, int64_t row, int64_t block,
                                            int64_t expert)
{
    enum { SCALE = 4 };
    return (struct hopper_scale_layout){data, row * SCALE, block * SCALE, expert * SCALE};
}

/* The args of the twin: strides in pairs of elements; dX's dy in the place of x. */
static struct grouped_gemm_args twin_args(const struct gemm *v, const struct grouped_gemm_args *a)
{
    struct grouped_gemm_args twin = *a;
    twin.x_stride /= FP8_UNIT;
    twin.w_stride /= FP8_UNIT;
    twin.w_stride_expert /= FP8_UNIT;
    twin.dy_stride /= FP8_UNIT;
    if (v->mode == GEMM_DX) {
        twin.x = a->dy;
        twin.x_stride = twin.dy_stride;
    }
    if (v->mode == GEMM_DW) {
        twin.rows =
            v->experts == 1 ? fp8_token_units(a->rows) : gemm_columns(v, a->rows) / FP8_UNIT;
    }
    return twin;
}

static void put_scales(const struct gemm *v, const struct grouped_gemm_args *a, struct launch *l)
{
    struct hopper_scale_layout of[2];
    const bool dw = v->mode == GEMM_DW, rows = !v->quant->sum_block;
    const struct hopper_scale_layout x = layout_of(a->x_scale, a->x_scale_stride,
                                                   a->x_scale_stride_block,
                                                   rows ? a->x_scale_stride_block : 0),
                                     dy = layout_of(a->dy_scale, a->dy_scale_stride,
                                                    a->dy_scale_stride_block,
                                                    rows ? a->dy_scale_stride_block : 0);
    of[0] = v->mode == GEMM_FORWARD ? x : dy;
    of[1] = dw ? x
               : layout_of(a->w_scale, a->w_scale_stride, a->w_scale_stride_block,
                           a->w_scale_stride_expert);
    memcpy(l->params + offsetof(struct hopper_params, scales), of, sizeof(of));
}

static int fp8_plan(const struct problem *p, const struct record *config,
                    const struct device_info *info, const void *args, struct launch_plan *out,
                    struct error *err)
{
    struct gemm v, twin;
    struct grouped_gemm_args a;
    struct hopper_tile t;
    gemm_view(p, &v);
    fp8_twin(&v, &twin);
    fp8_tile_make(&v, config, &t);
    out->n = 0;
    int r = gemm_args_read(&v, args, HOPPER_ROW_BYTES, &a, err);
    if (r) {
        return r;
    }
    struct grouped_gemm_args as = twin_args(&v, &a);
    r = hopper_plan_tile(&twin, &t, &as, info, out, err);
    if (r == 0 && out->n > 0) {
        put_scales(&v, &a, &out->steps[out->n - 1]);
    }
    return r;
}

/* docs/kernel-notes.md explains the words. */
static const struct notation_word fp8_words[] = {
    {"p1", "num_warps=8 schedule=cooperative"}, /* other words than hopper's: a text has a target */
    {"p2", "num_warps=12 schedule=cooperative"},
    {"s%", "num_stages=%"},
    {"", "staging_buffers=1"},
    {"nb%", "staging_buffers=%"},
    {"", "skip_rows=false"},
    {"skip", "skip_rows=true"},
    {"", "swap_ab=false"},
    {"swap", "swap_ab=true"},
    {"", "tile_scheduler=static"},
    {"dyn", "tile_scheduler=dynamic"},
    {"", "cluster_shape_mn=1x1"},
    {"2x1", "cluster_shape_mn=2x1"},
    {"1x2", "cluster_shape_mn=1x2"},
    {"", "NUM_KSPLIT=1"},
    {"k%", "NUM_KSPLIT=%"},
    {"", "use_tma_store=true"},
    {"tst", "use_tma_store=false"},
    {"", "GROUP_SIZE_M=1"},
    {"gm%", "GROUP_SIZE_M=%"},
    {"", "raster=rows"},
    {"cols", "raster=columns"},
    {"", "expert_order=index"},
    {"size", "expert_order=size"},
    {"ef", "w_eviction=evict_first"},
    {"en", "w_eviction=evict_normal"},
    {"eu", "w_eviction=evict_unchanged"},
    {NULL},
};

const struct family_target grouped_gemm_hopper_fp8 = {
    .kind = "cuda",
    .label = "hopper_fp8",
    .source = grouped_gemm_hopper_fp8_source,
    .words = fp8_words,
    .tile = gemm_rules_name_tile,
    .supports = hopper_supports,
    .takes = fp8_takes,
    .params = fp8_tunables,
    .check = fp8_check,
    .worth = fp8_worth,
    .choose = fp8_choose,
    .predict = fp8_predict,
    .predict_space = fp8_predict_space,
    .effort = fp8_effort,
    .variants_least = 16,
    .variant = fp8_variant,
    .plan = fp8_plan,
    .reference_source = grouped_gemm_reference_source,
    .reference = portable_reference,
};
