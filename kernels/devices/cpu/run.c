/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifying and timing a kernel, through the same plan() and launch as a training job.
 *
 * Verification: the output is filled with 0xff bytes (a NaN that no computation makes), the kernel
 * runs once, no element may still hold that pattern, and the check rows must agree with the
 * reference, each element within atol + rtol * |reference| and each row in its relative norm. An
 * output that the kernel adds to begins with random values instead, which are part of what is
 * expected (see struct buffer).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/devices/cpu/cpu.h"
#include "kernels/devices/cpu/elements.h"

/* ---- planning -------------------------------------------------------------------------------- */

static int cpu_plan_into(struct prepared *w, const struct family_target *t, const struct device *d,
                         const struct record *config, uint32_t copy, struct launch_plan *out,
                         struct error *err)
{
    _Alignas(16) uint8_t args[ARGS_MAX] = {0};
    const struct workload *load = &w->workload;
    load->family->bind(load, w->buffers[copy], w->workspace, w->workspace_bytes, NULL, args);
    out->workspace_bytes = 0;
    return t->plan(&load->problem, config, &d->info, args, out, err);
}

/* Plans a launch over one copy of the buffers; grows the workspace when the plan asks for it. */
static int cpu_plan_launch(struct prepared *w, const struct device *d, const struct kernel *k,
                           const struct record *config, uint32_t copy, struct launch_plan *out,
                           struct error *err)
{
    const struct family_target *t = family_target_of_variant(w->workload.family, &k->variant);
    if (!t) {
        return error_set(err, ERROR_INTERNAL, "the kernel is not of family %s",
                         w->workload.family->name);
    }
    int r = cpu_plan_into(w, t, d, config, copy, out, err);
    if (out->workspace_bytes <= w->workspace_bytes) {
        return r;
    }
    int64_t bytes = (out->workspace_bytes + 255) / 256 * 256;
    free(w->workspace);
    w->workspace = aligned_alloc(256, (size_t)bytes);
    w->workspace_bytes = w->workspace ? bytes : 0;
    if (!w->workspace) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a workspace of %lld bytes",
                         (long long)bytes);
    }
    return cpu_plan_into(w, t, d, config, copy, out, err);
}

static int cpu_launch_plan(struct kernel *k, const struct launch_plan *p, struct error *err)
{
    int r = 0;
    for (uint32_t i = 0; i < p->n && r == 0; i++) {
        r = cpu_module_launch(&k->module, &p->steps[i], err);
    }
    return r;
}

/* ---- verify ---------------------------------------------------------------------------------- */

struct scan_job {
    const uint8_t *data;
    int64_t bytes, chunk;
    size_t element;
    int64_t *unwritten; /* per piece */
};

static void scan_piece(void *ctx, uint32_t piece)
{
    const struct scan_job *s = ctx;
    int64_t begin = piece * s->chunk, end = begin + s->chunk;
    end = end < s->bytes ? end : s->bytes;
    int64_t count = 0;
    static const uint8_t poison[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    for (int64_t i = begin; i < end; i += (int64_t)s->element) {
        count += memcmp(s->data + i, poison, s->element) == 0;
    }
    s->unwritten[piece] = count;
}

static int count_unwritten(struct cpu_device *d, const struct buffer *b, const void *data,
                           int64_t *out, struct error *err)
{
    enum { CHUNK = 1 << 20 };
    struct scan_job s = {.data = data, .element = dtype_size(b->dtype), .chunk = CHUNK};
    s.bytes = b->count * (int64_t)s.element;
    uint32_t pieces = (uint32_t)((s.bytes + CHUNK - 1) / CHUNK);
    s.unwritten = calloc(pieces, sizeof(s.unwritten[0]));
    if (!s.unwritten) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to verify");
    }
    pool_run(d->pool, scan_piece, &s, pieces);
    *out = 0;
    for (uint32_t i = 0; i < pieces; i++) {
        *out += s.unwritten[i];
    }
    free(s.unwritten);
    return 0;
}

struct row_error {
    double max_error, rel_norm;
    int64_t worst; /* element of the row; -1: all within tolerance */
    double got, expected;
};

static struct row_error compare_row(const struct buffer *b, const void *data, int64_t at,
                                    const double *expected, int64_t n, const struct tolerance *tol)
{
    struct row_error e = {.worst = -1};
    double difference = 0, norm = 0, excess = 0;
    for (int64_t i = 0; i < n; i++) {
        double got = element_read(b->dtype, data, at + i), x = fabs(got - expected[i]);
        double over = x - (tol->atol + tol->rtol * fabs(expected[i]));
        if (!(over <= excess)) { /* also when NaN */
            excess = isnan(over) ? INFINITY : over;
            e.worst = i;
            e.got = got;
            e.expected = expected[i];
        }
        if (!(x <= e.max_error)) {
            e.max_error = isnan(x) ? INFINITY : x;
        }
        double beyond = x > dtype_grain(b->dtype) ? x - dtype_grain(b->dtype) : 0;
        difference += isnan(x) ? x : beyond * beyond;
        norm += expected[i] * expected[i];
    }
    double ratio = norm > 0 ? sqrt(difference / norm) : difference > 0 ? INFINITY : 0;
    e.rel_norm = isnan(ratio) ? INFINITY : ratio;
    return e;
}

/* fp32 sums are rounded at every term, up or down: over very long ones about half of this. */
static double cpu_default_rel_norm(const struct workload *w)
{
    enum dtype t = w->buffers[w->output].dtype;
    double usual = t == DTYPE_FP32 ? 1e-5 : t == DTYPE_FP16 ? 1e-3 : 5e-3;
    return fmax(usual, 0x1p-24 * sqrt((double)w->check_terms));
}

static void cpu_judge_output(const struct prepared *w, const struct tolerance *tol,
                             struct verdict *out)
{
    const struct workload *load = &w->workload;
    const struct buffer *b = &load->buffers[load->output];
    const void *data = w->buffers[0][load->output];
    double limit = tol->rel_norm > 0 ? tol->rel_norm : cpu_default_rel_norm(load);
    out->right = out->unwritten == 0;
    if (!out->right) {
        snprintf(out->text, sizeof(out->text),
                 "%lld of %lld elements of the output were not written", (long long)out->unwritten,
                 (long long)b->count);
    }
    for (uint32_t i = 0; i < load->n_checks; i++) {
        int64_t at = load->check_at[i], n = load->check_length;
        struct row_error e = compare_row(b, data, at, w->expected + i * n, n, tol);
        out->max_error = fmax(out->max_error, e.max_error);
        out->rel_norm = fmax(out->rel_norm, e.rel_norm);
        if (!out->right || (e.worst < 0 && e.rel_norm <= limit)) {
            continue;
        }
        out->right = false;
        if (e.worst >= 0) {
            snprintf(out->text, sizeof(out->text),
                     "output row %lld, column %lld is %g, the reference %g (atol %g, rtol %g)",
                     (long long)(at / n), (long long)e.worst, e.got, e.expected, tol->atol,
                     tol->rtol);
        } else {
            snprintf(out->text, sizeof(out->text),
                     "output row %lld differs from the reference by %g of its norm (limit %g)",
                     (long long)(at / n), e.rel_norm, limit);
        }
    }
}

int cpu_verify(struct device *base, struct prepared *w, struct kernel *k,
               const struct record *config, const struct tolerance *tol, struct verdict *out,
               struct error *err)
{
    struct cpu_device *d = (struct cpu_device *)base;
    const struct workload *load = &w->workload;
    const struct buffer *b = &load->buffers[load->output];
    void *data = w->buffers[0][load->output];
    *out = (struct verdict){0};
    struct launch_plan p;
    int r = cpu_plan_launch(w, base, k, config, 0, &p, err);
    if (r) {
        return r;
    }
    if (b->accumulate) {
        cpu_fill_buffer(d, w, load->output, data);
    } else {
        memset(data, 0xff, (size_t)b->count * dtype_size(b->dtype));
    }
    r = cpu_launch_plan(k, &p, err);
    if (r == 0 && !b->accumulate) {
        r = count_unwritten(d, b, data, &out->unwritten, err);
    }
    if (r == 0) {
        cpu_judge_output(w, tol, out);
    }
    return r;
}

/* ---- time ------------------------------------------------------------------------------------ */

static int cpu_plan_copies(struct device *d, struct prepared *w, struct kernel *k,
                           const struct record *config, struct launch_plan *plans,
                           struct error *err)
{
    for (uint32_t i = 0; i < w->n_copies; i++) {
        int r = cpu_plan_launch(w, d, k, config, i, &plans[i], err);
        if (r) {
            return r;
        }
    }
    return 0;
}

static void cpu_idle(double ms)
{
    struct timespec t = {.tv_sec = (time_t)(ms / 1000)};
    t.tv_nsec = (long)((ms - (double)t.tv_sec * 1000) * 1e6);
    nanosleep(&t, NULL);
}

int cpu_time(struct device *d, struct prepared *w, struct kernel *k, const struct record *config,
             const struct timing *t, double *samples_us, uint32_t *n, struct error *err)
{
    *n = 0;
    struct launch_plan *plans = calloc(w->n_copies, sizeof(*plans));
    if (!plans) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to plan launches");
    }
    int r = cpu_plan_copies(d, w, k, config, plans, err);
    for (uint32_t i = 0; r == 0 && i < t->warmup + t->samples; i++) {
        if (t->gap_ms > 0) {
            cpu_idle(t->gap_ms);
        }
        double began = cpu_clock_ms(d);
        r = cpu_launch_plan(k, &plans[i % w->n_copies], err);
        double us = (cpu_clock_ms(d) - began) * 1e3;
        if (r == 0 && i >= t->warmup) {
            samples_us[(*n)++] = us;
        }
        if (t->stop_after_us > 0 && i == t->warmup && us > t->stop_after_us) {
            break;
        }
    }
    free(plans);
    return r;
}
