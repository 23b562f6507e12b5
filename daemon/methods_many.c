/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get_many: a training job's whole list of problems in one request. Each answer is quick, but there may
 * be 256 misses among them, and each of these asks a family for its default. So the work is done in
 * slices of SLICE_MS, between which others are served; the request's bytes are kept and decoded again
 * for each slice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/methods.h"
#include "daemon/tiers.h"
#include "proto/limits.h"

enum { SLICE_MS = 2 };

struct many {
    struct pending pending; /* first */
    struct chore chore;
    bool now;
    char target[TARGET_MAX]; /* forced; "": none */
    size_t next;
    struct wire_buf answers; /* owned: those before next */
    size_t len;
    uint8_t problems[];      /* the packed list */
};

static bool serves(struct daemon *d, const struct cache_entry *e, const struct query *q)
{
    struct answer *a = &d->scratch->hint;
    return e && e->rank >= CACHE_SERVES && cache_verified(e, q->atol, q->rtol) &&
           (!q->target[0] ||
            (cache_answer(&d->cache, e, a, NULL) == 0 && daemon_on_target(a, q->target)));
}

/* One problem: an answer, or an error map in its place. */
static int put_one(struct many *m, const struct wire_obj *problem, struct error *err)
{
    struct daemon *d = m->pending.d;
    struct scratch *x = d->scratch;
    struct wire_buf *out = &m->answers;
    const struct query usual = x->request.query;
    int status = problem_unpack(&x->request.problem, problem, err);
    status = status ? status : custom_key(d, m->pending.uid, CUSTOM_READ, err);
    if (status < 0) {
        return status;
    }
    const struct cache_entry *e = cache_find(&d->cache, &x->key);
    memcpy(x->request.query.target, m->target, sizeof(m->target));
    status = daemon_settle_target(d, &x->request, e, err);
    if (status < 0) {
        return status;
    }
    if (serves(d, e, &x->request.query)) {
        d->hits++;
        cache_reply(e, out);
        return 0;
    }
    d->misses++;
    key_id(&x->key);
    status = tiers_answer(d, &x->request.problem, &x->bucket, &x->key, x->request.query.target,
                          m->now ? "being tuned in the background" : "not tuned yet", &x->answer,
                          err);
    if (status < 0) {
        return status;
    }
    schema_encode(out, &answer_schema, &x->answer);
    if (m->now) {
        struct error full = ERROR_NULL; /* asked again, it will be queued then */
        struct wanted w = {.request = &x->request, .bucket = &x->bucket, .key = &x->key,
                           .background = true,
                           .account = m->pending.ticket.session->account};
        scheduler_want(&d->scheduler, &w, &full);
        x->request.query = usual;
    }
    return 0;
}

/* A query of nothing but defaults, as request_unpack fills them in: so that the jobs of `now` are the
 * same as those of a plain `get`. */
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
    int status = wire_decode(d->cache.doc, b.data, b.len, &map, err);
    return status ? status : request_unpack(&d->scratch->request, map, err);
}

static void finish(struct many *x, size_t n)
{
    struct wire_buf answers = x->answers;
    struct wire_buf *out = pending_result(&x->pending);
    if (out) {
        wire_put_map(out, 1);
        wire_put_str(out, "answers");
        wire_put_array(out, n);
        wire_put_raw(out, answers.data, answers.len);
        out->failed = out->failed || answers.failed;
    }
    server_chore_cancel(&x->chore);
    pending_drop(&x->pending);
    wire_buf_deinit(&answers);
}

/* True: all is done and x is gone. */
static bool slice(struct many *x)
{
    struct daemon *d = x->pending.d;
    const struct wire_obj *list = NULL;
    struct error err = ERROR_NULL;
    int status = default_query(d, &err);
    status = status ? status : wire_decode(d->doc, x->problems, x->len, &list, &err);
    uint64_t until = uv_hrtime() + SLICE_MS * UINT64_C(1000000);
    size_t n = wire_count(list);
    while (status == 0 && x->next < n) {
        struct error e = ERROR_NULL;
        if (put_one(x, wire_at(list, x->next++), &e) < 0) {
            wire_put_map(&x->answers, 3);
            wire_put_kv_str(&x->answers, "name", error_name(e.code));
            wire_put_kv_str(&x->answers, "message", e.text);
            wire_put_kv_bool(&x->answers, "survives", true);
        }
        if (x->next < n && uv_hrtime() > until) {
            return false;
        }
    }
    if (status < 0) { /* no memory for a slice: what is missing cannot be left out */
        x->answers.failed = true;
    }
    finish(x, n);
    return true;
}

static void next_slice(struct chore *chore)
{
    struct many *x = LIST_OF(chore, struct many, chore);
    if (!slice(x)) {
        server_chore(&x->pending.d->server, chore);
    }
}

static void client_gone(struct ticket *t)
{
    struct many *x = LIST_OF(t, struct many, pending.ticket);
    server_chore_cancel(&x->chore);
    wire_buf_deinit(&x->answers);
    pending_free(&x->pending);
}

static int read_wait(struct call *c, bool *now, struct error *err)
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

int method_get_many(struct call *c, struct error *err)
{
    static const char *const names[] = {"problems", "target", "wait", NULL};
    const struct wire_obj *list = wire_find(c->params, "problems");
    bool now = false;
    char target[TARGET_MAX];
    int status = call_only(c, names, err);
    status = status ? status : read_wait(c, &now, err);
    status = status ? status : call_target(c, target, err);
    if (status == 0 && (wire_type_of(list) != WIRE_ARRAY || wire_count(list) > MANY_MAX)) {
        status = error_set(err, ERROR_INVALID, "'problems' must be a list of at most %d problems",
                           MANY_MAX);
    }
    if (status < 0) {
        return status;
    }
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    struct pending *p;
    wire_put_obj(&packed, list);
    if (packed.failed) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to answer");
    }
    status = call_later(c, sizeof(struct many) + packed.len, &p, err);
    if (status < 0) {
        return status;
    }
    struct many *x = (struct many *)p;
    p->ticket.gone = client_gone;
    server_chore_init(&x->chore, next_slice);
    x->now = now;
    memcpy(x->target, target, sizeof(target));
    x->len = packed.len;
    memcpy(x->problems, packed.data, packed.len);
    if (!slice(x)) {
        server_chore(&c->d->server, &x->chore);
    }
    return METHOD_LATER;
}
