/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of families of gemmd's programs and of most tests. This file is not part of the library
 * `kernels`, so that a test can link tests/family/families.c in place of this file.
 */
#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/families/quantise/quantise.h"

const struct family *const families[] = {
    &grouped_gemm_family,
    &quantise_family,
    NULL,
};
