/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prepared problem on the GPU (kernels/devices/prepared.h): memory within the share, the small
 * kernels of tools.cu, and timing.
 *
 * Timing of a single launch: first an idle gap, which gives every candidate the same power budget.
 * Then a spin kernel, an event, the launch and an event are queued while the GPU spins, so that the
 * time excludes the host's path.
 *
 * L2 is cold: a call's launches rotate over copies of the operands, and before each launch the GPU
 * reads other memory of twice L2's size. The sweep reads instead of writing: a later kernel would
 * have to store written lines. Without a sweep, memory-bound kernels paid for the previous launch's
 * output, up to 7 % of 150 microseconds, and other kernels did not (docs/kernel-notes.md).
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/devices/cuda/gpu.h"

enum { GUARD_BYTES = 4096, THREADS = 256 };

/* The GPU spins for longer than the host needs to queue four launches and two events. Each
 * launch of the work adds SPIN_EACH_US, which is longer than a library's call takes. */
static const double SPIN_US = 60, SPIN_EACH_US = 12;

static struct cuda_device *cuda_of(struct device *d)
{
    return (struct cuda_device *)d;
}

static CUdeviceptr address_of(const void *at)
{
    return (CUdeviceptr)(uintptr_t)at;
}

/* ---- memory --------------------------------------------------------------------------------- */

int cuda_allocate(int64_t bytes, void **out, struct error *err)
{
    CUdeviceptr at = 0;
    int r = cuda_check(cuda.memory_allocate(&at, (size_t)bytes), err,
                       "allocating %.1f MiB of GPU memory", (double)bytes / 0x1p20);
    *out = (void *)(uintptr_t)at;
    return r;
}

void cuda_release(void *at, int64_t bytes)
{
    if (at) {
        cuda.memory_free(address_of(at));
    }
}

static int64_t sweep_bytes(const struct cuda_device *d)
{
    return 2 * (d->base.info.l2_bytes > 0 ? d->base.info.l2_bytes : 64 << 20) / 16 * 16;
}

/* Sets *bytes to the bytes that a problem may take: a share of the free memory, as gemmd is a guest
 * beside training jobs, less the buffer that cuda_sweep_l2 is going to allocate. */
static int cuda_limit(struct device *base, int64_t *bytes, struct error *err)
{
    struct cuda_device *d = cuda_of(base);
    size_t available, total;
    int r =
        cuda_check(cuda.memory_info(&available, &total), err, "asking the GPU for its free memory");
    int64_t share = r ? 0 : (int64_t)((double)available * device_memory_share());
    int64_t swept = d->sweep ? 0 : sweep_bytes(d);
    *bytes = share > swept ? share - swept : 0;
    return r;
}

int cuda_fits(struct device *d, const struct family *f, const struct problem *p, struct error *err)
{
    double flops, bytes, limit = (double)d->info.memory_bytes * device_memory_share();
    f->work(p, &flops, &bytes);
    return limit > 0 && bytes > limit ? device_too_much(bytes, limit, "the GPU's memory", err) : 0;
}

static int cuda_set(struct device *base, void *to, int value, int64_t bytes, const char *what,
                    struct error *err)
{
    struct cuda_device *d = cuda_of(base);
    return cuda_check(
        cuda.memory_set(address_of(to), (unsigned char)value, (size_t)bytes, d->stream), err,
        "%s %s", value ? "poisoning" : "clearing", what);
}

static int cuda_upload(struct device *base, void *to, const void *from, int64_t bytes,
                       const char *what, struct error *err)
{
    struct cuda_device *d = cuda_of(base);
    return cuda_check(cuda.memory_upload(address_of(to), from, (size_t)bytes, d->stream), err,
                      "uploading %s", what);
}

static int cuda_copy(struct device *base, void *to, const void *from, int64_t bytes,
                     const char *what, struct error *err)
{
    struct cuda_device *d = cuda_of(base);
    return cuda_check(cuda.memory_copy(address_of(to), address_of(from), (size_t)bytes, d->stream),
                      err, "copying %s", what);
}

static int cuda_wait(struct device *base, const char *what, struct error *err)
{
    struct cuda_device *d = cuda_of(base);
    return cuda_check(cuda.stream_wait(d->stream), err, "%s", what);
}

/* ---- launching tools.cu, with the structs defined there ------------------------------------- */

static int cuda_launch_tool(struct cuda_device *d, const char *entry, uint32_t blocks,
                            const void *params, size_t size, struct error *err)
{
    struct launch l;
    launch_init(&l, entry, blocks, THREADS, 0, params, size);
    return cuda_module_launch(&d->tools.module, &l, d->stream, err);
}

/* Returns enough blocks to fill the GPU; each thread of the kernels loops over the other
 * elements. */
static uint32_t blocks_for(const struct cuda_device *d, int64_t count)
{
    int64_t wanted = (count + THREADS - 1) / THREADS, most = d->base.info.sm_count * 8;
    return (uint32_t)(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

static int cuda_fill(struct device *base, const struct buffer *b, uint64_t seed,
                     const void *columns, int64_t n_columns, void *to, struct error *err)
{
    struct cuda_device *d = cuda_of(base);
    const struct {
        void *to;
        uint64_t count, seed;
        const void *columns;
        uint64_t n_columns;
        float scale;
        int32_t dtype, scales, reserved;
    } p = {to,       (uint64_t)b->count,       seed, columns, (uint64_t)n_columns, (float)b->scale,
           b->dtype, b->init == BUFFER_SCALES, 0};
    return cuda_launch_tool(d, "cuda_fill", blocks_for(d, b->count), &p, sizeof(p), err);
}

static int cuda_compare(struct cuda_device *d, const struct prepared *w,
                        const struct tolerance *tol, struct error *err)
{
    const struct workload *load = &w->workload;
    const enum dtype type = load->buffers[load->output].dtype;
    const struct {
        const void *data, *at, *expected, *out;
        uint64_t length;
        double atol, rtol, grain;
        int32_t dtype, reserved;
    } p = {w->buffers[0][load->output],
           w->check_at,
           w->expected,
           w->row_errors,
           (uint64_t)load->check_length,
           tol->atol,
           tol->rtol,
           dtype_grain(type),
           type,
           0};
    return cuda_launch_tool(d, "cuda_compare", load->n_checks, &p, sizeof(p), err);
}

static int cuda_add_rows(struct device *d, const struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    const struct {
        const void *data, *at, *expected;
        uint64_t length;
        int32_t dtype, reserved;
    } p = {w->buffers[0][load->output],
           w->check_at,
           w->expected,
           (uint64_t)load->check_length,
           load->buffers[load->output].dtype,
           0};
    return cuda_launch_tool(cuda_of(d), "cuda_add_rows", load->n_checks, &p, sizeof(p), err);
}

static int cuda_spin(struct cuda_device *d, double us, struct error *err)
{
    const struct {
        int64_t cycles;
    } p = {(int64_t)(us * (double)d->base.info.clock_khz * 1e-3)};
    return cuda_launch_tool(d, "cuda_spin", 1, &p, sizeof(p), err);
}

static int cuda_sweep_l2(struct cuda_device *d, struct error *err)
{
    int64_t bytes = sweep_bytes(d);
    int r = d->sweep ? 0 : cuda_allocate(bytes, &d->sweep, err);
    if (r) {
        return r;
    }
    const struct {
        const void *data;
        uint64_t count;
        void *out;
    } p = {d->sweep, (uint64_t)bytes / 16, d->counters};
    return cuda_launch_tool(d, "cuda_sweep", blocks_for(d, bytes / 16), &p, sizeof(p), err);
}

/* Counts poisoned elements (all bits ones) among `count` elements of `size` bytes. */
static int cuda_count_poison(struct cuda_device *d, const void *data, int64_t count, size_t size,
                             uint32_t counter, struct error *err)
{
    const struct {
        const void *data;
        uint64_t count;
        void *out;
        int32_t size, reserved;
    } p = {data, (uint64_t)count, d->counters + counter * sizeof(uint64_t), (int32_t)size, 0};
    return cuda_launch_tool(d, "cuda_count_poison", blocks_for(d, count), &p, sizeof(p), err);
}

/* ---- launching ------------------------------------------------------------------------------ */

static int cuda_run_reference(struct device *base, const struct family_target *t,
                              const struct launch *l, struct error *err)
{
    struct cuda_device *d = cuda_of(base);
    int r = cuda_load_reference(d, t, err);
    return r ? r : cuda_module_launch(&d->reference.module, l, d->stream, err);
}

static int cuda_launch(struct device *d, struct kernel *k, const struct launch *l,
                       struct error *err)
{
    return cuda_module_launch(&((struct cuda_kernel *)k)->module, l, cuda_of(d)->stream, err);
}

static int elapsed_us(struct cuda_device *d, double *us, struct error *err)
{
    float ms = 0;
    int r = cuda_check(cuda.event_wait(d->end), err, "running the candidate");
    r = r ? r
          : cuda_check((cuda.event_elapsed_v2 ? cuda.event_elapsed_v2
                                              : cuda.event_elapsed)(&ms, d->begin, d->end),
                       err, "reading the time");
    *us = (double)ms * 1e3;
    return r;
}

/* Times the work once, in microseconds: the GPU spins until all work is queued. */
static int cuda_sample(struct device *base, const struct prepared_work *work, uint32_t copy,
                       double *us, struct error *err)
{
    struct cuda_device *d = cuda_of(base);
    int r = cuda_sweep_l2(d, err);
    r = r ? r : cuda_spin(d, SPIN_US + SPIN_EACH_US * work->launches, err);
    r = r ? r : cuda_check(cuda.event_record(d->begin, d->stream), err, "recording an event");
    r = r ? r : work->queue(work->ctx, copy, err);
    r = r ? r : cuda_check(cuda.event_record(d->end, d->stream), err, "recording an event");
    return r ? r : elapsed_us(d, us, err);
}

/* ---- looking at results --------------------------------------------------------------------- */

/* Counts unwritten elements of the output, and unwritten bytes of its guards (the memory before and
 * behind), into the counters. */
static int cuda_count_unwritten(struct cuda_device *d, const struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    const struct buffer *b = &load->buffers[load->output];
    const char *at = w->buffers[0][load->output], *end = at + b->count * dtype_size(b->dtype);
    int r = cuda_check(
        cuda.memory_set(address_of(d->counters), 0, CUDA_COUNTERS * sizeof(uint64_t), d->stream),
        err, "clearing the counters");
    if (r == 0 && !b->accumulate) {
        r = cuda_count_poison(d, at, b->count, dtype_size(b->dtype), CUDA_UNWRITTEN, err);
    }
    r = r ? r : cuda_count_poison(d, at - GUARD_BYTES, GUARD_BYTES, 1, CUDA_GUARD_BEFORE, err);
    return r ? r : cuda_count_poison(d, end, GUARD_BYTES, 1, CUDA_GUARD_BEHIND, err);
}

static int cuda_read_findings(struct cuda_device *d, const struct prepared *w,
                              struct prepared_findings *out, struct error *err)
{
    uint64_t n[CUDA_COUNTERS] = {0};
    const size_t bytes = w->workload.n_checks * sizeof(*out->rows);
    int r = cuda_check(cuda.memory_download(n, address_of(d->counters), sizeof(n)), err,
                       "reading the counters");
    out->unwritten = (int64_t)n[CUDA_UNWRITTEN];
    out->outside = r ? 0 : 2 * GUARD_BYTES - (int64_t)(n[CUDA_GUARD_BEFORE] + n[CUDA_GUARD_BEHIND]);
    return r || bytes == 0
               ? r
               : cuda_check(cuda.memory_download(out->rows, address_of(w->row_errors), bytes), err,
                            "reading how the check rows compare");
}

/* Queues all checks behind the candidate's launch, and waits only once. */
static int cuda_inspect(struct device *base, const struct prepared *w, const struct tolerance *tol,
                        struct prepared_findings *out, struct error *err)
{
    struct cuda_device *d = cuda_of(base);
    int r = cuda_count_unwritten(d, w, err);
    r = r || w->workload.n_checks == 0 ? r : cuda_compare(d, w, tol, err);
    r = r ? r : cuda_wait(base, "running the candidate", err);
    return r ? r : cuda_read_findings(d, w, out, err);
}

/* Rounding to bf16 causes an error of at most 3.9e-3 of a row's norm, rounding to fp16 at most
 * 4.9e-4. Tensor cores cut bits off fp32 sums at every step of 16 terms, always downwards. In
 * very long sums (dW of an expert with hundreds of thousands of rows) the error reaches a third
 * of this tolerance. */
static double cuda_rel_norm(const struct workload *w)
{
    static const double CUT_EACH = 0x1p-24 / 16;
    double usual = w->buffers[w->output].dtype == DTYPE_BF16 ? 5e-3 : 1e-3;
    return fmax(usual, CUT_EACH * (double)w->check_terms);
}

/* ---- the ops --------------------------------------------------------------------------------- */

static const struct prepared_ops cuda_prepared_ops = {
    .copies_max = 8,
    .guard_bytes = GUARD_BYTES,
    .memory = "the GPU's free memory",
    .limit = cuda_limit,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .set = cuda_set,
    .upload = cuda_upload,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .wait = cuda_wait,
    .reference = cuda_run_reference,
    .add_rows = cuda_add_rows,
    .launch = cuda_launch,
    .inspect = cuda_inspect,
    .rel_norm = cuda_rel_norm,
    .sample = cuda_sample,
};

int cuda_prepare(struct device *base, const struct family *f, const struct problem *p,
                 uint64_t seed, struct prepared **out, struct error *err)
{
    struct cuda_device *d = cuda_of(base);
    *out = NULL;
    int r = cuda_wake(d, err);
    r = r ? r : cuda_load_tools(d, err);
    r = r ? r : prepared_new(base, &cuda_prepared_ops, d->stream, f, p, seed, out, err);
    if (r == 0) {
        cuda_watch_begin(d);
    }
    return r;
}

void cuda_release_prepared(struct device *d, struct prepared *w)
{
    if (w) {
        cuda_watch_end(cuda_of(d));
        prepared_free(d, w);
    }
}
