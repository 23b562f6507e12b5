/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped_gemm as dense products, one for each expert with rows: the calls into a vendor's library
 * without grouped kernels. Matrices are row-major; BLAS takes them as transposed column-major
 * matrices, and gives the transposed output.
 *
 * A job that calls such a library has its rows in expert order:
 * - where the op gathers rows of X, a product reads equally many adjacent rows;
 * - no product exists for an expert with more rows than X has, which only given rows per expert
 *   allow;
 * - where the op scatters rows of the output, a product writes them in order;
 * - no product multiplies by weights. The time of the products leaves out the cost of these steps.
 */
#include "kernels/families/grouped_gemm/grouped_gemm.h"

static const void *products_row_of(const void *data, int64_t row, int64_t columns, enum dtype type)
{
    return data ? (const char *)data + row * columns * (int64_t)dtype_size(type) : NULL;
}

/* The address of `rows` rows of X from routed row `first` on. Where the op gathers them, the
 * address of equally many adjacent rows anywhere in X. */
static const void *rows_of_x(const struct gemm *v, const void *x, int64_t first, int64_t rows)
{
    int64_t room = v->x_rows - rows + 1;
    return products_row_of(x, v->gather_x ? first % room : first, v->k, v->in);
}

static void product_of(const struct workload *w, void *const buffers[], int64_t expert,
                       struct dense_product *out)
{
    const struct gemm_state *s = w->state;
    const struct gemm *v = &s->view;
    const int64_t first = s->start[expert], rows = s->m_sizes[expert];
    const void *x = rows_of_x(v, gemm_buffer(w, buffers, GEMM_X), first, rows);
    const void *weights =
        products_row_of(gemm_buffer(w, buffers, GEMM_W), expert * v->n, v->k, v->in);
    const void *dy = products_row_of(gemm_buffer(w, buffers, GEMM_DY), first, v->n, v->in);
    const int64_t out_row = v->mode == GEMM_DW ? expert * v->n : first;
    *out = (struct dense_product){.in = v->in, .out = v->out, .add = v->accumulate};
    out->c = (void *)(uintptr_t)products_row_of(gemm_buffer(w, buffers, GEMM_OUT), out_row,
                                                v->out_cols, v->out);
    out->ldc = v->out_cols;
    switch (v->mode) {
    case GEMM_FORWARD: /* Y^T [n, rows] = W [n, k] X^T */
        out->transpose_a = true;
        out->m = v->n, out->n = rows, out->k = v->k;
        out->a = weights, out->lda = v->k;
        out->b = x, out->ldb = v->k;
        break;
    case GEMM_DX: /* D^T [k, rows] = W^T [k, n] dY^T */
        out->m = v->k, out->n = rows, out->k = v->n;
        out->a = weights, out->lda = v->k;
        out->b = dy, out->ldb = v->n;
        break;
    case GEMM_DW: /* dW^T [k, n] = X^T [k, rows] dY */
        out->transpose_b = true;
        out->m = v->k, out->n = v->n, out->k = rows;
        out->a = x, out->lda = v->k;
        out->b = dy, out->ldb = v->n;
        break;
    }
}

uint32_t gemm_products(const struct workload *w, void *const buffers[], struct dense_product out[],
                       uint32_t max, bool *exact)
{
    const struct gemm_state *s = w->state;
    const struct gemm *v = &s->view;
    uint32_t n = 0;
    if (v->quant->is_scaled) {
        return 0; /* a dense product has no scales */
    }
    *exact = !v->gather_x && !v->gather_dy && !v->scatter && !v->fuse_mul_post;
    for (int64_t e = 0; e < v->experts; e++) {
        if (v->gather_x && s->m_sizes[e] > v->x_rows) {
            return 0;
        }
    }
    for (int64_t e = 0; e < v->experts; e++) {
        if (s->m_sizes[e] > 0) {
            if (n < max) {
                product_of(w, buffers, e, &out[n]);
            }
            n++;
        }
    }
    return n;
}
