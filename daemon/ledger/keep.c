/* SPDX-License-Identifier: Apache-2.0 */
/* Being the keeper of a database (keep.h). */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/ledger/keep.h"
#include "daemon/ledger/reads.h"
#include "store/store.h"

/* ---- what is told ---------------------------------------------------------------------------- */

/* What the local home has done is told before it is answered. */
struct told {
    struct shared *s; /* borrowed */
    union {
        ledger_best_cb best;
        ledger_id_cb id;
        void (*status)(void *ctx, const struct ledger_status *s);
    } cb;
    void *ctx;
    bool removes; /* counted in shared.removing */
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

static int removal_begun(struct told *t, int status)
{
    if (status >= 0) {
        t->removes = true;
        t->s->removing++;
    }
    return told_begun(t, status);
}

static void told_best(void *ctx, int status, const struct best *b, bool saved,
                      const struct error *err)
{
    struct told t = *(struct told *)ctx;
    free(ctx);
    t.s->removing -= t.removes;
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
    t.s->removing -= t.removes;
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
    all.unsaved += t.s->unsaved; /* on their way to the writer */
    all.daemons = t.s->config.daemons ? t.s->config.daemons(t.s->config.ctx) : 1;
    t.cb.status(t.ctx, &all);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int keep_publish(struct ledger *base, const struct best *b, ledger_best_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    struct told *t = told_new(s, b->key, ctx);
    if (!t) {
        return ERROR_NO_MEMORY;
    }
    t->cb.best = cb;
    return told_begun(t, s->writer->ops->publish(s->writer, b, told_best, t));
}

static int keep_restore(struct ledger *base, const struct best *b, ledger_best_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    struct told *t = told_new(s, b->key, ctx);
    if (!t) {
        return ERROR_NO_MEMORY;
    }
    t->cb.best = cb;
    return told_begun(t, s->writer->ops->restore(s->writer, b, told_best, t));
}

static int keep_unpin(struct ledger *base, const char *key, ledger_best_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    struct told *t = told_new(s, key, ctx);
    if (!t) {
        return ERROR_NO_MEMORY;
    }
    t->cb.best = cb;
    return removal_begun(t, s->writer->ops->unpin(s->writer, key, told_best, t));
}

static int keep_evict(struct ledger *base, const char *key, ledger_id_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    struct told *t = told_new(s, key, ctx);
    if (!t) {
        return ERROR_NO_MEMORY;
    }
    t->cb.id = cb;
    return removal_begun(t, s->writer->ops->evict(s->writer, key, told_evicted, t));
}

static int keep_status(struct ledger *base, void (*cb)(void *, const struct ledger_status *),
                       void *ctx)
{
    struct shared *s = shared_of(base);
    struct told *t = told_new(s, "", ctx);
    if (!t) {
        return ERROR_NO_MEMORY;
    }
    t->cb.status = cb;
    return told_begun(t, s->writer->ops->status(s->writer, told_status, t));
}

static int keep_lease(struct ledger *base, const char *key, const char *owner, int64_t ttl_ms,
                      ledger_done_cb cb, void *ctx)
{
    struct ledger *w = shared_of(base)->writer;
    return w->ops->lease(w, key, owner, ttl_ms, cb, ctx);
}

static int keep_unlease(struct ledger *base, const char *key, const char *owner)
{
    struct shared *s = shared_of(base);
    int status = s->writer->ops->unlease(s->writer, key, owner);
    shared_news(s, NEWS_FREED, key, NULL, false); /* who asks now comes after it */
    return status;
}

static int keep_record(struct ledger *base, const struct trial *t, ledger_done_cb cb, void *ctx)
{
    struct ledger *w = shared_of(base)->writer;
    return w->ops->record(w, t, cb, ctx);
}

static uint32_t keep_room(struct ledger *base)
{
    struct ledger *w = shared_of(base)->writer;
    return w->ops->room(w);
}

/* Who hears it may say something himself: each has a memory of its own. */
static void keep_tell(struct ledger *base, const struct wire_buf *said, bool lasting)
{
    const struct wire_obj *map;
    struct wire_doc *doc = wire_doc_new();
    (void)lasting;
    if (doc && wire_decode(doc, said->data, said->len, &map, NULL) == 0) {
        shared_said(shared_of(base), map);
    }
    wire_doc_free(doc);
}

static int keep_add_run(struct ledger *base, const struct run *r, ledger_id_cb cb, void *ctx)
{
    struct ledger *w = shared_of(base)->writer;
    return w->ops->add_run(w, r, cb, ctx);
}

static int keep_unquarantine(struct ledger *base, const char *variant, ledger_id_cb cb, void *ctx)
{
    struct ledger *w = shared_of(base)->writer;
    return w->ops->unquarantine(w, variant, cb, ctx);
}

#define KEEP_ROW(op, type)                                                                         \
    static void keep_##op(struct ledger *base, const struct type *row)                             \
    {                                                                                              \
        struct ledger *w = shared_of(base)->writer;                                                \
        w->ops->op(w, row);                                                                        \
    }
KEEP_ROW(add_trial, trial)
KEEP_ROW(add_module, module)
KEEP_ROW(add_quarantine, quarantine)
KEEP_ROW(add_event, event)
KEEP_ROW(put_device, device_info)
KEEP_ROW(end_run, run)

const struct ledger_ops ledger_keep_ops = {
    .stop = follow_stop,
    LEDGER_READS,
    .publish = keep_publish,
    .restore = keep_restore,
    .lease = keep_lease,
    .unlease = keep_unlease,
    .record = keep_record,
    .room = keep_room,
    .tell = keep_tell,
    .add_run = keep_add_run,
    .evict = keep_evict,
    .unquarantine = keep_unquarantine,
    .unpin = keep_unpin,
    .status = keep_status,
    .add_trial = keep_add_trial,
    .add_module = keep_add_module,
    .add_quarantine = keep_add_quarantine,
    .add_event = keep_add_event,
    .put_device = keep_put_device,
    .end_run = keep_end_run,
};
