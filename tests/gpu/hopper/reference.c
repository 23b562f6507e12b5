/* SPDX-License-Identifier: Apache-2.0 */
/* The expected output of a problem: in double precision, by the GPU. Operands hold NaN wherever a
 * result must not depend on them. */
#include <stdio.h>
#include <string.h>

#include "tests/gpu/hopper/data.h"

struct reference_params {
    struct matrix x, w, dy, before, weights;
    const int64_t *start;
    const int *gather;
    double *out;
    int64_t rows, cols;
    int64_t n, k, experts, topk;
    int mode, gather_x, gather_dy, scatter, fuse, dtype;
};

static void fill_rows(const struct matrix *m, int64_t row, int64_t rows)
{
    const int64_t size = (int64_t)dtype_size((enum dtype)m->dtype);
    const int64_t at = row / m->each * m->expert + row % m->each * m->stride;
    if (rows > 0) {
        gpu_fill((char *)m->data + at * size, 0xff, (size_t)(rows * m->stride * size));
    }
}

static void fill_weights(struct data *d, int64_t expert)
{
    fill_rows(&d->w, expert * d->v.n, d->v.n);
}

/* Returns how many of an expert's rows to fill with NaN: all, unless topk experts share a token's
 * row. Then only the first; in dW none, because a shared NaN would reach all of the token's
 * experts. */
static int64_t rows_to_fill(const struct gemm *v, int64_t rows, bool shared)
{
    return !shared ? rows : v->mode != GEMM_DW && rows > 0 ? 1 : 0;
}

static void fill_expert(struct data *d, int64_t e)
{
    const struct gemm *v = &d->v;
    const struct gemm_state *s = d->workload.state;
    const int64_t first = s->start[e], rows = s->m_sizes[e];
    const int64_t x_rows = rows_to_fill(v, rows, v->gather_x && v->topk > 1);
    const int64_t dy_rows = rows_to_fill(v, rows, d->dy.rows < v->m);
    for (int64_t i = first; i < first + x_rows && v->mode != GEMM_DX; i++) {
        fill_rows(&d->x, v->gather_x ? s->gather[i] / v->topk : i, 1);
    }
    for (int64_t i = first; i < first + dy_rows && v->mode != GEMM_FORWARD; i++) {
        fill_rows(&d->dy, v->gather_dy ? s->gather[i] : i, 1);
    }
}

/* Fills the weights of experts without rows with NaN, and all data of the expert shape->nan. */
void reference_poison(struct data *d, const struct shape *shape)
{
    const struct gemm_state *s = d->workload.state;
    for (int64_t e = 0; e < d->v.experts; e++) {
        const bool chosen = shape->nan > 0 && e == shape->nan;
        if (d->v.mode != GEMM_DW && (chosen || s->m_sizes[e] == 0)) {
            fill_weights(d, e);
        }
        if (chosen) {
            fill_expert(d, e);
        }
    }
}

void reference_make(struct data *d, struct gpu_module *tools)
{
    const struct gemm *v = &d->v;
    const struct gemm_state *s = d->workload.state;
    const int64_t rows = d->out.rows;
    d->reference = data_own(d, (size_t)(v->out_rows * v->out_cols) * sizeof(double));
    struct reference_params p = {
        .x = d->x,
        .w = d->w,
        .dy = d->dy,
        .before = d->before,
        .weights = {(void *)(uintptr_t)d->args.topk_weights, v->m, 1, 1, v->m, 0,
                    (int32_t)d->args.weights_dtype, 0},
        .start = data_own_copy(d, s->start, (size_t)(v->experts + 1) * sizeof(s->start[0])),
        .gather = data_own_copy(d, s->gather, (size_t)v->m * sizeof(s->gather[0])),
        .out = d->reference,
        .rows = rows,
        .cols = v->out_cols,
        .n = v->n,
        .k = v->k,
        .experts = v->experts,
        .topk = v->topk,
        .mode = v->mode,
        .gather_x = v->gather_x,
        .gather_dy = v->gather_dy,
        .scatter = v->scatter,
        .fuse = v->fuse_mul_post,
        .dtype = v->in,
    };
    gpu_run(tools, "tool_reference", 2112, 1, 256, &p, sizeof(p));
    gpu_wait();
}
