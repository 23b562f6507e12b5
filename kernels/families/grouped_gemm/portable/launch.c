/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "portable": compiler options of a config, and grid and kernel arguments of a launch.
 * The structs below match portable/params.cu and reference.cu field by field. tests/unit/cuda runs
 * both sources on the CPU with these arguments.
 */
#include <stdio.h>

#include "kernels/families/grouped_gemm/portable/portable.h"

/* ---- args ----------------------------------------------------------------------------------- */

uint32_t cuda_flags_of(const struct grouped_gemm_args *a)
{
    return (a->m_sizes_dtype == DTYPE_INT64 ? CUDA_M_SIZES_64 : 0u) |
           (a->gather_dtype == DTYPE_INT64 ? CUDA_GATHER_64 : 0u) |
           (a->weights_dtype == DTYPE_FP32 ? CUDA_WEIGHTS_FP32 : 0u) |
           (a->flags & GROUPED_GEMM_ACCUMULATE ? CUDA_ACCUMULATE : 0u) |
           (a->flags & GROUPED_GEMM_ENDS ? CUDA_ENDS : 0u);
}

int64_t cuda_sms_of(const struct grouped_gemm_args *a, const struct device_info *info)
{
    return a->sms > 0 && a->sms < (uint32_t)info->sm_count ? a->sms : info->sm_count;
}

bool cuda_args_idle(const struct gemm *v, const struct grouped_gemm_args *a)
{
    return a->rows == 0 && v->mode != GEMM_DW;
}

int64_t cuda_tiles_most(const struct gemm *v, int64_t rows, int64_t height, int64_t width)
{
    int64_t cols = (v->out_cols + width - 1) / width;
    if (v->mode == GEMM_DW) {
        return v->experts * ((v->n + height - 1) / height) * cols;
    }
    int64_t cut = v->experts < rows ? v->experts : rows;
    return ((rows - cut) / height + cut) * cols;
}

/* ---- the variant ---------------------------------------------------------------------------- */

/* True if mma.sync of "sm_90a" multiplies fp8 numbers. */
static bool portable_multiplies_fp8(const char *arch)
{
    int number = 0;
    return sscanf(arch, "sm_%d", &number) == 1 && number >= 89;
}

int portable_variant(const struct problem *p, const struct record *config, const char *arch,
                     struct variant *out, struct error *err)
{
    struct gemm v;
    struct portable_tile t;
    gemm_view(p, &v);
    if (!portable_tile_make(&v, config, &t)) {
        return error_set(err, ERROR_INVALID,
                         "the config has no arrangement of warps: check it first");
    }
    variant_init(out, "grouped_gemm", "cuda", "grouped_gemm_portable", grouped_gemm_portable_source,
                 arch);
    snprintf(
        out->options, sizeof(out->options),
        "-DMODE=%d -DBLOCK_SIZE_M=%d -DBLOCK_SIZE_N=%d -DBLOCK_SIZE_K=%d -DWARPS_R=%d "
        "-DWARPS_C=%d -DNUM_STAGES=%d -DMIN_BLOCKS=%d -DGATHER_X=%d -DGATHER_DY=%d -DSCATTER=%d "
        "-DFUSE_MUL_POST=%d -DIN_BF16=%d -DOUT_FP32=%d -DSCALED=%d -DSCALE_SUM=%d -DSCALE_W=%d "
        "-DCOLUMN_ALIGN=%d -DPROMOTE_SUM=%d -DFP8_MMA=%d",
        (int)v.mode, (int)record_int(config, "BLOCK_SIZE_M", 0),
        (int)record_int(config, "BLOCK_SIZE_N", 0), (int)record_int(config, "BLOCK_SIZE_K", 0),
        t.warps_r, t.warps_c, t.stages, t.blocks, v.gather_x, v.gather_dy, v.scatter,
        v.fuse_mul_post, v.in != DTYPE_FP16, v.out == DTYPE_FP32, v.quant->is_scaled,
        (int)v.quant->sum_block, (int)v.quant->w_block, GEMM_COLUMN_ALIGN, PORTABLE_PROMOTE,
        portable_multiplies_fp8(arch));
    return 0;
}

/* ---- the launch ----------------------------------------------------------------------------- */

struct portable_params { /* as in portable/params.cu; strides in bytes */
    const void *a, *b;
    void *out;
    const void *m_sizes, *gather, *weights;
    int64_t a_stride, b_stride, out_stride;
    int64_t b_expert, out_expert;
    int32_t rows, experts, tile_rows, tile_cols, depth, group;
    uint32_t flags;
    uint32_t topk_mul, topk_shift;
    uint32_t reserved;
    const void *a_scale, *b_scale; /* strides in elements */
    int64_t a_scale_stride, a_scale_block, b_scale_stride, b_scale_block, b_scale_expert;
};
_Static_assert(sizeof(struct portable_params) == 184, "portable/params.cu counts on this layout");

static void fill_operands(const struct gemm *v, const struct grouped_gemm_args *a,
                          struct portable_params *p)
{
    int64_t in = (int64_t)dtype_size(v->in), out = (int64_t)dtype_size(v->out);
    p->a = v->mode == GEMM_FORWARD ? a->x : a->dy;
    p->a_stride = (v->mode == GEMM_FORWARD ? a->x_stride : a->dy_stride) * in;
    p->b = v->mode == GEMM_DW ? a->x : a->w;
    p->b_stride = (v->mode == GEMM_DW ? a->x_stride : a->w_stride) * in;
    p->b_expert = v->mode == GEMM_DW ? 0 : a->w_stride_expert * in;
    p->a_scale = v->mode == GEMM_FORWARD ? a->x_scale : a->dy_scale;
    p->a_scale_stride = v->mode == GEMM_FORWARD ? a->x_scale_stride : a->dy_scale_stride;
    p->a_scale_block = v->mode == GEMM_FORWARD ? a->x_scale_stride_block : a->dy_scale_stride_block;
    p->b_scale = v->mode == GEMM_DW ? a->x_scale : a->w_scale;
    p->b_scale_stride = v->mode == GEMM_DW ? a->x_scale_stride : a->w_scale_stride;
    p->b_scale_block = v->mode == GEMM_DW ? a->x_scale_stride_block : a->w_scale_stride_block;
    p->b_scale_expert = v->mode == GEMM_DW ? 0 : a->w_scale_stride_expert;
    p->out = a->out;
    p->out_stride = a->out_stride * out;
    p->out_expert = v->mode == GEMM_DW ? a->out_stride_expert * out : 0;
}

static void portable_fill_params(const struct gemm *v, const struct portable_tile *t,
                                 const struct grouped_gemm_args *a, struct portable_params *p)
{
    *p = (struct portable_params){
        .m_sizes = a->m_sizes,
        .gather = a->gather_indices,
        .weights = a->topk_weights,
        .rows = (int32_t)a->rows,
        .experts = (int32_t)v->experts,
        .tile_rows = v->mode == GEMM_DW ? (int32_t)v->n : 0,
        .tile_cols = (int32_t)v->out_cols,
        .depth = (int32_t)gemm_count_terms(v),
        .group = t->group,
        .flags = cuda_flags_of(a),
    };
    launch_divide_by(v->topk, &p->topk_mul, &p->topk_shift);
    fill_operands(v, a, p);
}

int portable_plan(const struct problem *p, const struct record *config,
                  const struct device_info *info, const void *args, struct launch_plan *out,
                  struct error *err)
{
    struct gemm v;
    struct grouped_gemm_args a;
    struct portable_tile t;
    gemm_view(p, &v);
    int r = gemm_args_read(&v, args, PORTABLE_ROW_BYTES, &a, err);
    if (r) {
        return r;
    }
    out->workspace_bytes = 0;
    out->n = 0;
    if (!portable_tile_make(&v, config, &t)) {
        return error_set(err, ERROR_INVALID,
                         "the config has no arrangement of warps: check it first");
    }
    if (cuda_args_idle(&v, &a)) {
        return 0;
    }
    int64_t tiles = cuda_tiles_most(&v, a.rows, t.r, t.c);
    int64_t slots = cuda_sms_of(&a, info) * portable_resident(&t, info);
    if (tiles > INT32_MAX - slots) {
        return error_set(
            err, ERROR_RESOURCE,
            "%lld tiles of %d x %d are more than a launch can count (2^31): take larger blocks",
            (long long)tiles, t.r, t.c);
    }
    struct portable_params params;
    portable_fill_params(&v, &t, &a, &params);
    launch_init(&out->steps[out->n++], "grouped_gemm_portable", tiles < slots ? tiles : slots,
                (uint32_t)t.threads, t.smem, &params, sizeof(params));
    return 0;
}

/* ---- the reference -------------------------------------------------------------------------- */

struct reference_params { /* as in reference.cu; strides in elements */
    const void *x, *w, *dy, *m_sizes, *gather, *weights;
    const int64_t *check_at;
    double *out;
    int64_t x_stride, w_stride, w_stride_expert, dy_stride;
    int64_t rows, n, k, experts, topk, out_cols, length;
    int32_t mode, dtype_in, dtype_out;
    int32_t m_sizes_64, gather_64, weights_fp32;
    int32_t gather_x, gather_dy, scatter, fuse_mul_post;
    int32_t scale_sum, scale_w, column_align, reserved;
    struct gemm_scales scales;
};
_Static_assert(sizeof(struct reference_params) == 288, "reference.cu counts on this layout");

/* the reference's threads per thread block, and columns of a check row per thread block */
enum { REFERENCE_THREADS = 256, REFERENCE_COLUMNS = 256 };

int portable_reference(const struct workload *w, void *const buffers[], const int64_t *check_at,
                       double *out, struct launch *launch, struct error *err)
{
    const struct gemm_state *s = w->state;
    const struct gemm *v = &s->view;
    _Alignas(16) uint8_t args[ARGS_MAX] = {0};
    struct grouped_gemm_args a;
    w->family->bind(w, buffers, NULL, 0, NULL, args);
    int r = gemm_args_read(v, args, 1, &a, err);
    if (r) {
        return r;
    }
    struct reference_params p = {
        .x = a.x,
        .w = a.w,
        .dy = a.dy,
        .m_sizes = a.m_sizes,
        .gather = a.gather_indices,
        .weights = a.topk_weights,
        .check_at = check_at,
        .out = out,
        .x_stride = a.x_stride,
        .w_stride = a.w_stride,
        .w_stride_expert = a.w_stride_expert,
        .dy_stride = a.dy_stride,
        .rows = a.rows,
        .n = v->n,
        .k = v->k,
        .experts = v->experts,
        .topk = v->topk,
        .out_cols = v->out_cols,
        .length = w->check_length,
        .mode = v->mode,
        .dtype_in = v->in,
        .dtype_out = v->out,
        .m_sizes_64 = a.m_sizes_dtype == DTYPE_INT64,
        .gather_64 = a.gather_dtype == DTYPE_INT64,
        .weights_fp32 = a.weights_dtype == DTYPE_FP32,
        .gather_x = v->gather_x,
        .gather_dy = v->gather_dy,
        .scatter = v->scatter,
        .fuse_mul_post = v->fuse_mul_post,
        .scale_sum = (int32_t)v->quant->sum_block,
        .scale_w = (int32_t)v->quant->w_block,
        .column_align = GEMM_COLUMN_ALIGN,
        .scales = gemm_scales_of(&a),
    };
    uint32_t columns = (uint32_t)((w->check_length + REFERENCE_COLUMNS - 1) / REFERENCE_COLUMNS);
    launch_init(launch, "grouped_gemm_reference", columns, REFERENCE_THREADS, 0, &p, sizeof(p));
    launch->grid[1] = w->n_checks;
    return 0;
}
