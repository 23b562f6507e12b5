/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A workload on the GPU: operands filled there, as many copies of the rotating ones as it takes to
 * find L2 cold at every launch, and the reference's result over the check rows.
 */
#include <stdlib.h>

#include "kernels/devices/cuda/gpu.h"

static int64_t cuda_buffer_bytes(const struct buffer *b)
{
    return b->count * (int64_t)dtype_size(b->dtype);
}

/* The output has a guard on both sides; the others need none, nobody writes there. */
static int64_t guard_of(const struct buffer *b)
{
    return b->init == BUFFER_OUTPUT ? CUDA_GUARD_BYTES : 0;
}

/* ---- how much ------------------------------------------------------------------------------- */

int cuda_fits(struct device *d, const struct family *f, const struct problem *p, struct error *err)
{
    double flops, bytes, limit = (double)d->info.memory_bytes * device_memory_share();
    f->work(p, &flops, &bytes);
    return limit > 0 && bytes > limit ? cuda_too_much(bytes, limit, "memory", err) : 0;
}

/* Two copies at least, where they fit: the one not in use is cold when all of it is larger than
 * L2. More only where as much stays free for a candidate's workspace. ERROR_NO_MEMORY when not even
 * one copy is allowed. */
static int cuda_count_copies(struct cuda_device *d, struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    int64_t check = 8 + (int64_t)sizeof(struct cuda_row_error) + load->check_length * 8;
    int64_t fixed = (int64_t)load->n_checks * check, rotating = 0, limit;
    for (uint32_t i = 0; i < load->n_buffers; i++) {
        const struct buffer *b = &load->buffers[i];
        *(b->rotate ? &rotating : &fixed) += cuda_buffer_bytes(b) + 2 * guard_of(b);
    }
    int r = cuda_memory_limit(d, &limit, err);
    if (r) {
        return r;
    }
    if (fixed + rotating > limit) {
        return cuda_too_much((double)(fixed + rotating), (double)limit, "free memory", err);
    }
    int64_t copies = 1;
    if (rotating > 0) {
        int64_t wanted = 1 + (2 * d->base.info.l2_bytes + rotating - 1) / rotating;
        int64_t allowed = (limit - fixed) / rotating;
        wanted = wanted < CUDA_COPIES_MAX ? wanted : CUDA_COPIES_MAX;
        allowed = allowed > 2 ? allowed - 1 : allowed;
        copies = wanted < allowed ? wanted : allowed;
        copies = copies < 1 ? 1 : copies;
    }
    w->n_copies = (uint32_t)copies;
    w->workspace_max = limit - fixed - copies * rotating;
    return 0;
}

/* ---- filling -------------------------------------------------------------------------------- */

int cuda_fill_buffer(struct cuda_device *d, const struct prepared *w, uint32_t i, void *to,
                     struct error *err)
{
    const struct buffer *b = &w->workload.buffers[i];
    uint64_t state = w->workload.seed + i; /* as the cpu device: the same operands everywhere */
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)to;
    size_t bytes = (size_t)cuda_buffer_bytes(b);
    if (b->init == BUFFER_RANDOM || b->accumulate) {
        return cuda_fill(d, b, random_next(&state), to, err);
    }
    switch (b->init) {
    case BUFFER_RANDOM:
    case BUFFER_HOST:
        return cuda_check(d->cu, d->cu->memory_upload(at, b->host, bytes, d->stream), err,
                          "uploading %s", b->name);
    case BUFFER_OUTPUT:
    case BUFFER_SCRATCH:
        break;
    }
    return cuda_check(d->cu, d->cu->memory_set(at, 0, bytes, d->stream), err, "clearing %s",
                      b->name);
}

static int make_buffer(struct cuda_device *d, struct prepared *w, uint32_t copy, uint32_t i,
                       struct error *err)
{
    const struct buffer *b = &w->workload.buffers[i];
    int64_t bytes = cuda_buffer_bytes(b), guard = guard_of(b);
    if (bytes == 0) {
        return 0; /* a problem without this operand: NULL */
    }
    if (copy > 0 && !b->rotate) {
        w->buffers[copy][i] = w->buffers[0][i];
        return 0;
    }
    CUdeviceptr at;
    int r = cuda_allocate(d, bytes + 2 * guard, &at, err);
    if (r) {
        return r;
    }
    w->buffers[copy][i] = (char *)(uintptr_t)at + guard;
    if (copy == 0) {
        return cuda_fill_buffer(d, w, i, w->buffers[copy][i], err);
    }
    return cuda_check(d->cu,
                      d->cu->memory_copy(at + (CUdeviceptr)guard,
                                         (CUdeviceptr)(uintptr_t)w->buffers[0][i], (size_t)bytes,
                                         d->stream),
                      err, "copying %s", b->name);
}

static int cuda_make_buffers(struct cuda_device *d, struct prepared *w, struct error *err)
{
    int r = 0;
    for (uint32_t copy = 0; copy < w->n_copies; copy++) {
        for (uint32_t i = 0; i < w->workload.n_buffers && r == 0; i++) {
            r = make_buffer(d, w, copy, i, err);
        }
    }
    return r ? r : cuda_wait(d, "filling the operands", err);
}

/* ---- the reference -------------------------------------------------------------------------- */

static int launch_reference(struct cuda_device *d, struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    const struct family_target *t;
    int r = family_target_choose(load->family, &load->problem, &d->base.info, NULL, &t, err);
    if (r) {
        return r;
    }
    struct launch *l = calloc(1, sizeof(*l));
    if (!l) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a launch");
    }
    r = t->reference(load, w->buffers[0], (const int64_t *)(uintptr_t)w->check_at,
                     (double *)(uintptr_t)w->expected, l, err);
    r = r ? r : cuda_load_reference(d, t, err);
    r = r ? r : cuda_module_launch(&d->reference, l, d->stream, err);
    r = r || !load->buffers[load->output].accumulate ? r : cuda_add_rows(d, w, err);
    free(l);
    return r ? r : cuda_wait(d, "computing the reference", err);
}

static int cuda_run_reference(struct cuda_device *d, struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    int64_t rows = load->n_checks, n = rows * load->check_length;
    if (n == 0) {
        return 0;
    }
    int r = cuda_allocate(d, rows * 8, &w->check_at, err);
    r = r ? r : cuda_allocate(d, n * (int64_t)sizeof(double), &w->expected, err);
    r = r ? r
          : cuda_allocate(d, rows * (int64_t)sizeof(struct cuda_row_error), &w->row_errors, err);
    r = r ? r
          : cuda_check(
                d->cu,
                d->cu->memory_upload(w->check_at, load->check_at, (size_t)rows * 8, d->stream), err,
                "uploading the check rows");
    return r ? r : launch_reference(d, w, err);
}

/* ---- the ops --------------------------------------------------------------------------------- */

int cuda_prepare(struct device *base, const struct family *f, const struct problem *p,
                 uint64_t seed, struct prepared **out, struct error *err)
{
    struct cuda_device *d = (struct cuda_device *)base;
    *out = NULL;
    int r = cuda_wake(d, err);
    r = r ? r : cuda_load_tools(d, err);
    if (r) {
        return r;
    }
    struct prepared *w = calloc(1, sizeof(*w));
    if (!w) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a workload");
    }
    r = f->workload_init(&w->workload, p, seed, err);
    if (r) {
        free(w);
        return r;
    }
    r = cuda_count_copies(d, w, err);
    r = r ? r : cuda_make_buffers(d, w, err);
    r = r ? r : cuda_run_reference(d, w, err);
    if (r) {
        cuda_release_prepared(base, w);
        return r;
    }
    cuda_watch_begin(d);
    *out = w;
    return 0;
}

void cuda_release_prepared(struct device *base, struct prepared *w)
{
    struct cuda_device *d = (struct cuda_device *)base;
    if (!w) {
        return;
    }
    cuda_watch_end(d);
    for (uint32_t copy = 0; copy < w->n_copies; copy++) {
        for (uint32_t i = 0; i < w->workload.n_buffers; i++) {
            const struct buffer *b = &w->workload.buffers[i];
            if (w->buffers[copy][i] && (copy == 0 || b->rotate)) {
                CUdeviceptr at =
                    (CUdeviceptr)(uintptr_t)w->buffers[copy][i] - (CUdeviceptr)guard_of(b);
                cuda_release(d, &at);
            }
        }
    }
    cuda_release(d, &w->workspace);
    cuda_release(d, &w->check_at);
    cuda_release(d, &w->expected);
    cuda_release(d, &w->row_errors);
    w->workload.family->workload_deinit(&w->workload);
    free(w);
}
