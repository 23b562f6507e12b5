/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training job in miniature, using only gemmd.h: asks for a MoE GEMM (the first of its layer,
 * with its permute), waits for a tuning if needed, loads the kernel, launches the kernel twice and
 * checks every element. Prints tier, source, whether the answer came from this process's table,
 * key.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/gemmd.h"

enum { TOKENS = 24, TOPK = 2, EXPERTS = 4, N = 32, K = 48, ROWS = TOKENS * TOPK };

static float x[TOKENS * K], w[EXPERTS * N * K], y[ROWS * N];
static int32_t m_sizes[EXPERTS], gather[ROWS];

/* Sorts the rows by expert: row i of the batch goes to expert i * i mod 3, so to expert 0 or 1. */
static void fill(void)
{
    int row = 0;
    for (int i = 0; i < TOKENS * K; i++) {
        x[i] = (float)(i * 7 % 11) - 5;
    }
    for (int i = 0; i < EXPERTS * N * K; i++) {
        w[i] = (float)(i * 5 % 13) - 6;
    }
    for (int e = 0; e < EXPERTS; e++) {
        for (int i = 0; i < ROWS; i++) {
            if (i * i % 3 == e) {
                gather[row++] = i;
                m_sizes[e]++;
            }
        }
    }
}

static int count_wrong(void)
{
    int wrong = 0, row = 0;
    for (int e = 0; e < EXPERTS; e++) {
        for (int end = row + m_sizes[e]; row < end; row++) {
            for (int n = 0; n < N; n++) {
                float sum = 0; /* exact in any order of addition: x and w are small whole numbers */
                for (int k = 0; k < K; k++) {
                    sum += x[gather[row] / TOPK * K + k] * w[(e * N + n) * K + k];
                }
                wrong += y[row * N + n] != sum;
            }
        }
    }
    return wrong;
}

static int launch(struct gemmd_kernel *kernel, struct gemmd_error *e)
{
    struct gemmd_grouped_gemm_args args = GEMMD_GROUPED_GEMM_ARGS_INIT;
    args.x = x;
    args.w = w;
    args.out = y;
    args.m_sizes = m_sizes;
    args.gather_indices = gather;
    args.m_sizes_dtype = args.gather_dtype = GEMMD_INT32;
    args.rows = ROWS;
    int r = gemmd_kernel_workspace(kernel, &args, &args.workspace_bytes, e);
    if (r) {
        return r;
    }
    if (args.workspace_bytes > 0) {
        args.workspace = aligned_alloc(256, (size_t)(args.workspace_bytes + 255) / 256 * 256);
    }
    for (int i = 0; i < 2 && r == 0; i++) {
        for (int j = 0; j < ROWS * N; j++) {
            y[j] = NAN;
        }
        r = gemmd_kernel_launch(kernel, &args, e);
    }
    free(args.workspace);
    return r;
}

static int run(struct gemmd *g, struct gemmd_error *e)
{
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT, again = GEMMD_ANSWER_INIT;
    struct gemmd_kernel *kernel = NULL;
    p.dtype_in = "fp32";
    p.m = ROWS;
    p.n = N;
    p.k = K;
    p.experts = EXPERTS;
    p.topk = TOPK;
    p.permute_x = true;
    q.budget = 4;
    int r = gemmd_get(g, &p, &q, &a, e);
    r = r ? r : gemmd_get(g, &p, &q, &again, e);
    r = r ? r : gemmd_kernel_load(g, &p, &a, &kernel, e);
    r = r ? r : launch(kernel, e);
    gemmd_kernel_free(kernel);
    if (r == 0) {
        printf("%s %s %s %s %d wrong\n", a.tier, a.source, again.local ? "local" : "asked", a.key,
               count_wrong());
    }
    return r;
}

int main(void)
{
    struct gemmd *g;
    struct gemmd_error e;
    fill();
    int r = gemmd_connect(&g, NULL, &e);
    if (r == 0) {
        r = run(g, &e);
        gemmd_close(g);
    }
    if (r) {
        fprintf(stderr, "%s: %s\n", gemmd_error_name(r), e.text);
    }
    return r ? 1 : 0;
}
