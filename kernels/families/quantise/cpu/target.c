/* SPDX-License-Identifier: Apache-2.0 */
/* The target "cpu" of quantise: tunables, model, compiling and launching of cpu/kernel.c.in. */
#include <math.h>
#include <stdio.h>

#include "kernels/families/quantise/quantise.h"

/* ---- tunables -------------------------------------------------------------------------------- */

static const struct quantise_tunable tunables[] = {
    {"TILE_ROWS", "rows of a tile", {128, -1}, {1, 8, 32, 128, -1}},
    {"TILE_COLS", "columns of a tile", {128, 512, 2048, -1}},
};
enum { TUNABLES = sizeof(tunables) / sizeof(tunables[0]) };

/* A tile of whole rows has all columns, so TILE_COLS is no tunable there. */
static size_t quantise_cpu_count_tunables(const struct quantise *v)
{
    return v->mode == QUANTISE_WHOLE_ROWS ? 1 : TUNABLES;
}

static int64_t quantise_cpu_columns(const struct quantise *v, const struct record *config)
{
    return v->mode == QUANTISE_WHOLE_ROWS ? v->k : record_int(config, "TILE_COLS", 128);
}

static uint32_t quantise_cpu_params(const struct problem *p, const struct device_info *info,
                                    struct param out[PARAMS_MAX])
{
    struct quantise v;
    (void)info;
    quantise_view(p, &v);
    return quantise_list_params(tunables, quantise_cpu_count_tunables(&v), &v, out);
}

static int quantise_cpu_check(const struct problem *p, const struct record *config,
                              const struct device_info *info, struct rejection *why)
{
    struct quantise v;
    (void)info;
    quantise_view(p, &v);
    return quantise_check_config(tunables, quantise_cpu_count_tunables(&v), &v, config, "cpu", why);
}

static int quantise_cpu_choose(const struct problem *p, const struct device_info *info,
                               struct record *config, struct error *err)
{
    struct quantise v;
    (void)info;
    (void)err;
    quantise_view(p, &v);
    record_init(config);
    record_put_int(config, "TILE_ROWS", v.column_side ? 128 : 8);
    if (v.mode != QUANTISE_WHOLE_ROWS) {
        record_put_int(config, "TILE_COLS", v.column_side ? 128 : 2048);
    }
    return 0;
}

/* ---- model ----------------------------------------------------------------------------------- */

/* Cycles to write an element of the output q (row side) and of the output q_t (column side), and
 * further cycles of a tile. Modes that write both outputs take the sum. Round numbers suffice,
 * because the model only ranks configs. */
static const double CYCLES_ROW = 1, CYCLES_COLUMN = 2, CYCLES_TILE = 200;

static double quantise_cpu_predict(const struct problem *p, const struct record *config,
                                   const struct device_info *info, const struct workload *w)
{
    struct quantise v;
    double flops, bytes;
    (void)w;
    quantise_view(p, &v);
    quantise_work(p, &flops, &bytes);
    const double threads = info->sm_count > 0 ? (double)info->sm_count : 1;
    const double mhz = info->clock_khz > 0 ? (double)info->clock_khz * 1e-3 : 3000;
    const double rows = (double)record_int(config, "TILE_ROWS", 1);
    const double cols = fmin((double)quantise_cpu_columns(&v, config), (double)v.k);
    const double tiles = ceil((double)v.m / rows) * ceil((double)v.k / cols);
    const double tile =
        rows * cols * (v.row_side * CYCLES_ROW + v.column_side * CYCLES_COLUMN) + CYCLES_TILE;
    const double memory = info->peak_gbps > 0 ? bytes / (info->peak_gbps * 1e3) : 0;
    return fmax(ceil(tiles / threads) * tile / mhz, memory);
}

/* ---- variant and plan ------------------------------------------------------------------------ */

struct kernel_params { /* struct params of cpu/kernel.c.in */
    const void *x;
    void *q, *q_t, *scales, *scales_t;
    const void *m_sizes, *gather;
    int64_t x_stride, q_stride, q_t_stride, scales_row, scales_block, scales_t_stride;
    int64_t rows, k, experts, topk, padded;
    int32_t m_sizes_64, gather_64, ends;
    float eps;
};

static int quantise_cpu_variant(const struct problem *p, const struct record *config,
                                const char *arch, struct variant *out, struct error *err)
{
    struct quantise v;
    (void)err;
    quantise_view(p, &v);
    variant_init(out, "quantise", "cpu", "quantise_block", quantise_cpu_source, arch);
    snprintf(out->options, sizeof(out->options),
             "-DMODE=%d -DTILE_ROWS=%d -DTILE_COLS=%d -DPERMUTE_X=%d -DPOW2=%d -DPARAMS_SIZE=%zu",
             (int)v.mode, (int)record_int(config, "TILE_ROWS", 128),
             (int)record_int(config, "TILE_COLS", 128), v.permute_x, v.pow2,
             sizeof(struct kernel_params));
    return 0;
}

static int quantise_cpu_plan(const struct problem *p, const struct record *config,
                             const struct device_info *info, const void *args,
                             struct launch_plan *out, struct error *err)
{
    struct quantise v;
    struct quantise_args a;
    (void)info;
    quantise_view(p, &v);
    int r = quantise_args_read(&v, args, &a, err);
    if (r) {
        return r;
    }
    const int64_t cols = quantise_cpu_columns(&v, config);
    const int64_t tiles = quantise_row_tiles(&v, &a, record_int(config, "TILE_ROWS", 128)) *
                          ((v.k + cols - 1) / cols);
    if (tiles > UINT32_MAX) {
        return error_set(err, ERROR_INVALID, "the launch has %lld tiles: use larger TILE_*",
                         (long long)tiles);
    }
    const struct kernel_params k = {
        a.x,
        a.q,
        a.q_t,
        a.scales,
        a.scales_t,
        a.m_sizes,
        a.gather_indices,
        a.x_stride,
        a.q_stride,
        a.q_t_stride,
        a.scales_row_stride,
        a.scales_block_stride,
        a.scales_t_stride,
        a.rows,
        v.k,
        v.experts,
        v.topk,
        a.padded,
        a.m_sizes_dtype == DTYPE_INT64,
        a.gather_dtype == DTYPE_INT64,
        (a.flags & QUANTISE_ENDS) != 0,
        a.eps,
    };
    out->workspace_bytes = 0;
    out->n = tiles > 0;
    launch_init(&out->steps[0], "quantise_block", tiles, 1, 0, &k, sizeof(k));
    return 0;
}

const struct family_target quantise_cpu = {
    .kind = "cpu",
    .label = "cpu",
    .source = quantise_cpu_source,
    .params = quantise_cpu_params,
    .check = quantise_cpu_check,
    .choose = quantise_cpu_choose,
    .predict = quantise_cpu_predict,
    .variant = quantise_cpu_variant,
    .plan = quantise_cpu_plan,
    .reference = quantise_cpu_reference,
};
