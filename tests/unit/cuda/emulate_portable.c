/* SPDX-License-Identifier: Apache-2.0 */
/* A variant of portable.cu for the CPU; compiled by test_emulated.c with the variant's options. */
#define PORTABLE_EMULATED
#include "tests/unit/cuda/emulate.h"

#include "kernels/families/grouped_gemm/portable.cu"

static void emulate_entry(void)
{
    grouped_gemm_portable(*(const struct portable_params *)emulate.l.params);
}
