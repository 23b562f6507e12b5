/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `why`: which tier answers a query, from which row, on what evidence, and on a miss what is
 * missing. What is in memory is judged at once (answers/why.c); then the ledger is asked for the
 * row behind the answer, the trial behind the row, the run behind the trial, and for the same
 * problem on devices of other classes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/answers/learn.h"
#include "daemon/answers/target.h"
#include "daemon/answers/why.h"
#include "daemon/cache/confidence.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/pending.h"
#include "proto/limits.h"

enum { ELSEWHERE_MAX = 8, WHY_BYTES = 65536 };

struct explaining {
    struct pending pending; /* first */
    struct why why;
    unsigned left; /* lists that are asked for */
    struct error error;
    struct best best;
    struct trial trial;
    struct run run;
    bool has_best, has_trial, has_run;
    int64_t trials, ok, aborted;
    struct wire_buf elsewhere; /* owned: an array of rows */
};

/* ---- the result ------------------------------------------------------------------------------ */

static void put_or_nil(struct wire_buf *b, const char *name, bool there, const struct schema *s,
                       const void *object)
{
    wire_put_str(b, name);
    if (there) {
        schema_encode(b, s, object);
    } else {
        wire_put_nil(b);
    }
}

static void put_confidence(struct wire_buf *b, const struct explaining *x)
{
    struct confidence c;
    const struct evidence e = {
        .answer = &x->why.answer,
        .best = x->has_best ? &x->best : NULL,
        .trial = x->has_trial ? &x->trial : NULL,
        .run = x->has_run ? &x->run : NULL,
        .device = &x->pending.d->device,
        .kept_only = !family_of_problem(&x->why.bucket),
        .quarantined = x->why.has_answer &&
                       target_is_quarantined(x->pending.d, NULL, &x->why.answer, &x->why.bucket),
        .now_s = time(NULL)};
    confidence_judge(&c, &e);
    wire_put_kv_str(b, "confidence", x->why.has_answer ? c.level : "none");
    wire_put_str(b, "doubts");
    wire_put_array(b, c.n);
    for (unsigned i = 0; i < c.n; i++) {
        wire_put_str(b, c.doubts[i]);
    }
}

static void put_result(struct wire_buf *b, const struct explaining *x)
{
    enum { OWN_FIELDS = 8 };
    wire_put_map(b, WHY_FIELDS + OWN_FIELDS);
    why_put(b, &x->why, x->pending.d, scheduler_tuning(&x->pending.parts->scheduler));
    put_confidence(b, x);
    put_or_nil(b, "row", x->has_best, &best_schema, &x->best);
    put_or_nil(b, "trial", x->has_trial, &trial_schema, &x->trial);
    put_or_nil(b, "run", x->has_run, &run_schema, &x->run);
    wire_put_kv_int(b, "trials", x->trials);
    wire_put_kv_int(b, "failed", x->trials - x->ok - x->aborted);
    wire_put_str(b, "elsewhere");
    if (x->elsewhere.len) {
        wire_put_raw(b, x->elsewhere.data, x->elsewhere.len);
    } else {
        wire_put_array(b, 0);
    }
}

static void explain_finish_request(struct explaining *x)
{
    struct wire_buf elsewhere = x->elsewhere;
    struct error err = x->error;
    if (err.code) {
        pending_fail(&x->pending, &err);
    } else {
        struct wire_buf *b = pending_result(&x->pending);
        if (b) {
            put_result(b, x);
        }
        pending_drop(&x->pending);
    }
    wire_buf_deinit(&elsewhere);
}

/* ---- asking the ledger ----------------------------------------------------------------------- */

static void explain_count_done(struct explaining *x, int status, const struct error *err)
{
    if (status < 0 && !x->error.code) {
        x->error = *err;
    }
    if (--x->left == 0) {
        explain_finish_request(x);
    }
}

static void explain_ask_ledger(struct explaining *x, const char *what, const struct record *filter,
                               ledger_list_cb cb)
{
    struct daemon *d = x->pending.d;
    x->left++;
    int failed = d->ledger->ops->list(d->ledger, x->pending.uid, what, filter,
                                      RESPONSE_BYTES_MAX / 4, cb, x);
    if (failed < 0) {
        x->left--;
        error_set(&x->error, failed, "the ledger cannot be read now");
    }
}

static struct record *filter_by(struct explaining *x, const char *column, struct value v)
{
    struct record *filter = &x->pending.d->scratch->config;
    record_init(filter);
    record_set(filter, column, v, NULL);
    record_put_int(filter, "limit", 1);
    return filter;
}

/* The only row of a page, into `out`; false: there is none. */
static bool explain_read_row(struct explaining *x, const struct schema *s, int status,
                             const void *rows, size_t n, void *out)
{
    const struct wire_obj *page;
    return status == 0 && wire_decode(x->pending.d->doc, rows, n, &page, NULL) == 0 &&
           wire_count(page) == 1 &&
           schema_decode(s, SCHEMA_LENIENT, wire_at(page, 0), out, NULL) == 0;
}

static void on_run(void *ctx, int status, const void *rows, size_t n, int64_t total,
                   const struct error *err)
{
    struct explaining *x = ctx;
    (void)total;
    x->has_run = explain_read_row(x, &run_schema, status, rows, n, &x->run);
    explain_count_done(x, status, err);
}

static void explain_on_trial(void *ctx, int status, const void *rows, size_t n, int64_t total,
                             const struct error *err)
{
    struct explaining *x = ctx;
    (void)total;
    x->has_trial = explain_read_row(x, &trial_schema, status, rows, n, &x->trial);
    if (x->has_trial && x->trial.run > 0) {
        explain_ask_ledger(x, "runs", filter_by(x, "id", VALUE_OF_INT(x->trial.run)), on_run);
    }
    explain_count_done(x, status, err);
}

/* The key of the row that the answer comes from, or else the asked one, whose own row is why there
 * is no better answer; NULL: there is no row. */
static const char *key_behind(const struct explaining *x)
{
    return x->why.origin[0] ? x->why.origin : x->why.has_own ? x->why.key : NULL;
}

/* The row that is not written yet, in the place of an older one. */
static void take_unsaved(struct explaining *x)
{
    struct daemon *d = x->pending.d;
    bool many;
    const struct cache_entry *e = cache_find_id(&d->cache, key_behind(x), &many);
    if (learned_only(e, x->has_best ? &x->best : NULL)) {
        x->has_best = learned_row(d, e, &x->best, NULL) == 0;
    }
}

static void explain_on_best(void *ctx, int status, const void *rows, size_t n, int64_t total,
                            const struct error *err)
{
    struct explaining *x = ctx;
    (void)total;
    x->has_best = explain_read_row(x, &best_schema, status, rows, n, &x->best);
    if (!x->why.row) {
        take_unsaved(x);
    }
    if (x->has_best && x->best.trial > 0) {
        explain_ask_ledger(x, "trials", filter_by(x, "id", VALUE_OF_INT(x->best.trial)),
                           explain_on_trial);
    }
    explain_count_done(x, status, err);
}

static void explain_on_trials(void *ctx, int status, const void *rows, size_t n, int64_t total,
                              const struct error *err)
{
    struct explaining *x = ctx;
    (void)rows;
    (void)n;
    x->trials = total;
    explain_count_done(x, status, err);
}

static void explain_on_ok(void *ctx, int status, const void *rows, size_t n, int64_t total,
                          const struct error *err)
{
    struct explaining *x = ctx;
    (void)rows;
    (void)n;
    x->ok = total;
    explain_count_done(x, status, err);
}

static void explain_on_aborted(void *ctx, int status, const void *rows, size_t n, int64_t total,
                               const struct error *err)
{
    struct explaining *x = ctx;
    (void)rows;
    (void)n;
    x->aborted = total;
    explain_count_done(x, status, err);
}

static void on_elsewhere(void *ctx, int status, const void *rows, size_t n, int64_t total,
                         const struct error *err)
{
    struct explaining *x = ctx;
    (void)total;
    if (status == 0) {
        wire_put_raw(&x->elsewhere, rows, n);
    }
    explain_count_done(x, status, err);
}

static void ask_row(struct explaining *x)
{
    const char *key = key_behind(x);
    if (x->why.row == WHY_NO_ROW) {
        return;
    }
    if (x->why.row) {
        explain_ask_ledger(x, "history", filter_by(x, "generation", VALUE_OF_INT(x->why.row)),
                           explain_on_best);
    } else if (key) {
        explain_ask_ledger(x, "best", filter_by(x, "key", VALUE_OF_TEXT(key)), explain_on_best);
    }
}

static void ask_counts(struct explaining *x)
{
    const char *key = x->why.origin[0] ? x->why.origin : x->why.key;
    struct record *filter = filter_by(x, "key", VALUE_OF_TEXT(key));
    explain_ask_ledger(x, "trials", filter, explain_on_trials);
    record_put_text(filter, "status", "ok");
    explain_ask_ledger(x, "trials", filter, explain_on_ok);
    record_put_text(filter, "status", "aborted");
    explain_ask_ledger(x, "trials", filter, explain_on_aborted);
}

/* The same bucket on other classes of devices, when this one does not know it. */
static void ask_elsewhere(struct explaining *x)
{
    const struct problem *p = &x->why.bucket;
    struct record *filter = &x->pending.d->scratch->config;
    char name[RECORD_NAME_MAX + sizeof("problem.")];
    int status = 0;
    if (x->why.has_own || p->fields.n + 2 > RECORD_FIELDS_MAX) {
        return;
    }
    record_init(filter);
    for (size_t i = 0; i < p->fields.n && status == 0; i++) {
        struct value v = record_at(&p->fields, i);
        bool pattern = v.type == VALUE_TEXT && v.text[0] == '~'; /* the list would read it as one */
        snprintf(name, sizeof(name), "problem.%s", p->fields.fields[i].name);
        status = pattern ? 0 : record_set(filter, name, v, NULL);
    }
    record_put_text(filter, "op", p->op_name);
    record_put_int(filter, "limit", ELSEWHERE_MAX);
    if (status == 0) { /* a name that is too long for a filter: then nothing is said of others */
        explain_ask_ledger(x, "best", filter, on_elsewhere);
    }
}

/* ---- the method ------------------------------------------------------------------------------ */

/* `key` instead of `problem`: the bucket is what is asked for. */
static int problem_of_key(struct call *c, struct error *err)
{
    struct scratch *x = c->d->scratch;
    char id[HASH_HEX];
    bool many;
    int status = call_key(c, id, err);
    if (status < 0) {
        return status;
    }
    const struct cache_entry *e = cache_find_id(&c->d->cache, id, &many);
    if (!e) {
        return error_set(err, ERROR_NOT_FOUND,
                         "key %s is not of this device's class, or not known; ask for a problem",
                         id);
    }
    status = cache_problem(&c->d->cache, e, c->d->device.class, &x->request.problem, err);
    snprintf(x->request.query.bucket, sizeof(x->request.query.bucket), "exact"); /* it is one */
    status = status ? status : daemon_key(c->d, err);
    if (status == 0) {
        key_id(&x->key);
    }
    return status;
}

static int read_tolerance(struct call *c, const char *name, double *out, struct error *err)
{
    const struct wire_obj *o = wire_find(c->params, name);
    *out = 1e-2;
    if (o && !(wire_get_real(o, out) && isfinite(*out) && *out >= 0)) {
        return error_set(err, ERROR_INVALID, "'%s' must be a number from 0 on", name);
    }
    *out = *out > 0 ? *out : 1e-2;
    return 0;
}

static int read_params(struct call *c, struct error *err)
{
    static const char *const names[] = {"problem", "key", "target", "atol", "rtol", NULL};
    struct scratch *x = c->d->scratch;
    struct query *q = &x->request.query;
    int status = call_only(c, names, err);
    if (status == 0) {
        status = wire_find(c->params, "key") ? problem_of_key(c, err)
                                             : call_problem(c, CUSTOM_READ, err);
    }
    status = status ? status : request_default(&x->request, err);
    status = status ? status : call_target(c, q->target, err);
    status = status ? status : read_tolerance(c, "atol", &q->atol, err);
    status = status ? status : read_tolerance(c, "rtol", &q->rtol, err);
    if (status == 0) {
        const struct cache_entry *e = cache_find(&c->d->cache, &x->key);
        status = target_settle(c->d, &x->request, e, err);
    }
    return status;
}

int method_why(struct call *c, struct error *err)
{
    struct pending *p;
    int status = read_params(c, err);
    status = status ? status : call_later(c, sizeof(struct explaining), &p, err);
    if (status < 0) {
        return status;
    }
    struct explaining *x = (struct explaining *)p;
    struct answer before;
    pending_reserve(p, WHY_BYTES);
    const bool known = waiters_recall(c->d, &before);
    pending_lists(p);
    x->left = 1; /* held until all are asked */
    if (why_make(&x->why, &c->parts->tiers, p->uid, known ? &before : NULL, &x->error) == 0) {
        ask_row(x);
        ask_counts(x);
        ask_elsewhere(x);
    }
    if (--x->left == 0) {
        explain_finish_request(x);
    }
    return METHOD_LATER;
}
