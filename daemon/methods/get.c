/* SPDX-License-Identifier: Apache-2.0 */
/* `get`, `tune` and `cancel`. dispatch.c answers a query with the bytes of an earlier hit from the
 * memo (cache/memo.h), without these functions. */

#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/methods.h"

static int get_wait_for_tuning(struct call *c, struct error *err)
{
    struct scratch *x = c->d->scratch;
    struct joining w = {
        .again = x->request.query.again, .account = c->s->account, .session = c->s, .id = c->id};
    int status = waiters_join(&c->parts->tuning, &w, err);
    return status < 0 ? status : METHOD_LATER;
}

static int get_answer_query(struct call *c, bool again, struct error *err)
{
    struct scratch *x = c->d->scratch;
    struct wire_buf *out = &c->s->out;
    struct cache_entry *e;
    int status = request_unpack(&x->request, c->params, err);
    if (status < 0) {
        return status;
    }
    x->request.query.again = x->request.query.again || again;
    const struct ask a = {.parts = c->parts,
                          .account = c->s->account,
                          .session = c->s,
                          .uid = c->s->uid,
                          .pinned = c->s->pinned,
                          .bytes = c->tail,
                          .n = c->tail_len,
                          .out = out};
    const size_t before = out->len;
    const uint64_t hits = c->d->hits;
    rpc_put_result(out, c->id);
    status = ask_answer(&a, &e, err);
    if (status != ASK_ANSWERED) {
        out->len = before;
    }
    c->s->all->hit = c->d->hits != hits;
    if (status == ASK_READS) {
        return ask_park_unread(c, &x->key.id, 1, err);
    }
    /* The ledger looks up this key first. When it lacks the key, the request begins anew (`again`)
     * and waits until all rows are loaded, since a row of another key may be a hint. */
    if (status == ASK_LOADS) {
        const bool alone = !e && !c->again && !custom_is(&x->request.problem);
        return loader_park(&c->parts->loader, c, alone ? &x->key : NULL, err);
    }
    return status == ASK_WAITS ? get_wait_for_tuning(c, err) : status;
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

/* Cancels all users' jobs of a key; only the owner may. */
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
    *cancelled = scheduler_cancel(&c->parts->tuning.scheduler, key, &e) > 0;
    if (*cancelled) {
        daemon_event(c->d, "cancel", c->s->uid, "%s: cancelled by the owner", key);
    }
    return 0;
}

int method_cancel(struct call *c, struct error *err)
{
    const bool by_key = wire_find(c->params, "key") || wire_find(c->params, "problem");
    bool cancelled = false;
    int status = by_key ? cancel_key(c, &cancelled, err) : cancel_request(c, &cancelled, err);
    if (status < 0) {
        return status;
    }
    rpc_put_result(&c->s->out, c->id);
    wire_put_map(&c->s->out, 1);
    wire_put_kv_bool(&c->s->out, "cancelled", cancelled);
    return 0;
}
