/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The families compiled in. This file is not part of the library `kernels`: each program links a
 * list of families, gemmd's programs this list, tests also tests/family/families.c.
 */
#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/families/quantise/quantise.h"

const struct family *const families[] = {
    &grouped_gemm_family,
    &quantise_family,
    NULL,
};
