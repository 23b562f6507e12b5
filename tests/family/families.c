/* SPDX-License-Identifier: Apache-2.0 */
/* The families of tests that link this file in place of kernels/families/families.c. */
#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/families/quantise/quantise.h"
#include "tests/family/transpose.h"

const struct family *const families[] = {
    &grouped_gemm_family,
    &quantise_family,
    &transpose_family,
    NULL,
};
