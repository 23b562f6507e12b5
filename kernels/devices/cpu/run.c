/* SPDX-License-Identifier: Apache-2.0 */
/* A prepared problem in this host's memory (kernels/devices/prepared.h). Random values depend on
 * seed and position only, so that threads can fill in any order and two runs agree. Launches run on
 * the pool. All work is done when a call returns. */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/devices/cpu/cpu.h"
#include "kernels/fp8.h"

static struct pool *pool_of(struct device *d)
{
    return ((struct cpu_device *)d)->pool;
}

/* ---- memory ---------------------------------------------------------------------------------- */

int cpu_fits(struct device *d, const struct family *f, const struct problem *p, struct error *err)
{
    double flops, bytes;
    f->work(p, &flops, &bytes);
    return device_host_fits(bytes + device_host_lists(f, p), err);
}

static int cpu_limit(struct device *d, int64_t *bytes, struct error *err)
{
    *bytes = device_host_limit();
    return 0;
}

static int cpu_allocate(int64_t bytes, void **out, struct error *err)
{
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return error_set(err, ERROR_NO_MEMORY, "cannot allocate %.1f MiB for a buffer: %s",
                         (double)bytes / 0x1p20, strerror(errno));
    }
    /* huge pages cause fewer TLB misses; the call may fail without harm */
    madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    *out = p;
    return 0;
}

static void cpu_free(void *at, int64_t bytes)
{
    munmap(at, (size_t)bytes);
}

/* The memset also maps fresh pages, which would otherwise take time in a launch. */
static int cpu_set(struct device *d, void *to, int value, int64_t bytes, const char *what,
                   struct error *err)
{
    memset(to, value, (size_t)bytes);
    return 0;
}

static int cpu_copy(struct device *d, void *to, const void *from, int64_t bytes, const char *what,
                    struct error *err)
{
    memcpy(to, from, (size_t)bytes);
    return 0;
}

static int cpu_wait(struct device *d, const char *what, struct error *err)
{
    return 0;
}

/* ---- elements: floats to bf16, fp16, fp32 or fp8, and back
 * ---------------------------------------- */

static uint16_t element_to_bf16(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16); /* v is finite */
}

/* v is finite. Rounds to nearest even. */
static uint16_t element_to_fp16(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    float size = fabsf(v);
    if (size >= 65520) {
        return sign | 0x7c00;
    }
    if (size < 0x1p-14f) { /* subnormal: a multiple of 2^-24 */
        return sign | (uint16_t)lrintf(size * 0x1p24f);
    }
    memcpy(&bits, &size, sizeof(bits));
    bits += 0xfff + ((bits >> 13) & 1);
    return sign | (uint16_t)((bits - (UINT32_C(112) << 23)) >> 13);
}

static void element_write(enum dtype t, void *data, int64_t i, float v)
{
    if (t == DTYPE_FP32) {
        ((float *)data)[i] = v;
    } else if (t == DTYPE_FP8_E4M3) {
        ((uint8_t *)data)[i] = fp8_encode(v);
    } else {
        ((uint16_t *)data)[i] = t == DTYPE_BF16 ? element_to_bf16(v) : element_to_fp16(v);
    }
}

static double element_read(enum dtype t, const void *data, int64_t i)
{
    if (t == DTYPE_FP32) {
        return ((const float *)data)[i];
    }
    if (t == DTYPE_FP8_E4M3) {
        return fp8_decode(((const uint8_t *)data)[i]);
    }
    if (t == DTYPE_UINT8) {
        return ((const uint8_t *)data)[i];
    }
    uint16_t half = ((const uint16_t *)data)[i];
    if (t == DTYPE_BF16) {
        uint32_t bits = (uint32_t)half << 16;
        float v;
        memcpy(&v, &bits, sizeof(v));
        return v;
    }
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(1024 + mantissa, exponent - 25);
    return half & 0x8000 ? -size : size;
}

/* ---- filling --------------------------------------------------------------------------------- */

static uint64_t random_bits(uint64_t seed, uint64_t i)
{
    uint64_t state = seed + i * UINT64_C(0x9e3779b97f4a7c15);
    return random_next(&state);
}

/* Nearly normal, mean 0, deviation 1: the sum of four 16-bit uniform numbers (at most 3.5). */
static float random_value(uint64_t z)
{
    int64_t sum = (int64_t)(z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48);
    return (float)(sum - 2 * 0xffff) * (1.7320508f / 65536.0f);
}

/* An octave from 2^-2 to 2^1, and a place within the octave: the same bits on every device. */
static float random_scale(uint64_t z)
{
    return ldexpf(1 + (float)(z >> 41) * 0x1p-23f, (int)(z & 3) - 2);
}

enum { CHUNK = 1 << 16 }; /* elements per piece of work */

static uint32_t pieces_of(const struct buffer *b)
{
    return (uint32_t)((b->count + CHUNK - 1) / CHUNK);
}

static int64_t piece_end(const struct buffer *b, uint32_t piece)
{
    const int64_t end = ((int64_t)piece + 1) * CHUNK;
    return end < b->count ? end : b->count;
}

struct fill {
    const struct buffer *buffer;
    void *to;
    uint64_t seed;
    const uint8_t *columns;
    int64_t n_columns;
};

static void fill_random(void *ctx, uint32_t piece)
{
    const struct fill *f = ctx;
    const float scale = (float)f->buffer->scale;
    const int64_t end = piece_end(f->buffer, piece);
    for (int64_t i = (int64_t)piece * CHUNK; i < end; i++) {
        const uint64_t z = random_bits(f->seed, (uint64_t)i);
        float v = f->buffer->init == BUFFER_SCALES ? random_scale(z) : random_value(z);
        v = f->columns && !f->columns[i % f->n_columns] ? 0 : v * scale;
        element_write(f->buffer->dtype, f->to, i, v);
    }
}

static int cpu_fill(struct device *d, const struct buffer *b, uint64_t seed, const void *columns,
                    int64_t n_columns, void *to, struct error *err)
{
    struct fill f = {
        .buffer = b, .to = to, .seed = seed, .columns = columns, .n_columns = n_columns};
    pool_run(pool_of(d), fill_random, &f, pieces_of(b));
    return 0;
}

/* ---- launching ------------------------------------------------------------------------------- */

static int cpu_run_reference(struct device *d, const struct family_target *t,
                             const struct launch *l, struct error *err)
{
    /* no module is needed: the launch has its function in cpu_entry */
    struct cpu_module none = {.pool = pool_of(d)};
    return cpu_module_launch(&none, l, err);
}

static int cpu_add_rows(struct device *d, const struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    const struct buffer *b = &load->buffers[load->output];
    for (uint32_t i = 0; i < load->n_checks; i++) {
        for (int64_t j = 0; j < load->check_length; j++) {
            w->expected[i * load->check_length + j] +=
                element_read(b->dtype, w->buffers[0][load->output], load->check_at[i] + j);
        }
    }
    return 0;
}

static int cpu_launch(struct device *d, struct kernel *k, const struct launch *l, struct error *err)
{
    return cpu_module_launch(&((struct cpu_kernel *)k)->module, l, err);
}

static int cpu_sample(struct device *d, const struct prepared_work *work, uint32_t copy, double *us,
                      struct error *err)
{
    double began = device_clock_ms(NULL);
    int r = work->queue(work->ctx, copy, err);
    *us = (device_clock_ms(NULL) - began) * 1e3;
    return r;
}

/* ---- looking at results ---------------------------------------------------------------------- */

struct scan {
    const struct buffer *buffer;
    const char *data;
    atomic_int_fast64_t unwritten;
};

static void scan_piece(void *ctx, uint32_t piece)
{
    struct scan *s = ctx;
    static const uint8_t poison[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    const size_t size = dtype_size(s->buffer->dtype);
    const int64_t end = piece_end(s->buffer, piece);
    int64_t count = 0;
    for (int64_t i = (int64_t)piece * CHUNK; i < end; i++) {
        count += memcmp(s->data + (size_t)i * size, poison, size) == 0;
    }
    s->unwritten += count;
}

static void compare_row(const struct buffer *b, const void *data, int64_t at,
                        const double *expected, int64_t n, const struct tolerance *tol,
                        struct row_error *e)
{
    const double grain = dtype_grain(b->dtype);
    *e = (struct row_error){.worst = -1};
    for (int64_t i = 0; i < n; i++) {
        double got = element_read(b->dtype, data, at + i), x = fabs(got - expected[i]);
        double over = x - (tol->atol + tol->rtol * fabs(expected[i]));
        if (!(over <= e->excess)) { /* true for NaN, too */
            e->excess = isnan(over) ? INFINITY : over;
            e->worst = i;
            e->got = got;
            e->expected = expected[i];
        }
        if (!(x <= e->max_error)) {
            e->max_error = isnan(x) ? INFINITY : x;
        }
        double beyond = x > grain ? x - grain : 0;
        e->difference += isnan(x) ? x : beyond * beyond;
        e->norm += expected[i] * expected[i];
    }
}

static int cpu_inspect(struct device *d, const struct prepared *w, const struct tolerance *tol,
                       struct prepared_findings *out, struct error *err)
{
    const struct workload *load = &w->workload;
    const struct buffer *b = &load->buffers[load->output];
    struct scan s = {.buffer = b, .data = w->buffers[0][load->output]};
    if (!b->accumulate) {
        pool_run(pool_of(d), scan_piece, &s, pieces_of(b));
    }
    out->unwritten = s.unwritten;
    for (uint32_t i = 0; i < load->n_checks; i++) {
        const int64_t n = load->check_length;
        compare_row(b, s.data, load->check_at[i], w->expected + i * n, n, tol, &out->rows[i]);
    }
    return 0;
}

/* The relative norm that rounding explains. fp32 sums round up or down at every term, so their
 * error grows with the root of the number of terms: the tolerance is twice the error of long
 * sums. */
static double cpu_rel_norm(const struct workload *w)
{
    enum dtype t = w->buffers[w->output].dtype;
    double usual = t == DTYPE_FP32 ? 1e-5 : t == DTYPE_FP16 ? 1e-3 : 5e-3;
    return fmax(usual, 0x1p-24 * sqrt((double)w->check_terms));
}

/* ---- the op ---------------------------------------------------------------------------------- */

static const struct prepared_ops cpu_prepared_ops = {
    .copies_max = PREPARED_COPIES_MAX,
    .memory = "the free memory",
    .limit = cpu_limit,
    .allocate = cpu_allocate,
    .release = cpu_free,
    .set = cpu_set,
    .upload = cpu_copy,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .wait = cpu_wait,
    .reference = cpu_run_reference,
    .add_rows = cpu_add_rows,
    .launch = cpu_launch,
    .inspect = cpu_inspect,
    .rel_norm = cpu_rel_norm,
    .sample = cpu_sample,
};

int cpu_prepare(struct device *d, const struct family *f, const struct problem *p, uint64_t seed,
                struct prepared **out, struct error *err)
{
    *out = NULL;
    int r = cpu_fits(d, f, p, err);
    return r ? r : prepared_new(d, &cpu_prepared_ops, NULL, f, p, seed, out, err);
}
