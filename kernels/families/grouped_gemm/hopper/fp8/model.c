/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predicted times of the target "hopper_fp8", and the analytic default.
 *
 * The twin's time is the time of the same bytes and of as many cycles of wgmma. The model
 * (hopper/model/) has constants and corrections of its own for tiles with scales, and adds
 * promotion.
 */
#include <math.h>

#include "kernels/families/grouped_gemm/hopper/fp8/fp8.h"
#include "kernels/families/grouped_gemm/hopper/model/model.h"
#include "kernels/space.h"

void fp8_facts_init(struct hopper_facts *f, const struct problem *p, const struct device_info *info,
                    const struct workload *w)
{
    struct gemm v, twin;
    int64_t rows[GEMM_EXPERTS_MAX];
    gemm_view(p, &v);
    fp8_twin(&v, &twin);
    if (w) {
        gemm_rows(&v, w, rows);
    } else {
        gemm_typical_rows(&v, rows);
    }
    for (int64_t e = 0; v.mode == GEMM_DW && e < v.experts; e++) {
        rows[e] = fp8_token_units(rows[e]);
    }
    hopper_facts_of(f, &twin, info, rows);
}

double fp8_predict(const struct problem *p, const struct record *config,
                   const struct device_info *info, const struct workload *w)
{
    struct gemm v;
    struct hopper_facts f;
    struct hopper_tile t;
    gemm_view(p, &v);
    fp8_tile_make(&v, config, &t);
    const int unit = t.swap_ab ? HOPPER_GRAIN : 64;
    if (t.r < 64 || t.r > 64 * HOPPER_HEIGHTS || t.r % 64 || t.c < unit || t.c % unit ||
        t.c > 64 * HOPPER_HEIGHTS || t.stages < 1 || t.consumers < 1 || t.group < 1) {
        return NAN; /* not a config of this target */
    }
    fp8_facts_init(&f, p, info, w);
    return hopper_expected(&f, &t);
}

void fp8_predict_space(const struct problem *p, const struct device_info *info,
                       const struct workload *w, const struct space *s, double us[])
{
    struct gemm v;
    struct hopper_facts f;
    gemm_view(p, &v);
    fp8_facts_init(&f, p, info, w);
    for (uint32_t i = 0; i < s->n; i++) {
        struct record config;
        struct hopper_tile t;
        space_config(s, i, &config);
        fp8_tile_make(&v, &config, &t);
        us[i] = hopper_expected(&f, &t);
    }
}

/* ---- the default ----------------------------------------------------------------------------- */

/* r, c: rows and columns of the output in a tile. */
static const struct {
    int r, c, warps, stages, staging, split;
    bool swap, pair;
} defaults[] = {
    {128, 256, 12, 4, 1, 1, true, true}, {128, 256, 12, 4, 1, 1, true},
    {192, 128, 12, 4, 1, 1, true},       {160, 128, 12, 5, 1, 1, true},
    {96, 256, 12, 5, 1, 1, true},        {64, 128, 8, 7, 1, 1, true},
    {256, 128, 12, 4, 1, 1, false},      {256, 128, 12, 3, 2, 1, false},
    {128, 192, 12, 5, 1, 1, false},      {128, 192, 12, 4, 2, 1, false},
    {128, 192, 12, 3, 1, 1, false},      {128, 128, 12, 5, 2, 1, false},
    {128, 128, 12, 4, 1, 1, false},      {64, 192, 8, 6, 1, 1, false},
    {64, 128, 8, 8, 1, 1, false},        {64, 128, 8, 6, 1, 2, false},
    {64, 128, 8, 6, 1, 4, false},        {64, 64, 8, 8, 1, 1, false},
    {64, 64, 8, 8, 1, 4, false},
};
enum { DEFAULTS = sizeof(defaults) / sizeof(defaults[0]) };

static void put_default(const struct gemm *v, int i, bool skip, int group, struct record *config)
{
    const int size[GEMM_ROLES] = {defaults[i].r, defaults[i].c, FP8_DEPTH};
    const bool dw = v->mode == GEMM_DW, tma = !v->scatter && defaults[i].split == 1;
    record_init(config);
    for (int b = 0; b < GEMM_ROLES; b++) {
        record_put_int(config, gemm_block_names[b], size[gemm_roles[v->mode][b]]);
    }
    record_put_int(config, "num_warps", defaults[i].warps);
    record_put_text(config, "schedule", "cooperative");
    record_put_int(config, "num_stages", defaults[i].stages);
    record_put_int(config, "staging_buffers", tma ? defaults[i].staging : 1);
    record_put_bool(config, "skip_rows", skip && !dw && !defaults[i].swap && defaults[i].r > 64);
    record_put_bool(config, "use_tma_store", tma);
    if (!dw) {
        record_put_text(config, "tile_scheduler", "static");
        record_put_int(config, "NUM_KSPLIT", defaults[i].split);
        record_put_bool(config, "swap_ab", defaults[i].swap);
        record_put_text(config, "cluster_shape_mn", defaults[i].pair ? "2x1" : "1x1");
        record_put_bool(config, "use_tma_load_w", true);
    }
    if (v->mode != GEMM_DX) {
        record_put_bool(config, "use_tma_load_x", !v->gather_x);
    }
    if (v->mode != GEMM_FORWARD) {
        record_put_bool(config, "use_tma_load_dy", !v->gather_dy);
    }
    record_put_int(config, "GROUP_SIZE_M", group);
    record_put_text(config, "raster", "rows");
    if (dw) {
        record_put_text(config, "expert_order", "index");
    }
}

int fp8_choose(const struct problem *p, const struct device_info *info, struct record *config,
               struct error *err)
{
    struct gemm v;
    struct hopper_facts f;
    struct rejection why = {.code = ERROR_NO_CONFIG};
    double best = INFINITY;
    gemm_view(p, &v);
    fp8_facts_init(&f, p, info, NULL);
    for (int i = 0; i < 4 * DEFAULTS; i++) {
        struct record one;
        struct hopper_tile t;
        put_default(&v, i / 4, i & 1, i & 2 ? 8 : 1, &one);
        if ((defaults[i / 4].swap && v.mode == GEMM_DW) ||
            (defaults[i / 4].pair && !hopper_pair_pays(&v)) || fp8_check(p, &one, info, &why)) {
            continue;
        }
        fp8_tile_make(&v, &one, &t);
        const double us = hopper_expected(&f, &t);
        if (us < best) {
            best = us;
            record_copy(config, &one);
        }
    }
    return best < INFINITY
               ? 0
               : error_set(err, ERROR_NO_CONFIG, "no config of the fp8 kernel fits: %s", why.text);
}
