/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of test_emulated:
 *
 *   emulated_case.c      a problem, a config and operands, drawn from a seed
 *   emulated_expected.c  the expected output
 *   emulated_order.c     the output's bits, by the config's order of summation
 *   test_emulated.c      compiles and runs the kernel
 */
#ifndef GEMMD_TESTS_UNIT_CUDA_EMULATED_H
#define GEMMD_TESTS_UNIT_CUDA_EMULATED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "tests/unit/cuda/emulated_numbers.h"

#ifdef TARGET_HOPPER
#define TARGET grouped_gemm_hopper
#else
#define TARGET grouped_gemm_cuda
#endif

enum { EXPERTS_MAX = 70, GUARD = 64 };

extern const struct device_info emulated_info;

struct matrix {
    void *block; /* owned: guard, data, guard */
    char *data;  /* 16-byte aligned */
    int64_t rows, cols, stride;
    enum dtype dtype;
};

struct test_case {
    uint64_t seed, random;
    struct problem problem;
    struct gemm v;
    struct record config;
    int64_t rows[EXPERTS_MAX];
    struct matrix x, w, dy, out;
    /* of scaled operands: the arrays of the args and their strides, by GEMM_X, GEMM_W, GEMM_DY */
    struct case_scales {
        float *data; /* owned */
        struct gemm_operand lies;
        int64_t stride, block;
    } scales[3];
    int64_t column[EXPERTS_MAX]; /* dW of scaled operands: the first column of each expert */
    int64_t gather[4096];
    int32_t gather32[4096], rows32[EXPERTS_MAX];
    int64_t ends[EXPERTS_MAX]; /* running sums of rows */
    int32_t ends32[EXPERTS_MAX];
    float weights[4096];
    uint16_t weights16[4096];
    bool wide_gather, wide_rows, half_weights, strided;
    bool shared_dy; /* dy has a row for each token, which the token's topk rows share */
};

static inline size_t matrix_bytes(const struct matrix *m)
{
    return (size_t)(m->rows * m->stride) * dtype_size(m->dtype);
}

static inline double at(const struct matrix *m, int64_t row, int64_t col)
{
    return decode(m->dtype, m->data, row * m->stride + col);
}

/* Draws a case from its seed; case_fill makes its matrices. The caller frees it by case_free. */
struct test_case *case_draw(uint64_t seed);
/* The same with scaled operands: fp8_block for even seeds, fp8_row for odd seeds. */
struct test_case *case_draw_scaled(uint64_t seed);
void case_fill(struct test_case *c);
void case_free(struct test_case *c);
/* Element (row, col) of a scaled operand of expert e, as stored. */
double case_scaled_at(const struct test_case *c, enum gemm_buffer which, int64_t e, int64_t row,
                      int64_t col);
/* Returns "GEMMD_TEST_SEED=1: grouped_gemm ... | BLOCK_SIZE_M=64 ...", for failure messages. */
const char *case_text(const struct test_case *c);

/* Fails unless the output's rows are right and all other bytes are unchanged. `before`: the earlier
 * output; `reference`: the reference's result, dense. */
void case_compare(const struct test_case *c, const struct matrix *before, const double *reference);

/* Replaces the operands by values whose sums depend on the order of summation. */
void case_roughen(struct test_case *c);
/* Fails unless the output's rows have the bits that the exactness of the config promises. Returns
 * the number of elements that would have other bits in the order of configs without NUM_KSPLIT.
 * Not of dW. */
int64_t case_compare_order(const struct test_case *c);

#endif
