/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_ROWS = 3, PAD = 24 /* elements between rows when strided */ };

struct random_params {
    void *to;
    int64_t rows, cols, stride;
    uint64_t seed;
    float scale;
    int dtype;
};
struct naive_params {
    const void *x, *w, *dy;
    const float *before, *weights;
    const int64_t *start;
    const int *gather;
    float *out;
    int64_t x_stride, w_stride, w_expert, dy_stride;
    int64_t rows, n, k, experts, topk;
    int mode, dtype, gather_x, gather_dy, scatter, fuse;
};
struct compare_params {
    const void *out;
    const float *reference;
    int64_t rows, cols, stride, rows_each, expert_stride;
    uint32_t *result;
    int dtype;
};
struct guard_params {
    const void *all;
    int64_t units, begin, rows, row_units, stride, rows_each, expert_stride;
    uint32_t *result;
};
struct diff_params {
    const void *a, *b;
    int64_t n;
    uint32_t *result;
};

static void *own(struct data *d, size_t bytes)
{
    void *p = gpu_alloc(bytes);
    d->owned[d->n_owned++] = p;
    return p;
}

static void *own_copy(struct data *d, const void *from, size_t bytes)
{
    void *p = own(d, bytes);
    gpu_upload(p, from, bytes);
    return p;
}

static void fill_random(struct gpu_module *tools, void *to, int64_t rows, int64_t cols,
                        int64_t stride, float scale, enum dtype dtype, uint64_t seed)
{
    struct random_params p = {to, rows, cols, stride, seed, scale, dtype};
    gpu_run(tools, "tool_random", 1056, 1, 256, &p, sizeof(p));
}

/* A matrix with guard rows; NaN wherever no element is, when it matters. */
static void *make_matrix(struct data *d, struct gpu_module *tools, int64_t rows, int64_t cols,
                         int64_t stride, float scale, bool guarded, uint64_t seed)
{
    const size_t size = dtype_size(d->v.in),
                 guard = guarded ? GUARD_ROWS * (size_t)stride * size : 0;
    const size_t bytes = (size_t)(rows * stride) * size + 2 * guard;
    char *all = own(d, bytes);
    if (guarded) {
        gpu_fill(all, 0xff, bytes);
    }
    fill_random(tools, all + guard, rows, cols, stride, scale, d->v.in, seed);
    return all + guard;
}

static void make_output(struct data *d, bool guarded)
{
    const struct grouped_gemm_problem *v = &d->v;
    const size_t size = dtype_size(v->out);
    const int64_t rows_each = v->mode == GEMM_DW ? v->n : v->out_rows;
    d->args.out_stride_expert = v->mode == GEMM_DW ? rows_each * d->args.out_stride : 0;
    d->out_used = (size_t)(v->out_rows * d->args.out_stride) * size;
    d->guard = guarded ? (size_t)d->args.out_stride * size * GUARD_ROWS : 0;
    d->out_bytes = (d->out_used + 2 * d->guard + 15) / 16 * 16;
    d->out_all = own(d, d->out_bytes);
    d->args.out = (char *)d->out_all + d->guard;
}

static void make_indices(struct data *d, bool wide)
{
    const struct grouped_gemm_problem *v = &d->v;
    const struct grouped_gemm_state *s = d->workload.state;
    int64_t *sizes = calloc((size_t)v->experts, sizeof(*sizes));
    int64_t *gather = calloc((size_t)v->m, sizeof(*gather));
    for (int64_t e = 0; e < v->experts; e++) {
        sizes[e] = s->m_sizes[e];
    }
    for (int64_t i = 0; i < v->m; i++) {
        gather[i] = s->gather[i];
    }
    const size_t e = (size_t)v->experts, m = (size_t)v->m;
    d->args.m_sizes = wide ? own_copy(d, sizes, e * 8) : own_copy(d, s->m_sizes, e * 4);
    d->args.gather_indices = wide ? own_copy(d, gather, m * 8) : own_copy(d, s->gather, m * 4);
    d->args.m_sizes_dtype = d->args.gather_dtype = wide ? DTYPE_INT64 : DTYPE_INT32;
    if (v->fuse_mul_post) {
        d->args.topk_weights = own_copy(d, s->weights, m * 4);
        d->args.weights_dtype = DTYPE_FP32;
    }
    free(sizes);
    free(gather);
}

/* One expert of NaN: its rows where nothing gathers, and the weights of one without rows. */
static void poison_experts(struct data *d)
{
    const struct grouped_gemm_problem *v = &d->v;
    const struct grouped_gemm_state *s = d->workload.state;
    const size_t size = dtype_size(v->in);
    for (int64_t e = 0; e < v->experts; e++) {
        if (s->m_sizes[e] == 0 && v->mode != GEMM_DW) {
            gpu_fill((char *)(uintptr_t)d->args.w + (size_t)(e * v->n * d->args.w_stride) * size,
                     0xff, (size_t)(v->n * d->args.w_stride) * size);
        }
        if (s->m_sizes[e] != 63 || v->permute_x || v->permute_y) {
            continue;
        }
        const size_t first = (size_t)s->start[e], rows = (size_t)s->m_sizes[e];
        if (d->args.x) {
            gpu_fill((char *)(uintptr_t)d->args.x + first * (size_t)d->args.x_stride * size, 0xff,
                     rows * (size_t)d->args.x_stride * size);
        }
        if (d->args.dy) {
            gpu_fill((char *)(uintptr_t)d->args.dy + first * (size_t)d->args.dy_stride * size, 0xff,
                     rows * (size_t)d->args.dy_stride * size);
        }
    }
}

static void make_reference(struct data *d, struct gpu_module *tools)
{
    const struct grouped_gemm_problem *v = &d->v;
    const struct grouped_gemm_state *s = d->workload.state;
    const size_t elements = (size_t)(v->out_rows * v->out_cols);
    d->reference = own(d, elements * 4);
    float *weights = s->weights ? own_copy(d, s->weights, (size_t)v->m * 4) : NULL;
    int64_t *start = own_copy(d, s->start, (size_t)(v->experts + 1) * 8);
    int *gather = own_copy(d, s->gather, (size_t)v->m * 4);
    if (v->accumulate) {
        d->before = own(d, elements * 4);
        fill_random(tools, d->before, v->out_rows, v->out_cols, v->out_cols, 1, DTYPE_FP32, 99);
    }
    struct naive_params p = {d->args.x,
                             d->args.w,
                             d->args.dy,
                             d->before,
                             weights,
                             start,
                             gather,
                             d->reference,
                             d->args.x_stride,
                             d->args.w_stride,
                             v->n * d->args.w_stride,
                             d->args.dy_stride,
                             v->m,
                             v->n,
                             v->k,
                             v->experts,
                             v->topk,
                             v->mode,
                             v->in,
                             v->gather_x,
                             v->gather_dy,
                             v->scatter,
                             v->fuse_mul_post};
    gpu_run(tools, "tool_reference", 2112, 1, 256, &p, sizeof(p));
    gpu_wait();
}

int data_make(struct data *d, struct gpu_module *tools, const struct problem *p, bool strided,
              bool wide, bool with_reference)
{
    struct error err = ERROR_NULL;
    *d = (struct data){.problem = *p};
    if (grouped_gemm_workload_init(&d->workload, p, 12345, &err)) {
        printf("FAULT workload: %s\n", err.text);
        return -1;
    }
    const struct grouped_gemm_state *s = d->workload.state;
    d->v = s->view;
    const struct grouped_gemm_problem *v = &d->v;
    const int pad = strided ? PAD : 0;
    d->args = (struct grouped_gemm_args){
        .size = sizeof(d->args),
        .flags = v->accumulate ? GROUPED_GEMM_ACCUMULATE : 0,
        .x_stride = v->k + pad,
        .w_stride = v->k + pad,
        .dy_stride = v->n + pad,
        .out_stride = v->out_cols + pad,
        .rows = v->m,
    };
    const bool guarded = with_reference;
    if (v->mode != GEMM_DX) {
        d->args.x = make_matrix(d, tools, v->x_rows, v->k, d->args.x_stride, 1, guarded, 1);
    }
    if (v->mode != GEMM_DW) {
        d->args.w =
            make_matrix(d, tools, v->experts * v->n, v->k, d->args.w_stride, 0.1f, guarded, 2);
    }
    if (v->mode != GEMM_FORWARD) {
        d->args.dy = make_matrix(d, tools, v->m, v->n, d->args.dy_stride, 0.1f, guarded, 3);
    }
    d->result = own(d, 16);
    make_output(d, guarded);
    make_indices(d, wide);
    if (with_reference) {
        poison_experts(d);
        make_reference(d, tools);
    }
    gpu_wait();
    return 0;
}

void data_free(struct data *d)
{
    gpu_wait();
    for (int i = 0; i < d->n_owned; i++) {
        gpu_free(d->owned[i]);
    }
    gpu_free(d->workspace);
    if (d->workload.state) {
        grouped_gemm_workload_deinit(&d->workload);
    }
    *d = (struct data){0};
}

void data_poison(struct data *d)
{
    const struct grouped_gemm_problem *v = &d->v;
    gpu_fill(d->out_all, 0xff, d->out_bytes);
    for (int64_t row = 0; d->before && row < v->out_rows; row++) {
        if (d->args.out_stride == v->out_cols) {
            gpu_copy(d->args.out, d->before, (size_t)(v->out_rows * v->out_cols) * 4);
            break;
        }
        gpu_copy((char *)d->args.out + row * d->args.out_stride * 4, d->before + row * v->out_cols,
                 (size_t)v->out_cols * 4);
    }
}

void data_compare(struct data *d, struct gpu_module *tools, struct finding *f)
{
    const struct grouped_gemm_problem *v = &d->v;
    uint32_t result[4];
    const int64_t rows_each = v->mode == GEMM_DW ? v->n : v->out_rows;
    struct compare_params p = {d->args.out,
                               d->reference,
                               v->out_rows,
                               v->out_cols,
                               d->args.out_stride,
                               rows_each,
                               d->args.out_stride_expert,
                               d->result,
                               v->out};
    gpu_fill(d->result, 0, 16);
    gpu_run(tools, "tool_compare", 1056, 1, 256, &p, sizeof(p));
    gpu_wait();
    gpu_download(result, d->result, sizeof(result));
    memcpy(&f->norm, &result[0], 4);
    f->wrong = result[1];
    f->nan = result[2];
    f->row = result[3];

    const int64_t unit = (int64_t)dtype_size(v->out) / 2;
    struct guard_params g = {d->out_all,
                             (int64_t)(d->out_bytes / 2),
                             (int64_t)(d->guard / 2),
                             v->out_rows,
                             v->out_cols * unit,
                             d->args.out_stride * unit,
                             rows_each,
                             d->args.out_stride_expert * unit,
                             d->result};
    gpu_fill(d->result, 0, 16);
    gpu_run(tools, "tool_guard", 1056, 1, 256, &g, sizeof(g));
    gpu_wait();
    gpu_download(result, d->result, sizeof(result));
    f->guard = result[0];
}

void data_diff(struct data *d, struct gpu_module *tools, const void *saved)
{
    struct diff_params p = {d->out_all, saved, (int64_t)(d->out_bytes / 16), d->result};
    gpu_run(tools, "tool_diff", 264, 1, 256, &p, sizeof(p));
}
