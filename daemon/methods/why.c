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
    struct listing listing; /* first */
    struct why why;
    struct best best;
    struct trial trial;
    struct run run;
    bool has_best, has_trial, has_run;
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
    const struct evidence e = {.answer = &x->why.answer,
                               .best = x->has_best ? &x->best : NULL,
                               .trial = x->has_trial ? &x->trial : NULL,
                               .run = x->has_run ? &x->run : NULL,
                               .device = &x->listing.pending.d->device,
                               .kept_only = !family_of_problem(&x->why.bucket),
                               .quarantined = x->why.has_answer &&
                                              target_is_quarantined(x->listing.pending.d, NULL,
                                                                    &x->why.answer, &x->why.bucket),
                               .now_s = time(NULL)};
    confidence_judge(&c, &e);
    wire_put_kv_str(b, "confidence", x->why.has_answer ? c.level : "none");
    wire_put_str(b, "doubts");
    wire_put_array(b, c.n);
    for (unsigned i = 0; i < c.n; i++) {
        wire_put_str(b, c.doubts[i]);
    }
}

static void put_result(struct listing *l, struct wire_buf *b)
{
    enum { OWN_FIELDS = 8 };
    const struct explaining *x = (const struct explaining *)l;
    const struct wire_buf *elsewhere = &l->parts[LISTED_ELSEWHERE].rows;
    wire_put_map(b, WHY_FIELDS + OWN_FIELDS);
    why_put(b, &x->why, x->listing.pending.d,
            scheduler_tuning(&x->listing.pending.parts->scheduler));
    put_confidence(b, x);
    put_or_nil(b, "row", x->has_best, &best_schema, &x->best);
    put_or_nil(b, "trial", x->has_trial, &trial_schema, &x->trial);
    put_or_nil(b, "run", x->has_run, &run_schema, &x->run);
    listing_put_counts(l, b);
    wire_put_str(b, "elsewhere");
    if (elsewhere->len) {
        wire_put_raw(b, elsewhere->data, elsewhere->len);
    } else {
        wire_put_array(b, 0);
    }
}

/* ---- asking the ledger ----------------------------------------------------------------------- */

/* The key of the row that the answer comes from, or else the asked one, whose own row is why there
 * is no better answer; NULL: there is no row. */
static const char *key_behind(const struct explaining *x)
{
    return x->why.origin[0] ? x->why.origin : x->why.has_own ? x->why.key : NULL;
}

/* The row that is not written yet, in the place of an older one. */
static void take_unsaved(struct explaining *x)
{
    struct daemon *d = x->listing.pending.d;
    bool many;
    const struct cache_entry *e = cache_find_id(&d->cache, key_behind(x), &many);
    if (learned_only(e, x->has_best ? &x->best : NULL)) {
        x->has_best = learned_row(d, e, &x->best, NULL) == 0;
    }
}

/* From the row to its trial, and to the trial's run. */
static void explain_on_listed(struct listing *l, enum listed part)
{
    struct explaining *x = (struct explaining *)l;
    if (part == LISTED_BEST) {
        x->has_best = listing_read_row(l, part, &best_schema, &x->best);
        if (!x->why.row) {
            take_unsaved(x);
        }
    } else if (part == LISTED_TRIAL) {
        x->has_trial = listing_read_row(l, part, &trial_schema, &x->trial);
    } else if (part == LISTED_RUN) {
        x->has_run = listing_read_row(l, part, &run_schema, &x->run);
    }
    if (part == LISTED_BEST && x->has_best && x->best.trial > 0) {
        listing_ask_row(l, LISTED_TRIAL, "trials", "id", VALUE_OF_INT(x->best.trial));
    } else if (part == LISTED_TRIAL && x->has_trial && x->trial.run > 0) {
        listing_ask_row(l, LISTED_RUN, "runs", "id", VALUE_OF_INT(x->trial.run));
    }
}

static void ask_row(struct explaining *x)
{
    const char *key = key_behind(x);
    const int64_t row = x->why.row;
    if (row > 0) {
        listing_ask_row(&x->listing, LISTED_BEST, "history", "generation", VALUE_OF_INT(row));
    } else if (key && row != WHY_NO_ROW) {
        listing_ask_row(&x->listing, LISTED_BEST, "best", "key", VALUE_OF_TEXT(key));
    }
}

/* The same bucket on other classes of devices, when this one does not know it. */
static void ask_elsewhere(struct explaining *x)
{
    const struct problem *p = &x->why.bucket;
    struct record *filter = &x->listing.pending.d->scratch->config;
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
        listing_ask(&x->listing, LISTED_ELSEWHERE, "best", filter, RESPONSE_BYTES_MAX / 4);
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
    struct scratch *x = c->d->scratch;
    struct query *q = &x->request.query;
    int status =
        wire_find(c->params, "key") ? problem_of_key(c, err) : call_problem(c, CUSTOM_READ, err);
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
    struct listing *l;
    int status = read_params(c, err);
    status = status ? status : listing_begin(c, sizeof(struct explaining), WHY_BYTES, &l, err);
    if (status < 0) {
        return status;
    }
    struct explaining *x = (struct explaining *)l;
    struct answer before;
    l->listed = explain_on_listed;
    l->put = put_result;
    const bool known = waiters_recall(c->d, &before);
    if (why_make(&x->why, &c->parts->tiers, l->pending.uid, known ? &before : NULL, &l->error) ==
        0) {
        ask_row(x);
        listing_ask_counts(l, x->why.origin[0] ? x->why.origin : x->why.key);
        ask_elsewhere(x);
    }
    return listing_wait(l);
}
