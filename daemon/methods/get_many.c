/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get_many: a training job's whole list of problems in one request. Each answer is quick, but there
 * may be 256 misses among them, and each of these asks a family for its default. So the work is
 * done in slices of CHORE_NS, between which others are served; the request's bytes are kept and
 * decoded again for each slice. Of a pinned connection it begins anew when a key has another answer
 * by then and the ledger has to tell what it was (methods/generations.h); no more often than it
 * has keys.
 *
 * When all of them were hits before in the same bytes (cache/memo.h), nothing of that is needed:
 * the answers go straight into the session's output.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/target.h"
#include "daemon/answers/tiers.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/pending.h"
#include "proto/limits.h"
#include "proto/pull.h"
#include "proto/text.h"

struct many {
    struct pending pending; /* first */
    struct chore chore;
    bool now;
    char target[TARGET_MAX]; /* forced; "": none */
    int64_t pinned;          /* the generation; -1: none */
    size_t next, at;         /* the problem that is next, and where it begins */
    struct wire_buf answers; /* owned: those before next */
    bool anew; /* what a key answered in the pinned generation is not known any more */
    size_t len, message_len;
    uint8_t *message;   /* behind the list: the request, of a pinned connection */
    uint8_t problems[]; /* the list, as it came */
};

static bool many_entry_serves(struct daemon *d, const struct cache_entry *e, const struct query *q)
{
    struct answer *a = &d->scratch->hint;
    return e && e->rank >= CACHE_SERVES && cache_verified(e, q->atol, q->rtol) &&
           (!q->target[0] ||
            (cache_answer(&d->cache, e, a, NULL) == 0 && target_is_of(a, q->target)));
}

/* In a pinned generation only what does not depend on what is known by now; a forced target is of
 * none. */
static int lower_tier(struct many *m, const char *why, struct error *err)
{
    struct daemon *d = m->pending.d;
    struct tiers *t = &m->pending.parts->tiers;
    struct scratch *x = d->scratch;
    const bool pinned = m->pinned >= 0 && !request_is_restricted(&x->request);
    int status = pinned ? tiers_default(t, &x->request, &x->key, why, &x->answer, err)
                        : tiers_answer(t, &x->request, m->pending.uid, &x->bucket, &x->key, why,
                                       &x->answer, err);
    if (status == 0) {
        schema_encode(&m->answers, &answer_schema, &x->answer);
    }
    return status;
}

/* Of the request in the scratch: the lower tier, and a job that nobody waits for; where there can
 * be none, the answer says so. Asked again, it may be queued then. */
static int tune_behind(struct many *m, struct error *err)
{
    struct scratch *x = m->pending.d->scratch;
    const size_t before = m->answers.len;
    struct error refused = ERROR_NULL;
    char note[120];
    int status = lower_tier(m, "being tuned in the background", err);
    if (status < 0 && status != ERROR_QUARANTINED) { /* that one a tuning mends */
        return status;
    }
    const struct query asked = x->request.query;
    struct wanted w = {.request = &x->request,
                       .bucket = &x->bucket,
                       .key = &x->key,
                       .background = true,
                       .account = m->pending.ticket.session->account};
    x->other = x->request.problem; /* the job takes the request apart */
    if (waiters_join(&m->pending.parts->waiters, &w, &refused) < 0) {
        m->answers.len = before;
        snprintf(note, sizeof(note), "not being tuned: %.100s", refused.text);
        x->request.problem = x->other;
        x->request.query = asked;
        status = lower_tier(m, note, err);
    }
    return status;
}

/* One problem: an answer, or an error map in its place. bytes: as it came. */
static int many_put_answer(struct many *m, const struct wire_obj *problem, const uint8_t *bytes,
                           size_t n, struct error *err)
{
    struct daemon *d = m->pending.d;
    struct scratch *x = d->scratch;
    struct wire_buf *out = &m->answers;
    int status = problem_unpack(&x->request.problem, problem, err);
    snprintf(x->request.query.wait, sizeof(x->request.query.wait), "cached"); /* nobody waits */
    status =
        status ? status
               : generations_key(&m->pending.parts->generations, m->pinned, d, m->pending.uid, err);
    if (status < 0) {
        return status;
    }
    struct cache_entry *e = cache_find(&d->cache, &x->key);
    memcpy(x->request.query.target, m->target, sizeof(m->target));
    status = target_settle(d, &x->request, e, err);
    if (status < 0) {
        return status;
    }
    const bool forced = x->request.query.target[0]; /* no generation is concerned: get.c */
    const struct moment *then;
    enum generation_says says = generations_find(
        &m->pending.parts->generations, forced ? -1 : m->pinned, e, &x->request.query, &then);
    if (says == GENERATION_ANSWERS) {
        d->hits++;
        wire_put_raw(out, then->packed.data, then->packed.len);
        return 0;
    }
    if (says == GENERATION_AS_EVER && many_entry_serves(d, e, &x->request.query)) {
        d->hits++;
        cache_reply(e, out);
        if (!m->target[0] && !custom_is(&x->request.problem)) { /* as get.c */
            memo_put(&d->cache.memo, bytes, n, e);
        }
        return 0;
    }
    if (waiters_known(d, out)) {
        d->hits++;
        return 0;
    }
    m->anew = says == GENERATION_UNKNOWN;
    if (m->anew) {
        return 0;
    }
    d->misses++;
    key_id(&x->key);
    if (says == GENERATION_NOTHING && many_entry_serves(d, e, &x->request.query)) {
        return lower_tier(m, generation_since, err);
    }
    return m->now ? tune_behind(m, err) : lower_tier(m, "not tuned yet", err);
}

static int put_one(struct many *m, const struct wire_obj *problem, const uint8_t *bytes, size_t n,
                   struct error *err)
{
    struct query *q = &m->pending.d->scratch->request.query;
    const struct query usual = *q;
    int status = many_put_answer(m, problem, bytes, n, err);
    *q = usual;
    return status;
}

/* A query of nothing but defaults, as request_unpack fills them in: so that the jobs of `now` are
 * the same as those of a plain `get`. */
static int default_query(struct daemon *d, struct error *err)
{
    const struct wire_obj *map;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_map(&b, 1);
    wire_put_str(&b, "problem");
    wire_put_map(&b, 1);
    wire_put_kv_str(&b, "op", "custom:none");
    if (b.failed) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to answer");
    }
    int status = wire_decode(d->cache.entries.doc, b.data, b.len, &map, err);
    return status ? status : request_unpack(&d->scratch->request, map, err);
}

static void many_let_go(struct many *x)
{
    chore_cancel(&x->chore);
    wire_buf_deinit(&x->answers);
}

static void many_finish_answer(struct many *x, size_t n)
{
    const struct wire_buf *answers = &x->answers;
    struct wire_buf *out = pending_result(&x->pending);
    if (out) {
        wire_put_map(out, 1);
        wire_put_str(out, "answers");
        wire_put_array(out, n);
        wire_put_raw(out, answers->data, answers->len);
        out->failed = out->failed || answers->failed;
    }
    many_let_go(x);
    pending_drop(&x->pending);
}

static void many_begin_anew(struct many *x)
{
    struct session *s = x->pending.ticket.session;
    many_let_go(x);
    pending_end(&x->pending);
    session_again(s, x->message, x->message_len);
    free(x);
}

/* True: all is done and x is gone. */
static bool many_do_slice(struct many *x)
{
    struct daemon *d = x->pending.d;
    const struct wire_obj *list = NULL;
    struct error err = ERROR_NULL;
    int status = default_query(d, &err);
    status = status ? status : wire_decode(d->doc, x->problems, x->len, &list, &err);
    uint64_t until = uv_hrtime() + CHORE_NS;
    size_t n = wire_count(list);
    while (status == 0 && x->next < n) {
        struct error e = ERROR_NULL;
        const uint8_t *bytes = x->problems + x->at;
        size_t length = span_of(bytes, x->len - x->at);
        x->at += length;
        if (put_one(x, wire_at(list, x->next++), bytes, length, &e) < 0) {
            wire_put_map(&x->answers, 3);
            wire_put_kv_str(&x->answers, "name", error_name(e.code));
            wire_put_kv_str(&x->answers, "message", e.text);
            wire_put_kv_bool(&x->answers, "survives", true);
        }
        if (x->anew) {
            many_begin_anew(x);
            return true;
        }
        if (x->next < n && uv_hrtime() > until) {
            return false;
        }
    }
    if (status < 0) { /* no memory for a slice: what is missing cannot be left out */
        x->answers.failed = true;
    }
    many_finish_answer(x, n);
    return true;
}

static void next_slice(struct chore *chore)
{
    struct many *x = LIST_OF(chore, struct many, chore);
    if (!many_do_slice(x)) {
        turns_chore(&x->pending.d->turns, chore);
    }
}

static void many_client_gone(struct ticket *t)
{
    struct many *x = LIST_OF(t, struct many, pending.ticket);
    many_let_go(x);
    pending_free(&x->pending);
}

static int many_read_wait(struct call *c, bool *now, struct error *err)
{
    const struct wire_obj *wait = wire_find(c->params, "wait");
    char word[16] = "cached";
    if (wait && !wire_copy_str(wait, word, sizeof(word))) {
        word[0] = 0;
    }
    *now = strcmp(word, "now") == 0;
    if (!*now && strcmp(word, "cached") != 0) {
        return error_set(err, ERROR_INVALID, "'wait' of get_many takes now or cached");
    }
    return 0;
}

/* The list as it came; NULL: that cannot be told from the bytes alone. Params are a map, or a list
 * of one map. */
static const uint8_t *raw_problems(const struct call *c, const struct wire_obj *list, size_t *n)
{
    struct pull p = {c->data, c->data + c->len}, map, problems;
    size_t items;
    if (!pull_array(&p, &items) || !pull_skip(&p) || !pull_skip(&p) || !pull_skip(&p)) {
        return NULL;
    }
    map = p;
    if (!pull_array(&map, &items)) {
        map = p;
    }
    if (!pull_find(&map, "problems") || !pull_item(&map, &problems)) {
        return NULL;
    }
    const uint8_t *raw = problems.at;
    *n = pull_left(&problems);
    return pull_array(&problems, &items) && items == wire_count(list) ? raw : NULL;
}

enum { AHEAD = 6 }; /* questions whose answers are on their way into the processor's cache */

struct question {
    const uint8_t *at; /* borrowed */
    size_t n;
    uint64_t hash;
};

/* All of them from the memo, at once; else nothing is put. */
static bool put_again(struct daemon *d, struct session *s, uint32_t id, const uint8_t *raw,
                      size_t n)
{
    struct question asked[MANY_MAX];
    const struct memo *memo = &d->cache.memo;
    struct wire_buf *out = &s->out;
    size_t count = 0, before = out->len;
    const uint8_t *end = raw + n, *at = span_array(raw, n, &count);
    if (!at || count > MANY_MAX) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        size_t length = span_of(at, (size_t)(end - at));
        asked[i] = (struct question){at, length, memo_hash(memo, at, length)};
        at += length;
    }
    rpc_put_result(out, id);
    wire_put_map(out, 1);
    wire_put_str(out, "answers");
    wire_put_array(out, count);
    for (size_t i = 0; i < AHEAD && i < count; i++) {
        memo_prefetch(memo, asked[i].hash);
    }
    for (size_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            memo_prefetch(memo, asked[i + AHEAD].hash);
        }
        const struct question *q = &asked[i];
        const struct cache_entry *e = memo_find_hashed(memo, q->hash, q->at, q->n);
        if (!e) {
            out->len = before;
            return false;
        }
        cache_reply(e, out);
    }
    d->hits += count;
    return true;
}

/* The problems of params of the usual kind: those, and perhaps `wait`; a target, or a mistake, is
 * looked at. The message's end is that of the last value: it need not be looked for. */
static const uint8_t *usual_problems(struct pull params, size_t *n)
{
    const uint8_t *problems = NULL;
    const char *text;
    size_t pairs, length;
    if (!pull_map(&params, &pairs) || pairs > 2) {
        return NULL;
    }
    for (; pairs > 0; pairs--) {
        if (!pull_str(&params, &text, &length)) {
            return NULL;
        }
        if (text_is("problems", text, length) && !problems) {
            problems = params.at;
            if (pairs > 1 && !pull_skip(&params)) {
                return NULL;
            }
            *n = (size_t)((pairs > 1 ? params.at : params.end) - problems);
        } else if (!text_is("wait", text, length) || !pull_str(&params, &text, &length) ||
                   !(text_is("now", text, length) || text_is("cached", text, length))) {
            return NULL;
        }
    }
    return problems;
}

bool get_many_again(struct daemon *d, struct session *s, uint32_t id, const uint8_t *tail, size_t n)
{
    static const char name[] = "\xa8get_many";
    const size_t head = sizeof(name) - 1;
    size_t length = 0;
    if (n <= head || memcmp(tail, name, head) != 0) {
        return false;
    }
    const uint8_t *problems = usual_problems((struct pull){tail + head, tail + n}, &length);
    return problems && put_again(d, s, id, problems, length);
}

enum { ANSWER_BYTES = RESPONSE_BYTES_MAX / MANY_MAX };

static int many_begin_request(struct call *c, const uint8_t *raw, size_t n, bool now,
                              const char target[TARGET_MAX], struct error *err)
{
    struct pending *p;
    size_t count = 0, behind = c->s->pinned >= 0 ? c->len : 0;
    int status = call_later(c, sizeof(struct many) + n + behind, &p, err);
    if (status < 0) {
        return status;
    }
    struct many *x = (struct many *)p;
    p->ticket.gone = many_client_gone;
    chore_init(&x->chore, next_slice, &p->asked.account->served);
    x->now = now;
    memcpy(x->target, target, sizeof(x->target));
    x->len = n;
    memcpy(x->problems, raw, n);
    x->message = x->problems + n;
    x->message_len = behind;
    memcpy(x->message, c->data, behind);
    x->pinned = c->s->pinned;
    x->at = (size_t)(span_array(raw, n, &count) - raw);
    pending_reserve(p, count * ANSWER_BYTES);
    if (!many_do_slice(x)) {
        turns_chore(&c->d->turns, &x->chore);
    }
    return METHOD_LATER;
}

/* The keys whose answers in the pinned generation the ledger has to tell first. */
static size_t unknown_then(struct call *c, const struct wire_obj *list,
                           const char target[TARGET_MAX], char (*keys)[HASH_HEX])
{
    struct daemon *d = c->d;
    struct scratch *x = d->scratch;
    struct error ignored = ERROR_NULL;
    struct generations *all = &c->parts->generations;
    const struct moment *then;
    size_t n = 0;
    int status = default_query(d, &ignored);
    snprintf(x->request.query.wait, sizeof(x->request.query.wait), "cached"); /* nobody waits */
    for (size_t i = 0; status == 0 && i < wire_count(list); i++) {
        if (problem_unpack(&x->request.problem, wire_at(list, i), &ignored) < 0 ||
            generations_key(all, c->s->pinned, d, c->s->uid, &ignored) < 0) {
            continue; /* said when it is answered */
        }
        const struct cache_entry *e = cache_find(&d->cache, &x->key);
        memcpy(x->request.query.target, target, TARGET_MAX);
        bool forced = target_settle(d, &x->request, e, &ignored) < 0 || x->request.query.target[0];
        if (!forced && generations_find(all, c->s->pinned, e, &x->request.query, &then) ==
                           GENERATION_UNKNOWN) {
            cache_entry_id(e, keys[n++]);
        }
    }
    return n;
}

int method_get_many(struct call *c, struct error *err)
{
    char keys[MANY_MAX][HASH_HEX];
    static const char *const names[] = {"problems", "target", "wait", NULL};
    const struct wire_obj *list = wire_find(c->params, "problems");
    bool now = false;
    char target[TARGET_MAX];
    int status = call_only(c, names, err);
    status = status ? status : many_read_wait(c, &now, err);
    status = status ? status : call_target(c, target, err);
    if (status == 0 && (wire_type_of(list) != WIRE_ARRAY || wire_count(list) > MANY_MAX)) {
        status = error_set(err, ERROR_INVALID, "'problems' must be a list of at most %d problems",
                           MANY_MAX);
    }
    if (status < 0) {
        return status;
    }
    size_t unknown = c->s->pinned >= 0 ? unknown_then(c, list, target, keys) : 0;
    if (unknown) {
        return generations_park(&c->parts->generations, c, keys, unknown, err);
    }
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    size_t n = 0;
    const uint8_t *raw = raw_problems(c, list, &n);
    if (!raw) { /* an unusual form: as we would write it */
        wire_put_obj(&packed, list);
        raw = packed.data;
        n = packed.len;
    }
    if (packed.failed) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to answer");
    }
    return many_begin_request(c, raw, n, now, target, err);
}
