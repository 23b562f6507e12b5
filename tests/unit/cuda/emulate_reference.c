/* SPDX-License-Identifier: Apache-2.0 */
/* reference.cu for the CPU; compiled by test_emulated.c. */
#define REFERENCE_EMULATED
#include "tests/unit/cuda/emulate.h"

#define DEVICE    static
#define SHARED    static
#define CHECK     ((long long)emulate.block[1])
#define PART      ((long long)emulate.block[0])
#define BARRIER() barrier()
#include "kernels/families/grouped_gemm/portable/reference.cu"

static void emulate_entry(void)
{
    grouped_gemm_reference(*(const struct reference_params *)emulate.l.params);
}
