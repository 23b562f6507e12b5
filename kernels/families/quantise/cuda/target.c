/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "portable" of the cuda device: tunables, legal configs, model. cuda/launch.c compiles
 * and launches them.
 */
#include <math.h>

#include "kernels/families/quantise/cuda/cuda.h"

static bool quantise_cuda_supports(const struct device_info *info)
{
    return info->cc_major >= 8;
}

/* ---- tunables -------------------------------------------------------------------------------- */

static const struct quantise_tunable tunables[] = {
    {"TILE_ROWS", "rows of a tile", {128, -1}, {16, 32, 64, 128, -1}},
    {"ROWS_PER_THREAD", "rows that a thread holds in registers", {4, 8, -1}, {1, 2, 4, 8, -1}},
    {"MIN_BLOCKS",
     "thread blocks of an SM that registers allow",
     {1, 2, 3, 4, -1},
     {1, 2, 4, 8, -1}},
    {"stream", "marks loads and stores as used once", {0, 1, -1}, .is_bool = true},
    {"prefetch", "persistent blocks load the next tile early", {0, 1, -1}, .is_bool = true},
    {"GROUP_SIZE_M",
     "row tiles before the next columns",
     {1, 4, 16, 64, -1},
     {1, 8, -1},
     .run_time = true},
};
static const struct quantise_tunable whole_tunables[] = {
    {"TILE_ROWS", "rows of a thread block", {1, 2, 4, 8, -1}},
    {"LANES", "threads of a row", {32, 64, 128, 256, -1}},
    {"PIECES", "pieces of 16 bytes that a thread keeps", {1, 2, 4, 8, -1}},
    {"stream", "marks loads and stores as used once", {0, 1, -1}, .is_bool = true},
};

static const struct quantise_tunable *quantise_cuda_list(const struct quantise *v, size_t *n)
{
    const bool whole = v->mode == QUANTISE_WHOLE_ROWS;
    *n = whole ? sizeof(whole_tunables) / sizeof(whole_tunables[0])
               : sizeof(tunables) / sizeof(tunables[0]);
    return whole ? whole_tunables : tunables;
}

static uint32_t quantise_cuda_params(const struct problem *p, const struct device_info *info,
                                     struct param out[PARAMS_MAX])
{
    struct quantise v;
    size_t n;
    (void)info;
    quantise_view(p, &v);
    const struct quantise_tunable *list = quantise_cuda_list(&v, &n);
    return quantise_list_params(list, n, &v, out);
}

/* ptxas needs more registers for these GPUs. sm_80 and sm_86 also round to e4m3 by software. */
static bool is_before_hopper(const struct device_info *info)
{
    return info->cc_major < 9;
}

/* Threads that an SM holds: GeForce-class SMs have fewer. */
enum { FEW_THREADS = 1536 };

static int sm_threads(const struct device_info *info)
{
    const bool few = (info->cc_major == 8 && info->cc_minor > 0) || info->cc_major == 12;
    return few ? FEW_THREADS : 2048;
}

/* Registers with which a thread spills at most 16 bytes. NVRTC 13.0 compiled each mode and number
 * of rows for sm_80, sm_89, sm_90a and sm_120. */
static int estimate_registers(const struct quantise *v, const struct quantise_tile *t,
                              const struct device_info *info)
{
    static const struct {
        int other, row, row_ahead;
    } sizes[] = {
        [QUANTISE_ROWS] = {32, 4, 2},
        [QUANTISE_COLUMNS] = {32, 4, 5},
        [QUANTISE_BOTH] = {32, 4, 5},
        [QUANTISE_WEIGHTS] = {24, 7, 7},
    };
    const bool older = is_before_hopper(info);
    if (v->mode == QUANTISE_WHOLE_ROWS) {
        return 32 + 4 * t->pieces; /* MIN_BLOCKS leaves the compiler no more */
    }
    const int row = sizes[v->mode].row + (older ? 2 : 0);
    const int ahead = t->prefetch ? sizes[v->mode].row_ahead + (older ? 3 : 0) : 0;
    return sizes[v->mode].other + (older ? 4 : 0) + t->rows_per_thread * (row + ahead);
}

void quantise_tile_make(const struct quantise *v, const struct record *config,
                        const struct device_info *info, struct quantise_tile *t)
{
    enum { RESERVED = 1024 };
    const bool whole = v->mode == QUANTISE_WHOLE_ROWS;
    *t = (struct quantise_tile){
        .rows = (int)record_int(config, "TILE_ROWS", 128),
        .rows_per_thread = whole ? 1 : (int)record_int(config, "ROWS_PER_THREAD", 8),
        .lanes = (int)record_int(config, "LANES", QUANTISE_LANES),
        .pieces = (int)record_int(config, "PIECES", 1),
        .min_blocks = (int)record_int(config, "MIN_BLOCKS", 1),
        .group = (int)record_int(config, "GROUP_SIZE_M", 1),
        .stream = record_bool(config, "stream", false),
        .prefetch = record_bool(config, "prefetch", false),
    };
    t->threads = t->rows / t->rows_per_thread * t->lanes;
    t->registers = estimate_registers(v, t, info);
    if (whole && t->threads > 0) {
        const int fit = 65536 / (t->threads * ((t->registers + 7) / 8 * 8));
        const int most = FEW_THREADS / t->threads; /* the same variant for every GPU */
        t->min_blocks = fit < most ? fit : most;
        t->min_blocks += t->min_blocks == 0;
    }
    t->smem = whole ? t->threads / 32 * 4
              : v->column_side
                  ? QUANTISE_BLOCK * (QUANTISE_BLOCK + 4) + t->threads / 32 * QUANTISE_BLOCK * 2
                  : 0;
    const int by_registers = 65536 / (t->threads * t->registers);
    const int by_threads = sm_threads(info) / t->threads;
    const int by_smem = (int)(info->smem_per_sm / (t->smem + RESERVED));
    t->blocks = by_registers < by_threads ? by_registers : by_threads;
    t->blocks = by_smem < t->blocks ? by_smem : t->blocks;
    t->blocks = t->blocks < t->min_blocks ? t->min_blocks : t->blocks;
}

static int quantise_cuda_check(const struct problem *p, const struct record *config,
                               const struct device_info *info, struct rejection *why)
{
    struct quantise v;
    struct quantise_tile t;
    size_t n;
    quantise_view(p, &v);
    const struct quantise_tunable *list = quantise_cuda_list(&v, &n);
    int r = quantise_check_config(list, n, &v, config, "portable", why);
    if (r) {
        return r;
    }
    quantise_tile_make(&v, config, info, &t);
    if (t.threads < 32 || t.threads > 1024) {
        return rejection_set(
            why, ERROR_INVALID, "threads",
            "TILE_ROWS=%d with %s=%d makes %d threads: a thread block has 32 to 1024; change %s",
            t.rows, list == tunables ? "ROWS_PER_THREAD" : "LANES",
            list == tunables ? t.rows_per_thread : t.lanes, t.threads,
            list == tunables ? "the rows of a thread" : "the threads of a row");
    }
    if (t.threads * t.min_blocks > sm_threads(info)) {
        return rejection_resource(why, "threads", t.threads * t.min_blocks, sm_threads(info),
                                  "%d blocks of %d threads need %d threads, an SM has %d: take "
                                  "fewer MIN_BLOCKS",
                                  t.min_blocks, t.threads, t.threads * t.min_blocks,
                                  sm_threads(info));
    }
    const int64_t limit = 65536 / (t.threads * t.min_blocks);
    if (t.registers > limit) {
        return rejection_resource(why, "registers", t.registers, limit,
                                  "%d rows of a thread need about %d registers, %d blocks of %d "
                                  "threads leave %lld: take fewer MIN_BLOCKS or rows of a thread",
                                  t.rows_per_thread, t.registers, t.min_blocks, t.threads,
                                  (long long)limit);
    }
    return 0;
}

/* A thread keeps four pieces of its row where LANES allow, so that each value is read once. */
static void quantise_choose_whole(const struct quantise *v, struct record *config)
{
    enum { KEPT = 4, LANES_MOST = 256 };
    int lanes = 32;
    while (lanes < LANES_MOST && (int64_t)lanes * KEPT * 8 < v->k) {
        lanes *= 2;
    }
    const int rows = LANES_MOST / lanes;
    record_put_int(config, "TILE_ROWS", rows);
    record_put_int(config, "LANES", lanes);
    record_put_int(config, "PIECES", (int64_t)lanes * KEPT * 8 < v->k ? 2 * KEPT : KEPT);
    record_put_bool(config, "stream", false);
}

static int quantise_cuda_choose(const struct problem *p, const struct device_info *info,
                                struct record *config, struct error *err)
{
    struct quantise v;
    (void)err;
    quantise_view(p, &v);
    record_init(config);
    if (v.mode == QUANTISE_WHOLE_ROWS) {
        quantise_choose_whole(&v, config);
        return 0;
    }
    record_put_int(config, "TILE_ROWS", v.column_side ? 128 : 32);
    record_put_int(config, "ROWS_PER_THREAD", v.column_side ? 8 : 4);
    record_put_int(config, "MIN_BLOCKS", !v.column_side ? 4 : is_before_hopper(info) ? 2 : 3);
    record_put_bool(config, "stream", false);
    record_put_bool(config, "prefetch", false);
    record_put_int(config, "GROUP_SIZE_M", v.column_side ? 4 : 1);
    return 0;
}

/* ---- model -----------------------------------------------------------------------------------
 *
 * The time of all bytes at the memory's rate. A few loads in flight do not reach this rate: half of
 * it with HALF_BYTES per SM. A thread block without prefetch has loads in flight for part of its
 * time. Of whole rows, the pieces that no thread keeps are read again, from L2, in about half the
 * time. Round numbers: no GPU has measured them. */

static const double HALF_BYTES = 10e3, BUSY_SHARE = 0.6, LAUNCH_US = 2, TILE_US = 1.5;

static double quantise_cuda_predict(const struct problem *p, const struct record *config,
                                    const struct device_info *info, const struct workload *w)
{
    struct quantise v;
    struct quantise_tile t;
    double flops, bytes;
    (void)w;
    quantise_view(p, &v);
    quantise_tile_make(&v, config, info, &t);
    quantise_work(p, &flops, &bytes);
    const double gbps = info->peak_gbps > 0 ? info->peak_gbps : 1000;
    const double sms = info->sm_count > 0 ? (double)info->sm_count : 1;
    const bool whole = v.mode == QUANTISE_WHOLE_ROWS;
    const double row = (double)v.k / 8, kept = fmin((double)t.lanes * t.pieces, row);
    const double loads = whole ? kept / t.lanes : t.rows_per_thread;
    const double flight = t.blocks * t.threads * loads * 16.0 * (t.prefetch ? 1 : BUSY_SHARE);
    const double again = whole ? (double)v.m * (row - kept) * 16 / 2 : 0;
    const double narrow = v.column_side && t.group == 1 ? 1.05 : 1;
    const double columns = whole ? 1 : ceil((double)v.k / QUANTISE_BLOCK);
    const double tiles = ceil((double)v.m / t.rows) * columns;
    const double waves = ceil(tiles / (sms * t.blocks));
    const double memory = (bytes + again) / (gbps * 1e3) * (1 + HALF_BYTES / flight) * narrow;
    return LAUNCH_US + fmax(memory, waves * TILE_US);
}

const struct family_target quantise_cuda = {
    .kind = "cuda",
    .label = "portable",
    .source = quantise_cuda_source,
    .supports = quantise_cuda_supports,
    .params = quantise_cuda_params,
    .check = quantise_cuda_check,
    .choose = quantise_cuda_choose,
    .predict = quantise_cuda_predict,
    .variant = quantise_cuda_variant,
    .plan = quantise_cuda_plan,
    .reference_source = quantise_reference_source,
    .reference = quantise_cuda_reference,
};
