/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifying: the output and its guards are filled with 0xff bytes (a NaN that no computation
 * makes), the kernel runs once, no element may still hold that pattern and every byte of the guards
 * must, and the check rows must agree with the reference: each element within atol + rtol *
 * |reference|, each row in its relative norm. An output that the kernel adds to begins with random
 * values, which are part of what is expected: one that writes instead is wrong.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/devices/cuda/gpu.h"

/* ---- planning ------------------------------------------------------------------------------- */

static int cuda_verify_plan_into(struct cuda_device *d, struct prepared *w,
                                 const struct family_target *t, const struct record *config,
                                 uint32_t copy, struct launch_plan *out, struct error *err)
{
    _Alignas(16) uint8_t args[ARGS_MAX] = {0};
    const struct workload *load = &w->workload;
    load->family->bind(load, w->buffers[copy], (void *)(uintptr_t)w->workspace, w->workspace_bytes,
                       d->stream, args);
    out->n = 0;
    out->workspace_bytes = 0;
    return t->plan(&load->problem, config, &d->base.info, args, out, err);
}

int cuda_plan(struct cuda_device *d, struct prepared *w, const struct kernel *k,
              const struct record *config, uint32_t copy, struct launch_plan *out,
              struct error *err)
{
    const struct family_target *t = family_target_of_variant(w->workload.family, &k->variant);
    if (!t) {
        return error_set(err, ERROR_INTERNAL, "the kernel is not of family %s",
                         w->workload.family->name);
    }
    int r = cuda_verify_plan_into(d, w, t, config, copy, out, err);
    if (out->workspace_bytes <= w->workspace_bytes) {
        return r;
    }
    if (out->workspace_bytes > w->workspace_max) {
        return cuda_too_much((double)out->workspace_bytes, (double)w->workspace_max,
                             "free memory, less what the operands take", err);
    }
    cuda_release(d, &w->workspace);
    w->workspace_bytes = 0;
    r = cuda_allocate(d, out->workspace_bytes, &w->workspace, err);
    w->workspace_bytes = r ? 0 : out->workspace_bytes;
    return r ? r : cuda_verify_plan_into(d, w, t, config, copy, out, err);
}

/* ---- running --------------------------------------------------------------------------------- */

static int cuda_verify_poison_output(struct cuda_device *d, const struct prepared *w,
                                     struct error *err)
{
    const struct workload *load = &w->workload;
    const struct buffer *b = &load->buffers[load->output];
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)w->buffers[0][load->output];
    size_t bytes = (size_t)b->count * dtype_size(b->dtype);
    int r = cuda_check(
        d->cu,
        d->cu->memory_set(at - CUDA_GUARD_BYTES, 0xff, bytes + 2 * CUDA_GUARD_BYTES, d->stream),
        err, "poisoning the output");
    return r || !b->accumulate
               ? r
               : cuda_fill_buffer(d, w, load->output, w->buffers[0][load->output], err);
}

enum { UNWRITTEN, GUARD_BEFORE, GUARD_BEHIND };

/* Elements not written, and bytes of the guards that were not: into the counters. */
static int cuda_verify_count_unwritten(struct cuda_device *d, const struct prepared *w,
                                       struct error *err)
{
    const struct workload *load = &w->workload;
    const struct buffer *b = &load->buffers[load->output];
    const char *at = w->buffers[0][load->output];
    size_t size = dtype_size(b->dtype);
    int r = cuda_clear_counters(d, err);
    r = r || b->accumulate ? r : cuda_count_poison(d, at, b->count, size, UNWRITTEN, err);
    r = r ? r : cuda_count_poison(d, at - CUDA_GUARD_BYTES, CUDA_GUARD_BYTES, 1, GUARD_BEFORE, err);
    return r ? r
             : cuda_count_poison(d, at + (size_t)b->count * size, CUDA_GUARD_BYTES, 1, GUARD_BEHIND,
                                 err);
}

/* Everything is queued behind the candidate: one wait. */
static int cuda_verify_run(struct cuda_device *d, struct prepared *w, struct kernel *k,
                           const struct record *config, const struct tolerance *tol,
                           struct error *err)
{
    struct launch_plan plan;
    int r = cuda_plan(d, w, k, config, 0, &plan, err);
    r = r ? r : cuda_verify_poison_output(d, w, err);
    for (uint32_t i = 0; i < plan.n && r == 0; i++) {
        r = cuda_module_launch(&k->module, &plan.steps[i], d->stream, err);
    }
    r = r ? r : cuda_verify_count_unwritten(d, w, err);
    r = r || w->workload.n_checks == 0 ? r : cuda_compare(d, w, tol, err);
    return r ? r : cuda_wait(d, "running the candidate", err);
}

static int read_counts(struct cuda_device *d, int64_t *unwritten, int64_t *outside,
                       struct error *err)
{
    uint64_t n[CUDA_COUNTERS] = {0};
    int r = cuda_read_counters(d, n, err);
    *unwritten = (int64_t)n[UNWRITTEN];
    *outside = 2 * CUDA_GUARD_BYTES - (int64_t)(n[GUARD_BEFORE] + n[GUARD_BEHIND]);
    return r;
}

static int read_rows(struct cuda_device *d, const struct prepared *w, struct cuda_row_error **out,
                     struct error *err)
{
    size_t bytes = w->workload.n_checks * sizeof(**out);
    *out = malloc(bytes ? bytes : 1);
    if (!*out) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu bytes of results", bytes);
    }
    return bytes ? cuda_check(d->cu, d->cu->memory_download(*out, w->row_errors, bytes), err,
                              "reading how the check rows compare")
                 : 0;
}

/* ---- judging -------------------------------------------------------------------------------- */

static double cuda_verify_relative_norm(const struct cuda_row_error *e)
{
    double ratio = e->norm > 0         ? sqrt(e->difference / e->norm)
                   : e->difference > 0 ? (double)INFINITY
                                       : 0;
    return isnan(ratio) ? (double)INFINITY : ratio;
}

/* Rounding to bf16 makes at most 3.9e-3 of a row's norm, to fp16 4.9e-4. fp32 sums of tensor cores
 * cut bits off at every step, of 16 terms each, and always downwards: that adds up over very long
 * ones (dW of an expert that has hundreds of thousands of rows), to about a third of what is
 * granted here (tests/gpu/results/2026-11-27-h100-long_sums.txt). */
static double cuda_default_rel_norm(const struct workload *w)
{
    static const double CUT_EACH = 0x1p-24 / 16;
    double usual = w->buffers[w->output].dtype == DTYPE_BF16 ? 5e-3 : 1e-3;
    return fmax(usual, CUT_EACH * (double)w->check_terms);
}

/* "output row 812 (expert 3, row 17 of it)" */
static void name_row(const struct workload *w, uint32_t check, char *out, size_t size)
{
    char place[96] = "";
    if (w->family->place) {
        w->family->place(w, check, place, sizeof(place));
    }
    snprintf(out, size, "output row %lld%s%s%s", (long long)(w->check_at[check] / w->check_length),
             place[0] ? " (" : "", place, place[0] ? ")" : "");
}

static void say_element(const struct prepared *w, const struct tolerance *tol, uint32_t check,
                        const struct cuda_row_error *e, struct verdict *out)
{
    char row[160];
    name_row(&w->workload, check, row, sizeof(row));
    snprintf(out->text, sizeof(out->text),
             "%s, column %lld is %g, the reference %g (atol %g, rtol %g)", row, (long long)e->worst,
             e->got, e->expected, tol->atol, tol->rtol);
}

/* Names the worst element of all check rows; where all are within tolerance, the worst row. */
static void judge_rows(const struct prepared *w, const struct tolerance *tol,
                       const struct cuda_row_error *rows, struct verdict *out)
{
    const struct workload *load = &w->workload;
    double limit = tol->rel_norm > 0 ? tol->rel_norm : cuda_default_rel_norm(load), worst = 0;
    uint32_t worst_row = 0;
    for (uint32_t i = 0; i < load->n_checks; i++) {
        const struct cuda_row_error *e = &rows[i];
        worst_row = cuda_verify_relative_norm(e) > out->rel_norm ? i : worst_row;
        out->max_error = fmax(out->max_error, e->max_error);
        out->rel_norm = fmax(out->rel_norm, cuda_verify_relative_norm(e));
        if (e->excess > worst) {
            worst = e->excess;
            out->right = false;
            say_element(w, tol, i, e, out);
        }
    }
    if (worst <= 0 && out->rel_norm > limit) {
        char row[160];
        out->right = false;
        name_row(load, worst_row, row, sizeof(row));
        snprintf(out->text, sizeof(out->text),
                 "%s differs from the reference by %g of its norm (limit %g)", row, out->rel_norm,
                 limit);
    }
}

static void cuda_verify_judge(const struct prepared *w, const struct tolerance *tol,
                              const struct cuda_row_error *rows, int64_t outside,
                              struct verdict *out)
{
    const struct workload *load = &w->workload;
    out->right = true;
    judge_rows(w, tol, rows, out);
    if (out->unwritten > 0) {
        out->right = false;
        snprintf(out->text, sizeof(out->text),
                 "%lld of %lld elements of the output were not written", (long long)out->unwritten,
                 (long long)load->buffers[load->output].count);
    }
    if (outside > 0) {
        out->right = false;
        snprintf(out->text, sizeof(out->text),
                 "%lld bytes before or behind the output were written", (long long)outside);
    }
}

int cuda_judge_rows(struct cuda_device *d, const struct prepared *w, const struct tolerance *tol,
                    struct verdict *out, struct error *err)
{
    struct cuda_row_error *rows = NULL;
    *out = (struct verdict){.right = true};
    int r = cuda_compare(d, w, tol, err);
    r = r ? r : cuda_wait(d, "comparing the check rows", err);
    r = r ? r : read_rows(d, w, &rows, err);
    if (r == 0) {
        judge_rows(w, tol, rows, out);
    }
    free(rows);
    return r;
}

int cuda_verify(struct device *base, struct prepared *w, struct kernel *k,
                const struct record *config, const struct tolerance *tol, struct verdict *out,
                struct error *err)
{
    struct cuda_device *d = (struct cuda_device *)base;
    struct cuda_row_error *rows = NULL;
    int64_t outside = 0;
    *out = (struct verdict){0};
    int r = cuda_verify_run(d, w, k, config, tol, err);
    r = r ? r : read_counts(d, &out->unwritten, &outside, err);
    r = r ? r : read_rows(d, w, &rows, err);
    if (r == 0) {
        cuda_verify_judge(w, tol, rows, outside, out);
    }
    free(rows);
    return r;
}
