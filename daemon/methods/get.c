/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking. The hit path is method_get down to `cache_reply`: no allocation, no SQLite, no copy of an
 * answer but into the session's output. The same question again does not even come here
 * (cache/memo.h).
 */
#include <stdio.h>
#include <string.h>

#include "daemon/answers/target.h"
#include "daemon/answers/tiers.h"
#include "daemon/cache/answer.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/daemon_parts.h"

/* Whether what is known answers this request: exact, tight enough, and not asked to be tuned
 * again. */
static bool get_entry_answers(struct daemon *d, const struct cache_entry *e,
                              const struct request *r)
{
    if (!e || e->rank < CACHE_SERVES || r->query.again ||
        !cache_verified(e, r->query.atol, r->query.rtol)) {
        return false;
    }
    if (!request_is_restricted(r)) {
        return true;
    }
    /* The best of all is the best of a part that it belongs to. A given list is to be measured. */
    struct answer *a = &d->scratch->hint;
    return r->n_configs == 0 && cache_answer(&d->cache, e, a, NULL) == 0 &&
           request_allows(r, &a->config) && target_is_of(a, r->query.target);
}

static int find_lower(struct call *c, const char *why, struct error *err)
{
    struct scratch *x = c->d->scratch;
    struct tiers *t = &c->parts->tiers;
    /* In a pinned generation only what does not depend on what is known by now; searches of one's
     * own are of no generation. */
    if (c->s->pinned >= 0 && !x->request.query.again && !request_is_restricted(&x->request)) {
        return tiers_default(t, &x->request, &x->key, why, &x->answer, err);
    }
    if (x->request.query.again && waiters_recall(c->d, &x->answer)) { /* else it was the answer */
        answer_note(&x->answer, "%s", why);
        return 0;
    }
    return tiers_answer(t, &x->request, c->s->uid, &x->bucket, &x->key, why, &x->answer, err);
}

static int reply_lower(struct call *c, const char *why, struct error *err)
{
    int status = find_lower(c, why, err);
    if (status == 0) {
        rpc_put_result(&c->s->out, c->id);
        schema_encode(&c->s->out, &answer_schema, &c->d->scratch->answer);
    }
    return status;
}

/* wait=now: the lower tier at once, and a job that nobody waits for. */
static int reply_now(struct call *c, struct error *err)
{
    struct daemon *d = c->d;
    struct scratch *x = d->scratch;
    struct error why = ERROR_NULL;
    char note[120] = "being tuned in the background";
    size_t before = c->s->out.len;
    int status = reply_lower(c, note, err);
    if (status < 0 && status != ERROR_QUARANTINED) { /* that one a tuning mends */
        return status;
    }
    struct wanted w = {.request = &x->request,
                       .bucket = &x->bucket,
                       .key = &x->key,
                       .again = x->request.query.again,
                       .background = true,
                       .account = c->s->account};
    const struct query asked = x->request.query;
    struct problem *problem = &x->other;
    *problem = x->request.problem; /* the job takes the request apart */
    if (waiters_join(&c->parts->waiters, &w, &why) < 0) {
        c->s->out.len = before;
        snprintf(note, sizeof(note), "not being tuned: %.100s", why.text);
        x->request.problem = *problem;
        x->request.query = asked;
        status = reply_lower(c, note, err);
    }
    return status;
}

static int get_answer_miss(struct call *c, struct error *err)
{
    struct daemon *d = c->d;
    struct scratch *x = d->scratch;
    const struct request *r = &x->request;
    size_t before = c->s->out.len;
    rpc_put_result(&c->s->out, c->id);
    if (waiters_known(d, &c->s->out)) {
        d->hits++;
        return 0;
    }
    c->s->out.len = before;
    key_id(&x->key);
    d->misses++;
    if (strcmp(r->query.wait, "cached") == 0) {
        return reply_lower(c, r->query.again ? "not tuned again" : "not tuned yet", err);
    }
    if (strcmp(r->query.wait, "now") == 0) {
        return reply_now(c, err);
    }
    struct wanted w = {.request = &x->request,
                       .bucket = &x->bucket,
                       .key = &x->key,
                       .again = r->query.again,
                       .account = c->s->account,
                       .session = c->s,
                       .id = c->id};
    int status = waiters_join(&c->parts->waiters, &w, err);
    return status < 0 ? status : METHOD_LATER;
}

/* Whether a tuning is done within a deadline is not the same for all ranks: who has one does not
 * wait. Nor is there anything to be tuned where the answer has come since: jobs that begin now get
 * that. */
static int miss_pinned(struct call *c, const struct cache_entry *e, struct error *err)
{
    struct scratch *x = c->d->scratch;
    struct query *q = &x->request.query;
    if (q->deadline_ms && strcmp(q->wait, "cached") != 0) {
        snprintf(q->wait, sizeof(q->wait), "now");
    }
    if (strcmp(q->wait, "tuned") == 0 || !get_entry_answers(c->d, e, &x->request)) {
        return get_answer_miss(c, err);
    }
    c->d->misses++;
    key_id(&x->key);
    return reply_lower(c, generation_since, err);
}

enum { PINNED_AS_EVER = METHOD_LATER + 1 };

/* What the generation says that the session is pinned to. */
static int pinned_answer(struct call *c, const struct cache_entry *e, struct error *err)
{
    struct generations *all = &c->parts->generations;
    struct scratch *x = c->d->scratch;
    const struct moment *then;
    char id[1][HASH_HEX];
    switch (generations_find(all, c->s->pinned, e, &x->request.query, &then)) {
    case GENERATION_ANSWERS:
        c->d->hits++;
        rpc_put_result(&c->s->out, c->id);
        wire_put_raw(&c->s->out, then->packed.data, then->packed.len);
        return 0;
    case GENERATION_UNKNOWN:
        cache_entry_id(e, id[0]);
        return generations_park(all, c, id, 1, err);
    case GENERATION_NOTHING:
        return miss_pinned(c, e, err);
    case GENERATION_AS_EVER:
        break;
    }
    return PINNED_AS_EVER;
}

static int get_answer_query(struct call *c, bool again, struct error *err)
{
    struct daemon *d = c->d;
    struct scratch *x = d->scratch;
    int status = request_unpack(&x->request, c->params, err);
    if (status == 0) {
        status = generations_key(&c->parts->generations, c->s->pinned, d, c->s->uid, err);
    }
    if (status < 0) {
        return status;
    }
    x->request.query.again = x->request.query.again || again;
    struct cache_entry *e = cache_find(&d->cache, &x->key);
    status = target_settle(d, &x->request, e, err);
    if (status < 0) {
        return status;
    }
    bool custom = custom_is(&x->request.problem);
    if (custom && !c->parts->loader.done) { /* whose row answers whom depends on what there is */
        return loader_park(&c->parts->loader, c, NULL, err);
    }
    bool pinned =
        c->s->pinned >= 0 && !x->request.query.again && !request_is_restricted(&x->request);
    if (pinned) {
        status = pinned_answer(c, e, err);
        if (status != PINNED_AS_EVER) {
            return status;
        }
    }
    if (get_entry_answers(d, e, &x->request)) {
        d->hits++;
        rpc_put_result(&c->s->out, c->id);
        cache_reply(e, &c->s->out);
        /* a deadline differs from time to time, a custom op from user to user */
        if (c->tail && !x->request.query.deadline_ms && !custom && c->s->pinned < 0) {
            memo_put(&d->cache.memo, c->tail, c->tail_len, e);
        }
        return 0;
    }
    if (!c->parts->loader
             .done) { /* a key that was asked for in vain waits for the rest, as a hint does */
        return loader_park(&c->parts->loader, c, e || c->again ? NULL : &x->key, err);
    }
    return pinned ? miss_pinned(c, e, err) : get_answer_miss(c, err);
}

int method_get(struct call *c, struct error *err)
{
    return get_answer_query(c, false, err);
}

int method_tune(struct call *c, struct error *err)
{
    return get_answer_query(c, true, err);
}

static int cancel_request(struct call *c, bool *cancelled, struct error *err)
{
    int64_t id;
    if (!wire_get_int(wire_find(c->params, "request"), &id) || id < 0 || id > UINT32_MAX) {
        return error_set(err, ERROR_INVALID,
                         "'request' must be the id of a `get` or `tune` of this connection");
    }
    struct error e = ERROR_NULL;
    error_set(&e, ERROR_CANCELLED, "cancelled by request");
    *cancelled = ticket_cancel(c->s, (uint32_t)id, &e);
    return 0;
}

/* The owner ends anybody's tuning. */
static int cancel_key(struct call *c, bool *cancelled, struct error *err)
{
    char key[HASH_HEX];
    if (!session_is_owner(c->s)) {
        return error_set(err, ERROR_DENIED,
                         "cancelling a key's tuning is for root and the user that gemmd runs as; "
                         "you are uid %d, and may cancel a 'request' of this connection",
                         (int)c->s->uid);
    }
    int status = call_key_prefix(c, key, err);
    if (status < 0) {
        return status;
    }
    struct error e = ERROR_NULL;
    error_set(&e, ERROR_CANCELLED, "this tuning was cancelled by gemmd's owner (uid %d)",
              (int)c->s->uid);
    *cancelled = scheduler_cancel(&c->parts->scheduler, key, &e) > 0;
    if (*cancelled) {
        daemon_event(c->d, "cancel", c->s->uid, "%s: cancelled by the owner", key);
    }
    return 0;
}

int method_cancel(struct call *c, struct error *err)
{
    static const char *const names[] = {"request", "key", "problem", NULL};
    const bool by_key = wire_find(c->params, "key") || wire_find(c->params, "problem");
    bool cancelled = false;
    int status = call_only(c, names, err);
    status = status   ? status
             : by_key ? cancel_key(c, &cancelled, err)
                      : cancel_request(c, &cancelled, err);
    if (status < 0) {
        return status;
    }
    rpc_put_result(&c->s->out, c->id);
    wire_put_map(&c->s->out, 1);
    wire_put_kv_bool(&c->s->out, "cancelled", cancelled);
    return 0;
}
