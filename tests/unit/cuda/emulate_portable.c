/* SPDX-License-Identifier: Apache-2.0 */
/* A variant of the portable template for the CPU; compiled by test_emulated.c with the variant's
 * options. */
#include "tests/unit/cuda/emulate.h"

#include "kernels/families/grouped_gemm/portable/params.cu"
#include "kernels/families/grouped_gemm/portable/experts.cu"
#include "kernels/families/grouped_gemm/portable/copies.cu"
#include "kernels/families/grouped_gemm/portable/fragments.cu"
#include "kernels/families/grouped_gemm/portable/scales.cu"
#include "kernels/families/grouped_gemm/portable/store.cu"
#include "kernels/families/grouped_gemm/portable/kernel.cu"

static void emulate_entry(void)
{
    grouped_gemm_portable(*(const struct portable_params *)emulate.l.params);
}
