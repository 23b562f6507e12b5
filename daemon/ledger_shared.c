/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of a database that several daemons of this host share (one per GPU). Whoever holds the
 * database's lock is its keeper: it has the local home, and is the only one that writes. The others
 * read the file themselves, and send the keeper what they want written, by the method `ledger` of the
 * ordinary protocol; `follow` makes it tell them what anybody changed.
 *
 * When the keeper goes, whoever gets the lock first is the next one, and the others find it by
 * what it has written into the lock file. A request that was not answered is made again, in its order, to
 * the next keeper or to oneself: it may be carried out twice, which does no harm beyond a second row,
 * and never not at all. Leases of the keeper that went end at once; others' go on.
 *
 * Reads go to the file as it is now: of one's own writes they show what was answered.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/keeper_link.h"
#include "daemon/ledger_wire.h"
#include "daemon/list.h"
#include "daemon/log.h"
#include "proto/paths.h"
#include "store/store.h"

enum {
    RETRY_MS = 25,            /* between attempts to find, or to be, the keeper */
    RETRY_FAULT_MS = 1000,    /* when the database cannot be opened */
    FOLLOW_PATIENCE_MS = 2000, /* for the keeper to say that we may follow */
    START_PATIENCE_MS = 5000,
    STOP_PATIENCE_MS = 3000,  /* for the keeper to answer what was asked before the end */
    OUTGOING_MAX = 16384,     /* unanswered; more trials are lost, and counted */
};

struct shared;

/* A request to the keeper. */
struct outgoing {
    struct list link;
    struct shared *s; /* borrowed */
    uint32_t id;
    void (*answer)(struct outgoing *o, const struct wire_obj *result, const struct error *err);
    union {
        ledger_done_cb done;
        ledger_best_cb best;
        ledger_id_cb id;
        void (*status)(void *ctx, const struct ledger_status *s);
    } cb;
    void *ctx;              /* borrowed, the caller's */
    struct wire_buf params; /* owned */
};

struct shared {
    struct ledger base;          /* first: a struct ledger * is this */
    struct ledger_config config; /* its texts are owned */
    uv_loop_t *loop;             /* borrowed */
    struct ledger *writer;       /* owned; NULL: another daemon is the keeper */
    struct ledger *reader;       /* owned; NULL: not yet, or never needed */
    struct keeper_link link;
    uv_timer_t timer;            /* the next attempt; while stopping: the end of patience */
    struct list outgoing;
    unsigned n_outgoing;
    uint32_t last_id, follow_id;
    char keeper[80];             /* as the keeper calls itself in leases */
    bool following;              /* the keeper listens to us */
    bool ready, stopping, ending;
    uint64_t started_ms;
    int64_t lost_trials;
    struct best *best;           /* owned: what came last */
    struct wire_doc *doc;        /* owned */
    unsigned parts;              /* of the end: what is not closed yet */
    void (*stopped)(void *ctx);
    void *stopped_ctx;
};

static void attempt(struct shared *s);
static void finish(struct shared *s);

static struct shared *shared_of(struct ledger *l)
{
    return (struct shared *)l;
}

static struct ledger *reading(struct shared *s)
{
    return s->writer ? s->writer : s->reader;
}

/* ---- news ---------------------------------------------------------------------------------------- */

static void tell(struct shared *s, enum ledger_news_kind kind, const char *key,
                 const struct best *best, bool saved)
{
    struct ledger_news n = {.kind = kind, .key = key, .best = best, .saved = saved};
    if (s->config.news) {
        s->config.news(s->config.ctx, &n);
    }
}

static void tell_said(struct shared *s, const struct wire_obj *said)
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
        tell_said(s, wire_find(params, "said"));
        return;
    }
    for (enum ledger_news_kind i = NEWS_BEST; i <= NEWS_FREED; i++) {
        if (!wire_is_str(wire_find(params, "kind"), kinds[i])) {
            continue;
        }
        if (i != NEWS_BEST) {
            tell(s, i, key, NULL, false);
        } else if (schema_decode(&best_schema, SCHEMA_LENIENT, wire_find(params, "row"), s->best,
                                 &err) == 0) {
            tell(s, i, s->best->key, s->best, saved);
        }
    }
}

/* ---- what the keeper is asked ---------------------------------------------------------------------- */

static struct outgoing *outgoing_free(struct outgoing *o)
{
    if (o) {
        list_remove(&o->link);
        wire_buf_deinit(&o->params);
        free(o);
    }
    return NULL;
}

static void send_one(struct shared *s, struct outgoing *o)
{
    struct wire_buf b = WIRE_BUF_NULL;
    o->id = ++s->last_id;
    rpc_put_request(&b, o->id, "ledger");
    wire_put_raw(&b, o->params.data, o->params.len);
    keeper_link_send(&s->link, &b);
}

static struct outgoing *outgoing_new(struct shared *s, void *ctx)
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
static int submit(struct shared *s, struct outgoing *o)
{
    if (!o || o->params.failed) {
        outgoing_free(o);
        return s->stopping ? ERROR_SHUTTING_DOWN : ERROR_NO_MEMORY;
    }
    list_append(&s->outgoing, &o->link);
    s->n_outgoing++;
    if (s->following) {
        send_one(s, o);
    }
    return 0;
}

/* Its answer has come. */
static void settle(struct outgoing *o, const struct wire_obj *result, const struct error *err)
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
        finish(s);
    }
}

static void on_response(struct shared *s, const struct rpc_message *m)
{
    struct error err = ERROR_NULL;
    if (m->error) {
        rpc_get_error(m->error, &err);
    }
    if (err.code == ERROR_SHUTTING_DOWN) { /* the next keeper is asked again */
        keeper_link_close(&s->link);
        return;
    }
    LIST_EACH(node, &s->outgoing) {
        struct outgoing *o = LIST_OF(node, struct outgoing, link);
        if (o->id == m->id) {
            settle(o, m->result, err.code ? &err : NULL);
            return;
        }
    }
}

static void answer_done(struct outgoing *o, const struct wire_obj *result, const struct error *err)
{
    bool held = false;
    wire_get_bool(wire_find(result, "held"), &held);
    o->cb.done(o->ctx, err ? err->code : held ? STORE_HELD : 0, err);
}

static void answer_id(struct outgoing *o, const struct wire_obj *result, const struct error *err)
{
    int64_t n = 0;
    wire_get_int(wire_find(result, "n"), &n);
    o->cb.id(o->ctx, err ? err->code : 0, n, err);
}

static void answer_best(struct outgoing *o, const struct wire_obj *result, const struct error *err)
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

static void answer_status(struct outgoing *o, const struct wire_obj *result,
                          const struct error *err)
{
    struct ledger_status counts;
    schema_decode(&ledger_status_schema, SCHEMA_LENIENT, err ? NULL : result, &counts, NULL);
    counts.keeper = false;
    counts.lost_trials += o->s->lost_trials;
    o->cb.status(o->ctx, &counts);
}

/* ---- being the keeper ------------------------------------------------------------------------------- */

/* What the local home has done is told before it is answered. */
struct told {
    struct shared *s; /* borrowed */
    union {
        ledger_best_cb best;
        ledger_id_cb id;
        void (*status)(void *ctx, const struct ledger_status *s);
    } cb;
    void *ctx;
    char key[HASH_HEX];
};

static struct told *told_new(struct shared *s, const char *key, void *ctx)
{
    struct told *t = calloc(1, sizeof(*t));
    if (t) {
        t->s = s;
        t->ctx = ctx;
        snprintf(t->key, sizeof(t->key), "%s", key);
    }
    return t;
}

static int told_begun(struct told *t, int status)
{
    if (status < 0) {
        free(t);
    }
    return status;
}

static void told_best(void *ctx, int status, const struct best *b, bool saved,
                      const struct error *err)
{
    struct told t = *(struct told *)ctx;
    free(ctx);
    if (b) {
        tell(t.s, NEWS_BEST, b->key, b, saved);
    } else if (status == STORE_MISS) {
        tell(t.s, NEWS_EVICTED, t.key, NULL, false);
    }
    t.cb.best(t.ctx, status, b, saved, err);
}

static void told_evicted(void *ctx, int status, int64_t id, const struct error *err)
{
    struct told t = *(struct told *)ctx;
    free(ctx);
    if (status >= 0) {
        tell(t.s, NEWS_EVICTED, t.key, NULL, false);
    }
    t.cb.id(t.ctx, status, id, err);
}

static void told_status(void *ctx, const struct ledger_status *counts)
{
    struct told t = *(struct told *)ctx;
    struct ledger_status all = *counts;
    free(ctx);
    all.keeper = true;
    all.daemons = t.s->config.daemons ? t.s->config.daemons(t.s->config.ctx) : 1;
    t.cb.status(t.ctx, &all);
}

/* ---- calls: of the keeper to its own home, of the others to the keeper --------------------------------- */

/* When the home changes in between, the other one begins anew. */
static int shared_load(struct ledger *base, bool first, ledger_load_cb cb, void *ctx)
{
    struct ledger *l = reading(shared_of(base));
    return l->ops->load(l, first, cb, ctx);
}

static int shared_find(struct ledger *base, const char *key, ledger_best_cb cb, void *ctx)
{
    struct ledger *l = reading(shared_of(base));
    return l->ops->find(l, key, cb, ctx);
}

static int shared_history(struct ledger *base, const char *key, const char *stamp,
                          const char *class_, const char *driver, ledger_history_cb cb, void *ctx)
{
    struct ledger *l = reading(shared_of(base));
    return l->ops->history(l, key, stamp, class_, driver, cb, ctx);
}

static int shared_list(struct ledger *base, const char *what, const struct record *filter,
                       size_t max_bytes, ledger_list_cb cb, void *ctx)
{
    struct ledger *l = reading(shared_of(base));
    return l->ops->list(l, what, filter, max_bytes, cb, ctx);
}

static int shared_backup(struct ledger *base, const char *path, ledger_done_cb cb, void *ctx)
{
    struct ledger *l = reading(shared_of(base));
    return l->ops->backup(l, path, cb, ctx);
}

static int shared_publish(struct ledger *base, const struct best *b, ledger_best_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    if (s->writer) {
        struct told *t = told_new(s, b->key, ctx);
        if (!t) {
            return ERROR_NO_MEMORY;
        }
        t->cb.best = cb;
        return told_begun(t, s->writer->ops->publish(s->writer, b, told_best, t));
    }
    struct outgoing *o = outgoing_new(s, ctx);
    if (o) {
        o->cb.best = cb;
        o->answer = answer_best;
        ledger_wire_put(&o->params, "publish", &best_schema, b, NULL, NULL, 0);
    }
    return submit(s, o);
}

static int shared_unpin(struct ledger *base, const char *key, ledger_best_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    if (s->writer) {
        struct told *t = told_new(s, key, ctx);
        if (!t) {
            return ERROR_NO_MEMORY;
        }
        t->cb.best = cb;
        return told_begun(t, s->writer->ops->unpin(s->writer, key, told_best, t));
    }
    struct outgoing *o = outgoing_new(s, ctx);
    if (o) {
        o->cb.best = cb;
        o->answer = answer_best;
        ledger_wire_put(&o->params, "unpin", NULL, NULL, key, NULL, 0);
    }
    return submit(s, o);
}

static int shared_lease(struct ledger *base, const char *key, const char *owner, int64_t ttl_ms,
                        ledger_done_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    if (s->writer) {
        return s->writer->ops->lease(s->writer, key, owner, ttl_ms, cb, ctx);
    }
    struct outgoing *o = outgoing_new(s, ctx);
    if (o) {
        o->cb.done = cb;
        o->answer = answer_done;
        ledger_wire_put(&o->params, "lease", NULL, NULL, key, owner, ttl_ms);
    }
    return submit(s, o);
}

static int shared_unlease(struct ledger *base, const char *key, const char *owner)
{
    struct shared *s = shared_of(base);
    if (s->writer) {
        int status = s->writer->ops->unlease(s->writer, key, owner);
        tell(s, NEWS_FREED, key, NULL, false); /* who asks now comes after it */
        return status;
    }
    struct outgoing *o = outgoing_new(s, NULL);
    if (o) {
        ledger_wire_put(&o->params, "unlease", NULL, NULL, key, owner, 0);
    }
    return submit(s, o);
}

static void shared_tell(struct ledger *base, const struct wire_buf *said)
{
    struct shared *s = shared_of(base);
    const struct wire_obj *map;
    if (s->writer) { /* who hears it may say something himself: each has a memory of its own */
        struct wire_doc *doc = wire_doc_new();
        if (doc && wire_decode(doc, said->data, said->len, &map, NULL) == 0) {
            tell_said(s, map);
        }
        wire_doc_free(doc);
        return;
    }
    struct outgoing *o = outgoing_new(s, NULL);
    if (o) {
        wire_put_map(&o->params, 2);
        wire_put_kv_str(&o->params, "verb", "tell");
        wire_put_str(&o->params, "said");
        wire_put_raw(&o->params, said->data, said->len);
    }
    submit(s, o);
}

static int ask_id(struct shared *s, const char *verb, const struct schema *schema, const void *row,
                  const char *key, ledger_id_cb cb, void *ctx)
{
    struct outgoing *o = outgoing_new(s, ctx);
    if (o) {
        o->cb.id = cb;
        o->answer = answer_id;
        ledger_wire_put(&o->params, verb, schema, row, key, NULL, 0);
    }
    return submit(s, o);
}

static int shared_add_run(struct ledger *base, const struct run *r, ledger_id_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    return s->writer ? s->writer->ops->add_run(s->writer, r, cb, ctx)
                     : ask_id(s, "run", &run_schema, r, NULL, cb, ctx);
}

static int shared_unquarantine(struct ledger *base, const char *variant, ledger_id_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    return s->writer ? s->writer->ops->unquarantine(s->writer, variant, cb, ctx)
                     : ask_id(s, "unquarantine", NULL, NULL, variant, cb, ctx);
}

static int shared_evict(struct ledger *base, const char *key, ledger_id_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    if (!s->writer) {
        return ask_id(s, "evict", NULL, NULL, key, cb, ctx);
    }
    struct told *t = told_new(s, key, ctx);
    if (!t) {
        return ERROR_NO_MEMORY;
    }
    t->cb.id = cb;
    return told_begun(t, s->writer->ops->evict(s->writer, key, told_evicted, t));
}

static int shared_status(struct ledger *base, void (*cb)(void *, const struct ledger_status *),
                         void *ctx)
{
    struct shared *s = shared_of(base);
    if (s->writer) {
        struct told *t = told_new(s, "", ctx);
        if (!t) {
            return ERROR_NO_MEMORY;
        }
        t->cb.status = cb;
        return told_begun(t, s->writer->ops->status(s->writer, told_status, t));
    }
    struct outgoing *o = outgoing_new(s, ctx);
    if (o) {
        o->cb.status = cb;
        o->answer = answer_status;
        ledger_wire_put(&o->params, "status", NULL, NULL, NULL, NULL, 0);
    }
    return submit(s, o);
}

/* A row that nobody waits for. */
static void give(struct shared *s, const char *verb, const struct schema *schema, const void *row)
{
    bool trial = schema == &trial_schema;
    struct outgoing *o =
        trial && s->n_outgoing >= OUTGOING_MAX ? NULL : outgoing_new(s, NULL);
    if (o) {
        ledger_wire_put(&o->params, verb, schema, row, NULL, NULL, 0);
    }
    if (submit(s, o) < 0) {
        s->lost_trials += trial;
    }
}

#define SHARED_GIVE(op, type, verb, schema)                                                        \
    static void shared_##op(struct ledger *base, const struct type *row)                           \
    {                                                                                              \
        struct shared *s = shared_of(base);                                                        \
        if (s->writer) {                                                                           \
            s->writer->ops->op(s->writer, row);                                                    \
        } else {                                                                                   \
            give(s, verb, &schema, row);                                                           \
        }                                                                                          \
    }
SHARED_GIVE(add_trial, trial, "trial", trial_schema)
SHARED_GIVE(add_module, module, "module", module_schema)
SHARED_GIVE(add_quarantine, quarantine, "quarantine", quarantine_schema)
SHARED_GIVE(add_event, event, "event", event_schema)
SHARED_GIVE(put_device, device_info, "device", device_info_schema)
SHARED_GIVE(end_run, run, "end_run", run_schema)

/* ---- finding the keeper, or becoming it ---------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    struct shared *s = timer->data;
    if (s->stopping) {
        finish(s);
    } else {
        attempt(s);
    }
}

static void retry_in(struct shared *s, uint64_t ms)
{
    if (!s->stopping) {
        uv_timer_start(&s->timer, on_timer, ms, 0);
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
        error_set(&err, ERROR_BUSY,
                  "database %s is in use by gemmd with pid %ld, which does not answer on its socket "
                  "'%.100s': stop that one, or give this one another --database",
                  s->config.path, pid, address);
        say_ready(s, err.code, &err);
        return;
    }
    retry_in(s, RETRY_MS);
}

static void on_applied(void *ctx, const struct wire_buf *result, const struct error *err)
{
    struct outgoing *o = ctx;
    const struct wire_obj *map = NULL;
    if (!err) {
        wire_decode(o->s->doc, result->data, result->len, &map, NULL);
    }
    o->s->n_outgoing++; /* settle takes it back */
    settle(o, map, err);
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
    LIST_EACH(node, &rest) {
        struct outgoing *o = LIST_OF(node, struct outgoing, link);
        struct error err = ERROR_NULL;
        const struct wire_obj *params = NULL;
        list_remove(node);
        int status = wire_decode(s->doc, o->params.data, o->params.len, &params, &err);
        status = status ? status : ledger_wire_apply(&s->base, params, on_applied, o, &err);
        if (status != 0) {
            s->n_outgoing++;
            settle(o, NULL, status < 0 ? &err : NULL);
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
        shared_unlease(&s->base, "", s->keeper);
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
        retry_in(s, RETRY_FAULT_MS);
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
    retry_in(s, FOLLOW_PATIENCE_MS);
    keeper_link_send(link, &b);
}

static void on_down(struct keeper_link *link)
{
    struct shared *s = LIST_OF(link, struct shared, link);
    bool followed = s->following;
    s->following = false;
    if (s->ending) {
        s->parts--;
        finish(s);
    } else if (s->stopping) {
        finish(s);
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
        tell(s, NEWS_BEST, bests[i].key, &bests[i], true);
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
    LIST_EACH(node, &s->outgoing) {
        send_one(s, LIST_OF(node, struct outgoing, link));
    }
    if (s->ready) {
        s->reader->ops->load(s->reader, true, on_reloaded, s);
        tell(s, NEWS_FREED, "", NULL, false);
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
        on_response(s, m);
    }
}

static const struct keeper_link_calls link_calls = {on_up, on_message, on_down};

/* ---- life -------------------------------------------------------------------------------------------- */

static void shared_free(struct shared *s)
{
    keeper_link_deinit(&s->link);
    wire_doc_free(s->doc);
    free(s->best);
    free((char *)s->config.path);
    free((char *)s->config.address);
    free((char *)s->config.owner);
    free((char *)s->config.cache_dir);
    free(s);
}

static char *copy_text(const char *text)
{
    return text ? strdup(text) : NULL;
}

static struct shared *shared_new(uv_loop_t *loop, const struct ledger_config *c)
{
    struct shared *s = calloc(1, sizeof(*s));
    if (!s) {
        return NULL;
    }
    s->base.ops = &ledger_shared_ops;
    s->config = *c;
    s->config.path = copy_text(c->path);
    s->config.address = copy_text(c->address);
    s->config.owner = copy_text(c->owner);
    s->config.cache_dir = copy_text(c->cache_dir);
    s->loop = loop;
    s->started_ms = uv_now(loop);
    s->best = malloc(sizeof(*s->best));
    s->doc = wire_doc_new();
    list_init(&s->outgoing);
    if (keeper_link_init(&s->link, &link_calls) < 0 || !s->config.path || !s->config.owner ||
        !s->best || !s->doc) {
        shared_free(s);
        return NULL;
    }
    return s;
}

static int shared_start(struct ledger **out, uv_loop_t *loop, const struct ledger_config *c,
                        struct error *err)
{
    struct shared *s = shared_new(loop, c);
    if (!s) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the ledger");
    }
    uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    *out = &s->base;
    retry_in(s, 0);
    return 0;
}

static void part_ended(void *ctx)
{
    struct shared *s = ctx;
    s->parts--;
    finish(s);
}

static void timer_closed(uv_handle_t *handle)
{
    part_ended(handle->data);
}

static void fail_rest(struct shared *s)
{
    struct error e = ERROR_NULL;
    error_set(&e, ERROR_SHUTTING_DOWN, "gemmd is stopping, and the keeper of the database has not "
                                       "answered");
    LIST_EACH(node, &s->outgoing) {
        struct outgoing *o = LIST_OF(node, struct outgoing, link);
        list_remove(node);
        if (o->answer) {
            o->answer(o, NULL, &e);
        }
        outgoing_free(o);
    }
}

/* Closes all parts; called again as each of them is closed. */
static void finish(struct shared *s)
{
    if (!s->ending) {
        s->ending = true;
        s->parts = 1;
        fail_rest(s);
        struct ledger *homes[] = {s->writer, s->reader};
        for (int i = 0; i < 2; i++) {
            if (homes[i]) {
                s->parts++;
                homes[i]->ops->stop(homes[i], part_ended, s);
            }
        }
        uv_close((uv_handle_t *)&s->timer, timer_closed);
        if (s->link.state != LINK_CLOSED) {
            s->parts++;
            keeper_link_close(&s->link);
        }
    } else if (s->parts == 0) {
        void (*stopped)(void *) = s->stopped;
        void *ctx = s->stopped_ctx;
        shared_free(s);
        stopped(ctx);
    }
}

static void shared_stop(struct ledger *base, void (*stopped)(void *ctx), void *ctx)
{
    struct shared *s = shared_of(base);
    if (s->stopping) {
        return;
    }
    s->stopping = true;
    s->stopped = stopped;
    s->stopped_ctx = ctx;
    /* At once, or when the keeper has answered the rest. */
    bool wait = s->following && !list_empty(&s->outgoing);
    uv_timer_start(&s->timer, on_timer, wait ? STOP_PATIENCE_MS : 0, 0);
}

bool ledger_shared_is_keeper(const struct ledger *l)
{
    return l && l->ops == &ledger_shared_ops && ((const struct shared *)l)->writer != NULL;
}

const struct ledger_ops ledger_shared_ops = {
    .start = shared_start,
    .stop = shared_stop,
    .load = shared_load,
    .find = shared_find,
    .history = shared_history,
    .publish = shared_publish,
    .lease = shared_lease,
    .unlease = shared_unlease,
    .add_run = shared_add_run,
    .list = shared_list,
    .evict = shared_evict,
    .unquarantine = shared_unquarantine,
    .unpin = shared_unpin,
    .backup = shared_backup,
    .status = shared_status,
    .add_trial = shared_add_trial,
    .add_module = shared_add_module,
    .add_quarantine = shared_add_quarantine,
    .add_event = shared_add_event,
    .put_device = shared_put_device,
    .end_run = shared_end_run,
    .tell = shared_tell,
};
