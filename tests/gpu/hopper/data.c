/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/data.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_ROWS = 3, PAD = 24 /* elements between rows when strided */ };

struct random_params {
    struct matrix to;
    uint64_t seed;
    float scale, mean;
};
struct compare_params {
    struct matrix out;
    const double *reference;
    struct findings *found;
};
struct guard_params {
    struct matrix out;
    const void *all;
    int64_t units, begin;
    struct findings *found;
};
struct again_params {
    void *out;
    const void *saved, *fresh;
    int64_t n;
    uint32_t *differ;
};

/* ---- buffers */

void *data_own(struct data *d, size_t bytes)
{
    assert(d->n_owned < DATA_BUFFERS_MAX);
    void *p = gpu_alloc(bytes);
    d->owned[d->n_owned++] = p;
    return p;
}

void *data_own_copy(struct data *d, const void *from, size_t bytes)
{
    void *p = data_own(d, bytes);
    gpu_upload(p, from, bytes);
    return p;
}

void data_random(struct gpu_module *tools, const struct matrix *to, float scale, float mean,
                 uint64_t seed)
{
    struct random_params p = {*to, seed, scale, mean};
    gpu_run(tools, "tool_random", 1056, 1, 256, &p, sizeof(p));
}

/* Describes a matrix of `rows` rows with `cols` elements and gaps of `pad` elements between rows.
 * An expert has `each` rows; if `pad` is above 0, experts are also a row apart. */
static struct matrix layout(int64_t rows, int64_t cols, int64_t each, int pad, enum dtype dtype)
{
    const int64_t stride = cols + pad;
    return (struct matrix){NULL, rows, cols, stride, each, (each + (pad > 0)) * stride, dtype, 0};
}

static size_t bytes_of(const struct matrix *m)
{
    return (size_t)((m->rows / m->each + (m->rows % m->each > 0)) * m->expert) *
           dtype_size((enum dtype)m->dtype);
}

static size_t guard_of(const struct matrix *m, enum data_for what)
{
    return what == DATA_TO_CHECK ? GUARD_ROWS * (size_t)m->stride * dtype_size((enum dtype)m->dtype)
                                 : 0;
}

static void make_operand(struct data *d, struct gpu_module *tools, struct matrix *m, float scale,
                         uint64_t seed, enum data_for what)
{
    const size_t guard = guard_of(m, what), bytes = bytes_of(m) + 2 * guard;
    char *all = data_own(d, bytes);
    if (what != DATA_TO_TIME) {
        gpu_fill(all, 0xff, bytes);
    }
    m->data = all + guard;
    data_random(tools, m, scale, 0, seed);
}

static void make_operands(struct data *d, struct gpu_module *tools, int pad, int64_t dy_rows,
                          enum data_for what)
{
    const struct gemm *v = &d->v;
    d->x = layout(v->x_rows, v->k, v->x_rows, pad, v->in);
    d->w = layout(v->experts * v->n, v->k, v->n, pad, v->in);
    d->dy = layout(dy_rows, v->n, dy_rows, pad, v->in);
    if (v->mode != GEMM_DX) {
        make_operand(d, tools, &d->x, 1, 1, what);
        d->args.x = d->x.data;
        d->args.x_stride = d->x.stride;
    }
    if (v->mode != GEMM_DW) {
        make_operand(d, tools, &d->w, 0.1f, 2, what);
        d->args.w = d->w.data;
        d->args.w_stride = d->w.stride;
        d->args.w_stride_expert = d->w.expert;
    }
    if (v->mode != GEMM_FORWARD) {
        make_operand(d, tools, &d->dy, 0.1f, 3, what);
        d->args.dy = d->dy.data;
        d->args.dy_stride = d->dy.stride;
    }
}

static void make_output(struct data *d, int pad, enum data_for what)
{
    const struct gemm *v = &d->v;
    const bool dw = v->mode == GEMM_DW;
    d->out = layout(v->out_rows, v->out_cols, dw ? v->n : v->out_rows, pad, v->out);
    d->guard = guard_of(&d->out, what);
    d->out_bytes = (bytes_of(&d->out) + 2 * d->guard + 15) / 16 * 16;
    d->out_all = data_own(d, d->out_bytes);
    d->out.data = (char *)d->out_all + d->guard;
    d->args.out = d->out.data;
    d->args.out_stride = d->out.stride;
    d->args.out_stride_expert = dw ? d->out.expert : 0;
}

/* Makes the output that accumulate adds to: elements are random, the gaps between them NaN. */
static void make_before(struct data *d, struct gpu_module *tools)
{
    if (!d->v.accumulate) {
        return;
    }
    d->fresh = data_own(d, d->out_bytes);
    gpu_fill(d->fresh, 0xff, d->out_bytes);
    d->before = d->out;
    d->before.data = (char *)d->fresh + d->guard;
    data_random(tools, &d->before, 1, 0, 99);
}

static void *own_wide(struct data *d, const int32_t *from, int64_t n)
{
    int64_t *wide = calloc((size_t)n, sizeof(*wide));
    for (int64_t i = 0; i < n; i++) {
        wide[i] = from[i];
    }
    void *p = data_own_copy(d, wide, (size_t)n * sizeof(*wide));
    free(wide);
    return p;
}

static void make_indices(struct data *d, struct gpu_module *tools, const struct shape *shape)
{
    const struct gemm *v = &d->v;
    const struct gemm_state *s = d->workload.state;
    const bool wide_sizes = shape->indices != INDICES_32, wide = shape->indices == INDICES_64;
    const size_t e = (size_t)v->experts, m = (size_t)v->m;
    if (!shape->no_sizes) {
        d->args.m_sizes =
            wide_sizes ? own_wide(d, s->m_sizes, v->experts) : data_own_copy(d, s->m_sizes, e * 4);
    }
    d->args.m_sizes_dtype = wide_sizes ? DTYPE_INT64 : DTYPE_INT32;
    d->args.gather_indices =
        wide ? own_wide(d, s->gather, v->m) : data_own_copy(d, s->gather, m * 4);
    d->args.gather_dtype = wide ? DTYPE_INT64 : DTYPE_INT32;
    if (v->fuse_mul_post) {
        struct matrix weights = layout(v->m, 1, v->m, 0, shape->weights_in ? v->in : DTYPE_FP32);
        weights.data = data_own(d, bytes_of(&weights));
        data_random(tools, &weights, 0.12f, 0.5f, 4);
        d->args.topk_weights = weights.data;
        d->args.weights_dtype = (uint32_t)weights.dtype;
    }
}

/* Makes the launch one without rows: dW then writes zeros (with accumulate it keeps the output),
 * the other modes write nothing. */
static void take_rows_away(struct data *d)
{
    struct gemm_state *s = d->workload.state;
    memset(s->m_sizes, 0, (size_t)d->v.experts * sizeof(*s->m_sizes));
    memset(s->start, 0, (size_t)(d->v.experts + 1) * sizeof(*s->start));
    d->args.rows = 0;
}

/* Gives dy a row for each token, and makes the indices into these rows. */
static void share_dy(struct data *d)
{
    struct gemm_state *s = d->workload.state;
    for (int64_t i = 0; i < d->v.m; i++) {
        s->gather[i] /= (int32_t)d->v.topk;
    }
}

int data_make(struct data *d, struct gpu_module *tools, const struct problem *p,
              const struct shape *shape, enum data_for what)
{
    static const struct shape plain = {0};
    struct error err = ERROR_NULL;
    shape = shape ? shape : &plain;
    *d = (struct data){.problem = *p};
    if (gemm_workload_init(&d->workload, p, 12345, &err)) {
        printf("FAULT workload: %s\n", err.text);
        return -1;
    }
    const int pad = shape->strided ? PAD : 0;
    gemm_view(&d->problem, &d->v);
    d->args = (struct grouped_gemm_args){.size = sizeof(d->args), .rows = d->v.m};
    d->args.flags = d->v.accumulate ? GROUPED_GEMM_ACCUMULATE : 0;
    if (shape->nothing) {
        take_rows_away(d);
    }
    const bool shared_dy = shape->shared_dy && d->v.gather_dy;
    if (shared_dy) {
        share_dy(d);
    }
    d->found = data_own(d, sizeof(*d->found));
    make_operands(d, tools, pad, shared_dy ? d->v.tokens : d->v.m, what);
    make_output(d, pad, what);
    make_before(d, tools);
    make_indices(d, tools, shape);
    if (shape->nothing && d->v.mode != GEMM_DW) {
        d->out.rows = 0;
    }
    if (what != DATA_TO_TIME) {
        reference_poison(d, shape);
        reference_make(d, tools);
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
    for (int i = 0; i < DATA_SAVED; i++) {
        gpu_free(d->saved[i]);
    }
    gpu_free(d->workspace);
    if (d->workload.state) {
        gemm_workload_deinit(&d->workload);
    }
    *d = (struct data){0};
}

void data_workspace(struct data *d, int64_t bytes)
{
    if ((size_t)bytes > d->workspace_bytes) {
        gpu_wait();
        gpu_free(d->workspace);
        d->workspace = gpu_alloc((size_t)bytes);
        d->workspace_bytes = (size_t)bytes;
    }
    d->args.workspace = d->workspace;
    d->args.workspace_bytes = (int64_t)d->workspace_bytes;
}

void data_poison_workspace(struct data *d)
{
    if (d->workspace) {
        gpu_fill(d->workspace, 0xff, d->workspace_bytes);
    }
}

/* ---- the output */

void data_poison(struct data *d)
{
    if (d->fresh) {
        gpu_copy(d->out_all, d->fresh, d->out_bytes);
    } else {
        gpu_fill(d->out_all, 0xff, d->out_bytes);
    }
}

/* Describes the output as a matrix of 16-bit units. */
static struct matrix in_units(const struct matrix *m)
{
    const int64_t units = (int64_t)dtype_size((enum dtype)m->dtype) / 2;
    struct matrix u = *m;
    u.cols *= units;
    u.stride *= units;
    u.expert *= units;
    return u;
}

void data_compare(struct data *d, struct gpu_module *tools, struct findings *f)
{
    struct compare_params c = {d->out, d->reference, d->found};
    struct guard_params g = {in_units(&d->out), d->out_all, (int64_t)(d->out_bytes / 2),
                             (int64_t)(d->guard / 2), d->found};
    gpu_fill(d->found, 0, sizeof(*d->found));
    gpu_run(tools, "tool_compare", 1056, 1, 256, &c, sizeof(c));
    gpu_run(tools, "tool_guard", 1056, 1, 256, &g, sizeof(g));
    gpu_wait();
    gpu_download(f, d->found, sizeof(*f));
}

void data_save(struct data *d, int which)
{
    if (!d->saved[which]) {
        d->saved[which] = gpu_alloc(d->out_bytes);
    }
    gpu_copy(d->saved[which], d->out_all, d->out_bytes);
}

void data_again_begin(struct data *d)
{
    gpu_fill(d->found, 0, sizeof(*d->found));
    data_poison(d);
}

void data_again(struct data *d, struct gpu_module *tools, int which)
{
    struct again_params p = {d->out_all, d->saved[which], d->fresh, (int64_t)(d->out_bytes / 16),
                             &d->found->wrong};
    gpu_run(tools, "tool_again", 528, 1, 256, &p, sizeof(p));
}

uint32_t data_differed(struct data *d)
{
    struct findings f;
    gpu_wait();
    gpu_download(&f, d->found, sizeof(f));
    return f.wrong;
}
