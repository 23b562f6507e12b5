/* SPDX-License-Identifier: Apache-2.0 */
/* The way to the keeper of the database, or to being it (ledger_shared.h): what it is asked, what
 * it tells, and what happens when it goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger_shared.h"
#include "daemon/ledger_wire.h"
#include "daemon/log.h"
#include "proto/paths.h"
#include "store/store.h"

static void attempt(struct shared *s);

/* ---- news ------------------------------------------------------------------------------------ */

void shared_news(struct shared *s, enum ledger_news_kind kind, const char *key,
                 const struct best *best, bool saved)
{
    struct ledger_news n = {.kind = kind, .key = key, .best = best, .saved = saved};
    if (s->config.news) {
        s->config.news(s->config.ctx, &n);
    }
}

void shared_said(struct shared *s, const struct wire_obj *said)
{
    struct ledger_news n = {.kind = NEWS_SAID, .key = "", .said = said};
    if (s->config.news) {
        s->config.news(s->config.ctx, &n);
    }
}

static void hear_news(struct shared *s, const struct wire_obj *params)
{
    static const char *const kinds[] = {"best", "evicted", "freed"};
    struct error err = ERROR_NULL;
    char key[HASH_HEX] = "";
    bool saved = false;
    wire_copy_str(wire_find(params, "key"), key, sizeof(key));
    wire_get_bool(wire_find(params, "saved"), &saved);
    if (wire_is_str(wire_find(params, "kind"), "said")) {
        shared_said(s, wire_find(params, "said"));
        return;
    }
    for (enum ledger_news_kind i = NEWS_BEST; i <= NEWS_FREED; i++) {
        if (!wire_is_str(wire_find(params, "kind"), kinds[i])) {
            continue;
        }
        if (i != NEWS_BEST) {
            shared_news(s, i, key, NULL, false);
        } else if (schema_decode(&best_schema, SCHEMA_LENIENT, wire_find(params, "row"), s->best,
                                 &err) == 0) {
            shared_news(s, i, s->best->key, s->best, saved);
        }
    }
}

/* ---- what the keeper is asked ---------------------------------------------------------------- */

struct outgoing *outgoing_free(struct outgoing *o)
{
    if (o) {
        list_remove(&o->link);
        wire_buf_deinit(&o->params);
        free(o);
    }
    return NULL;
}

static void outgoing_send(struct shared *s, struct outgoing *o)
{
    struct wire_buf b = WIRE_BUF_NULL;
    o->id = ++s->last_id;
    rpc_put_request(&b, o->id, "ledger");
    wire_put_raw(&b, o->params.data, o->params.len);
    keeper_link_send(&s->link, &b);
}

struct outgoing *outgoing_new(struct shared *s, void *ctx)
{
    struct outgoing *o = s->stopping ? NULL : calloc(1, sizeof(*o));
    if (o) {
        o->s = s;
        o->ctx = ctx;
        list_init(&o->link);
    }
    return o;
}

/* Takes o; NULL: there was no memory, or this is the end. */
int outgoing_submit(struct shared *s, struct outgoing *o)
{
    if (!o || o->params.failed) {
        outgoing_free(o);
        return s->stopping ? ERROR_SHUTTING_DOWN : ERROR_NO_MEMORY;
    }
    list_append(&s->outgoing, &o->link);
    s->n_outgoing++;
    if (s->following) {
        outgoing_send(s, o);
    }
    return 0;
}

/* Its answer has come. */
static void outgoing_settle(struct outgoing *o, const struct wire_obj *result,
                            const struct error *err)
{
    struct shared *s = o->s;
    list_remove(&o->link);
    s->n_outgoing--;
    if (o->answer) {
        o->answer(o, result, err);
    } else if (err) {
        log_warning("the keeper of the database did not take a row: %s", err->text);
    }
    outgoing_free(o);
    if (s->stopping && list_empty(&s->outgoing)) {
        shared_finish(s);
    }
}

static void outgoing_response(struct shared *s, const struct rpc_message *m)
{
    struct error err = ERROR_NULL;
    if (m->error) {
        rpc_get_error(m->error, &err);
    }
    if (err.code == ERROR_SHUTTING_DOWN) { /* the next keeper is asked again */
        keeper_link_close(&s->link);
        return;
    }
    LIST_EACH(node, &s->outgoing)
    {
        struct outgoing *o = LIST_OF(node, struct outgoing, link);
        if (o->id == m->id) {
            outgoing_settle(o, m->result, err.code ? &err : NULL);
            return;
        }
    }
}

void outgoing_done(struct outgoing *o, const struct wire_obj *result, const struct error *err)
{
    bool held = false;
    wire_get_bool(wire_find(result, "held"), &held);
    o->cb.done(o->ctx, err ? err->code : held ? STORE_HELD : 0, err);
}

void outgoing_id(struct outgoing *o, const struct wire_obj *result, const struct error *err)
{
    int64_t n = 0;
    wire_get_int(wire_find(result, "n"), &n);
    o->cb.id(o->ctx, err ? err->code : 0, n, err);
}

void outgoing_best(struct outgoing *o, const struct wire_obj *result, const struct error *err)
{
    struct best *b = o->s->best;
    const struct wire_obj *row = wire_find(result, "row");
    struct error local = ERROR_NULL;
    bool saved = false;
    wire_get_bool(wire_find(result, "saved"), &saved);
    if (!err && wire_type_of(row) != WIRE_NIL &&
        schema_decode(&best_schema, SCHEMA_LENIENT, row, b, &local) < 0) {
        err = &local;
    }
    bool there = !err && wire_type_of(row) != WIRE_NIL;
    o->cb.best(o->ctx, err ? err->code : there ? 0 : STORE_MISS, there ? b : NULL, saved, err);
}

void outgoing_status(struct outgoing *o, const struct wire_obj *result, const struct error *err)
{
    struct ledger_status counts;
    schema_decode(&ledger_status_schema, SCHEMA_LENIENT, err ? NULL : result, &counts, NULL);
    counts.keeper = false;
    counts.lost_trials += o->s->lost_trials;
    o->cb.status(o->ctx, &counts);
}

/* ---- finding the keeper, or becoming it ------------------------------------------------------ */

void shared_timer(uv_timer_t *timer)
{
    struct shared *s = timer->data;
    if (s->stopping) {
        shared_finish(s);
    } else {
        attempt(s);
    }
}

void shared_retry_in(struct shared *s, uint64_t ms)
{
    if (!s->stopping) {
        uv_timer_start(&s->timer, shared_timer, ms, 0);
    }
}

static void say_ready(struct shared *s, int status, const struct error *err)
{
    if (!s->ready) {
        s->ready = true;
        s->config.ready(s->config.ctx, status, err);
    }
}

/* Nobody answers: at the start that is the user's to solve, later it may pass. */
static void still_nobody(struct shared *s)
{
    struct error err = ERROR_NULL;
    long pid = 0;
    char address[PATHS_MAX] = "";
    if (!s->ready && uv_now(s->loop) - s->started_ms > START_PATIENCE_MS) {
        store_holder(s->config.path, &pid, address, sizeof(address));
        error_set(
            &err, ERROR_BUSY,
            "database %s is in use by gemmd with pid %ld, which does not answer on its socket "
            "'%.100s': stop that one, or give this one another --database",
            s->config.path, pid, address);
        say_ready(s, err.code, &err);
        return;
    }
    shared_retry_in(s, RETRY_MS);
}

static void on_applied(void *ctx, const struct wire_buf *result, const struct error *err)
{
    struct outgoing *o = ctx;
    const struct wire_obj *map = NULL;
    if (!err) {
        wire_decode(o->s->doc, result->data, result->len, &map, NULL);
    }
    o->s->n_outgoing++; /* settle takes it back */
    outgoing_settle(o, map, err);
}

/* What the last keeper has not answered, in its order. */
static void carry_out_rest(struct shared *s)
{
    struct list rest;
    list_init(&rest);
    while (!list_empty(&s->outgoing)) {
        struct list *node = s->outgoing.next;
        list_remove(node);
        list_append(&rest, node);
    }
    s->n_outgoing = 0;
    LIST_EACH(node, &rest)
    {
        struct outgoing *o = LIST_OF(node, struct outgoing, link);
        struct error err = ERROR_NULL;
        const struct wire_obj *params = NULL;
        list_remove(node);
        int status = wire_decode(s->doc, o->params.data, o->params.len, &params, &err);
        status = status ? status : ledger_wire_apply(&s->base, params, on_applied, o, &err);
        if (status != 0) {
            s->n_outgoing++;
            outgoing_settle(o, NULL, status < 0 ? &err : NULL);
        }
    }
}

static void become_keeper(struct shared *s, struct ledger *writer)
{
    struct error none = ERROR_NULL;
    s->writer = writer;
    if (s->ready) {
        log_notice("this gemmd is the keeper of %s now", s->config.path);
    }
    if (s->keeper[0]) {
        s->base.ops->unlease(&s->base, "", s->keeper);
    }
    carry_out_rest(s);
    say_ready(s, 0, &none);
}

static int open_home(struct shared *s, bool read_only, struct ledger **out, struct error *err)
{
    struct ledger_config c = s->config;
    c.read_only = read_only;
    return ledger_local_ops.start(out, s->loop, &c, err);
}

/* The lock is free, or somebody else's; then that one is asked. */
static void attempt(struct shared *s)
{
    struct error err = ERROR_NULL;
    struct ledger *writer = NULL;
    char address[PATHS_MAX] = "";
    long pid;
    if (s->writer || s->stopping || s->following) {
        return;
    }
    if (s->link.state != LINK_CLOSED) { /* it listens, and does not answer */
        keeper_link_close(&s->link);
        return;
    }
    int status = open_home(s, false, &writer, &err);
    if (status == 0) {
        become_keeper(s, writer);
    } else if (status != ERROR_BUSY) {
        log_error("%s", err.text);
        say_ready(s, status, &err);
        shared_retry_in(s, RETRY_FAULT_MS);
    } else if (store_holder(s->config.path, &pid, address, sizeof(address)) && address[0] &&
               paths_check_socket(address, NULL) == 0) {
        keeper_link_open(&s->link, s->loop, address);
    } else {
        still_nobody(s);
    }
}

static void on_up(struct keeper_link *link)
{
    struct shared *s = LIST_OF(link, struct shared, link);
    struct wire_buf b = WIRE_BUF_NULL;
    s->follow_id = ++s->last_id;
    rpc_put_request(&b, s->follow_id, "follow");
    wire_put_map(&b, 1);
    wire_put_kv_str(&b, "owner", s->config.owner);
    shared_retry_in(s, FOLLOW_PATIENCE_MS);
    keeper_link_send(link, &b);
}

static void on_down(struct keeper_link *link)
{
    struct shared *s = LIST_OF(link, struct shared, link);
    bool followed = s->following;
    s->following = false;
    if (s->ending) {
        s->parts--;
        shared_finish(s);
    } else if (s->stopping) {
        shared_finish(s);
    } else if (followed) {
        log_notice("the keeper of %s has gone", s->config.path);
        attempt(s);
    } else {
        still_nobody(s);
    }
}

/* What others published while nobody told us. */
static void on_reloaded(void *ctx, int status, const struct best *bests, size_t n,
                        const struct error *err)
{
    struct shared *s = ctx;
    if (status < 0 && !s->stopping) {
        log_warning("what was published meanwhile is not known: %s", err->text);
    }
    for (size_t i = 0; i < n && !s->stopping; i++) {
        shared_news(s, NEWS_BEST, bests[i].key, &bests[i], true);
    }
    if (status == 0 && n > 0 && !s->stopping && s->reader) {
        s->reader->ops->load(s->reader, false, on_reloaded, s);
    }
}

static void on_followed(struct shared *s, const struct rpc_message *m)
{
    struct error err = ERROR_NULL;
    if (m->error) {
        rpc_get_error(m->error, &err);
        if (err.code == ERROR_UNKNOWN_METHOD || err.code == ERROR_DENIED) {
            error_prefix(&err, "the gemmd that keeps %s cannot be followed", s->config.path);
            say_ready(s, err.code, &err);
        }
        keeper_link_close(&s->link);
        return;
    }
    wire_copy_str(wire_find(m->result, "owner"), s->keeper, sizeof(s->keeper));
    if (!s->reader && open_home(s, true, &s->reader, &err) < 0) {
        log_error("%s", err.text);
        say_ready(s, err.code, &err);
        keeper_link_close(&s->link);
        return;
    }
    s->following = true;
    uv_timer_stop(&s->timer);
    LIST_EACH(node, &s->outgoing)
    {
        outgoing_send(s, LIST_OF(node, struct outgoing, link));
    }
    if (s->ready) {
        s->reader->ops->load(s->reader, true, on_reloaded, s);
        shared_news(s, NEWS_FREED, "", NULL, false);
    }
    say_ready(s, 0, &err);
}

static void on_message(struct keeper_link *link, const struct rpc_message *m)
{
    struct shared *s = LIST_OF(link, struct shared, link);
    if (m->type == RPC_NOTIFY && strcmp(m->method, "news") == 0) {
        hear_news(s, m->params);
    } else if (m->type == RPC_RESPONSE && m->id == s->follow_id && !s->following) {
        on_followed(s, m);
    } else if (m->type == RPC_RESPONSE) {
        outgoing_response(s, m);
    }
}

const struct keeper_link_calls shared_link_calls = {on_up, on_message, on_down};
