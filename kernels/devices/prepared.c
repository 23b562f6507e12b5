/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/devices/prepared.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t prepared_buffer_bytes(const struct buffer *b)
{
    return b->count * (int64_t)dtype_size(b->dtype);
}

/* Bytes of the guards before and behind a buffer. Only the output has guards, because nothing
 * writes to the other buffers. */
static int64_t prepared_guard_of(const struct prepared *w, const struct buffer *b)
{
    return b->init == BUFFER_OUTPUT ? w->ops->guard_bytes : 0;
}

static int64_t prepared_bytes_of_rows(const struct workload *load, int64_t each)
{
    return (int64_t)load->n_checks * each;
}

static int64_t prepared_expected_bytes(const struct workload *load)
{
    return prepared_bytes_of_rows(load, load->check_length * (int64_t)sizeof(double));
}

/* ---- number of copies ------------------------------------------------------------------------ */

/* Makes enough copies that the other copies sweep the cache between two uses of a copy. Makes at
 * least two copies, when they fit: the unused copy is cold when all copies together exceed the
 * cache. Beyond two copies, leaves the memory of one more copy free for a candidate's
 * workspace. ERROR_NO_MEMORY when a single copy exceeds the limit. */
static int prepared_count_copies(struct device *d, struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    const int64_t check = sizeof(int64_t) + sizeof(struct row_error);
    int64_t fixed = prepared_bytes_of_rows(load, check) + prepared_expected_bytes(load);
    int64_t rotating = 0, limit;
    for (uint32_t i = 0; i < load->n_buffers; i++) {
        const struct buffer *b = &load->buffers[i];
        *(b->rotate ? &rotating : &fixed) += prepared_buffer_bytes(b) + 2 * prepared_guard_of(w, b);
    }
    int r = w->ops->limit(d, &limit, err);
    if (r) {
        return r;
    }
    if (fixed + rotating > limit) {
        return device_too_much((double)(fixed + rotating), (double)limit, w->ops->memory, err);
    }
    int64_t copies = 1;
    if (rotating > 0) {
        int64_t wanted = 1 + (2 * d->info.l2_bytes + rotating - 1) / rotating;
        int64_t allowed = (limit - fixed) / rotating;
        wanted = wanted < w->ops->copies_max ? wanted : w->ops->copies_max;
        allowed = allowed > 2 ? allowed - 1 : allowed;
        copies = wanted < allowed ? wanted : allowed;
    }
    w->n_copies = (uint32_t)copies;
    w->workspace_max = limit - fixed - copies * rotating;
    return 0;
}

/* ---- filling --------------------------------------------------------------------------------- */

int prepared_fill(struct device *d, const struct prepared *w, uint32_t i, void *to,
                  struct error *err)
{
    const struct buffer *b = &w->workload.buffers[i];
    uint64_t state = w->workload.seed + i; /* the same seed on every device */
    const int64_t bytes = prepared_buffer_bytes(b);
    if (b->init == BUFFER_RANDOM || b->init == BUFFER_SCALES || b->accumulate) {
        const struct buffer *columns = b->columns ? &w->workload.buffers[b->columns - 1] : NULL;
        const int64_t drawn = b->host_count * (int64_t)dtype_size(b->dtype);
        int r =
            w->ops->fill(d, b, random_next(&state), columns ? w->buffers[0][b->columns - 1] : NULL,
                         columns ? columns->count : 0, to, err);
        return r || !drawn ? r : w->ops->upload(d, to, b->host, drawn, b->name, err);
    }
    return b->init == BUFFER_HOST ? w->ops->upload(d, to, b->host, bytes, b->name, err)
                                  : w->ops->set(d, to, 0, bytes, b->name, err);
}

static int prepared_make_buffer(struct device *d, struct prepared *w, uint32_t copy, uint32_t i,
                                struct error *err)
{
    const struct buffer *b = &w->workload.buffers[i];
    const int64_t bytes = prepared_buffer_bytes(b), guard = prepared_guard_of(w, b);
    void *at;
    if (bytes == 0) {
        return 0; /* the problem lacks this operand: its pointer stays NULL */
    }
    if (copy > 0 && !b->rotate) {
        w->buffers[copy][i] = w->buffers[0][i];
        return 0;
    }
    int r = host_work_check(err);
    r = r ? r : w->ops->allocate(bytes + 2 * guard, &at, err);
    if (r) {
        return r;
    }
    w->buffers[copy][i] = (char *)at + guard;
    return copy == 0 ? prepared_fill(d, w, i, w->buffers[0][i], err)
                     : w->ops->copy(d, w->buffers[copy][i], w->buffers[0][i], bytes, b->name, err);
}

static int prepared_make_buffers(struct device *d, struct prepared *w, struct error *err)
{
    int r = 0;
    for (uint32_t copy = 0; copy < w->n_copies; copy++) {
        for (uint32_t i = 0; i < w->workload.n_buffers && r == 0; i++) {
            r = prepared_make_buffer(d, w, copy, i, err);
        }
    }
    return r ? r : w->ops->wait(d, "filling the operands", err);
}

/* ---- the reference --------------------------------------------------------------------------- */

static int prepared_launch_reference(struct device *d, struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    const struct family_target *t;
    int r = family_target_choose(load->family, &load->problem, &d->info, NULL, &t, err);
    if (r) {
        return r;
    }
    struct launch *l = calloc(1, sizeof(*l));
    if (!l) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a launch");
    }
    r = t->reference(load, w->buffers[0], w->check_at, w->expected, l, err);
    r = r ? r : w->ops->reference(d, t, l, err);
    r = r || !load->buffers[load->output].accumulate ? r : w->ops->add_rows(d, w, err);
    free(l);
    return r ? r : w->ops->wait(d, "computing the reference", err);
}

static int prepared_run_reference(struct device *d, struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    const int64_t places = prepared_bytes_of_rows(load, sizeof(int64_t));
    const int64_t errors = prepared_bytes_of_rows(load, sizeof(struct row_error));
    if (prepared_expected_bytes(load) == 0) {
        return 0;
    }
    int r = w->ops->allocate(places, (void **)&w->check_at, err);
    r = r ? r : w->ops->allocate(prepared_expected_bytes(load), (void **)&w->expected, err);
    r = r ? r : w->ops->allocate(errors, (void **)&w->row_errors, err);
    r = r ? r : w->ops->upload(d, w->check_at, load->check_at, places, "the check rows", err);
    return r ? r : prepared_launch_reference(d, w, err);
}

/* ---- making and freeing ---------------------------------------------------------------------- */

int prepared_new(struct device *d, const struct prepared_ops *ops, void *stream,
                 const struct family *f, const struct problem *p, uint64_t seed,
                 struct prepared **out, struct error *err)
{
    struct prepared *w = calloc(1, sizeof(*w));
    if (!w) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a workload");
    }
    w->ops = ops;
    w->stream = stream;
    int r = f->workload_init(&w->workload, p, seed, err);
    if (r) {
        free(w);
        return r;
    }
    r = prepared_count_copies(d, w, err);
    r = r ? r : prepared_make_buffers(d, w, err);
    r = r ? r : prepared_run_reference(d, w, err);
    if (r) {
        prepared_free(d, w);
        return r;
    }
    *out = w;
    return 0;
}

static void prepared_release(struct prepared *w, void *at, int64_t bytes)
{
    if (at) {
        w->ops->release(at, bytes);
    }
}

void prepared_free(struct device *d, struct prepared *w)
{
    if (!w) {
        return;
    }
    const struct workload *load = &w->workload;
    for (uint32_t copy = 0; copy < w->n_copies; copy++) {
        for (uint32_t i = 0; i < load->n_buffers; i++) {
            const struct buffer *b = &load->buffers[i];
            char *at = copy == 0 || b->rotate ? w->buffers[copy][i] : NULL;
            const int64_t guard = prepared_guard_of(w, b);
            prepared_release(w, at ? at - guard : NULL, prepared_buffer_bytes(b) + 2 * guard);
        }
    }
    prepared_release(w, w->workspace, w->workspace_bytes);
    prepared_release(w, w->check_at, prepared_bytes_of_rows(load, sizeof(int64_t)));
    prepared_release(w, w->expected, prepared_expected_bytes(load));
    prepared_release(w, w->row_errors, prepared_bytes_of_rows(load, sizeof(struct row_error)));
    load->family->workload_deinit(&w->workload);
    free(w);
}

/* ---- planning -------------------------------------------------------------------------------- */

static int prepared_plan_into(const struct device *d, const struct prepared *w,
                              const struct family_target *t, const struct record *config,
                              uint32_t copy, struct launch_plan *out, struct error *err)
{
    _Alignas(16) uint8_t args[ARGS_MAX] = {0};
    const struct workload *load = &w->workload;
    load->family->bind(load, w->buffers[copy], w->workspace, w->workspace_bytes, w->stream, args);
    out->n = 0;
    out->workspace_bytes = 0;
    return t->plan(&load->problem, config, &d->info, args, out, err);
}

/* Plans a kernel's launches over one copy of the buffers; grows the workspace if needed. */
static int prepared_plan(struct device *d, struct prepared *w, const struct kernel *k,
                         const struct record *config, uint32_t copy, struct launch_plan *out,
                         struct error *err)
{
    const struct family_target *t = family_target_of_variant(w->workload.family, &k->variant);
    if (!t) {
        return error_set(err, ERROR_INTERNAL, "the kernel is not of family %s",
                         w->workload.family->name);
    }
    int r = prepared_plan_into(d, w, t, config, copy, out, err);
    const int64_t bytes = out->workspace_bytes;
    if (bytes <= w->workspace_bytes) {
        return r;
    }
    if (bytes > w->workspace_max) {
        char of[96];
        snprintf(of, sizeof(of), "%s, less what the operands take", w->ops->memory);
        return device_too_much((double)bytes, (double)w->workspace_max, of, err);
    }
    prepared_release(w, w->workspace, w->workspace_bytes);
    w->workspace = NULL;
    w->workspace_bytes = 0;
    r = w->ops->allocate(bytes, &w->workspace, err);
    w->workspace_bytes = r ? 0 : bytes;
    return r ? r : prepared_plan_into(d, w, t, config, copy, out, err);
}

static int prepared_launch(struct device *d, const struct prepared *w, struct kernel *k,
                           const struct launch_plan *plan, struct error *err)
{
    int r = 0;
    for (uint32_t i = 0; i < plan->n && r == 0; i++) {
        r = w->ops->launch(d, k, &plan->steps[i], err);
    }
    return r;
}

/* ---- verifying ------------------------------------------------------------------------------- */

int prepared_poison(struct device *d, const struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    const struct buffer *b = &load->buffers[load->output];
    const int64_t guard = prepared_guard_of(w, b);
    char *at = w->buffers[0][load->output];
    return w->ops->set(d, at - guard, 0xff, prepared_buffer_bytes(b) + 2 * guard, b->name, err);
}

static double row_relative_norm(const struct row_error *e)
{
    double ratio = e->norm > 0         ? sqrt(e->difference / e->norm)
                   : e->difference > 0 ? (double)INFINITY
                                       : 0;
    return isnan(ratio) ? (double)INFINITY : ratio;
}

/* Writes the name of a check row: "output row 812 (expert 3, row 17 of it)". */
static void row_name(const struct workload *w, uint32_t check, char *out, size_t size)
{
    char place[96] = "";
    if (w->family->place) {
        w->family->place(w, check, place, sizeof(place));
    }
    snprintf(out, size, "output row %lld%s%s%s", (long long)(w->check_at[check] / w->check_length),
             place[0] ? " (" : "", place, place[0] ? ")" : "");
}

/* Names the worst element of all check rows; if all are within tolerance, the worst row. */
static void prepared_judge_rows(const struct prepared *w, const struct tolerance *tol,
                                const struct row_error *rows, struct verdict *out)
{
    const struct workload *load = &w->workload;
    const bool exact = load->buffers[load->output].dtype == DTYPE_UINT8;
    const double usual = exact ? 0 : w->ops->rel_norm(load);
    const double limit = exact                                          ? 0
                         : tol->rel_norm > 0                            ? tol->rel_norm
                         : load->rel_norm > 0 && load->rel_norm < usual ? load->rel_norm
                                                                        : usual;
    uint32_t worst = 0, worst_norm = 0;
    char name[160];
    for (uint32_t i = 0; i < load->n_checks; i++) {
        const double norm = row_relative_norm(&rows[i]);
        worst = rows[i].excess > rows[worst].excess ? i : worst;
        worst_norm = norm > out->rel_norm ? i : worst_norm;
        out->max_error = fmax(out->max_error, rows[i].max_error);
        out->rel_norm = fmax(out->rel_norm, norm);
    }
    const bool beyond = rows[worst].excess > 0;
    if (beyond || out->rel_norm > limit) {
        out->right = false;
        row_name(load, beyond ? worst : worst_norm, name, sizeof(name));
    }
    if (beyond) {
        const struct row_error *e = &rows[worst];
        snprintf(out->text, sizeof(out->text),
                 "%s, column %lld is %g, the reference %g (atol %g, rtol %g)", name,
                 (long long)e->worst, e->got, e->expected, tol->atol, tol->rtol);
    } else if (!out->right) {
        snprintf(out->text, sizeof(out->text),
                 "%s differs from the reference by %g of its norm (limit %g)", name, out->rel_norm,
                 limit);
    }
}

int prepared_judge(struct device *d, const struct prepared *w, const struct tolerance *tol,
                   struct verdict *out, struct error *err)
{
    static const struct tolerance exact = {0};
    const struct workload *load = &w->workload;
    struct prepared_findings f = {.rows = calloc(load->n_checks + 1, sizeof(*f.rows))};
    tol = load->buffers[load->output].dtype == DTYPE_UINT8 ? &exact : tol;
    int r = f.rows ? w->ops->inspect(d, w, tol, &f, err)
                   : error_set(err, ERROR_NO_MEMORY, "no memory for the results of %u rows",
                               load->n_checks);
    *out = (struct verdict){.right = r == 0, .unwritten = f.unwritten};
    if (r == 0) {
        prepared_judge_rows(w, tol, f.rows, out);
    }
    free(f.rows);
    if (f.unwritten > 0) {
        out->right = false;
        snprintf(out->text, sizeof(out->text),
                 "%lld of %lld elements of the output were not written", (long long)f.unwritten,
                 (long long)load->buffers[load->output].count);
    }
    if (f.outside > 0) {
        out->right = false;
        snprintf(out->text, sizeof(out->text),
                 "%lld bytes before or behind the output were written", (long long)f.outside);
    }
    return r;
}

int prepared_verify(struct device *d, struct prepared *w, struct kernel *k,
                    const struct record *config, const struct tolerance *tol, struct verdict *out,
                    struct error *err)
{
    const uint32_t output = w->workload.output;
    struct launch_plan plan;
    *out = (struct verdict){0};
    int r = prepared_plan(d, w, k, config, 0, &plan, err);
    r = r ? r : prepared_poison(d, w, err);
    if (r == 0 && w->workload.buffers[output].accumulate) {
        r = prepared_fill(d, w, output, w->buffers[0][output], err);
    }
    r = r ? r : prepared_launch(d, w, k, &plan, err);
    return r ? r : prepared_judge(d, w, tol, out, err);
}

/* ---- timing ---------------------------------------------------------------------------------- */

struct candidate {
    struct device *device;
    const struct prepared *prepared;
    struct kernel *kernel;
    struct launch_plan *plans; /* owned; one for each copy */
};

static int candidate_queue(void *ctx, uint32_t copy, struct error *err)
{
    const struct candidate *c = ctx;
    return prepared_launch(c->device, c->prepared, c->kernel, &c->plans[copy], err);
}

int prepared_samples(struct device *d, const struct prepared *w, const struct prepared_work *work,
                     const struct timing *t, double *samples_us, uint32_t *n, struct error *err)
{
    double us = 0;
    int r = 0;
    *n = 0;
    for (uint32_t i = 0; i < t->warmup + t->samples && r == 0; i++) {
        const bool warm = i < t->warmup;
        device_sleep_ms(warm ? 0 : t->gap_ms);
        r = w->ops->sample(d, work, i % w->n_copies, &us, err);
        if (r == 0 && !warm) {
            samples_us[(*n)++] = us;
        }
        if (t->stop_after_us > 0 && i == t->warmup && us > t->stop_after_us) {
            break;
        }
    }
    return r;
}

int prepared_time(struct device *d, struct prepared *w, struct kernel *k,
                  const struct record *config, const struct timing *t, double *samples_us,
                  uint32_t *n, struct error *err)
{
    struct candidate c = {d, w, k, calloc(w->n_copies, sizeof(*c.plans))};
    const struct prepared_work work = {.queue = candidate_queue, .ctx = &c};
    int r = c.plans ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory to plan launches");
    *n = 0;
    /* The first plan may move the workspace, which all plans share: make the first plan again. */
    for (uint32_t i = 0; i < w->n_copies + 1 && r == 0; i++) {
        r = prepared_plan(d, w, k, config, i % w->n_copies, &c.plans[i % w->n_copies], err);
    }
    r = r ? r : prepared_samples(d, w, &work, t, samples_us, n, err);
    free(c.plans);
    return r;
}
