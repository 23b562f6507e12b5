/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predicted times of configs of portable/, and the default chosen when nothing was measured.
 *
 * Tiles go round robin over the thread blocks that fit on the GPU at once. A tile's time is the sum
 * of its reduction blocks, each bound by the slowest of
 *   - the tensor cores, at the rate that mma.sync reaches
 *   - shared memory: fragments read by every warp, tiles written once
 *   - L2: the tile's operands
 *   - latency: the ring must cover one trip to memory
 * plus the exposed work: writing the output, finding the next tile. The launch takes at least the
 * time in which memory moves each operand once. The constants are rough; only the order of configs
 * matters.
 */
#include <math.h>

#include "kernels/families/grouped_gemm/portable/portable.h"

static const double SETUP_US = 4;      /* launch, scan of the experts */
static const double TILE_US = 0.6;     /* time to find a tile and to fill the registers again */
static const double BLOCK_CYCLES = 80; /* barrier and bookkeeping of a block of the reduction */
/* time of a copy from memory to shared memory, under load */
static const double LATENCY_US = 0.9;
static const double L2_BYTES_CYCLE = 46; /* per SM */
static const double SHARED_BYTES_CYCLE = 128;
static const double STORE_BYTES_CYCLE = 24; /* per SM */
/* operations of a lane: to decode an fp8 number, and to scale and add a sum; lanes of an SM */
static const double DECODE_OPS = 4, PROMOTE_OPS = 3, OPS_CYCLE = 128;
/* assumed clock under load when the device does not report a clock */
static const double CLOCK_GHZ = 1.5;

/* The share of device_info's rate that mma.sync reaches: Hopper and Blackwell reach the full
 * rate only with other instructions. */
static double mma_share(const struct device_info *info)
{
    return info->cc_major == 9 ? 0.64 : info->cc_major == 10 ? 0.4 : 1.0;
}

struct asked {
    struct gemm view; /* its strings are borrowed from the problem */
    int64_t rows[GEMM_EXPERTS_MAX];
    double bytes; /* bytes that memory moves if each operand moves once */
};

struct machine {
    double sms, cycles_us, flops_us; /* flops_us: of an SM */
    bool decodes;                    /* fp8 operands are decoded, and multiplied as fp16 */
    double bytes_us;                 /* bytes that memory moves in a microsecond */
    int resident;
};

static struct machine machine_of(const struct device_info *info, const struct portable_tile *t)
{
    double sms = info->sm_count > 0 ? (double)info->sm_count : 1;
    double ghz = info->clock_khz > 0 ? (double)info->clock_khz * 1e-6 * 0.8 : CLOCK_GHZ;
    return (struct machine){
        .sms = sms,
        .decodes = info->cc_major * 10 + info->cc_minor < 89,
        .cycles_us = ghz * 1e3,
        .flops_us = (info->peak_tflops > 0 ? info->peak_tflops : 100) * 1e6 / sms * mma_share(info),
        .bytes_us = (info->peak_gbps > 0 ? info->peak_gbps : 1000) * 1e3,
        .resident = portable_resident(t, info),
    };
}

/* An SM's time for a block of the reduction, when `busy` thread blocks share the SM. */
static double portable_block_us(const struct portable_tile *t, const struct machine *m, double busy)
{
    double steps = t->d * t->element / 32, bytes = (double)(t->r + t->c) * t->d * t->element;
    double sides = (double)t->r / t->warps_r + (double)t->c / t->warps_c;
    double mma = 2.0 * t->r * t->c * t->d / m->flops_us;
    double shared = (t->warps * sides * 32 * steps + bytes) / SHARED_BYTES_CYCLE / m->cycles_us;
    double l2 = bytes / L2_BYTES_CYCLE / m->cycles_us;
    double latency = LATENCY_US / (busy * (t->stages - 1));
    /* Reading fragments and multiplying overlap only in part, and less with fewer warps. */
    double warps = busy * t->warps;
    double decode = m->decodes ? t->warps * sides * t->d * DECODE_OPS : 0;
    double promote = PROMOTE_OPS * t->r * t->c * t->d / PORTABLE_PROMOTE;
    double scaled = t->is_scaled ? (decode + promote) / OPS_CYCLE / m->cycles_us : 0;
    double compute = scaled + fmax(mma, shared) +
                     fmin(mma, shared) * (warps >= 16  ? 0.15
                                          : warps >= 8 ? 0.3
                                                       : 0.6);
    /* Trips to memory take different times: a deeper ring also hides slow trips. */
    return fmax(compute + BLOCK_CYCLES / m->cycles_us, fmax(l2, latency)) + 0.1 * latency;
}

struct shape {              /* a launch, counted in tiles */
    double cols, row_tiles; /* column and row tiles; in dW of each expert */
    /* number of blocks of a reduction; in dW each expert has another number */
    double blocks;
    double out_bytes;
};

static double portable_tile_us(const struct portable_tile *t, const struct machine *m,
                               double blocks, double busy, size_t out_size)
{
    double store = (double)t->r * t->c * (double)out_size / STORE_BYTES_CYCLE / m->cycles_us;
    return blocks * portable_block_us(t, m, busy) + (store + TILE_US) / (busy > 1 ? 2 : 1);
}

/* The time of equal tiles, dealt round robin: full waves, and a last wave in which an SM has
 * fewer thread blocks to hide latency. */
static double waves_us(const struct portable_tile *t, const struct machine *m, double tiles,
                       double blocks, size_t out_size)
{
    double slots = m->sms * m->resident, full = floor(tiles / slots), rest = tiles - full * slots;
    double us = full * m->resident * portable_tile_us(t, m, blocks, m->resident, out_size);
    if (rest > 0) {
        double busy = ceil(rest / m->sms);
        us += busy * portable_tile_us(t, m, blocks, busy, out_size);
    }
    return us;
}

/* dW: an expert's tiles take equal times, but experts differ. A wave may hold tiles of two experts.
 */
static double uneven_us(const struct gemm *v, const struct portable_tile *t,
                        const struct machine *m, const int64_t rows[], double tiles_each)
{
    double total = 0, longest = 0;
    size_t out_size = dtype_size(v->out);
    for (int64_t e = 0; e < v->experts; e++) {
        double blocks = fmax(1, ceil((double)rows[e] / t->d));
        double us = portable_tile_us(t, m, blocks, m->resident, out_size);
        total += tiles_each * us;
        longest = fmax(longest, us);
    }
    double all = tiles_each * (double)v->experts, slots = m->sms * m->resident;
    double mean = total / all, filled = ceil(all / slots) * slots / all;
    double tail = fmax(total / m->sms * filled, m->resident * longest);
    return all < slots ? ceil(all / m->sms) * fmax(mean, longest) : tail;
}

static double row_tiles(const struct gemm *v, const struct portable_tile *t, const int64_t rows[])
{
    double n = 0;
    for (int64_t e = 0; e < v->experts; e++) {
        n += ceil((double)rows[e] / t->r);
    }
    return n;
}

/* Bytes from memory: each operand once. Memory delivers the second operand again for each
 * band of GROUP_SIZE_M row tiles, if L2 cannot keep the band. */
static double portable_bytes_moved(const struct asked *q, const struct portable_tile *t,
                                   const struct device_info *info)
{
    const struct gemm *v = &q->view;
    double w = (double)v->n * (double)v->k * (double)dtype_size(v->in), again = 0;
    if (v->mode == GEMM_DW || w < 0.6 * (double)info->l2_bytes) {
        return q->bytes;
    }
    for (int64_t e = 0; e < v->experts; e++) {
        double bands = ceil((double)q->rows[e] / ((double)t->r * t->group));
        again += bands > 1 ? (bands - 1) * w : 0;
    }
    return q->bytes + again;
}

/* The effect of the order of tiles where all operands fit into L2: a few per cent, measured on
 * another kernel. In forward and dX row tiles should share a column of W; in dW neighbours along
 * c share rows of dY. */
static double order_factor(const struct gemm *v, const struct portable_tile *t, double row_tiles)
{
    if (v->mode == GEMM_DW) {
        return t->group > 1 ? 1.01 : 1;
    }
    bool several = row_tiles > (double)v->experts;
    return several && t->group == 1 ? 1.03 : t->group == 8 ? 1 : 1.001;
}

static double portable_predict_us(const struct asked *q, const struct portable_tile *t,
                                  const struct device_info *info)
{
    const struct gemm *v = &q->view;
    struct machine m = machine_of(info, t);
    double cols = ceil((double)v->out_cols / t->c), tiles = 0, us;
    if (v->mode == GEMM_DW) {
        us = uneven_us(v, t, &m, q->rows, cols * ceil((double)v->n / t->r));
    } else {
        const double blocks = ceil((double)gemm_count_terms(v) / t->d);
        tiles = row_tiles(v, t, q->rows);
        us = waves_us(t, &m, tiles * cols, blocks, dtype_size(v->out));
    }
    double memory = portable_bytes_moved(q, t, info) / m.bytes_us;
    return SETUP_US + (fmax(us, memory) + 0.1 * fmin(us, memory)) * order_factor(v, t, tiles);
}

static void portable_ask_init(struct asked *q, const struct problem *p, const struct workload *w)
{
    double flops;
    gemm_view(p, &q->view);
    gemm_work(p, &flops, &q->bytes);
    gemm_rows(&q->view, w, q->rows);
}

double portable_predict(const struct problem *p, const struct record *config,
                        const struct device_info *info, const struct workload *w)
{
    struct asked q;
    struct portable_tile t;
    portable_ask_init(&q, p, w);
    return portable_tile_make(&q.view, config, &t) ? portable_predict_us(&q, &t, info)
                                                   : (double)INFINITY;
}

/* ---- the analytic default ------------------------------------------------------------------- */

struct choice {
    const struct problem *problem;
    const struct device_info *info;
    struct asked asked;
    struct record best; /* set only when us is finite */
    double us;
    struct rejection last;
};

static void portable_consider_config(struct choice *c, const struct record *config)
{
    struct rejection why;
    struct portable_tile t;
    if (portable_check(c->problem, config, c->info, &why)) {
        c->last = why;
        return;
    }
    portable_tile_make(&c->asked.view, config, &t);
    double us = portable_predict_us(&c->asked, &t, c->info);
    if (us < c->us) {
        c->us = us;
        record_copy(&c->best, config);
    }
}

/* Goes to the next point in the order of the parameters; `at` counts in mixed radix. */
static bool next_point(const struct param params[], uint32_t n, uint32_t at[])
{
    for (uint32_t i = n; i-- > 0;) {
        if (++at[i] < params[i].n) {
            return true;
        }
        at[i] = 0;
    }
    return false;
}

/* Runs while clients wait. Values that are equal for all points are computed once. GROUP_SIZE_M
 * (the last parameter) matters little and is chosen for the best tile only. */
int portable_choose(const struct problem *p, const struct device_info *info, struct record *config,
                    struct error *err)
{
    struct param params[PARAMS_MAX];
    uint32_t at[PARAMS_MAX] = {0}, n = portable_params(p, info, params) - 1;
    struct choice c = {.problem = p, .info = info, .us = INFINITY};
    struct record point;
    portable_ask_init(&c.asked, p, NULL);
    record_init(&point);
    record_put_int(&point, params[n].name, c.asked.view.mode == GEMM_DW ? 1 : 8);
    do {
        for (uint32_t i = 0; i < n; i++) {
            record_put_int(&point, params[i].name, params[i].values[at[i]].integer);
        }
        portable_consider_config(&c, &point);
    } while (next_point(params, n, at));
    if (!(c.us < INFINITY)) {
        return error_set(err, ERROR_NO_CONFIG, "no config of the portable kernel fits: %s",
                         c.last.text);
    }
    record_copy(&point, &c.best);
    for (uint32_t i = 0; i < params[n].n; i++) {
        record_put_int(&point, params[n].name, params[n].values[i].integer);
        portable_consider_config(&c, &point);
    }
    record_copy(config, &c.best);
    return 0;
}
