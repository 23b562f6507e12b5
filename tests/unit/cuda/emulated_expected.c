/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/cuda/emulated.h"

static double expected_scaled(const struct test_case *c, int64_t e, int64_t i, int64_t row,
                              int64_t col)
{
    const struct gemm *v = &c->v;
    const enum gemm_buffer left = v->mode == GEMM_FORWARD ? GEMM_X : GEMM_DY;
    const enum gemm_buffer right = v->mode == GEMM_DW ? GEMM_X : GEMM_W;
    const bool dw = v->mode == GEMM_DW;
    const int64_t from = dw ? c->column[e] : 0;
    const int64_t length = dw ? c->rows[e] : v->mode == GEMM_FORWARD ? v->k : v->n;
    const int64_t a = dw             ? row % v->n
                      : v->gather_x  ? c->gather[i] / v->topk
                      : v->gather_dy ? c->gather[i]
                                     : i;
    double sum = 0;
    for (int64_t l = from; l < from + length; l++) {
        sum += case_scaled_at(c, left, e, a, l) * case_scaled_at(c, right, e, col, l);
    }
    if (v->fuse_mul_post) {
        double weight = round_to(v->out, c->weights[row]);
        sum = round_to(v->out, round_to(v->out, sum) * weight);
    }
    return sum;
}

/* Returns the expected element of the output's row `row`. i: number of this row, and `first`:
 * number of expert e's first row, when rows are counted expert by expert. */
static double expected(const struct test_case *c, int64_t e, int64_t first, int64_t i, int64_t row,
                       int64_t col, double before)
{
    const struct gemm *v = &c->v;
    double sum = 0;
    if (v->quant->is_scaled) {
        return expected_scaled(c, e, i, row, col) + before;
    }
    if (v->mode == GEMM_FORWARD) {
        int64_t x = v->gather_x ? c->gather[i] / v->topk : i;
        for (int64_t k = 0; k < v->k; k++) {
            sum += at(&c->x, x, k) * at(&c->w, e * v->n + col, k);
        }
        if (v->fuse_mul_post) {
            double weight = round_to(v->in, c->weights[row]);
            sum = round_to(v->in, round_to(v->in, sum) * weight);
        }
        return sum;
    }
    if (v->mode == GEMM_DX) {
        int64_t dy = v->gather_dy ? c->gather[i] : i;
        for (int64_t n = 0; n < v->n; n++) {
            sum += at(&c->dy, dy, n) * at(&c->w, e * v->n + n, col);
        }
        return sum;
    }
    for (i = first; i < first + c->rows[e]; i++) {
        int64_t dy = v->gather_dy ? c->gather[i] : i, x = v->gather_x ? c->gather[i] / v->topk : i;
        sum += at(&c->dy, dy, row % v->n) * at(&c->x, x, col);
    }
    return sum + before;
}

/* Inputs are small multiples of 1/8: sums are exact in fp32, so only the last rounding is left. */
static void compare_rows(const struct test_case *c, const struct matrix *before,
                         const double *reference)
{
    const struct gemm *v = &c->v;
    int64_t first = 0;
    for (int64_t e = 0; e < v->experts; e++) {
        int64_t n = v->mode == GEMM_DW ? v->n : c->rows[e];
        for (int64_t r = 0; r < n; r++) {
            int64_t i = v->mode == GEMM_DW ? e * v->n + r : first + r;
            int64_t row = v->scatter ? c->gather[i] : i;
            for (int64_t col = 0; col < v->out_cols; col++) {
                double old = v->accumulate ? at(before, row, col) : 0;
                double exact = expected(c, e, first, i, row, col, old);
                double want = v->out == DTYPE_FP32 ? exact : round_to(v->out, exact);
                double got = at(&c->out, row, col), ref = reference[row * v->out_cols + col];
                if (got != want) {
                    fail_msg("%s: expert %d row %d column %d: %g, not %g", case_text(c), (int)e,
                             (int)row, (int)col, got, want);
                }
                if (ref != exact - old) {
                    fail_msg("%s: the reference, expert %d row %d column %d: %g, not %g",
                             case_text(c), (int)e, (int)row, (int)col, ref, exact - old);
                }
            }
        }
        first += c->rows[e];
    }
}

/* The kernel may write the output's rows only: not the guards, nor the gaps between the rows. */
static void check_guards(const struct test_case *c, const struct matrix *m)
{
    const uint8_t *bytes = m->block;
    size_t size = matrix_bytes(m), element = dtype_size(m->dtype);
    for (size_t i = 0; i < size + 2 * GUARD; i++) {
        size_t at_column = (i - GUARD) / element % (size_t)m->stride;
        bool inside = i >= GUARD && i < GUARD + size && at_column < (size_t)m->cols;
        if (!inside && bytes[i] != 0xff) {
            fail_msg("%s: byte %d of a guard was written", case_text(c), (int)i - GUARD);
        }
    }
}

void case_compare(const struct test_case *c, const struct matrix *before, const double *reference)
{
    compare_rows(c, before, reference);
    check_guards(c, &c->out);
}
