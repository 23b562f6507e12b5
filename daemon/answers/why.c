/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of why.h, and its part of the result. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/answers/custom.h"
#include "daemon/answers/target.h"
#include "daemon/answers/why.h"
#include "daemon/cache/cache.h"

/* ---- stamps ---------------------------------------------------------------------------------- */

/* A stamp is words "name=value"; the last one's value may hold spaces. */
static const char *const stamp_words[] = {"src", "abi", "target", "compiler"};

struct part {
    const char *at; /* NULL: the stamp has none */
    int n;
};

static struct part stamp_part(const char *stamp, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = stamp; (at = strstr(at, name)); at += n) {
        bool begins = at == stamp || at[-1] == ' ';
        if (begins && at[n] == '=') {
            const char *value = at + n + 1;
            bool last = strcmp(name, "compiler") == 0;
            return (struct part){value, (int)(last ? strlen(value) : strcspn(value, " "))};
        }
    }
    return (struct part){NULL, 0};
}

static bool same_part(struct part a, struct part b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, (size_t)a.n) == 0);
}

static const char *stamp_meaning(const char *word)
{
    return strcmp(word, "src") == 0      ? "kernel source"
           : strcmp(word, "abi") == 0    ? "launch interface"
           : strcmp(word, "target") == 0 ? "kernels"
                                         : "compiler";
}

/* "compiler was nvrtc 12.4 and is nvrtc 13.0; ..." */
static void stamp_difference(const char *row, const char *now, char *out, size_t size)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof(stamp_words) / sizeof(stamp_words[0]) && n < size; i++) {
        struct part was = stamp_part(row, stamp_words[i]), is = stamp_part(now, stamp_words[i]);
        if (!same_part(was, is)) {
            n += (size_t)snprintf(out + n, size - n, "%s%s was %.*s and is %.*s", n ? "; " : "",
                                  stamp_meaning(stamp_words[i]), was.at ? was.n : 7,
                                  was.at ? was.at : "unknown", is.at ? is.n : 7,
                                  is.at ? is.at : "unknown");
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
        say(w, "kept", "none", "gemmd only keeps results of this op: this is what was put last");
    } else if (strcmp(w->own.source, "trusted") == 0) {
        say(w, "trusted", "none", "gemmd's owner trusts this row (%s); a `tune` measures it here",
            w->own.note);
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

/* Of a row that is only a hint. */
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
            (double)e->atol, (double)e->rtol, q->atol, q->rtol);
    } else {
        say(w, "target", "tune",
            "its row, which the key keeps, is of other kernels than --target %s: a query that "
            "names it and waits tunes these, for itself and its like",
            q->target);
    }
}

/* ---- making it ------------------------------------------------------------------------------- */

static void find_close(struct why *w, struct daemon *d, const struct key *k)
{
    const struct cache_entry *e = closest_find(&d->cache, k, &w->bucket);
    w->has_close = e && cache_answer(&d->cache, e, &w->close, NULL) == 0 &&
                   cache_problem(&d->cache, e, d->device.class, &w->close_problem, NULL) == 0;
}

static void find_stamp(struct why *w, struct daemon *d, const char *target)
{
    const struct family *f = family_of_problem(&w->problem);
    const struct family_target *t;
    if (f && target_choose(d, &w->problem, target, &t, NULL) == 0) {
        snprintf(w->stamp, sizeof(w->stamp), "%s", target_stamp(d, f, t));
    }
}

/* A restricted query has an answer of its own, once somebody has waited for one. */
static void take_searched(struct why *w, const struct answer *searched)
{
    say(w, "restricted", "none",
        "a search of these kernels was made for this key before, and its winner answers whoever "
        "asks for the same, until gemmd is restarted or the key's own row is another");
    w->answer = *searched;
    w->has_answer = true;
    memcpy(w->origin, w->key, sizeof(w->origin));
    w->row = searched->generation ? searched->generation : WHY_NO_ROW;
}

int why_make(struct why *w, struct tiers *t, int64_t uid, const struct answer *searched,
             struct error *err)
{
    struct daemon *d = t->daemon;
    const struct scratch *x = d->scratch;
    const struct query *q = &x->request.query;
    const struct cache_entry *e = cache_find(&d->cache, &x->key);
    w->problem = x->request.problem;
    w->bucket = x->bucket;
    memcpy(w->key, x->key.id, sizeof(w->key));
    find_stamp(w, d, q->target);
    w->has_own = e && cache_answer(&d->cache, e, &w->own, NULL) == 0;
    why_judge_entry(w, d, w->has_own ? e : NULL, q, uid);
    if (w->has_own && why_entry_serves(w, e, q)) {
        w->answer = w->own;
        w->has_answer = true;
        memcpy(w->origin, w->key, sizeof(w->origin));
        return 0;
    }
    if (searched) {
        take_searched(w, searched);
        return 0;
    }
    if (!w->has_own) {
        find_close(w, d, &x->key);
    }
    if (!family_of_problem(&w->problem)) {
        return 0; /* there is no lower tier */
    }
    int status = tiers_answer(t, &x->request, uid, &w->bucket, &x->key, "not tuned yet", &w->answer,
                              w->origin, err);
    w->has_answer = status == 0;
    return status == ERROR_QUARANTINED ? 0 : status;
}

/* ---- putting it ------------------------------------------------------------------------------ */

static void why_put_value(struct wire_buf *b, const struct record *r, const char *name)
{
    struct value v = {.type = VALUE_NONE};
    record_get(r, name, &v);
    value_pack(b, &v);
}

static bool why_value_differs(const struct record *a, const struct record *b, const char *name)
{
    struct value x, y;
    bool in_a = record_get(a, name, &x), in_b = record_get(b, name, &y);
    return in_a != in_b || (in_a && !value_equal(&x, &y));
}

/* Names of both, in order, each once; NULL: no more. */
static const char *next_name(const struct record *a, const struct record *b, size_t *i, size_t *j)
{
    const char *x = *i < a->n ? a->fields[*i].name : NULL;
    const char *y = *j < b->n ? b->fields[*j].name : NULL;
    int order = !x ? 1 : !y ? -1 : strcmp(x, y);
    *i += x && order <= 0;
    *j += y && order >= 0;
    return x && order <= 0 ? x : y;
}

/* [{"field", "asked", <name>}]: what differs between two problems. */
static void put_differences(struct wire_buf *b, const struct record *asked,
                            const struct record *other, const char *name)
{
    size_t n = 0;
    const char *field;
    for (size_t i = 0, j = 0; (field = next_name(asked, other, &i, &j));) {
        n += why_value_differs(asked, other, field);
    }
    wire_put_array(b, n);
    for (size_t i = 0, j = 0; (field = next_name(asked, other, &i, &j));) {
        if (why_value_differs(asked, other, field)) {
            wire_put_map(b, 3);
            wire_put_kv_str(b, "field", field);
            wire_put_str(b, "asked");
            why_put_value(b, asked, field);
            wire_put_str(b, name);
            why_put_value(b, other, field);
        }
    }
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

void why_put(struct wire_buf *b, const struct why *w, const struct daemon *d, const char *tuning)
{
    wire_put_kv_str(b, "key", w->key);
    wire_put_kv_str(b, "verdict", w->verdict);
    wire_put_kv_str(b, "because", w->because);
    wire_put_kv_str(b, "action", w->action);
    wire_put_kv_str(b, "tuning", tuning);
    wire_put_kv_str(b, "scheme", bucket_scheme_name(d->scheme));
    wire_put_str(b, "problem");
    problem_pack(b, &w->problem);
    wire_put_str(b, "bucket");
    problem_pack(b, &w->bucket);
    wire_put_str(b, "rounded");
    put_differences(b, &w->problem.fields, &w->bucket.fields, "bucket");
    wire_put_str(b, "answer");
    if (w->has_answer) {
        schema_encode(b, &answer_schema, &w->answer);
    } else {
        wire_put_nil(b);
    }
    wire_put_str(b, "stamp");
    put_stamp(b, w);
    wire_put_str(b, "closest");
    put_close(b, w);
}
