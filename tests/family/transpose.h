/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second family, which transposes a matrix. The family proves that nothing outside
 * kernels/families/grouped_gemm knows the computation, and is the example of
 * docs/adding-a-family.md.
 */
#ifndef GEMMD_TESTS_FAMILY_TRANSPOSE_H
#define GEMMD_TESTS_FAMILY_TRANSPOSE_H

#include "kernels/family.h"

extern const struct family transpose_family;
extern const char transpose_source[]; /* transpose_kernel.c.in, embedded */

/* The launch ABI of the op: out[c][r] = in[r][c], both dense. */
struct transpose_args {
    uint32_t size; /* sizeof(struct transpose_args) */
    uint32_t reserved;
    const void *in;
    void *out;
    void *workspace; /* 8 bytes of any content */
    int64_t workspace_bytes;
    void *stream;
};

#endif
