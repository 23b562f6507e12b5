/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/families/grouped_gemm/cuda_args.h"

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
