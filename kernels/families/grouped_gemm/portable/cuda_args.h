/* SPDX-License-Identifier: Apache-2.0 */
/* What the cuda targets make of a launch's args alike: their kernels' params share these parts. */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_PORTABLE_CUDA_ARGS_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_PORTABLE_CUDA_ARGS_H

#include "kernels/families/grouped_gemm/grouped_gemm.h"

/* The low bits of params.flags, as in portable/params.cu and hopper/scheduler.cu. */
enum cuda_flags {
    CUDA_M_SIZES_64 = 1,
    CUDA_GATHER_64 = 2,
    CUDA_WEIGHTS_FP32 = 4,
    CUDA_ACCUMULATE = 8,
    CUDA_FLAGS_NEXT = 16, /* a target's own begin here */
};
uint32_t cuda_flags_of(const struct grouped_gemm_args *a);

/* g / by = g * mul >> shift for every g below 2^30. */
void cuda_divide_by(int64_t by, uint32_t *mul, uint32_t *shift);

/* The args of a launch, whole and checked: grouped_gemm_args_read, and indices as below. Every cuda
 * target's plan() begins with it. */
int cuda_args_read(const struct grouped_gemm_problem *v, const void *args, size_t row_bytes,
                   struct grouped_gemm_args *out, struct error *err);
/* No rows, and nothing to zero for want of them: there is nothing to launch. */
bool cuda_args_idle(const struct grouped_gemm_problem *v, const struct grouped_gemm_args *a);
/* Tiles of height x width of the output, at most: the rows of each expert are known on the device
 * only, so in forward and dX one for a single row of each expert that has any, more for the
 * rest. */
int64_t cuda_tiles_most(const struct grouped_gemm_problem *v, int64_t rows, int64_t height,
                        int64_t width);

/* ERROR_INVALID: an array of indices, sizes or weights that is not aligned to its elements. */
int cuda_check_indices(const struct grouped_gemm_args *a, struct error *err);

#endif
