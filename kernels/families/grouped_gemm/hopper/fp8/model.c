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
    const int unit = t.swap_ab                                   ? HOPPER_GRAIN
                     : t.c == FP8_NARROW && fp8_takes_narrow(&v) ? t.c
                                                                 : 64;
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

/* Relative compile times of recorded variants. Kernels with swap_ab have a main loop for each width
 * of a cut tile. Skipped rows add a loop for 64 rows to tiles in which a consumer has 128. */
double fp8_effort(const struct problem *p, const struct record *config)
{
    struct gemm v;
    struct hopper_tile t;
    gemm_view(p, &v);
    fp8_tile_make(&v, config, &t);
    const bool pair = hopper_sharers(&t) > 1;
    if (t.swap_ab) {
        return (1.1 + 0.0033 * t.c) * (pair ? 1.25 : 1);
    }
    const double loops = !t.skip_rows ? 1 : t.r * t.c >= 256 * 128 ? 1.3 : 1.1;
    return (0.6 + 0.42 * t.r * t.c / (256 * 128)) * loops * (pair ? 1.15 : 1);
}

/* ---- the default ----------------------------------------------------------------------------- */

/* r, c: rows and columns of the output in a tile. Those that cover the best configs of recorded
 * landscapes, the most useful first; split sums for devices with more SMs; the smallest tile, which
 * always fits. */
struct fp8_default {
    int r, c, warps, stages, staging, split;
    bool swap, skip, dynamic, tma_store;
};

static const struct fp8_default of_rows[] = {
    {128, 192, 12, 5, 1, 1, .skip = true},
    {64, 64, 8, 8, 1, 1},
    {256, 128, 12, 4, 1, 1, .skip = true},
    {64, 128, 8, 7, 1, 1},
    {64, 64, 8, 7, 1, 4},
    {128, 192, 12, 3, 2, 1, .tma_store = true},
    {160, 128, 12, 5, 1, 1, .swap = true, .tma_store = true},
    {128, 192, 12, 5, 1, 1, .skip = true, .dynamic = true},
    {256, 128, 12, 4, 1, 1, .skip = true, .dynamic = true},
    {128, 128, 12, 6, 1, 1, .skip = true, .dynamic = true},
    {64, 192, 8, 6, 1, 1, .dynamic = true},
    {128, 192, 12, 5, 1, 1, .tma_store = true},
    {128, 128, 12, 5, 2, 1, .tma_store = true},
    {128, 128, 12, 5, 1, 1, .tma_store = true},
    {128, 192, 12, 4, 2, 1, .tma_store = true},
    {256, 128, 12, 4, 1, 1},
    {128, 256, 12, 4, 2, 1, .swap = true, .dynamic = true, .tma_store = true},
    {96, 256, 12, 4, 1, 1, .swap = true, .dynamic = true},
    {64, 64, 8, 7, 1, 2},
    {64, 128, 8, 8, 1, 2},
    {64, 64, 8, 7, 1, 8},
    {64, FP8_NARROW, 8, 8, 1, 1},
    {128, 192, 12, 4, 3, 1, .skip = true, .tma_store = true},
    {128, 192, 12, 4, 3, 1, .tma_store = true},
    {256, 128, 12, 3, 4, 1, .skip = true, .tma_store = true},
    {256, 128, 12, 3, 4, 1, .skip = true, .dynamic = true, .tma_store = true},
    {256, 128, 12, 3, 4, 1, .tma_store = true},
    {128, 128, 12, 5, 2, 1, .skip = true, .tma_store = true},
    {64, 64, 8, 2, 1, 1},
};
static const struct fp8_default of_sums[] = {
    {256, 128, 12, 3, 2, 1, .tma_store = true}, {64, 128, 8, 8, 1, 1, .tma_store = true},
    {128, 192, 12, 3, 2, 1, .tma_store = true}, {128, 64, 12, 7, 1, 1},
    {64, 64, 8, 8, 2, 1, .tma_store = true},    {64, 128, 8, 7, 2, 1, .tma_store = true},
    {128, 192, 12, 4, 2, 1, .tma_store = true}, {64, 64, 8, 2, 1, 1, .tma_store = true},
};
enum {
    ROWS_DEFAULTS = sizeof(of_rows) / sizeof(of_rows[0]),
    SUMS_DEFAULTS = sizeof(of_sums) / sizeof(of_sums[0]),
};

static void put_default(const struct gemm *v, const struct fp8_default *d, struct record *config)
{
    const int size[GEMM_ROLES] = {d->r, d->c, FP8_DEPTH};
    const bool tma = !v->scatter && d->tma_store;
    hopper_put_tile(v, size, d->warps, d->stages, "cooperative", config);
    record_put_int(config, "staging_buffers", tma ? d->staging : 1);
    record_put_bool(config, "skip_rows", d->skip);
    record_put_bool(config, "use_tma_store", tma);
    if (v->mode != GEMM_DW) {
        record_put_text(config, "tile_scheduler", d->dynamic ? "dynamic" : "static");
        record_put_int(config, "NUM_KSPLIT", d->split);
        if (v->quant->sum_block) {
            record_put_bool(config, "swap_ab", d->swap);
        }
        record_put_text(config, "cluster_shape_mn", "1x1");
    }
    hopper_put_loads(v, config);
}

/* Gives a default of dW with fp32 the buffers through which it loads its output, in place of
 * stages if need be. The model knows no such kernels yet, so the first tile that fits is taken. */
static void load_output(const struct problem *p, const struct device_info *info,
                        struct record *config)
{
    struct record one;
    struct rejection why;
    record_copy(&one, config);
    record_set(&one, "staging_buffers", VALUE_OF_INT(FP8_STAGING_LOADED), NULL);
    for (int64_t stages = record_int(config, "num_stages", 0); stages >= 2; stages--) {
        record_set(&one, "num_stages", VALUE_OF_INT(stages), NULL);
        if (fp8_check(p, &one, info, &why) == 0) {
            record_copy(config, &one);
            return;
        }
    }
}

/* True for a tile above 128 x 128 of a short dense product, from which the model expects too much.
 * In recordings with K up to 3072 the best of these tiles took 2 to 26 % longer than 128 x 128. */
static bool fp8_too_large(const struct gemm *v, const struct hopper_tile *t)
{
    enum { SHORT = 3072 };
    const int64_t depth = v->mode == GEMM_DX ? v->n : v->k;
    return v->experts == 1 && v->mode != GEMM_DW && !t->gather && !v->scatter && depth <= SHORT &&
           v->out_cols % 128 == 0 && t->r * t->c > 128 * 128;
}

/* Sets *config to the fastest of the defaults, as expected. `worthy`: only those that a search
 * would look at. Returns the time; INFINITY if no default is left, with the reason in *why. */
static double fp8_choose_default(const struct problem *p, const struct device_info *info,
                                 const struct hopper_facts *f, bool worthy, struct record *config,
                                 struct rejection *why)
{
    enum { LARGEST = 128 }; /* as for the values of NUM_KSPLIT */
    struct gemm v;
    double best = INFINITY;
    gemm_view(p, &v);
    const struct fp8_default *defaults = v.mode == GEMM_DW ? of_sums : of_rows;
    const int n = v.mode == GEMM_DW ? SUMS_DEFAULTS : ROWS_DEFAULTS;
    for (int i = 0; i < n; i++) {
        const int split = defaults[i].split;
        struct record one;
        struct hopper_tile t;
        put_default(&v, &defaults[i], &one);
        fp8_tile_make(&v, &one, &t);
        hopper_put_run_time(&v, &t, &one);
        if (fp8_check(p, &one, info, why) ||
            (worthy && (fp8_worth(p, &one, info, why) || fp8_too_large(&v, &t))) ||
            (split > 1 && !hopper_split_pays(&v, info, LARGEST, LARGEST, split))) {
            continue;
        }
        const double us = hopper_best_run_time(f, &t);
        hopper_put_run_time(&v, &t, &one);
        if (us < best) {
            best = us;
            record_copy(config, &one);
        }
        if (v.mode == GEMM_DW && v.out == DTYPE_FP32) {
            load_output(p, info, config);
            break;
        }
    }
    return best;
}

int fp8_choose(const struct problem *p, const struct device_info *info, struct record *config,
               struct error *err)
{
    struct hopper_facts f;
    struct rejection why = {.code = ERROR_NO_CONFIG};
    fp8_facts_init(&f, p, info, NULL);
    if (fp8_choose_default(p, info, &f, true, config, &why) < INFINITY ||
        fp8_choose_default(p, info, &f, false, config, &why) < INFINITY) {
        return 0;
    }
    return error_set(err, ERROR_NO_CONFIG, "no config of the fp8 kernel fits: %s", why.text);
}
