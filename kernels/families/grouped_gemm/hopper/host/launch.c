/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "hopper": compiler options of a config, and grid and kernel arguments of a launch.
 * test_emulated.c runs the template on the CPU with these.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/host/params.h"

/* ---- the variant ----------------------------------------------------------------------------- */

/* True if the kernel is compiled for a single expert, which needs no tables of experts. A product
 * of one expert is often small, and then takes hardly longer than the set-up before its first load.
 * Where threads gather or sums fill the registers, none are left for this kind of kernel. */
static bool one_expert(const struct gemm *v, const struct hopper_tile *t)
{
    return v->experts == 1 && v->mode != GEMM_DW && !t->gather &&
           t->accumulators <= HOPPER_ACCUMULATORS_MANY && hopper_sharers(t) == 1;
}

void hopper_variant_of(const struct gemm *v, const struct hopper_tile *t, const char *source,
                       const char *arch, struct variant *out)
{
    const int sides[GEMM_ROLES] = {t->swap_ab ? t->c : t->r, t->swap_ab ? t->r : t->c, t->d};
    const enum gemm_role *role = gemm_roles[v->mode]; /* of M, N and K */
    variant_init(out, "grouped_gemm", "cuda", "grouped_gemm_hopper", source, arch);
    snprintf(
        out->options, sizeof(out->options),
        "-DMODE=%d -DONE_EXPERT=%d -DBLOCK_SIZE_M=%d -DBLOCK_SIZE_N=%d -DBLOCK_SIZE_K=%d "
        "-DCLUSTER_R=%d -DCLUSTER_C=%d -DCONSUMERS=%d -DPINGPONG=%d -DNUM_STAGES=%d "
        "-DSTAGE_ROWS=%d -DSTAGING_BUFFERS=%d -DSTORE_SLABS=%d -DIN_FLIGHT=%d -DSTAGGERED=%d "
        "-DDEFERRED=%d -DSKIP_ROWS=%d -DDYNAMIC=%d -DSWAP_AB=%d -DKSPLIT=%d -DRESIDENT=%d "
        "-DLOADERS=%d -DTMA_STORE=%d -DGATHER_X=%d -DGATHER_DY=%d -DSCATTER=%d -DFUSE_MUL_POST=%d "
        "-DIN_BF16=%d -DOUT_FP32=%d -DPERMUTE_COPY=%d -DCONSUMER_REGISTERS=%d "
        "-DPRODUCER_REGISTERS=%d",
        (int)v->mode, one_expert(v, t), sides[role[0]], sides[role[1]], sides[role[2]],
        t->cluster_r, t->cluster_c, t->consumers, t->pingpong, hopper_places(t), t->stage_rows,
        t->staging / t->store_slabs, t->store_slabs, t->in_flight > 0, t->staggered, t->deferred,
        t->skip_rows, t->dynamic, t->swap_ab, t->ksplit > 1, t->resident, t->loaders, t->tma_store,
        t->gather && v->gather_x, t->gather && v->gather_dy, v->scatter, v->fuse_mul_post,
        v->in == DTYPE_BF16, v->out == DTYPE_FP32, t->permute_copy, t->consumer_registers,
        t->producer_registers);
}

int hopper_variant(const struct problem *p, const struct record *config, const char *arch,
                   struct variant *out, struct error *err)
{
    struct gemm v;
    struct hopper_tile t;
    (void)err;
    gemm_view(p, &v);
    hopper_tile_make(&v, config, &t);
    hopper_variant_of(&v, &t, grouped_gemm_hopper_source, arch, out);
    return 0;
}

/* ---- operands -------------------------------------------------------------------------------- */

static struct hopper_operands operands_of(const struct gemm *v, const struct grouped_gemm_args *a,
                                          bool gather)
{
    int64_t in = (int64_t)dtype_size(v->in);
    bool forward = v->mode == GEMM_FORWARD, dw = v->mode == GEMM_DW;
    struct hopper_operands o = {
        .a = forward ? a->x : a->dy,
        .a_stride = (forward ? a->x_stride : a->dy_stride) * in,
        .a_cols = (uint64_t)(forward ? v->k : v->n),
        .gather_a = gather && (forward ? v->gather_x : v->gather_dy),
        .b = dw ? a->x : a->w,
        .b_stride = (dw ? a->x_stride : a->w_stride) * in,
        .b_expert = dw ? 0 : a->w_stride_expert * in,
        .b_cols = (uint64_t)v->k,
        .gather_b = gather && dw && v->gather_x,
    };
    /* Without rows operands may be NULL. The kernel reads nothing, but a map needs an address. */
    o.a = o.a ? o.a : a->out;
    o.b = o.b ? o.b : a->out;
    return o;
}

/* ---- checks of a launch ---------------------------------------------------------------------- */

/* Checks the sizes against the limits of tensor maps and of 32-bit offsets. */
static int hopper_check_sizes(const struct gemm *v, const struct hopper_operands *o,
                              const struct grouped_gemm_args *a, int64_t rows, struct error *err)
{
    const int64_t limit = INT64_C(1) << 35;
    const int64_t out = a->out_stride * (int64_t)dtype_size(v->out);
    const int64_t out_expert =
        v->mode == GEMM_DW ? a->out_stride_expert * (int64_t)dtype_size(v->out) : 0;
    if (o->a_stride >= limit || o->b_stride >= limit || out >= limit) {
        return error_set(err, ERROR_INVALID,
                         "a row stride is 2^35 bytes or more: this kernel "
                         "addresses rows less far apart");
    }
    if (o->b_expert >= limit * 32 || out_expert >= limit * 32) {
        return error_set(err, ERROR_INVALID,
                         "an expert stride is 2^40 bytes or more: this kernel "
                         "addresses experts less far apart");
    }
    const int64_t gathered = o->gather_a ? o->a_stride : o->gather_b ? o->b_stride : 0;
    if (gathered && rows > limit * 2 / gathered) {
        return error_set(err, ERROR_INVALID,
                         "%lld gathered rows of %lld bytes are more than 64 "
                         "GiB: use permute_copy=true",
                         (long long)rows, (long long)gathered);
    }
    return 0;
}

static int check_accumulate(const struct gemm *v, const struct grouped_gemm_args *a,
                            struct error *err)
{
    if ((a->flags & GROUPED_GEMM_ACCUMULATE) && v->out != DTYPE_FP32) {
        return error_set(err, ERROR_CONFLICT,
                         "args.flags asks to accumulate into %s: this kernel "
                         "adds in fp32 only; use an fp32 output",
                         dtype_name(v->out));
    }
    return 0;
}

/* ---- the steps of a launch ------------------------------------------------------------------- */

/* GROUP_SIZE_M, at most the number of tiles: where all groups are whole, the template divides by
 * the group without testing the last group's width. */
static int hopper_group_of(const struct gemm *v, const struct hopper_tile *t, int64_t rows)
{
    const int64_t wide = hopper_tile_cols(t) * hopper_cols_together(t),
                  height = t->height * hopper_rows_together(t);
    const int64_t cols = (v->out_cols + wide - 1) / wide;
    const int64_t high = v->mode == GEMM_DW ? v->n : v->experts == 1 ? rows : t->group * height;
    const int64_t most = t->raster_columns ? cols : (high + height - 1) / height;
    return (int)(most < 1 ? 1 : t->group < most ? t->group : most);
}

/* One expert: the number of tiles in a group of rows of tiles (raster=columns: of columns). */
static int64_t group_tiles(const struct hopper_tile *t, int64_t rows, const struct hopper_params *p)
{
    const int64_t high = rows > 0 ? (rows + t->height - 1) / t->height : 1;
    return p->group * (t->raster_columns ? high : p->cols);
}

enum {
    /* last_rounds when all rounds are drawn: more than any launch has. The tiles of so many rounds,
     * of LAUNCH_ORDER_MAX clusters each, still fit into an int */
    ALL_ROUNDS = 1 << 24
};

static uint32_t w_flag(enum hopper_eviction eviction)
{
    return eviction == HOPPER_EVICT_FIRST       ? HOPPER_W_FIRST
           : eviction == HOPPER_EVICT_UNCHANGED ? HOPPER_W_UNCHANGED
                                                : 0;
}

static void hopper_fill_params(const struct gemm *v, const struct hopper_tile *t,
                               const struct hopper_operands *o, const struct grouped_gemm_args *a,
                               struct hopper_params *p)
{
    const int64_t out = (int64_t)dtype_size(v->out),
                  cols = hopper_tile_cols(t) * hopper_cols_together(t);
    const int64_t gathered = o->gather_a ? o->a_stride : o->gather_b ? o->b_stride : 0;
    *p = (struct hopper_params){
        .gathered = o->gather_a   ? o->a
                    : o->gather_b ? o->b
                                  : NULL,
        .gathered_stride = (uint32_t)(gathered / 16),
        .out_data = a->out,
        .out_stride = a->out_stride * out,
        .out_expert = v->mode == GEMM_DW ? a->out_stride_expert * out : 0,
        .m_sizes = a->m_sizes,
        .gather = a->gather_indices,
        .weights = a->topk_weights,
        .counter = t->dynamic ? a->workspace : NULL,
        .rows = (int32_t)a->rows,
        .experts = (int32_t)v->experts,
        .tile_rows = v->mode == GEMM_DW ? (int32_t)v->n : 0,
        .tile_cols = (int32_t)v->out_cols,
        .depth = (int32_t)gemm_count_terms(v),
        .group = hopper_group_of(v, t, a->rows),
        .height = v->mode == GEMM_DW ? (int32_t)hopper_expert_turns(v, t)
                                     : t->height * hopper_rows_together(t),
        .ahead = v->mode == GEMM_DW && v->experts == 1 ? 0 : t->ahead,
        .ahead_shift = t->ahead ? 31 - __builtin_clz((unsigned)t->ahead) : 0,
        .a_rows = o->a,
        .b_rows = o->b,
        .a_rows_stride = (uint32_t)(o->a_stride / 16),
        .b_rows_stride = (uint32_t)(o->b_stride / 16),
        .a_rows_bytes = (uint32_t)(o->a_cols * 2),
        .b_rows_bytes = (uint32_t)(o->b_cols * 2),
        .flags = cuda_flags_of(a) | (t->raster_columns ? HOPPER_RASTER_COLUMNS : 0) |
                 (t->sort_experts ? HOPPER_SORT : 0) | (t->store_first ? HOPPER_STORE_FIRST : 0) |
                 w_flag(t->w_eviction) |
                 (v->mode == GEMM_DW && hopper_is_wide(o->a_cols) ? HOPPER_WIDE_A : 0) |
                 (v->mode == GEMM_DW && hopper_is_wide(o->b_cols) ? HOPPER_WIDE_B : 0),
    };
    launch_divide_by(v->topk, &p->topk_mul, &p->topk_shift);
    launch_divide_by(p->height, &p->height_mul, &p->height_shift);
    p->cols = (int32_t)((v->out_cols + cols - 1) / cols);
    launch_divide_by(one_expert(v, t) ? group_tiles(t, a->rows, p) : p->cols, &p->cols_mul,
                     &p->cols_shift);
    launch_divide_by(p->group, &p->group_mul, &p->group_shift);
    for (int i = 0; i < LAUNCH_ORDER_MAX; i++) {
        p->order[i] = (uint8_t)i;
    }
    p->last_rounds = t->last_rounds > 0 ? t->last_rounds : ALL_ROUNDS;
}

static int add_main(const struct gemm *v, const struct hopper_tile *t,
                    const struct hopper_operands *o, const struct grouped_gemm_args *a,
                    const struct device_info *info, struct launch_plan *out, struct error *err)
{
    const int together = t->ksplit * hopper_sharers(t); /* thread blocks of a cluster */
    int64_t tiles = cuda_tiles_most(v, a->rows, t->height * hopper_rows_together(t),
                                    hopper_tile_cols(t) * hopper_cols_together(t));
    int64_t slots = cuda_sms_of(a, info) * t->resident / together;
    slots = slots > 0 ? slots : 1;
    if (hopper_sharers(t) > 1 && slots > LAUNCH_ORDER_MAX) {
        slots = LAUNCH_ORDER_MAX;
    }
    if (tiles >= 1 << 30) { /* launch_divide_by is exact below */
        return error_set(
            err, ERROR_RESOURCE,
            "%lld tiles of %d x %d are more than a launch can count (2^30): take larger blocks",
            (long long)tiles, t->r, t->c);
    }
    struct launch *l = &out->steps[out->n++];
    struct hopper_params params;
    hopper_fill_params(v, t, o, a, &params);
    params.walkers = (int32_t)(tiles < slots ? tiles : slots);
    launch_init(l, "grouped_gemm_hopper", (int64_t)params.walkers * together, (uint32_t)t->threads,
                t->smem, &params, sizeof(params));
    if (together > 1) {
        memcpy(l->cluster, (uint32_t[]){(uint32_t)together, 1, 1}, sizeof(l->cluster));
    }
    l->order_at = hopper_sharers(t) > 1 ? offsetof(struct hopper_params, order) : 0;
    hopper_add_maps(v, t, o, a, l);
    return 0;
}

/* True if permute_copy reads each token once and writes its topk rows, rather than reads a token
 * for each row: those reads from L2 would take longer than finding the places of a token's rows, 3
 * microseconds (hopper/permute.cu). */
static bool copies_by_token(const struct gemm *v, const struct grouped_gemm_args *a)
{
    enum { AGAIN = 32 << 20 }; /* bytes that L2 delivers in 4 microseconds */
    return v->gather_x && v->topk > 1 &&
           (a->rows - a->rows / v->topk) * v->k * (int64_t)dtype_size(v->in) >= AGAIN;
}

static void add_copying(const char *entry, const struct permute_params *p, int64_t threads,
                        const struct device_info *info, struct launch_plan *out)
{
    enum { THREADS = 256, BLOCKS_PER_SM = 8 };
    const int64_t blocks = (threads + THREADS - 1) / THREADS, most = info->sm_count * BLOCKS_PER_SM;
    launch_init(&out->steps[out->n++], entry, blocks < most ? blocks : most, THREADS, 0, p,
                sizeof(*p));
}

/* Bytes of the workspace's parts, in this order: the counters of dynamic tiles; with permute_copy
 * the copy; where it copies by token the places of each token's rows. */
struct workspace {
    int64_t counters, copy, places;
};

static struct workspace workspace_of(const struct gemm *v, const struct hopper_tile *t,
                                     const struct grouped_gemm_args *a)
{
    struct workspace w = {.counters = t->dynamic ? HOPPER_COUNTERS : 0};
    if (t->permute_copy) {
        w.copy = a->rows * (v->gather_x ? v->k : v->n) * (int64_t)dtype_size(v->in);
        w.places = copies_by_token(v, a) ? a->rows * (int64_t)sizeof(int32_t) : 0;
    }
    return w;
}

/* Adds the steps that copy the gathered operand's rows into expert order; the main kernel then
 * reads the copy. */
static void add_permute(const struct gemm *v, const struct workspace *w,
                        struct grouped_gemm_args *a, const struct device_info *info,
                        struct launch_plan *out)
{
    const int64_t in = (int64_t)dtype_size(v->in), cols = v->gather_x ? v->k : v->n;
    const void **data = v->gather_x ? &a->x : &a->dy;
    int64_t *stride = v->gather_x ? &a->x_stride : &a->dy_stride;
    char *to = (char *)a->workspace + w->counters;
    struct permute_params p = {
        .from = *data,
        .to = to,
        .gather = a->gather_indices,
        .places = w->places ? (void *)(to + w->copy) : NULL,
        .from_stride = *stride * in,
        .rows = (int32_t)a->rows,
        .chunks = (int32_t)(cols * in / 16),
        .flags = a->gather_dtype == DTYPE_INT64 ? CUDA_GATHER_64 : 0,
        .topk = w->places ? (int32_t)v->topk : 0,
    };
    launch_divide_by(v->gather_x ? v->topk : 1, &p.row_mul, &p.row_shift);
    if (w->places) {
        add_copying("grouped_gemm_places", &p, a->rows, info, out);
    }
    add_copying("grouped_gemm_permute", &p, (w->places ? a->rows / v->topk + 1 : a->rows) * 32,
                info, out);
    *data = to;
    *stride = cols;
}

static int check_workspace(const struct grouped_gemm_args *a, int64_t needed, struct error *err)
{
    enum { ALIGN = 256 };
    if (needed > 0 &&
        (!a->workspace || a->workspace_bytes < needed || (uintptr_t)a->workspace % ALIGN)) {
        return error_set(err, ERROR_INVALID,
                         "args.workspace is %p with %lld bytes: this config needs %lld bytes, "
                         "aligned to %d",
                         a->workspace, (long long)a->workspace_bytes, (long long)needed, ALIGN);
    }
    return 0;
}

int hopper_plan_tile(const struct gemm *v, const struct hopper_tile *t, struct grouped_gemm_args *a,
                     const struct device_info *info, struct launch_plan *out, struct error *err)
{
    out->workspace_bytes = 0;
    int r = check_accumulate(v, a, err);
    if (r) {
        return r;
    }
    const struct workspace w = workspace_of(v, t, a);
    out->workspace_bytes = a->rows > 0 ? w.counters + w.copy + w.places : 0;
    if (cuda_args_idle(v, a)) {
        return 0;
    }
    r = check_workspace(a, out->workspace_bytes, err);
    if (r) {
        return r;
    }
    if (a->rows > 0 && t->dynamic) {
        out->steps[out->n++] =
            (struct launch){.zero = a->workspace, .zero_bytes = sizeof(uint32_t)};
    }
    if (a->rows > 0 && t->permute_copy) {
        add_permute(v, &w, a, info, out);
    }
    struct hopper_operands o = operands_of(v, a, t->gather);
    int64_t gathered_rows = v->gather_x ? a->rows / v->topk : a->rows;
    r = hopper_check_sizes(v, &o, a, gathered_rows, err);
    return r ? r : add_main(v, t, &o, a, info, out, err);
}

int hopper_plan(const struct problem *p, const struct record *config,
                const struct device_info *info, const void *args, struct launch_plan *out,
                struct error *err)
{
    struct gemm v;
    struct grouped_gemm_args a;
    struct hopper_tile t;
    gemm_view(p, &v);
    hopper_tile_make(&v, config, &t);
    out->n = 0;
    int r = gemm_args_read(&v, args, HOPPER_ROW_BYTES, &a, err);
    if (r) {
        /* after an error `args` must not be read: the caller's struct may be shorter than this
         * version's */
        return r;
    }
    return hopper_plan_tile(&v, &t, &a, info, out, err);
}
