/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the keeper of a database (ask.h). */
#include <stdlib.h>

#include "daemon/base/log.h"
#include "daemon/ledger/ask.h"
#include "daemon/ledger/reads.h"
#include "daemon/ledger/wire.h"
#include "store/store.h"

static struct shared *asker(const struct outgoing *o)
{
    return LIST_OF(o->box, struct shared, outbox);
}

/* ---- a best ---------------------------------------------------------------------------------- */

static void answer_best(struct outgoing *o, const struct wire_obj *result, const struct error *err)
{
    struct best *b = asker(o)->best;
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

/* The row that was to be published. NULL: it cannot be read. */
static struct best *row_of(struct outgoing *o, struct error *err)
{
    struct shared *s = asker(o);
    const struct wire_obj *map = NULL;
    int status = wire_decode(s->doc, o->params.data, o->params.len, &map, err);
    status = status
                 ? status
                 : schema_decode(&best_schema, SCHEMA_LENIENT, wire_find(map, "row"), s->best, err);
    return status < 0 ? NULL : s->best;
}

/* From memory: known here at once, to the others when the keeper has it. */
static void publish_alone(struct outgoing *o, const struct error *silent)
{
    struct shared *s = asker(o);
    struct error err = ERROR_NULL;
    struct best *b = row_of(o, &err);
    s->unsaved++;
    if (!b) {
        o->cb.best(o->ctx, err.code, NULL, false, &err);
        return;
    }
    b->generation = 0;
    shared_news(s, NEWS_BEST, b->key, b, false);
    o->cb.best(o->ctx, 0, b, false, silent);
}

/* It is told as news by the keeper. */
static void publish_late(struct outgoing *o, const struct error *err)
{
    struct shared *s = asker(o);
    if (err && err->code != ERROR_SHUTTING_DOWN) {
        log_error("a best that was served from memory is not saved: %s", err->text);
    }
    s->unsaved -= !err || err->code != ERROR_SHUTTING_DOWN;
}

static const struct outgoing_kind kind_publish = {.answer = answer_best,
                                                  .alone = publish_alone,
                                                  .late = publish_late,
                                                  .kept = true,
                                                  .most = OUTGOING_MAX};

static int ask_publish(struct ledger *base, const struct best *b, ledger_best_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    struct outgoing *o = outgoing_new(&s->outbox, &kind_publish, ctx);
    if (o) {
        o->cb.best = cb;
        ledger_wire_put(&o->params, "publish", &best_schema, b, NULL, NULL, 0);
    }
    return outbox_submit(&s->outbox, o);
}

static void unpin_alone(struct outgoing *o, const struct error *silent)
{
    o->cb.best(o->ctx, silent->code, NULL, false, silent);
}

static const struct outgoing_kind kind_unpin = {.answer = answer_best, .alone = unpin_alone};

static int ask_unpin(struct ledger *base, const char *key, ledger_best_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    struct outgoing *o = outgoing_new(&s->outbox, &kind_unpin, ctx);
    if (o) {
        o->cb.best = cb;
        ledger_wire_put(&o->params, "unpin", NULL, NULL, key, NULL, 0);
    }
    return outbox_submit(&s->outbox, o);
}

/* ---- a lease --------------------------------------------------------------------------------- */

static void answer_lease(struct outgoing *o, const struct wire_obj *result, const struct error *err)
{
    bool held = false;
    wire_get_bool(wire_find(result, "held"), &held);
    o->cb.done(o->ctx, err ? err->code : held ? STORE_HELD : 0, err);
}

static void done_alone(struct outgoing *o, const struct error *silent)
{
    o->cb.done(o->ctx, silent->code, silent);
}

static const struct outgoing_kind kind_lease = {.answer = answer_lease, .alone = done_alone};
static const struct outgoing_kind kind_row = {.kept = true};
/* Events, leases that end: what is lost of them is only said, or ends by itself. The rest of the
 * room is for rows. */
static const struct outgoing_kind kind_small = {.kept = true, .most = OUTGOING_MAX / 2};

static int ask_lease(struct ledger *base, const char *key, const char *owner, int64_t ttl_ms,
                     ledger_done_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    struct outgoing *o = outgoing_new(&s->outbox, &kind_lease, ctx);
    if (o) {
        o->cb.done = cb;
        ledger_wire_put(&o->params, "lease", NULL, NULL, key, owner, ttl_ms);
    }
    return outbox_submit(&s->outbox, o);
}

static int ask_unlease(struct ledger *base, const char *key, const char *owner)
{
    struct shared *s = shared_of(base);
    struct outgoing *o = outgoing_new(&s->outbox, &kind_small, NULL);
    if (o) {
        ledger_wire_put(&o->params, "unlease", NULL, NULL, key, owner, 0);
    }
    return outbox_submit(&s->outbox, o);
}

/* ---- what a client measured ------------------------------------------------------------------ */

static void answer_record(struct outgoing *o, const struct wire_obj *result,
                          const struct error *err)
{
    (void)result;
    o->cb.done(o->ctx, err ? err->code : 0, err);
}

/* Half of what may wait: the rest is for what is measured here. */
static const struct outgoing_kind kind_record = {
    .answer = answer_record, .alone = done_alone, .most = OUTGOING_MAX / 2};

static int ask_record(struct ledger *base, const struct trial *t, ledger_done_cb cb, void *ctx)
{
    struct shared *s = shared_of(base);
    struct outgoing *o = outgoing_new(&s->outbox, &kind_record, ctx);
    if (o) {
        o->cb.done = cb;
        ledger_wire_put(&o->params, "record", &trial_schema, t, NULL, NULL, 0);
    }
    return outbox_submit(&s->outbox, o);
}

static uint32_t ask_room(struct ledger *base)
{
    const struct outbox *b = &shared_of(base)->outbox;
    return b->silent_ms || b->n >= kind_record.most ? 0 : kind_record.most - b->n;
}

/* ---- what gives a number --------------------------------------------------------------------- */

static void answer_id(struct outgoing *o, const struct wire_obj *result, const struct error *err)
{
    int64_t n = 0;
    wire_get_int(wire_find(result, "n"), &n);
    o->cb.id(o->ctx, err ? err->code : 0, n, err);
}

static void id_alone(struct outgoing *o, const struct error *silent)
{
    o->cb.id(o->ctx, silent->code, 0, silent);
}

static const struct outgoing_kind kind_id = {.answer = answer_id, .alone = id_alone};

static int ask_id(struct shared *s, const char *verb, const struct schema *schema, const void *row,
                  const char *key, ledger_id_cb cb, void *ctx)
{
    struct outgoing *o = outgoing_new(&s->outbox, &kind_id, ctx);
    if (o) {
        o->cb.id = cb;
        ledger_wire_put(&o->params, verb, schema, row, key, NULL, 0);
    }
    return outbox_submit(&s->outbox, o);
}

static int ask_add_run(struct ledger *base, const struct run *r, ledger_id_cb cb, void *ctx)
{
    return ask_id(shared_of(base), "run", &run_schema, r, NULL, cb, ctx);
}

static int ask_unquarantine(struct ledger *base, const char *variant, ledger_id_cb cb, void *ctx)
{
    return ask_id(shared_of(base), "unquarantine", NULL, NULL, variant, cb, ctx);
}

static int ask_evict(struct ledger *base, const char *key, ledger_id_cb cb, void *ctx)
{
    return ask_id(shared_of(base), "evict", NULL, NULL, key, cb, ctx);
}

/* ---- status ---------------------------------------------------------------------------------- */

/* Only the keeper knows whether it has saved what it told of. */
static void count_heard(struct shared *s, struct ledger_status *counts, bool answered)
{
    if (!answered) {
        counts->unsaved += s->heard.n;
    } else if (counts->unsaved == 0) {
        heard_clear(&s->heard);
    }
}

static void tell_status(struct shared *s, struct ledger_status *counts,
                        void (*cb)(void *, const struct ledger_status *), void *ctx)
{
    counts->keeper = false;
    counts->keeper_silent_ms = (int64_t)outbox_silence_ms(&s->outbox);
    counts->unsaved += s->unsaved;
    counts->lost_trials += s->lost_trials;
    cb(ctx, counts);
}

static void answer_status(struct outgoing *o, const struct wire_obj *result,
                          const struct error *err)
{
    struct ledger_status counts;
    schema_decode(&ledger_status_schema, SCHEMA_LENIENT, err ? NULL : result, &counts, NULL);
    count_heard(asker(o), &counts, !err);
    tell_status(asker(o), &counts, o->cb.status, o->ctx);
}

struct reading {      /* what the file says */
    struct shared *s; /* borrowed */
    void (*cb)(void *ctx, const struct ledger_status *s);
    void *ctx;
};

static void on_read(void *ctx, const struct ledger_status *read)
{
    struct reading r = *(struct reading *)ctx;
    struct ledger_status counts = *read;
    free(ctx);
    count_heard(r.s, &counts, false);
    tell_status(r.s, &counts, r.cb, r.ctx);
}

static int read_status(struct shared *s, void (*cb)(void *, const struct ledger_status *),
                       void *ctx)
{
    struct reading *r = malloc(sizeof(*r));
    int status = r ? ERROR_SHUTTING_DOWN : ERROR_NO_MEMORY;
    if (r && s->reader) {
        *r = (struct reading){s, cb, ctx};
        status = s->reader->ops->status(s->reader, on_read, r);
    }
    if (status < 0) {
        free(r);
    }
    return status;
}

static void status_alone(struct outgoing *o, const struct error *silent)
{
    (void)silent;
    if (read_status(asker(o), o->cb.status, o->ctx) < 0) {
        answer_status(o, NULL, silent);
    }
}

static const struct outgoing_kind kind_status = {.answer = answer_status, .alone = status_alone};

static int ask_status(struct ledger *base, void (*cb)(void *, const struct ledger_status *),
                      void *ctx)
{
    struct shared *s = shared_of(base);
    if (s->outbox.silent_ms) {
        return read_status(s, cb, ctx);
    }
    struct outgoing *o = outgoing_new(&s->outbox, &kind_status, ctx);
    if (o) {
        o->cb.status = cb;
        ledger_wire_put(&o->params, "status", NULL, NULL, NULL, NULL, 0);
    }
    return outbox_submit(&s->outbox, o);
}

/* ---- what nobody waits for ------------------------------------------------------------------- */

/* Of this moment: not kept for a silent keeper. */
static const struct outgoing_kind kind_said = {.kept = false};
static const struct outgoing_kind kind_trial = {.kept = true, .most = OUTGOING_MAX};

static void ask_tell(struct ledger *base, const struct wire_buf *said, bool lasting)
{
    struct shared *s = shared_of(base);
    struct outgoing *o = outgoing_new(&s->outbox, lasting ? &kind_row : &kind_said, NULL);
    if (o) {
        wire_put_map(&o->params, 2);
        wire_put_kv_str(&o->params, "verb", "tell");
        wire_put_str(&o->params, "said");
        wire_put_raw(&o->params, said->data, said->len);
    }
    outbox_submit(&s->outbox, o);
}

static void give(struct ledger *base, const char *verb, const struct schema *schema,
                 const void *row)
{
    struct shared *s = shared_of(base);
    bool trial = schema == &trial_schema;
    const struct outgoing_kind *kind = trial                     ? &kind_trial
                                       : schema == &event_schema ? &kind_small
                                                                 : &kind_row;
    struct outgoing *o = outgoing_new(&s->outbox, kind, NULL);
    if (o) {
        ledger_wire_put(&o->params, verb, schema, row, NULL, NULL, 0);
    }
    if (outbox_submit(&s->outbox, o) < 0) {
        s->lost_trials += trial;
    }
}

#define ASK_ROW(op, type, verb, schema)                                                            \
    static void ask_##op(struct ledger *base, const struct type *row)                              \
    {                                                                                              \
        give(base, verb, &schema, row);                                                            \
    }
ASK_ROW(add_trial, trial, "trial", trial_schema)
ASK_ROW(add_module, module, "module", module_schema)
ASK_ROW(add_quarantine, quarantine, "quarantine", quarantine_schema)
ASK_ROW(add_event, event, "event", event_schema)
ASK_ROW(put_device, device_info, "device", device_info_schema)
ASK_ROW(end_run, run, "end_run", run_schema)

const struct ledger_ops ledger_ask_ops = {
    .stop = follow_stop,
    LEDGER_READS,
    .publish = ask_publish,
    .lease = ask_lease,
    .unlease = ask_unlease,
    .record = ask_record,
    .room = ask_room,
    .tell = ask_tell,
    .add_run = ask_add_run,
    .evict = ask_evict,
    .unquarantine = ask_unquarantine,
    .unpin = ask_unpin,
    .status = ask_status,
    .add_trial = ask_add_trial,
    .add_module = ask_add_module,
    .add_quarantine = ask_add_quarantine,
    .add_event = ask_add_event,
    .put_device = ask_put_device,
    .end_run = ask_end_run,
};
