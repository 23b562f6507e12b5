/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cuda/emulated.h"

enum { COLUMNS_MAX = 512 };

/* The operands' numbers, dense, with their scales; [GEMM_X], [GEMM_W], [GEMM_DY]. */
struct numbers {
    double *of[3]; /* owned */
};

/* Of scaled operands of dW, only an expert's own columns have numbers. */
static void widen_scaled(const struct test_case *c, enum gemm_buffer which, double *out)
{
    const struct matrix *m = which == GEMM_X ? &c->x : which == GEMM_W ? &c->w : &c->dy;
    const bool dw = c->v.mode == GEMM_DW && which != GEMM_W, w = which == GEMM_W;
    const int64_t rows = w ? c->scales[which].lies.rows : m->rows;
    for (int64_t e = 0; e < (w || dw ? c->v.experts : 1); e++) {
        const int64_t from = dw ? c->column[e] : 0, to = dw ? from + c->rows[e] : m->cols;
        double *own = out + (w ? e * rows * m->cols : 0);
        for (int64_t row = 0; row < rows; row++) {
            for (int64_t col = from; col < to; col++) {
                own[row * m->cols + col] = case_scaled_at(c, which, e, row, col);
            }
        }
    }
}

static void widen(const struct test_case *c, struct numbers *n)
{
    const struct matrix *const all[] = {[GEMM_X] = &c->x, [GEMM_W] = &c->w, [GEMM_DY] = &c->dy};
    for (int which = GEMM_X; which <= GEMM_DY; which++) {
        const struct matrix *m = all[which];
        n->of[which] = calloc((size_t)(m->rows * m->cols) + 1, sizeof(double));
        if (c->v.quant->is_scaled) {
            widen_scaled(c, which, n->of[which]);
            continue;
        }
        for (int64_t i = 0; i < m->rows * m->cols; i++) {
            n->of[which][i] = at(m, i / m->cols, i % m->cols);
        }
    }
}

/* sums[col] += factor * row[col]: a term of each of a row's sums. */
static void add_terms(double *sums, double factor, const double *row, int64_t cols)
{
    for (int64_t col = 0; col < cols; col++) {
        sums[col] += factor * row[col];
    }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* The sums of dW's row `row`. `first`: number of expert e's first row. */
static void sum_weights(const struct test_case *c, const struct numbers *n, int64_t e,
                        int64_t first, int64_t row, double *sums)
{
    const struct gemm *v = &c->v;
    const bool scaled = v->quant->is_scaled;
    memset(sums, 0, (size_t)v->out_cols * sizeof(*sums));
    for (int64_t i = 0; i < c->rows[e] && scaled; i++) { /* operands lie column by column */
        const double *dy = n->of[GEMM_DY] + row % v->n * c->dy.cols + c->column[e];
        for (int64_t col = 0; col < v->out_cols; col++) {
            sums[col] += dy[i] * n->of[GEMM_X][col * c->x.cols + c->column[e] + i];
        }
    }
    for (int64_t i = first; i < first + c->rows[e] && !scaled; i++) {
        const int64_t dy = v->gather_dy ? c->gather[i] : i,
                      x = v->gather_x ? c->gather[i] / v->topk : i;
        add_terms(sums, n->of[GEMM_DY][dy * v->n + row % v->n], n->of[GEMM_X] + x * v->k,
                  v->out_cols);
    }
}

/* The expected sums of the output's row `row`. i: number of this row, and `first`: number of expert
 * e's first row, when rows are counted expert by expert. */
static void sum_row(const struct test_case *c, const struct numbers *n, int64_t e, int64_t first,
                    int64_t i, int64_t row, double *sums)
{
    const struct gemm *v = &c->v;
    const bool scaled = v->quant->is_scaled, forward = v->mode == GEMM_FORWARD;
    if (v->mode == GEMM_DW) { /* i is no routed row there */
        sum_weights(c, n, e, first, row, sums);
        return;
    }
    const int64_t from = v->gather_x ? c->gather[i] / v->topk : v->gather_dy ? c->gather[i] : i;
    const int64_t depth = forward ? v->k : v->n;
    const double *a = n->of[forward ? GEMM_X : GEMM_DY] + from * depth;
    const double *w = n->of[GEMM_W] + e * v->n * v->k;
    if (forward || scaled) { /* each column's weights lie together */
        for (int64_t col = 0; col < v->out_cols; col++) {
            sums[col] = dot(a, w + col * depth, depth);
        }
        return;
    }
    memset(sums, 0, (size_t)v->out_cols * sizeof(*sums));
    for (int64_t l = 0; l < depth; l++) {
        add_terms(sums, a[l], w + l * v->k, v->out_cols);
    }
}

static double weigh(const struct test_case *c, int64_t row, double sum)
{
    const enum dtype t = c->v.quant->is_scaled ? c->v.out : c->v.in;
    return c->v.fuse_mul_post ? round_to(t, round_to(t, sum) * round_to(t, c->weights[row])) : sum;
}

/* Inputs are small multiples of 1/8: sums are exact in fp32, so only the last rounding is left. */
static void compare_rows(const struct test_case *c, const struct numbers *numbers,
                         const struct matrix *before, const double *reference)
{
    const struct gemm *v = &c->v;
    double sums[COLUMNS_MAX];
    int64_t first = 0;
    assert_true(v->out_cols <= COLUMNS_MAX);
    for (int64_t e = 0; e < v->experts; e++) {
        int64_t n = v->mode == GEMM_DW ? v->n : c->rows[e];
        for (int64_t r = 0; r < n; r++) {
            int64_t i = v->mode == GEMM_DW ? e * v->n + r : first + r;
            int64_t row = v->scatter ? c->gather[i] : i;
            sum_row(c, numbers, e, first, i, row, sums);
            for (int64_t col = 0; col < v->out_cols; col++) {
                double old = v->accumulate ? at(before, row, col) : 0;
                double exact = weigh(c, row, sums[col]) + old;
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
    struct numbers numbers;
    widen(c, &numbers);
    compare_rows(c, &numbers, before, reference);
    for (int which = GEMM_X; which <= GEMM_DY; which++) {
        free(numbers.of[which]);
    }
    check_guards(c, &c->out);
}
