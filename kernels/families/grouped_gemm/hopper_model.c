/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a config of the hopper template should take, and the config chosen when nothing was
 * measured.
 *
 * Tiles go round robin over the SMs, one block of threads each. The time of a tile is that of its
 * reduction blocks, each bound by the slower of
 *   - the tensor cores, at the dense rate in device_info, less what a wait per block costs
 *   - loading: the tile's operands at what an SM draws from L2
 * plus what nothing hides: in cooperative tiles the writing of the output, in ping-pong only as far
 * as it takes longer than the other tile's multiplication. The whole is not faster than memory can
 * move each operand once. Constants were fitted to single launches on an H200.
 */
#include <math.h>
#include <string.h>

#include "kernels/families/grouped_gemm/hopper.h"

static const double SETUP_US = 5;          /* launch, scan of the experts, first loads */
static const double TILE_US = 0.25;        /* filling the tensor cores again */
static const double LOAD_BYTES_US = 95e3;  /* from L2 to an SM */
static const double LOAD_LATENCY_US = 1.0; /* under load */
static const double STORE_BYTES_US = 38e3; /* from registers to L2, by an SM alone */
static const double GATHER_SHARE = 0.93;   /* of the load rate, when threads copy */
static const double COPY_BYTES_US = 3.6e6; /* permute_copy: read and write */
static const double DENSE_TFLOPS = 790;    /* when the device does not say its own */
static const double DENSE_GBPS = 4200;

struct machine {
    double sms, flops_us, bytes_us; /* flops of one SM, bytes of the device, per microsecond */
};

static struct machine machine_of(const struct device_info *info)
{
    double sms = info->sm_count > 0 ? (double)info->sm_count : 132;
    return (struct machine){
        .sms = sms,
        .flops_us = (info->peak_tflops > 0 ? info->peak_tflops : DENSE_TFLOPS) * 1.08e6 / sms,
        .bytes_us = (info->peak_gbps > 0 ? info->peak_gbps : DENSE_GBPS) * 1e3,
    };
}

/* Between groups of wgmmas the tensor cores run dry for a moment, unless another group is in
 * flight; transposed operands cost a little, most with 192 columns. */
static double multiply_us(const struct grouped_gemm_problem *v, const struct hopper_tile *t,
                          const struct machine *m)
{
    double us = 2.0 * t->r * t->c * t->d / m->flops_us;
    us *= t->in_flight ? 1 : t->pingpong ? 1.1 : 1.01;
    us *= v->mode == GEMM_DX && t->c == 192 ? 1.04 : 1;
    return us;
}

static double load_us(const struct hopper_tile *t)
{
    double bytes = (double)(t->r + t->c) * t->d * 2;
    double rate = bytes / (LOAD_BYTES_US * (t->gather ? GATHER_SHARE : 1));
    return fmax(rate, LOAD_LATENCY_US / t->stages);
}

static double store_us(const struct grouped_gemm_problem *v, const struct hopper_tile *t)
{
    double us = (double)t->r * t->c * (double)dtype_size(v->out) / STORE_BYTES_US;
    us *= t->tma_store ? 1 : 1.15;
    return t->tma_store && t->staging == 1 && !t->pingpong ? us * 1.3 : us;
}

static double tile_us(const struct grouped_gemm_problem *v, const struct hopper_tile *t,
                      const struct machine *m, double blocks)
{
    double multiply = blocks * multiply_us(v, t, m), load = blocks * load_us(t);
    double store = store_us(v, t) + TILE_US;
    if (t->pingpong) {
        return fmax(fmax(multiply, load), (multiply + store) / 2) + TILE_US / 4;
    }
    return fmax(multiply + store, load);
}

/* Tiles that are all alike: whole rounds over the SMs. */
static double even_us(const struct machine *m, double tiles, double each)
{
    return ceil(tiles / m->sms) * each;
}

/* dW: as many tiles of every expert, as long as its rows. */
static double uneven_us(const struct grouped_gemm_problem *v, const struct hopper_tile *t,
                        const struct machine *m, const int64_t rows[], double tiles_each)
{
    double total = 0, longest = 0;
    for (int64_t e = 0; e < v->experts; e++) {
        double us = tile_us(v, t, m, fmax(1, ceil((double)rows[e] / t->d)));
        total += tiles_each * us;
        longest = fmax(longest, us);
    }
    double all = tiles_each * (double)v->experts;
    double filled = ceil(all / m->sms) * m->sms / all;
    return fmax(total / m->sms *
                    (all < 4 * m->sms
                         ? filled
                         : 1 + (t->sort_experts ? 0.2 : 0.5) * longest / (total / m->sms)),
                longest);
}

static double row_tiles(const struct grouped_gemm_problem *v, const struct hopper_tile *t,
                        const int64_t rows[])
{
    double n = 0;
    for (int64_t e = 0; e < v->experts; e++) {
        n += ceil((double)rows[e] / t->r);
    }
    return n;
}

/* Bytes from memory: each operand once, and again the weights for every group of row tiles, when an
 * expert's do not stay in L2. */
static double traffic(const struct problem *p, const struct grouped_gemm_problem *v,
                      const struct hopper_tile *t, const struct device_info *info,
                      const int64_t rows[])
{
    double flops, bytes;
    grouped_gemm_work(p, &flops, &bytes);
    double w = (double)v->n * (double)v->k * (double)dtype_size(v->in), again = 0;
    if (v->mode == GEMM_DW || t->raster_columns || w < 0.6 * (double)info->l2_bytes) {
        return bytes;
    }
    for (int64_t e = 0; e < v->experts; e++) {
        double groups = ceil((double)rows[e] / ((double)t->r * t->group));
        again += groups > 1 ? (groups - 1) * w : 0;
    }
    return bytes + again;
}

/* The copy reads rows that other copies find in L2 again, and writes each. */
static double permute_us(const struct grouped_gemm_problem *v)
{
    double cols = (double)(v->gather_x ? v->k : v->n);
    return 3 + 2.0 * (double)v->m * cols * (double)dtype_size(v->in) / COPY_BYTES_US;
}

static double predict(const struct problem *p, const struct grouped_gemm_problem *v,
                      const struct hopper_tile *t, const struct device_info *info,
                      const int64_t rows[])
{
    struct machine m = machine_of(info);
    double cols = ceil((double)v->out_cols / t->c), us;
    if (v->mode == GEMM_DW) {
        us = uneven_us(v, t, &m, rows, cols * ceil((double)v->n / t->r));
    } else {
        double depth = v->mode == GEMM_FORWARD ? (double)v->k : (double)v->n;
        us = even_us(&m, row_tiles(v, t, rows) * cols, tile_us(v, t, &m, ceil(depth / t->d)));
    }
    double memory = traffic(p, v, t, info, rows) / m.bytes_us;
    us = SETUP_US + fmax(us, memory) + 0.1 * fmin(us, memory);
    return t->permute_copy ? us + permute_us(v) : us;
}

static void rows_of(const struct grouped_gemm_problem *v, const struct workload *w, int64_t rows[])
{
    if (!w) {
        grouped_gemm_expected_rows(v, rows);
        return;
    }
    const struct grouped_gemm_state *s = w->state;
    for (int64_t e = 0; e < v->experts; e++) {
        rows[e] = s->m_sizes[e];
    }
}

double hopper_predict(const struct problem *p, const struct record *config,
                      const struct device_info *info, const struct workload *w)
{
    struct grouped_gemm_problem v;
    struct hopper_tile t;
    int64_t rows[GEMM_EXPERTS_MAX];
    grouped_gemm_view(p, &v);
    hopper_tile_make(&v, config, &t);
    rows_of(&v, w, rows);
    return predict(p, &v, &t, info, rows);
}

/* ---- the analytic default
 * ---------------------------------------------------------------------------- */

/* What won on an H200 somewhere, by its tile in r and c: the default is the best of these. */
static const struct {
    int r, c, warps;
    const char *schedule;
    int stages, staging;
} winners[] = {
    {128, 192, 12, "pingpong", 4, 2},
    {128, 256, 12, "cooperative", 4, 2},
    {128, 256, 12, "cooperative", 3, 4},
    {256, 192, 12, "cooperative", 3, 1},
    {256, 128, 12, "cooperative", 4, 1},
    {64, 256, 12, "pingpong", 4, 2},
    {64, 256, 8, "cooperative", 5, 2},
    {64, 128, 8, "cooperative", 8, 2},
    {128, 128, 12, "pingpong", 5, 2},
    {64, 64, 8, "cooperative", 8, 1}, /* the smallest: always fits */
};

static void make_config(const struct grouped_gemm_problem *v, size_t winner, int group,
                        struct record *config)
{
    const char *const names[][3] = {
        [GEMM_FORWARD] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"},
        [GEMM_DX] = {"BLOCK_SIZE_M", "BLOCK_SIZE_K", "BLOCK_SIZE_N"},
        [GEMM_DW] = {"BLOCK_SIZE_N", "BLOCK_SIZE_K", "BLOCK_SIZE_M"},
    };
    record_init(config);
    record_put_int(config, names[v->mode][0], winners[winner].r);
    record_put_int(config, names[v->mode][1], winners[winner].c);
    record_put_int(config, names[v->mode][2], HOPPER_DEPTH);
    record_put_int(config, "num_warps", winners[winner].warps);
    record_put_text(config, "schedule", winners[winner].schedule);
    record_put_int(config, "num_stages", winners[winner].stages);
    record_put_int(config, "staging_buffers", v->scatter ? 1 : winners[winner].staging);
    record_put_int(config, "in_flight", 1);
    record_put_text(config, "cluster_shape_mn", "1x1");
    record_put_bool(config, "use_tma_store", !v->scatter);
    record_put_int(config, "GROUP_SIZE_M", group);
    record_put_text(config, "raster", "rows");
    if (v->mode != GEMM_DX) {
        record_put_bool(config, "use_tma_load_x", !v->gather_x);
    }
    if (v->mode != GEMM_DW) {
        record_put_bool(config, "use_tma_load_w", true);
    } else {
        record_put_text(config, "expert_order", "index");
    }
    if (v->mode != GEMM_FORWARD) {
        record_put_bool(config, "use_tma_load_dy", !v->gather_dy);
    }
}

int hopper_choose(const struct problem *p, const struct device_info *info, struct record *config,
                  struct error *err)
{
    struct grouped_gemm_problem v;
    struct rejection why, last = {.code = ERROR_NO_CONFIG};
    struct record point;
    double best = INFINITY;
    grouped_gemm_view(p, &v);
    const bool gathers = v.gather_x || v.gather_dy;
    const int group = v.mode == GEMM_DW ? 1 : 8;
    for (size_t i = 0; i < sizeof(winners) / sizeof(winners[0]); i++) {
        for (int copy = 0; copy <= gathers; copy++) {
            make_config(&v, i, group, &point);
            if (gathers) {
                record_put_bool(&point, "permute_copy", copy);
            }
            if (hopper_check(p, &point, info, &why)) {
                last = why;
                continue;
            }
            double us = hopper_predict(p, &point, info, NULL);
            if (us < best) {
                best = us;
                record_copy(config, &point);
            }
        }
    }
    return best < INFINITY ? 0
                           : error_set(err, ERROR_NO_CONFIG,
                                       "no config of the hopper kernel fits: %s", last.text);
}
