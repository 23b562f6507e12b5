/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get_many answers a training job's whole list of problems in one request. A hit is quick, but for
 * each of up to 256 misses gemmd computes the analytic default. So the work runs in slices of
 * CHORE_NS, between which other clients are served. The list of problems is kept as bytes and
 * decoded again for each slice. A pinned connection's request begins anew once the ledger has
 * returned the keys' answers of the generation (methods/generations.h).
 *
 * When each problem has the same bytes as an earlier query that the cache answered (cache/memo.h),
 * the answers go straight into the session's output.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/pending.h"
#include "proto/limits.h"
#include "proto/pull.h"
#include "proto/text.h"

struct many {
    struct parked parked; /* first member: its address is the struct's */
    struct chore chore;
    char wait[16];           /* now, cached or boundary, as in `get` */
    char target[TARGET_MAX]; /* the target that the request demands, or "" */
    int64_t pinned;          /* the pinned generation; -1 when not pinned */
    size_t next, at;         /* index of the next problem; its offset in `problems` */
    struct wire_buf answers; /* owned: answers of the problems before `next` */
    /* owned: ids of keys that the ledger must read before gemmd can answer them */
    struct wire_buf unread;
    struct wire_buf problems; /* owned: the list as received */
};

/* Appends a problem's answer to m->answers. `bytes`: the problem as received. After an error the
 * caller puts the error in the answer's place. */
static int many_put_answer(struct many *m, const struct wire_obj *problem, const uint8_t *bytes,
                           size_t n, struct error *err)
{
    const struct pending *p = &m->parked.pending;
    struct request *r = &p->d->scratch->request;
    struct cache_entry *e;
    const struct ask a = {.parts = p->parts,
                          .account = p->asked.account,
                          /* after an unread key the request begins anew, and then counts for the
                           * session's job */
                          .session = m->unread.len ? NULL : p->ticket.session,
                          .uid = p->uid,
                          .pinned = m->pinned,
                          .bytes = m->target[0] ? NULL : bytes,
                          .n = n,
                          .out = &m->answers};
    int status = problem_unpack(&r->problem, problem, err);
    memcpy(r->query.wait, m->wait, sizeof(m->wait));
    memcpy(r->query.target, m->target, sizeof(m->target));
    status = status ? status : ask_answer(&a, &e, err);
    if (status == ASK_READS) {
        wire_put_raw(&m->unread, p->d->scratch->key.id, HASH_HEX);
    }
    return status;
}

static void many_let_go(struct many *x)
{
    chore_cancel(&x->chore);
    wire_buf_deinit(&x->answers);
    wire_buf_deinit(&x->unread);
    wire_buf_deinit(&x->problems);
}

static void many_finish_answer(struct many *x, size_t n)
{
    const struct wire_buf *answers = &x->answers;
    struct wire_buf *out = pending_result(&x->parked.pending);
    wire_put_map(out, 1);
    wire_put_str(out, "answers");
    wire_put_array(out, n);
    wire_put_raw(out, answers->data, answers->len);
    out->failed = out->failed || answers->failed;
    many_let_go(x);
    pending_drop(&x->parked.pending);
}

/* Parks the request until the rows of the keys in `unread` are read; then the request begins
 * anew. */
static void many_read_generation(struct many *x)
{
    struct pending *p = &x->parked.pending;
    struct error err = ERROR_NULL;
    struct call c = {.d = p->d,
                     .parts = p->parts,
                     .s = p->ticket.session,
                     .id = p->ticket.id,
                     .data = x->parked.message,
                     .len = x->parked.len};
    char(*keys)[HASH_HEX] = (char(*)[HASH_HEX])x->unread.data;
    const size_t n = x->unread.len / HASH_HEX;
    int status = ask_park_unread(&c, keys, n, &err);
    many_let_go(x);
    if (status < 0) {
        pending_fail(p, &err);
    } else {
        pending_drop(p);
    }
}

static void next_slice(struct chore *chore)
{
    struct many *x = LIST_OF(chore, struct many, chore);
    struct daemon *d = x->parked.pending.d;
    const struct wire_obj *list = NULL;
    struct error err = ERROR_NULL;
    struct query *q = &d->scratch->request.query;
    int status = request_default(&d->scratch->request, &err);
    /* the query of a plain `get`, so that a job made for a problem is also the job of such a
     * `get` */
    const struct query usual = *q;
    status = status ? status : wire_decode(d->doc, x->problems.data, x->problems.len, &list, &err);
    uint64_t until = uv_hrtime() + CHORE_NS;
    size_t n = wire_count(list);
    while (status == 0 && x->next < n) {
        struct error e = ERROR_NULL;
        const uint8_t *bytes = x->problems.data + x->at;
        size_t length = span_of(bytes, x->problems.len - x->at);
        x->at += length;
        if (many_put_answer(x, wire_at(list, x->next++), bytes, length, &e) < 0) {
            wire_put_map(&x->answers, 3);
            wire_put_kv_str(&x->answers, "name", error_name(e.code));
            wire_put_kv_str(&x->answers, "message", e.text);
            wire_put_kv_bool(&x->answers, "survives", true);
        }
        *q = usual;
        if (x->next < n && uv_hrtime() > until) {
            turns_chore(&d->turns, chore);
            return;
        }
    }
    if (status < 0 || x->unread.failed) {
        /* the list of answers must have an answer for each problem, else the request fails */
        x->answers.failed = true;
    }
    if (x->unread.len && !x->answers.failed) {
        many_read_generation(x);
    } else {
        many_finish_answer(x, n);
    }
}

static void many_client_gone(struct ticket *t)
{
    struct many *x = LIST_OF(t, struct many, parked.pending.ticket);
    many_let_go(x);
    pending_drop(&x->parked.pending);
}

enum { AHEAD = 6 }; /* the memo's entries are prefetched so many problems ahead */

struct question {
    const uint8_t *at; /* borrowed */
    size_t n;
    uint64_t hash;
};

/* Answers all problems from the memo. False, and nothing is put, when the memo lacks a problem. */
static bool put_again(struct daemon *d, struct session *s, uint32_t id, const uint8_t *raw,
                      size_t n)
{
    struct question asked[MANY_MAX];
    const struct memo *memo = &d->cache.memo;
    struct wire_buf *out = &s->out;
    size_t count = 0, before = out->len;
    uint64_t saved_ns = 0;
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
        saved_ns += e->saved_ns;
        cache_reply(e, out);
    }
    d->hits += count;
    session_count_exact(s, count);
    d->saved_ns += saved_ns;
    return true;
}

/* Finds the list of problems, and its length *n, in params that hold only `problems` and perhaps
 * `wait`. NULL for other params and for mistakes. When the list is the last value, it ends with the
 * message, so its end needs no search. */
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

int method_get_many(struct call *c, struct error *err)
{
    const struct wire_obj *list = wire_find(c->params, "problems");
    const struct wire_obj *wait = wire_find(c->params, "wait");
    static const char *const waits[] = {"cached", "now", "boundary"};
    size_t way = 0;
    char target[TARGET_MAX];
    while (wait && way < 3 && !wire_is_str(wait, waits[way])) {
        way++;
    }
    if (way == 3) {
        return error_set(err, ERROR_INVALID, "'wait' of get_many takes now, cached or boundary");
    }
    int status = call_target(c, target, err);
    if (status == 0 && (wire_type_of(list) != WIRE_ARRAY || wire_count(list) > MANY_MAX)) {
        status = error_set(err, ERROR_INVALID, "'problems' must be a list of at most %d problems",
                           MANY_MAX);
    }
    struct many *x = status ? NULL : call_park(c, sizeof(*x), err);
    if (!x) {
        return err->code;
    }
    struct pending *p = &x->parked.pending;
    p->ticket.gone = many_client_gone;
    p->ticket.cancel = NULL;
    chore_init(&x->chore, next_slice, &p->asked.account->served);
    snprintf(x->wait, sizeof(x->wait), "%s", waits[way]);
    memcpy(x->target, target, sizeof(x->target));
    x->pinned = c->s->pinned;
    wire_put_obj(&x->problems, list);
    if (x->problems.failed) {
        many_let_go(x);
        pending_drop(p);
        return error_set(err, ERROR_NO_MEMORY, "no memory to answer");
    }
    const uint8_t *all = x->problems.data;
    size_t count = 0;
    x->at = (size_t)(span_array(all, x->problems.len, &count) - all);
    pending_reserve(p, count * ANSWER_BYTES);
    next_slice(&x->chore);
    return METHOD_LATER;
}
