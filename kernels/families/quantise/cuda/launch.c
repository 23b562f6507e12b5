/* SPDX-License-Identifier: Apache-2.0 */
/* The target "portable": compiler options of a config, and grid and kernel arguments of a launch.
 * The struct below matches cuda/params.cu field by field. */
#include <stdio.h>

#include "kernels/families/quantise/cuda/cuda.h"

int quantise_cuda_variant(const struct problem *p, const struct record *config, const char *arch,
                          struct variant *out, struct error *err)
{
    struct quantise v;
    struct quantise_tile t;
    const struct device_info none = {0};
    (void)err;
    quantise_view(p, &v);
    quantise_tile_make(&v, config, &none, &t);
    variant_init(out, "quantise", "cuda", "quantise_portable", quantise_cuda_source, arch);
    if (v.mode == QUANTISE_WHOLE_ROWS) {
        snprintf(out->options, sizeof(out->options),
                 "-DMODE=%d -DTILE_ROWS=%d -DLANES=%d -DPIECES=%d -DMIN_BLOCKS=%d -DSTREAM=%d "
                 "-DPREFETCH=0 -DPERMUTE_X=%d -DPOW2=%d",
                 (int)v.mode, t.rows, t.lanes, t.pieces, t.min_blocks, t.stream, v.permute_x,
                 v.pow2);
        return 0;
    }
    snprintf(out->options, sizeof(out->options),
             "-DMODE=%d -DTILE_ROWS=%d -DROWS_PER_THREAD=%d -DMIN_BLOCKS=%d -DSTREAM=%d "
             "-DPREFETCH=%d -DPERMUTE_X=%d -DPOW2=%d",
             (int)v.mode, t.rows, t.rows_per_thread, t.min_blocks, t.stream, t.prefetch,
             v.permute_x, v.pow2);
    return 0;
}

/* ---- the launch ------------------------------------------------------------------------------ */

enum { FLAG_M_SIZES_64 = 1, FLAG_GATHER_64 = 2, FLAG_ENDS = 4 };

struct kernel_params { /* struct quantise_params of cuda/params.cu */
    const void *x;
    void *q, *q_t, *scales, *scales_t;
    const void *m_sizes, *gather;
    int64_t x_stride, q_stride, q_t_stride;
    int64_t scales_row, scales_block, scales_t_stride;
    int64_t padded;
    int32_t rows, k, experts;
    int32_t row_tiles, column_tiles, group;
    uint32_t topk_mul, topk_shift;
    uint32_t flags;
    float eps;
};
_Static_assert(sizeof(struct kernel_params) == 152, "cuda/params.cu counts on this layout");

static struct kernel_params launch_make_params(const struct quantise *v,
                                               const struct quantise_args *a)
{
    struct kernel_params k = {
        .x = a->x,
        .q = a->q,
        .q_t = a->q_t,
        .scales = a->scales,
        .scales_t = a->scales_t,
        .m_sizes = v->experts > 1 ? a->m_sizes : NULL,
        .gather = a->gather_indices,
        .x_stride = a->x_stride * 2,
        .q_stride = a->q_stride,
        .q_t_stride = a->q_t_stride,
        .scales_row = a->scales_row_stride,
        .scales_block = a->scales_block_stride,
        .scales_t_stride = a->scales_t_stride,
        .padded = a->padded,
        .rows = (int32_t)a->rows,
        .k = (int32_t)v->k,
        .experts = (int32_t)v->experts,
        .column_tiles = v->mode == QUANTISE_WHOLE_ROWS ? 1 : (int32_t)quantise_blocks(v->k),
        .flags = (a->m_sizes_dtype == DTYPE_INT64 ? FLAG_M_SIZES_64 : 0u) |
                 (a->gather_dtype == DTYPE_INT64 ? FLAG_GATHER_64 : 0u) |
                 (a->flags & QUANTISE_ENDS ? FLAG_ENDS : 0u),
        .eps = a->eps,
    };
    launch_divide_by(v->topk, &k.topk_mul, &k.topk_shift);
    return k;
}

int quantise_cuda_plan(const struct problem *p, const struct record *config,
                       const struct device_info *info, const void *args, struct launch_plan *out,
                       struct error *err)
{
    struct quantise v;
    struct quantise_args a;
    struct quantise_tile t;
    quantise_view(p, &v);
    int r = quantise_args_read(&v, args, &a, err);
    if (r) {
        return r;
    }
    quantise_tile_make(&v, config, info, &t);
    struct kernel_params k = launch_make_params(&v, &a);
    const int64_t row_tiles = quantise_row_tiles(&v, &a, t.rows);
    const int64_t tiles = row_tiles * k.column_tiles;
    const int64_t slots = t.prefetch ? info->sm_count * t.blocks : tiles;
    /* group * column_tiles is an int, too, and row numbers stay below 2^30 */
    const int64_t group = t.group < row_tiles ? t.group : row_tiles;
    if (tiles > INT32_MAX / 2) {
        return error_set(err, ERROR_RESOURCE,
                         "%lld tiles are more than a launch can count (2^30): take more TILE_ROWS",
                         (long long)tiles);
    }
    k.row_tiles = (int32_t)row_tiles;
    k.group = (int32_t)group;
    out->workspace_bytes = 0;
    out->n = tiles > 0;
    launch_init(&out->steps[0], "quantise_portable", slots < tiles ? slots : tiles,
                (uint32_t)t.threads, t.smem, &k, sizeof(k));
    return 0;
}

/* ---- the reference --------------------------------------------------------------------------- */

int quantise_cuda_reference(const struct workload *w, void *const buffers[],
                            const int64_t *check_at, double *out, struct launch *launch,
                            struct error *err)
{
    struct quantise_reference r;
    (void)err;
    quantise_fill_reference(w, buffers, check_at, out, &r);
    launch_init(launch, "quantise_reference", w->n_checks, 128, 0, &r, sizeof(r));
    return 0;
}
