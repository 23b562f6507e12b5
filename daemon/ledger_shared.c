/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of the shared ledger (ledger_shared.h): of the keeper to its own home, of the others to
 * the keeper; and its life.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger_shared.h"
#include "daemon/ledger_wire.h"
#include "daemon/log.h"
#include "store/store.h"

static struct ledger *reading(struct shared *s)
{
    return s->writer ? s->writer : s->reader;
}

/* ---- being the keeper ------------------------------------------------------------------------ */

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
        shared_news(t.s, NEWS_BEST, b->key, b, saved);
    } else if (status == STORE_MISS) {
        shared_news(t.s, NEWS_EVICTED, t.key, NULL, false);
    }
    t.cb.best(t.ctx, status, b, saved, err);
}

static void told_evicted(void *ctx, int status, int64_t id, const struct error *err)
{
    struct told t = *(struct told *)ctx;
    free(ctx);
    if (status >= 0) {
        shared_news(t.s, NEWS_EVICTED, t.key, NULL, false);
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

/* ---- calls: of the keeper to its own home, of the others to the keeper ----------------------- */

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
        o->answer = outgoing_best;
        ledger_wire_put(&o->params, "publish", &best_schema, b, NULL, NULL, 0);
    }
    return outgoing_submit(s, o);
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
        o->answer = outgoing_best;
        ledger_wire_put(&o->params, "unpin", NULL, NULL, key, NULL, 0);
    }
    return outgoing_submit(s, o);
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
        o->answer = outgoing_done;
        ledger_wire_put(&o->params, "lease", NULL, NULL, key, owner, ttl_ms);
    }
    return outgoing_submit(s, o);
}

static int shared_unlease(struct ledger *base, const char *key, const char *owner)
{
    struct shared *s = shared_of(base);
    if (s->writer) {
        int status = s->writer->ops->unlease(s->writer, key, owner);
        shared_news(s, NEWS_FREED, key, NULL, false); /* who asks now comes after it */
        return status;
    }
    struct outgoing *o = outgoing_new(s, NULL);
    if (o) {
        ledger_wire_put(&o->params, "unlease", NULL, NULL, key, owner, 0);
    }
    return outgoing_submit(s, o);
}

static void shared_tell(struct ledger *base, const struct wire_buf *said)
{
    struct shared *s = shared_of(base);
    const struct wire_obj *map;
    if (s->writer) { /* who hears it may say something himself: each has a memory of its own */
        struct wire_doc *doc = wire_doc_new();
        if (doc && wire_decode(doc, said->data, said->len, &map, NULL) == 0) {
            shared_said(s, map);
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
    outgoing_submit(s, o);
}

static int ask_id(struct shared *s, const char *verb, const struct schema *schema, const void *row,
                  const char *key, ledger_id_cb cb, void *ctx)
{
    struct outgoing *o = outgoing_new(s, ctx);
    if (o) {
        o->cb.id = cb;
        o->answer = outgoing_id;
        ledger_wire_put(&o->params, verb, schema, row, key, NULL, 0);
    }
    return outgoing_submit(s, o);
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
        o->answer = outgoing_status;
        ledger_wire_put(&o->params, "status", NULL, NULL, NULL, NULL, 0);
    }
    return outgoing_submit(s, o);
}

/* A row that nobody waits for. */
static void give(struct shared *s, const char *verb, const struct schema *schema, const void *row)
{
    bool trial = schema == &trial_schema;
    struct outgoing *o = trial && s->n_outgoing >= OUTGOING_MAX ? NULL : outgoing_new(s, NULL);
    if (o) {
        ledger_wire_put(&o->params, verb, schema, row, NULL, NULL, 0);
    }
    if (outgoing_submit(s, o) < 0) {
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

/* ---- life ------------------------------------------------------------------------------------ */

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
    if (keeper_link_init(&s->link, &shared_link_calls) < 0 || !s->config.path || !s->config.owner ||
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
    shared_retry_in(s, 0);
    return 0;
}

static void part_ended(void *ctx)
{
    struct shared *s = ctx;
    s->parts--;
    shared_finish(s);
}

static void timer_closed(uv_handle_t *handle)
{
    part_ended(handle->data);
}

static void fail_rest(struct shared *s)
{
    struct error e = ERROR_NULL;
    error_set(&e, ERROR_SHUTTING_DOWN,
              "gemmd is stopping, and the keeper of the database has not "
              "answered");
    LIST_EACH(node, &s->outgoing)
    {
        struct outgoing *o = LIST_OF(node, struct outgoing, link);
        list_remove(node);
        if (o->answer) {
            o->answer(o, NULL, &e);
        }
        outgoing_free(o);
    }
}

/* Closes all parts; called again as each of them is closed. */
void shared_finish(struct shared *s)
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
    uv_timer_start(&s->timer, shared_timer, wait ? STOP_PATIENCE_MS : 0, 0);
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
