/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `why` explains which tier answers a query, from which row and evidence, or why no row answers.
 * The rows in memory are judged at once. Then the ledger is asked for the row behind the answer,
 * the row's trial and the trial's run, and for the problem on other device classes.
 * A verdict is a word for programs (docs/protocol.md), with an explanation for people, and with the
 * request that would bring a better answer.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/answers/custom.h"
#include "daemon/answers/learn.h"
#include "daemon/answers/target.h"
#include "daemon/answers/tiers.h"
#include "daemon/cache/answer.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/pending.h"
#include "proto/limits.h"

enum {
    ELSEWHERE_MAX = 8,
    FLEET_ROWS_MAX = 4,
    WHY_BYTES = 65536,
    BECAUSE_MAX = 400,
    WHY_NO_ROW = -1
};

struct why {
    struct listing listing; /* first member: its address is the struct's */
    struct best best;       /* the row behind the answer, the row's trial and run */
    struct trial trial;
    struct run run;
    bool has_best, has_trial, has_run;
    struct problem problem, bucket;
    struct answer answer; /* the answer that `get` with wait=cached gives; set when has_answer */
    struct answer own;    /* the key's own row; set when has_own */
    struct answer close;  /* the answer of the closest key; set when has_close */
    struct problem close_problem;
    bool has_answer, has_own, has_close;
    char key[HASH_HEX];
    char origin[HASH_HEX]; /* key of the row that answers; "" when no row does */
    int64_t row; /* generation of the answering row; 0: the newest of `origin`; or WHY_NO_ROW */
    char stamp[STAMP_MAX]; /* today's stamp for the problem; "" without kernels */
    const char *verdict, *action;
    char because[BECAUSE_MAX];
};

/* ---- stamps ---------------------------------------------------------------------------------- */

/* Copies a word's value out of a stamp, which is a list of words "name=value". Only the last value,
 * the compiler, may hold spaces. */
static void stamp_copy_value(const char *stamp, const char *word, char out[STAMP_MAX])
{
    const size_t n = strlen(word);
    const char *at = strstr(stamp, word);
    while (at && at > stamp && at[-1] != ' ') {
        at = strstr(at + n, word);
    }
    const char *end = strcmp(word, "compiler=") == 0 ? "" : " ";
    snprintf(out, STAMP_MAX, "%.*s", at ? (int)strcspn(at + n, end) : 7, at ? at + n : "unknown");
}

/* Writes how two stamps differ, for example "compiler was nvrtc 12.4 and is nvrtc 13.0; ..." */
static void stamp_difference(const char *row, const char *now, char *out, size_t size)
{
    static const char *const words[][2] = {{"src=", "kernel source"},
                                           {"abi=", "launch interface"},
                                           {"target=", "kernels"},
                                           {"compiler=", "compiler"}};
    char was[STAMP_MAX], is[STAMP_MAX];
    size_t n = 0;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && n < size; i++) {
        stamp_copy_value(row, words[i][0], was);
        stamp_copy_value(now, words[i][0], is);
        if (strcmp(was, is) != 0) {
            n += (size_t)snprintf(out + n, size - n, "%s%s was %s and is %s", n ? "; " : "",
                                  words[i][1], was, is);
        }
    }
    if (n == 0) {
        snprintf(out, size, "its stamp is '%.60s'", row);
    }
}

/* ---- the verdict ----------------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5))) static void say(struct why *w, const char *verdict,
                                                      const char *action, const char *format, ...)
{
    va_list args;
    w->verdict = verdict;
    w->action = action;
    va_start(args, format);
    vsnprintf(w->because, sizeof(w->because), format, args);
    va_end(args);
}

static void say_answered(struct why *w, const struct daemon *d, const struct cache_entry *e)
{
    if (!family_of_problem(&w->bucket)) {
        say(w, "kept", "none", "gemmd only keeps results of this op: this is the last result put");
    } else if (strcmp(w->own.source, "trusted") == 0) {
        say(w, "trusted", "none", "gemmd's owner trusts this row (%s); a `tune` measures it here",
            w->own.note);
    } else if (strcmp(w->own.source, "fleet") == 0) {
        say(w, "fleet", "none", "this key's row came from the fleet: %s",
            e->candidate ? w->own.note
                         : "this host has verified its config and timed it beside the default");
    } else if (e->manual) {
        say(w, "pinned", "none",
            "a person pinned this config for this key; it was verified and measured on this class "
            "of device");
    } else if (e->low) {
        say(w, "tuned", "tune",
            "this key was tuned on this class of device (%s), and its row answers, but the "
            "confidence is low: a tuning on a quiet device finds out what holds",
            d->device.name);
    } else {
        say(w, "tuned", "none",
            "this key was tuned on this class of device (%s), and its row fits today's kernels and "
            "compiler",
            d->device.name);
    }
}

/* Explains that the key's own row is only a hint, and why. */
static void say_hint(struct why *w, struct daemon *d, const struct cache_entry *e,
                     const struct query *q, int64_t uid)
{
    char parts[240], hope[100];
    const char *why = tiers_no_hint(d, &w->bucket, q->target, &w->own);
    snprintf(hope, sizeof(hope), "%s%s",
             why ? "no tuning tries its config: " : "a tuning tries its config first",
             why ? why : "");
    if (target_is_quarantined(d, w->key, &w->own, &w->bucket)) {
        say(w, "quarantined", e->manual ? "get" : "tune",
            "this key's config has crashed or hung the runner at this very key since (gemmctl "
            "quarantine) and answers no more: %s finds another one",
            e->manual ? "the next `get` that waits" : "a tuning");
    } else if (e->candidate && target_has_kernels(d, &w->bucket, w->own.stamp)) {
        say(w, "candidate", "get",
            "this key's row is %s: the next `get` that waits verifies its config and times it "
            "beside the default, without a search",
            w->own.note);
    } else if (strcmp(w->own.source, "imported") == 0) {
        say(w, "imported", "tune", "this key's row was %s and not measured here yet: %s",
            custom_answers(e, uid) ? "imported" : "put by another user, whom alone it answers,",
            hope);
    } else if (strcmp(w->own.source, "partial") == 0) {
        say(w, "partial", "tune",
            "this key has only the winner of a restricted search (--restrict, --config or "
            "--target), which answers no unrestricted query");
    } else {
        stamp_difference(w->own.stamp, w->stamp, parts, sizeof(parts));
        say(w, e->manual ? "pin_stamp" : "stamp", e->manual ? "get" : "tune",
            "this key's row was measured by other code (%s): %s", parts,
            e->manual ? "the next `get` verifies the pinned config again" : hope);
    }
}

static bool why_entry_serves(const struct why *w, const struct cache_entry *e,
                             const struct query *q)
{
    return e && e->rank >= CACHE_SERVES && cache_verified(e, q->atol, q->rtol) &&
           target_is_of(&w->own, q->target);
}

static void why_judge_entry(struct why *w, struct daemon *d, const struct cache_entry *e,
                            const struct query *q, int64_t uid)
{
    if (!e) {
        say(w, "unknown", family_of_problem(&w->bucket) ? "tune" : "put",
            "this key has no answer: none was worked out on this class of device, or it was taken "
            "back");
    } else if (why_entry_serves(w, e, q)) {
        say_answered(w, d, e);
    } else if (e->rank < CACHE_SERVES) {
        say_hint(w, d, e, q, uid);
    } else if (!cache_verified(e, q->atol, q->rtol)) {
        say(w, "tolerance", "get",
            "its row was verified with atol %g and rtol %g, and this query asks for %g and %g: the "
            "next `get` verifies it again, without a new search",
            e->atol, e->rtol, q->atol, q->rtol);
    } else {
        say(w, "target", "tune",
            "its row, which the key keeps, is of other kernels than --target %s: a query that "
            "names it and waits tunes these, for itself and its like",
            q->target);
    }
}

/* ---- judging --------------------------------------------------------------------------------- */

static void find_close(struct why *w, struct daemon *d, const struct key *k)
{
    const struct cache_entry *e = closest_find(&d->cache, k, &w->bucket);
    w->has_close = e && cache_answer(&d->cache, e, &w->close, NULL) == 0 &&
                   cache_problem(&d->cache, e, &w->close_problem, NULL) == 0;
}

static void why_take_own_answer(struct why *w)
{
    w->has_answer = true;
    memcpy(w->origin, w->key, sizeof(w->origin));
}

/* Finds the verdict on the request in the scratch: its problem, bucket, key with id, and a default
 * query with the caller's target, atol and rtol. */
static int why_judge_request(struct why *w, struct error *err)
{
    struct daemon *d = w->listing.pending.d;
    const int64_t uid = w->listing.pending.uid;
    const struct scratch *x = d->scratch;
    const struct query *q = &x->request.query;
    const struct cache_entry *e = cache_find(&d->cache, &x->key);
    w->problem = x->request.problem;
    w->bucket = x->bucket;
    memcpy(w->key, x->key.id, sizeof(w->key));
    snprintf(w->stamp, sizeof(w->stamp), "%s", target_stamp_of(d, &x->request));
    w->has_own = e && cache_answer(&d->cache, e, &w->own, NULL) == 0;
    why_judge_entry(w, d, w->has_own ? e : NULL, q, uid);
    if (w->has_own && why_entry_serves(w, e, q)) {
        w->answer = w->own;
        why_take_own_answer(w);
        return 0;
    }
    /* A restricted query is answered from its own search, once a client has waited for that
     * search. */
    if (waiters_recall(d, &w->answer)) {
        say(w, "restricted", "none",
            "a search of these kernels was made for this key before, and its winner answers "
            "whoever asks for the same, until gemmd is restarted or the key's own row is another");
        why_take_own_answer(w);
        w->row = w->answer.generation ? w->answer.generation : WHY_NO_ROW;
        return 0;
    }
    if (!w->has_own) {
        find_close(w, d, &x->key);
    }
    if (!family_of_problem(&w->problem)) {
        return 0; /* an op that gemmd only keeps has no lower tier */
    }
    int status = tiers_answer(&w->listing.pending.parts->tiers, &x->request, uid, &w->bucket,
                              &x->key, "not tuned yet", &w->answer, w->origin, err);
    w->has_answer = status == 0;
    return status == ERROR_QUARANTINED ? 0 : status;
}

/* ---- result ---------------------------------------------------------------------------------- */

/* Puts a map {"field", "asked", <name>} if two problems differ in the field. Returns the number of
 * maps put. */
static size_t put_difference(struct wire_buf *b, const struct record *asked,
                             const struct record *other, const char *field, const char *name)
{
    struct value x = {.type = VALUE_NONE}, y = x;
    const bool is_asked = record_get(asked, field, &x), is_other = record_get(other, field, &y);
    if (is_asked && is_other && value_equal(&x, &y)) {
        return 0;
    }
    wire_put_map(b, 3);
    wire_put_kv_str(b, "field", field);
    wire_put_str(b, "asked");
    value_pack(b, &x);
    wire_put_str(b, name);
    value_pack(b, &y);
    return 1;
}

/* Puts an array with the map of put_difference for each field in which two problems differ. */
static void put_differences(struct wire_buf *b, const struct record *asked,
                            const struct record *other, const char *name)
{
    WIRE_BUF_AUTO maps = WIRE_BUF_NULL;
    size_t n = 0;
    for (size_t i = 0; i < asked->n; i++) {
        n += put_difference(&maps, asked, other, asked->fields[i].name, name);
    }
    for (size_t i = 0; i < other->n; i++) {
        const char *field = other->fields[i].name;
        if (!record_has_n(asked, field, strlen(field))) {
            n += put_difference(&maps, asked, other, field, name);
        }
    }
    wire_put_array(b, n);
    wire_put_raw(b, maps.data, maps.len);
    b->failed = b->failed || maps.failed;
}

static void put_stamp(struct wire_buf *b, const struct why *w)
{
    char parts[240];
    const char *row = w->has_own ? w->own.stamp : w->origin[0] ? w->answer.stamp : NULL;
    bool fits = row && strcmp(row, w->stamp) == 0;
    if (!row || !w->stamp[0]) {
        wire_put_nil(b);
        return;
    }
    stamp_difference(row, w->stamp, parts, sizeof(parts));
    wire_put_map(b, 4);
    wire_put_kv_str(b, "row", row);
    wire_put_kv_str(b, "now", w->stamp);
    wire_put_kv_bool(b, "fits", fits);
    wire_put_kv_str(b, "difference", fits ? "" : parts);
}

static void put_close(struct wire_buf *b, const struct why *w)
{
    if (!w->has_close) {
        wire_put_nil(b);
        return;
    }
    wire_put_map(b, 4);
    wire_put_kv_str(b, "key", w->close.key);
    wire_put_str(b, "problem");
    problem_pack(b, &w->close_problem);
    wire_put_str(b, "differs");
    put_differences(b, &w->bucket.fields, &w->close_problem.fields, "known");
    wire_put_str(b, "answer");
    schema_encode(b, &answer_schema, &w->close);
}

static void why_put_verdict(struct wire_buf *b, const struct why *w)
{
    const struct pending *p = &w->listing.pending;
    wire_put_kv_str(b, "key", w->key);
    wire_put_kv_str(b, "verdict", w->verdict);
    wire_put_kv_str(b, "because", w->because);
    wire_put_kv_str(b, "action", w->action);
    wire_put_kv_str(b, "tuning", scheduler_tuning(&p->parts->tuning.scheduler));
    wire_put_kv_str(b, "scheme", bucket_scheme_name(p->d->scheme));
    wire_put_str(b, "problem");
    problem_pack(b, &w->problem);
    wire_put_str(b, "bucket");
    problem_pack(b, &w->bucket);
    wire_put_str(b, "rounded");
    put_differences(b, &w->problem.fields, &w->bucket.fields, "bucket");
    wire_put_str(b, "answer");
    schema_encode(b, &answer_schema, w->has_answer ? &w->answer : NULL);
    wire_put_str(b, "stamp");
    put_stamp(b, w);
    wire_put_str(b, "closest");
    put_close(b, w);
}

static void put_confidence(struct wire_buf *b, const struct why *w)
{
    struct confidence c;
    const struct evidence e = {
        .answer = &w->answer,
        .best = w->has_best ? &w->best : NULL,
        .trial = w->has_trial ? &w->trial : NULL,
        .run = w->has_run ? &w->run : NULL,
        .device = &w->listing.pending.d->device,
        .kept_only = !family_of_problem(&w->bucket),
        .quarantined = w->has_answer &&
                       target_is_quarantined(w->listing.pending.d, NULL, &w->answer, &w->bucket),
        .doubted = w->has_answer && target_is_doubted(w->listing.pending.d, &w->answer, &w->bucket),
        .now_s = time(NULL)};
    confidence_judge(&c, &e);
    wire_put_kv_str(b, "confidence", w->has_answer ? c.level : "none");
    wire_put_str(b, "doubts");
    wire_put_array(b, c.n);
    for (unsigned i = 0; i < c.n; i++) {
        wire_put_str(b, c.doubts[i]);
    }
}

static void why_put_rows(struct wire_buf *b, const char *name, const struct listing *l,
                         enum listed part)
{
    const struct wire_buf *rows = &l->parts[part].rows;
    wire_put_str(b, name);
    if (rows->len) {
        wire_put_raw(b, rows->data, rows->len);
    } else {
        wire_put_array(b, 0);
    }
}

static void put_result(struct listing *l, struct wire_buf *b)
{
    enum { FIELDS = 21 };
    const struct why *w = (const struct why *)l;
    wire_put_map(b, FIELDS);
    why_put_verdict(b, w);
    put_confidence(b, w);
    wire_put_str(b, "row");
    schema_encode(b, &best_schema, w->has_best ? &w->best : NULL);
    wire_put_str(b, "trial");
    schema_encode(b, &trial_schema, w->has_trial ? &w->trial : NULL);
    wire_put_str(b, "run");
    schema_encode(b, &run_schema, w->has_run ? &w->run : NULL);
    listing_put_counts(l, b);
    why_put_rows(b, "elsewhere", l, LISTED_ELSEWHERE);
    why_put_rows(b, "fleet", l, LISTED_FLEET);
}

/* ---- asking the ledger ----------------------------------------------------------------------- */

/* Returns the key of the row that answers; else the asked key if it has a row, which is then
 * explained; else NULL. */
static const char *key_behind(const struct why *w)
{
    return w->origin[0] ? w->origin : w->has_own ? w->key : NULL;
}

/* Replaces w->best, which the ledger read, by the key's row in memory if that row is not saved
 * yet. */
static void take_unsaved(struct why *w)
{
    struct daemon *d = w->listing.pending.d;
    const struct cache_entry *e = cache_find_id(&d->cache, key_behind(w), NULL);
    if (learned_only(e, w->has_best ? &w->best : NULL)) {
        w->has_best = learned_row(d, e, &w->best, NULL) == 0;
    }
}

/* Decodes the list that has arrived, and asks for the next: after the row its trial, after the
 * trial its run. */
static void explain_on_listed(struct listing *l, enum listed part)
{
    struct why *w = (struct why *)l;
    if (part == LISTED_BEST) {
        w->has_best = listing_read_row(l, part, &best_schema, &w->best);
        if (!w->row) {
            take_unsaved(w);
        }
        if (w->has_best && w->best.trial > 0) {
            listing_ask_row(l, LISTED_TRIAL, "trials", "id", VALUE_OF_INT(w->best.trial));
        }
    } else if (part == LISTED_TRIAL) {
        w->has_trial = listing_read_row(l, part, &trial_schema, &w->trial);
        if (w->has_trial && w->trial.run > 0) {
            listing_ask_row(l, LISTED_RUN, "runs", "id", VALUE_OF_INT(w->trial.run));
        }
    } else if (part == LISTED_RUN) {
        w->has_run = listing_read_row(l, part, &run_schema, &w->run);
    }
}

static void ask_row(struct why *w)
{
    const char *key = key_behind(w);
    const int64_t row = w->row;
    if (row > 0) {
        listing_ask_row(&w->listing, LISTED_BEST, "history", "generation", VALUE_OF_INT(row));
    } else if (key && row != WHY_NO_ROW) {
        listing_ask_row(&w->listing, LISTED_BEST, "best", "key", VALUE_OF_TEXT(key));
    }
}

/* Asks for the same bucket on other device classes, when this class lacks the bucket. */
static void ask_elsewhere(struct why *w)
{
    const struct problem *p = &w->bucket;
    struct record *filter = &w->listing.pending.d->scratch->config;
    char name[RECORD_NAME_MAX + sizeof("problem.")];
    int status = 0;
    if (w->has_own || p->fields.n + 2 > RECORD_FIELDS_MAX) {
        return;
    }
    record_init(filter);
    for (size_t i = 0; i < p->fields.n && status == 0; i++) {
        struct value v = record_at(&p->fields, i);
        /* a list would read a text that begins with '~' as a pattern */
        bool pattern = v.type == VALUE_TEXT && v.text[0] == '~';
        snprintf(name, sizeof(name), "problem.%s", p->fields.fields[i].name);
        status = pattern ? 0 : record_set(filter, name, v, NULL);
    }
    for (size_t i = 0; i < p->op->n_fields && status == 0; i++) {
        const struct op_field *f = &p->op->fields[i];
        struct value v;
        snprintf(name, sizeof(name), "problem.%s", f->name);
        if (f->restricts && !record_get(&p->fields, f->name, &v)) {
            status = record_set(filter, name, VALUE_OF_BOOL(false), NULL);
        }
    }
    record_put_text(filter, "op", p->op_name);
    record_put_int(filter, "limit", ELSEWHERE_MAX);
    if (status == 0) {
        /* a field's name may be too long for a filter: then `elsewhere` stays empty */
        listing_ask(&w->listing, LISTED_ELSEWHERE, "best", filter, RESPONSE_BYTES_MAX / 4);
    }
}

/* Asks for the key's newest numbers in the fleet, if this host has a fleet. */
static void ask_fleet_rows(struct why *w)
{
    struct daemon *d = w->listing.pending.d;
    struct record *filter = &d->scratch->config;
    if (d->fleet_known) {
        record_init(filter);
        record_put_text(filter, "key", w->key);
        record_put_text(filter, "sort", "-seq");
        record_put_int(filter, "limit", FLEET_ROWS_MAX);
        listing_ask(&w->listing, LISTED_FLEET, "fleet_rows", filter, WHY_BYTES);
    }
}

/* ---- the method ------------------------------------------------------------------------------ */

/* Reads `key` when there is no `problem`: the request is then for the bucket of that key. */
static int problem_of_key(struct call *c, struct error *err)
{
    struct scratch *x = c->d->scratch;
    char id[HASH_HEX];
    int status = call_key(c, id, err);
    if (status < 0) {
        return status;
    }
    const struct cache_entry *e = cache_find_id(&c->d->cache, id, NULL);
    if (!e) {
        return error_set(err, ERROR_NOT_FOUND,
                         "key %s is not of this device's class, or not known; ask for a problem",
                         id);
    }
    status = cache_problem(&c->d->cache, e, &x->request.problem, err);
    snprintf(x->request.query.bucket, sizeof(x->request.query.bucket), "exact");
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
    int status = read_params(c, err);
    struct why *w = status ? NULL : listing_begin(c, sizeof(*w), WHY_BYTES, err);
    if (!w) {
        return err->code;
    }
    struct listing *l = &w->listing;
    l->listed = explain_on_listed;
    l->put = put_result;
    if (why_judge_request(w, &l->error) == 0) {
        ask_row(w);
        listing_ask_counts(l, w->origin[0] ? w->origin : w->key);
        ask_elsewhere(w);
        ask_fleet_rows(w);
    }
    return listing_wait(l);
}
