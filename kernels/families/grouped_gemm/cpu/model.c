/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analytic model of the target "cpu": cycles of a tile, times tiles, over threads; at least the
 * time of memory. The model only ranks configs of a problem, so the constants are round numbers for
 * a wide out-of-order core.
 */
#include <math.h>

#include "kernels/families/grouped_gemm/cpu/target.h"

static const double FMA_PER_CYCLE = 2, LOADS_PER_CYCLE = 2, FMA_LATENCY = 4;
/* Cycles per element: converting along rows; the same scattered to columns; results in and out. */
static const double CONVERT = 0.2, CONVERT_TRANSPOSED = 1.6, STORE = 0.5;
static const double TILE_OVERHEAD = 500;

static double ceil_div(double a, double b)
{
    return ceil(a / b);
}

/* Cycles of an UNROLL_ROWS x UNROLL_COLS step of the reduction, a vector deep. */
static double step_cycles(const struct cpu_tunables *t)
{
    double rows = (double)t->unroll_rows, cols = (double)t->unroll_cols;
    double compute = rows * cols / FMA_PER_CYCLE;
    double loads = (rows + cols) / LOADS_PER_CYCLE;
    return fmax(fmax(compute, loads), FMA_LATENCY);
}

/* Cycles of a tile with `rows` real rows, `cols` columns and a reduction of `length`. */
static double tile_cycles(const struct cpu_tunables *t, double rows, double cols, double length)
{
    double lanes = (double)t->vector_width, unroll_r = (double)t->unroll_rows;
    double unroll_c = (double)t->unroll_cols * (t->lanes_on_cols ? lanes : 1);
    double pieces = ceil_div(rows, unroll_r) * ceil_div(cols, unroll_c);
    double steps = ceil_div(length, (double)t->tile_l);
    double deep = t->lanes_on_cols ? length : ceil_div(length, lanes);
    double multiply = pieces * (deep * step_cycles(t) + steps * unroll_r * (double)t->unroll_cols *
                                                            (t->lanes_on_cols ? 2 : lanes));
    double convert =
        length * (rows * CONVERT + cols * (t->transpose_w ? CONVERT_TRANSPOSED : CONVERT));
    return multiply + convert + rows * cols * STORE + TILE_OVERHEAD;
}

struct sum {
    double cycles, tiles, largest;
};

/* Adds an expert: full tiles and a last, partial tile in rows; columns likewise. */
static void add_expert(const struct grouped_gemm_problem *v, const struct cpu_tunables *t, double m,
                       struct sum *s)
{
    double rows = v->mode == GEMM_DW ? (double)v->n : m;
    double length = v->mode == GEMM_FORWARD ? (double)v->k : v->mode == GEMM_DX ? (double)v->n : m;
    double tile_r = (double)t->tile_r, tile_c = (double)t->tile_c, cols = (double)v->out_cols;
    double columns = ceil_div(cols, tile_c), full = floor(rows / tile_r);
    double rest = rows - full * tile_r, width = fmin(tile_c, cols);
    double one = full > 0 ? tile_cycles(t, tile_r, width, length) : 0;
    double last = rest > 0 ? tile_cycles(t, rest, width, length) : 0;
    s->cycles += columns * (full * one + last);
    s->tiles += columns * (full + (rest > 0));
    s->largest = fmax(s->largest, fmax(one, last));
}

double grouped_gemm_cpu_predict(const struct problem *p, const struct record *config,
                                const struct device_info *info, const struct workload *w)
{
    struct grouped_gemm_problem v;
    struct cpu_tunables t;
    int64_t rows[GEMM_EXPERTS_MAX];
    grouped_gemm_view(p, &v);
    cpu_tunables_read(&v, config, &t);
    grouped_gemm_rows(&v, w, rows);
    struct sum sum = {0};
    for (int64_t e = 0; e < v.experts; e++) {
        add_expert(&v, &t, (double)rows[e], &sum);
    }
    double threads = info->sm_count > 0 ? (double)info->sm_count : 1;
    double mhz = info->clock_khz > 0 ? (double)info->clock_khz * 1e-3 : 3000;
    /* The threads share the tiles, and the last thread is half a tile late on average. */
    double cycles = sum.cycles / threads + sum.largest / 2;
    double flops, bytes;
    grouped_gemm_work(p, &flops, &bytes);
    double memory = info->peak_gbps > 0 ? bytes / (info->peak_gbps * 1e3) : 0;
    return fmax(cycles / mhz, memory);
}
