/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A workload's buffers in memory: filled from a generator whose value depends only on seed, buffer
 * and position (so that threads can fill in any order and two runs agree), in as many copies as it
 * takes to find the last-level cache cold at every launch; and the reference over the check rows.
 *
 * Never more than a share of the free memory (host_memory.c).
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/devices/cpu/cpu.h"
#include "kernels/devices/cpu/elements.h"

/* ---- how much -------------------------------------------------------------------------------- */

static int64_t cpu_buffer_bytes(const struct buffer *b)
{
    return b->count * (int64_t)dtype_size(b->dtype);
}

int cpu_fits(struct device *d, const struct family *f, const struct problem *p, struct error *err)
{
    (void)d;
    double flops, bytes;
    f->work(p, &flops, &bytes);
    return device_host_fits(bytes + device_host_lists(f, p), err);
}

/* How many copies of the rotating buffers: enough that between two uses of one the others have
 * swept the last-level cache. ERROR_NO_MEMORY when not even one copy is allowed. */
static int cpu_count_copies(struct device *d, struct prepared *w, struct error *err)
{
    int64_t fixed = 0, rotating = 0;
    for (uint32_t i = 0; i < w->workload.n_buffers; i++) {
        const struct buffer *b = &w->workload.buffers[i];
        *(b->rotate ? &rotating : &fixed) += cpu_buffer_bytes(b);
    }
    int r = device_host_fits((double)(fixed + rotating), err);
    if (r) {
        return r;
    }
    int64_t limit = device_host_limit();
    int64_t copies = 1;
    if (rotating > 0) {
        int64_t wanted = 1 + 2 * d->info.l2_bytes / rotating;
        int64_t allowed = (limit - fixed) / rotating;
        copies = wanted < allowed ? wanted : allowed;
    }
    w->n_copies = (uint32_t)(copies < COPIES_MAX ? copies : COPIES_MAX);
    return 0;
}

/* ---- filling --------------------------------------------------------------------------------- */

/* About normal, mean 0, deviation 1: the sum of four 16-bit uniform numbers (never beyond 3.5). */
static float random_value(uint64_t seed, uint64_t i)
{
    uint64_t state = seed + i * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = random_next(&state);
    int64_t sum = (int64_t)(z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48);
    return (float)(sum - 2 * 0xffff) * (1.7320508f / 65536.0f);
}

struct fill {
    const struct buffer *buffer;
    void *to;
    uint64_t seed;
    int64_t chunk; /* elements per piece of work */
};

static void fill_random(void *ctx, uint32_t piece)
{
    const struct fill *f = ctx;
    int64_t begin = piece * f->chunk, end = begin + f->chunk;
    end = end < f->buffer->count ? end : f->buffer->count;
    float scale = (float)f->buffer->scale;
    for (int64_t i = begin; i < end; i++) {
        float v = random_value(f->seed, (uint64_t)i) * scale;
        element_write(f->buffer->dtype, f->to, i, v);
    }
}

void cpu_fill_buffer(struct cpu_device *d, const struct prepared *w, uint32_t i, void *to)
{
    const struct buffer *b = &w->workload.buffers[i];
    uint64_t state = w->workload.seed + i;
    struct fill f = {.buffer = b, .to = to, .seed = random_next(&state), .chunk = 1 << 16};
    if (b->init == BUFFER_RANDOM || b->accumulate) {
        pool_run(d->pool, fill_random, &f, (uint32_t)((b->count + f.chunk - 1) / f.chunk));
        return;
    }
    switch (b->init) {
    case BUFFER_RANDOM:
        break;
    case BUFFER_HOST:
        memcpy(to, b->host, (size_t)cpu_buffer_bytes(b));
        break;
    case BUFFER_OUTPUT:
    case BUFFER_SCRATCH:
        memset(to, 0,
               (size_t)cpu_buffer_bytes(b)); /* fresh pages are mapped now, not in a launch */
        break;
    }
}

static int cpu_allocate(int64_t bytes, void **out, struct error *err)
{
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return error_set(err, ERROR_NO_MEMORY, "cannot allocate %.1f MiB for a buffer: %s",
                         (double)bytes / 0x1p20, strerror(errno));
    }
    madvise(p, (size_t)bytes, MADV_HUGEPAGE); /* fewer TLB misses; no matter if it is refused */
    *out = p;
    return 0;
}

static int cpu_make_buffers(struct cpu_device *d, struct prepared *w, struct error *err)
{
    for (uint32_t copy = 0; copy < w->n_copies; copy++) {
        for (uint32_t i = 0; i < w->workload.n_buffers; i++) {
            const struct buffer *b = &w->workload.buffers[i];
            void **at = &w->buffers[copy][i];
            int64_t bytes = cpu_buffer_bytes(b);
            if (bytes == 0) {
                continue; /* a problem without this operand: NULL */
            }
            if (copy > 0 && !b->rotate) {
                *at = w->buffers[0][i];
                continue;
            }
            int r = host_work_check(err);
            r = r ? r : cpu_allocate(bytes, at, err);
            if (r) {
                return r;
            }
            if (copy == 0) {
                cpu_fill_buffer(d, w, i, *at);
            } else {
                memcpy(*at, w->buffers[0][i], (size_t)bytes);
            }
        }
    }
    return 0;
}

/* ---- the reference --------------------------------------------------------------------------- */

struct reference_call {
    void (*entry)(const void *params, uint32_t block);
    const void *params;
};

static void reference_block(void *ctx, uint32_t block)
{
    const struct reference_call *c = ctx;
    c->entry(c->params, block);
}

/* What the output holds before, of one that kernels add to. */
static void add_before(struct prepared *w)
{
    const struct workload *load = &w->workload;
    const struct buffer *b = &load->buffers[load->output];
    for (uint32_t i = 0; b->accumulate && i < load->n_checks; i++) {
        for (int64_t j = 0; j < load->check_length; j++) {
            w->expected[i * load->check_length + j] +=
                element_read(b->dtype, w->buffers[0][load->output], load->check_at[i] + j);
        }
    }
}

static int cpu_run_reference(struct cpu_device *d, struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    const struct family_target *t;
    int r = family_target_choose(load->family, &load->problem, &d->base.info, NULL, &t, err);
    if (r) {
        return r;
    }
    w->expected = calloc((size_t)(load->n_checks * load->check_length), sizeof(double));
    struct launch *launch = calloc(1, sizeof(*launch));
    r = !w->expected || !launch
            ? error_set(err, ERROR_NO_MEMORY, "no memory for the reference result")
            : t->reference(load, w->buffers[0], load->check_at, w->expected, launch, err);
    if (r == 0) {
        struct reference_call call = {launch->cpu_entry, launch->params};
        pool_run(d->pool, reference_block, &call, launch->grid[0]);
        add_before(w);
    }
    free(launch);
    return r;
}

/* ---- the ops --------------------------------------------------------------------------------- */

int cpu_prepare(struct device *base, const struct family *f, const struct problem *p, uint64_t seed,
                struct prepared **out, struct error *err)
{
    struct cpu_device *d = (struct cpu_device *)base;
    *out = NULL;
    int r = cpu_fits(base, f, p, err);
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
    r = cpu_count_copies(base, w, err);
    r = r ? r : cpu_make_buffers(d, w, err);
    r = r ? r : cpu_run_reference(d, w, err);
    if (r) {
        cpu_release(base, w);
        return r;
    }
    *out = w;
    return 0;
}

void cpu_release(struct device *d, struct prepared *w)
{
    (void)d;
    if (!w) {
        return;
    }
    for (uint32_t copy = 0; copy < w->n_copies; copy++) {
        for (uint32_t i = 0; i < w->workload.n_buffers; i++) {
            const struct buffer *b = &w->workload.buffers[i];
            if (w->buffers[copy][i] && (copy == 0 || b->rotate)) {
                munmap(w->buffers[copy][i], (size_t)cpu_buffer_bytes(b));
            }
        }
    }
    free(w->workspace);
    free(w->expected);
    w->workload.family->workload_deinit(&w->workload);
    free(w);
}
