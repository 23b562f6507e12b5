/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least work of a problem: every multiply-add, every needed operand and the output once. W
 * counts for the experts with expected rows. In dW every expert's output is written, and also read
 * when the launch adds to the output.
 */
#include <math.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

static double active_experts(const struct grouped_gemm_problem *v)
{
    int64_t rows[GEMM_EXPERTS_MAX];
    grouped_gemm_expected_rows(v, rows);
    double active = 0;
    for (int64_t e = 0; e < v->experts; e++) {
        active += rows[e] > 0;
    }
    return active;
}

void grouped_gemm_work(const struct problem *p, double *flops, double *bytes)
{
    struct grouped_gemm_problem v;
    grouped_gemm_view(p, &v);
    double in = (double)dtype_size(v.in), out = (double)dtype_size(v.out);
    double m = (double)v.m, n = (double)v.n, k = (double)v.k, x = (double)v.x_rows;
    *flops = 2 * m * n * k;
    switch (v.mode) {
    case GEMM_FORWARD:
        *bytes = in * (x * k + active_experts(&v) * n * k) + out * m * n;
        break;
    case GEMM_DX:
        *bytes = in * (m * n + active_experts(&v) * n * k) + out * m * k;
        break;
    case GEMM_DW:
        *bytes = in * (m * n + x * k) + out * (double)v.experts * n * k * (v.accumulate ? 2 : 1);
        break;
    }
}
