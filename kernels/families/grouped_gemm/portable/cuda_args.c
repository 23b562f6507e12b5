/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/families/grouped_gemm/portable/cuda_args.h"

uint32_t cuda_flags_of(const struct grouped_gemm_args *a)
{
    return (a->m_sizes_dtype == DTYPE_INT64 ? CUDA_M_SIZES_64 : 0u) |
           (a->gather_dtype == DTYPE_INT64 ? CUDA_GATHER_64 : 0u) |
           (a->weights_dtype == DTYPE_FP32 ? CUDA_WEIGHTS_FP32 : 0u) |
           (a->flags & GROUPED_GEMM_ACCUMULATE ? CUDA_ACCUMULATE : 0u);
}

/* mul = ceil(2^shift / by) is off by less than by <= 2^(shift - 30) parts of 2^shift. */
void cuda_divide_by(int64_t by, uint32_t *mul, uint32_t *shift)
{
    *shift = 30;
    while ((INT64_C(1) << (*shift - 30)) < by) {
        ++*shift;
    }
    *mul = (uint32_t)(((INT64_C(1) << *shift) + by - 1) / by);
}

int cuda_check_indices(const struct grouped_gemm_args *a, struct error *err)
{
    const struct {
        const void *data;
        uint32_t dtype;
        const char *name;
    } all[] = {
        {a->m_sizes, a->m_sizes_dtype, "m_sizes"},
        {a->gather_indices, a->gather_dtype, "gather_indices"},
        {a->topk_weights, a->weights_dtype, "topk_weights"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        size_t size = dtype_size((enum dtype)all[i].dtype);
        if (all[i].data && size && (uintptr_t)all[i].data % size) {
            return error_set(err, ERROR_INVALID, "args.%s is %p: align it to its %zu-byte elements",
                             all[i].name, all[i].data, size);
        }
    }
    return 0;
}

int cuda_args_read(const struct grouped_gemm_problem *v, const void *args, size_t row_bytes,
                   struct grouped_gemm_args *out, struct error *err)
{
    int r = grouped_gemm_args_read(v, args, row_bytes, out, err);
    return r ? r : cuda_check_indices(out, err);
}

bool cuda_args_idle(const struct grouped_gemm_problem *v, const struct grouped_gemm_args *a)
{
    return a->rows == 0 && v->mode != GEMM_DW;
}

int64_t cuda_tiles_most(const struct grouped_gemm_problem *v, int64_t rows, int64_t height,
                        int64_t width)
{
    int64_t cols = (v->out_cols + width - 1) / width;
    if (v->mode == GEMM_DW) {
        return v->experts * ((v->n + height - 1) / height) * cols;
    }
    int64_t cut = v->experts < rows ? v->experts : rows;
    return ((rows - cut) / height + cut) * cols;
}
