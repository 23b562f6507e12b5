/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A grouped_gemm problem on the GPU with random operands, and its expected output, which the
 * reference kernel computes. Launches may use the operands directly (dense, int32 indices), or
 * "wide": the same values with gaps between rows (NaN), int64 indices, and weights of the input
 * type. Both must give the same bits.
 */
#ifndef GEMMD_TESTS_GPU_CASE_H
#define GEMMD_TESTS_GPU_CASE_H

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/launcher.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/batch.h"

enum { CASE_GUARD = 4096, CASE_TEXT_MAX = 4096 };

struct gpu_case {
    char text[CASE_TEXT_MAX]; /* the problem, for messages */
    struct problem problem;
    struct gemm v;
    struct workload w;
    const struct gemm_state *state; /* the state of workload w */
    void *buffers[BUFFERS_MAX];     /* dense operands on the GPU; the output is `out` */
    void *host[BUFFERS_MAX];        /* copies of the operands in host memory; the output has none */
    void *wide_x, *wide_w, *wide_dy, *wide_m_sizes, *wide_gather, *wide_weights;
    int64_t x_stride, w_stride, dy_stride, out_stride; /* of the wide forms */
    char *out, *wide_out;                              /* between guards */
    size_t out_bytes, wide_out_bytes;
    double *expected; /* [out_rows, out_cols], by the reference */
    char *got;        /* the downloaded output, with its guards */
};

struct case_shape {
    int64_t experts, topk, n, k;
    const int64_t
        *rows; /* [experts]; the last count is raised until the sum is a multiple of topk */
    /* dX and dW with permute_y: gather_indices names one row of dy for all topk rows of a token.
     * The rows of dy that a permutation would also name are NaN. */
    bool shared_dy;
};

/* Makes a case. `fields`: fields of the problem, such as "mode=dX permute_x=true dtype_in=bf16". */
void case_make(struct gpu_case *c, const char *fields, const struct case_shape *shape,
               uint64_t seed);
void case_free(struct gpu_case *c);
/* case_reference_add puts the reference kernel into the batch, and returns its place there;
 * case_reference_run launches the compiled kernel, which computes the expected output. */
int case_reference_add(struct batch *p, const char *arch);
void case_reference_run(struct gpu_case *c, const struct image *reference);

struct grouped_gemm_args case_args(const struct gpu_case *c, bool wide);
/* Fills the output with NaN before the next launch. */
void case_poison(const struct gpu_case *c, bool wide, gpu_stream stream);
/* Downloads the output as dense rows; NULL if a launch wrote outside the rows: into
 * the guards around the output, or into gaps between rows. */
const void *case_fetch(struct gpu_case *c, bool wide);
/* Compares the output with `factor` times the expected output. Prints the differences. */
bool case_check(const struct gpu_case *c, const void *out, double factor, const char *what);

double case_decode(enum dtype t, const void *data, int64_t at);

#endif
