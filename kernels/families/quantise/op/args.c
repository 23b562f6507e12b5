/* SPDX-License-Identifier: Apache-2.0 */
/* Completes a launch's args from a caller: copies them by their size, checks them against the
 * problem, and fills in dense strides. The pointers lead to device memory, which is not read. */
#include <float.h>
#include <stddef.h>

#include "kernels/args.h"
#include "kernels/families/quantise/quantise.h"

enum { SIZE_LEAST = offsetof(struct quantise_args, stream) + sizeof(void *) };

/* ---- pointers -------------------------------------------------------------------------------- */

static int quantise_check_pointer(const void *at, bool needed, size_t align, const char *name,
                                  struct error *err)
{
    if (needed && !at) {
        return error_set(err, ERROR_INVALID, "args.%s is NULL, but the problem needs it", name);
    }
    if (needed && (uintptr_t)at % align) {
        return error_set(err, ERROR_INVALID, "args.%s is %p: it must be a multiple of %zu bytes",
                         name, at, align);
    }
    return 0;
}

static int quantise_check_index(const void *at, uint32_t dtype, bool needed, const char *name,
                                struct error *err)
{
    if (needed && dtype != DTYPE_INT32 && dtype != DTYPE_INT64) {
        return error_set(err, ERROR_INVALID,
                         "the dtype of args.%s is %u: use %d (int32) or %d (int64)", name, dtype,
                         DTYPE_INT32, DTYPE_INT64);
    }
    return quantise_check_pointer(at, needed, dtype_size((enum dtype)dtype), name, err);
}

static int quantise_check_pointers(const struct quantise *v, const struct quantise_args *a,
                                   struct error *err)
{
    const bool rows = a->rows > 0, grouped = v->column_side && v->mode != QUANTISE_WEIGHTS;
    int r = quantise_check_pointer(a->x, rows, 16, "x", err);
    r = r ? r : quantise_check_pointer(a->q, rows && v->row_side, 16, "q", err);
    r = r ? r : quantise_check_pointer(a->scales, rows && v->row_side, 4, "scales", err);
    r = r ? r : quantise_check_pointer(a->q_t, rows && v->column_side, 16, "q_t", err);
    r = r ? r : quantise_check_pointer(a->scales_t, rows && grouped, 4, "scales_t", err);
    r = r ? r
          : quantise_check_index(a->m_sizes, a->m_sizes_dtype, rows && grouped && v->experts > 1,
                                 "m_sizes", err);
    return r ? r
             : quantise_check_index(a->gather_indices, a->gather_dtype, rows && v->permute_x,
                                    "gather_indices", err);
}

/* ---- strides --------------------------------------------------------------------------------- */

/* Fills in a dense stride; a given one must hold `length` elements, be a multiple, and be at most
 * 2^40. */
static int quantise_fill_stride(int64_t *stride, int64_t length, int64_t multiple, const char *name,
                                struct error *err)
{
    *stride = *stride ? *stride : length;
    if (*stride < length || *stride > GEMM_ELEMENTS_MAX || *stride % multiple) {
        return error_set(err, ERROR_INVALID,
                         "args.%s is %lld: it must be at least %lld, at most 2^40, and a multiple "
                         "of %lld",
                         name, (long long)*stride, (long long)length, (long long)multiple);
    }
    return 0;
}

/* Scales of rows: each (row, block) needs a place of its own. */
static int quantise_fill_scales(const struct quantise *v, struct quantise_args *a,
                                struct error *err)
{
    const bool weights = v->mode == QUANTISE_WEIGHTS;
    const int64_t blocks = v->row_scales;
    const int64_t rows = weights ? quantise_blocks(a->rows / v->experts) * v->experts : a->rows;
    int64_t *row = &a->scales_row_stride, *block = &a->scales_block_stride;
    if (!*row && !*block) {
        *row = weights ? blocks : 1;
        *block = weights ? 1 : (rows + 3) / 4 * 4;
    }
    const bool read = v->row_side && a->rows > 0;
    if (read && (*row > GEMM_ELEMENTS_MAX || *block > GEMM_ELEMENTS_MAX)) {
        return error_set(err, ERROR_INVALID,
                         "args.scales_row_stride is %lld and scales_block_stride %lld: at most "
                         "2^40 is supported",
                         (long long)*row, (long long)*block);
    }
    /* divides, because (rows - 1) * *row may overflow */
    const bool apart = *row > 0 && *block > 0 &&
                       (blocks - 1 <= (*row - 1) / *block || rows - 1 <= (*block - 1) / *row);
    if (read && !apart) {
        return error_set(err, ERROR_INVALID,
                         "args.scales_row_stride %lld and scales_block_stride %lld overlap: give "
                         "1 and at least %lld, or %lld and 1",
                         (long long)*row, (long long)*block, (long long)rows, (long long)blocks);
    }
    return 0;
}

static int quantise_fill_padded(const struct quantise *v, struct quantise_args *a,
                                struct error *err)
{
    const bool weights = v->mode == QUANTISE_WEIGHTS;
    if (weights || !a->padded) {
        a->padded = weights ? a->rows / v->experts : quantise_padded_most(a->rows, v->experts);
    }
    if (!weights &&
        (a->padded < 0 || a->padded > GEMM_ELEMENTS_MAX || a->padded % QUANTISE_BLOCK)) {
        return error_set(err, ERROR_INVALID,
                         "args.padded is %lld: the columns of q_t are a multiple of 128, because "
                         "each expert begins at one, and at most 2^40",
                         (long long)a->padded);
    }
    return 0;
}

static int quantise_fill_strides(const struct quantise *v, struct quantise_args *a,
                                 struct error *err)
{
    int r = quantise_fill_padded(v, a, err);
    r = r ? r : quantise_fill_stride(&a->x_stride, v->k, 8, "x_stride", err);
    r = r ? r : quantise_fill_stride(&a->q_stride, v->k, 16, "q_stride", err);
    r = r ? r : quantise_fill_stride(&a->q_t_stride, a->padded, 16, "q_t_stride", err);
    r = r ? r : quantise_fill_stride(&a->scales_t_stride, v->k, 1, "scales_t_stride", err);
    return r ? r : quantise_fill_scales(v, a, err);
}

/* ---- all ------------------------------------------------------------------------------------- */

int quantise_args_read(const struct quantise *v, const void *args, struct quantise_args *out,
                       struct error *err)
{
    int r = args_copy(args, out, sizeof(*out), SIZE_LEAST, "gemmd_quantise_args", err);
    if (r) {
        return r;
    }
    const int64_t multiple = v->mode == QUANTISE_WEIGHTS ? v->experts * QUANTISE_ALIGN : v->topk;
    if (out->rows < 0 || out->rows > GEMM_SIZE_MAX || out->rows % multiple) {
        return error_set(err, ERROR_INVALID,
                         "args.rows is %lld: give the rows of x as routed, from 0 to %d and a "
                         "multiple of %lld",
                         (long long)out->rows, GEMM_SIZE_MAX, (long long)multiple);
    }
    if (out->flags & ~(uint32_t)QUANTISE_ENDS) {
        return error_set(err, ERROR_INVALID, "args.flags is 0x%x: only 0x%x (ends) is known",
                         out->flags, QUANTISE_ENDS);
    }
    if (!(out->eps >= 0 && out->eps <= FLT_MAX)) {
        return error_set(err, ERROR_INVALID,
                         "args.eps is %g: give the least amax, 0 or more, such as 1e-12",
                         (double)out->eps);
    }
    r = quantise_check_pointers(v, out, err);
    return r ? r : quantise_fill_strides(v, out, err);
}

int64_t quantise_row_tiles(const struct quantise *v, const struct quantise_args *a, int64_t rows)
{
    if (v->mode == QUANTISE_WEIGHTS) {
        return v->experts * quantise_blocks(a->rows / v->experts);
    }
    if (v->column_side) {
        const int64_t most = quantise_padded_most(a->rows, v->experts);
        return (a->padded < most ? a->padded : most) / QUANTISE_BLOCK;
    }
    return (a->rows + rows - 1) / rows;
}
