/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the keeper that wait for their answers, and a keeper that gives none
 * (outbox.h). */
#include <stdlib.h>

#include "daemon/base/log.h"
#include "daemon/base/turns.h"
#include "daemon/ledger/outbox.h"
#include "store/store.h"

static void watch(struct outbox *b);

static uint64_t now_of(const struct outbox *b)
{
    return uv_now(b->timer.loop);
}

/* ---- one request ----------------------------------------------------------------------------- */

struct outgoing *outgoing_new(struct outbox *b, const struct outgoing_kind *kind, void *ctx)
{
    struct outgoing *o = b->stopping ? NULL : calloc(1, sizeof(*o));
    if (o) {
        o->box = b;
        o->kind = kind;
        o->ctx = ctx;
        o->asked_ms = now_of(b);
        list_init(&o->link);
    }
    return o;
}

struct outgoing *outgoing_free(struct outgoing *o)
{
    if (o) {
        list_remove(&o->link);
        wire_buf_deinit(&o->params);
        free(o);
    }
    return NULL;
}

static void send_one(struct outbox *b, struct outgoing *o)
{
    struct wire_buf bytes = WIRE_BUF_NULL;
    o->id = ++b->last_id;
    rpc_put_request(&bytes, o->id, "ledger");
    wire_put_raw(&bytes, o->params.data, o->params.len);
    keeper_link_send(b->link, &bytes);
}

static void send_unsent(struct outbox *b)
{
    LIST_EACH(node, &b->all) {
        struct outgoing *o = LIST_OF(node, struct outgoing, link);
        if (!o->id) {
            send_one(b, o);
        }
    }
}

static int may_submit(const struct outbox *b, const struct outgoing *o)
{
    if (!o || o->params.failed) {
        return b->stopping ? ERROR_SHUTTING_DOWN : ERROR_NO_MEMORY;
    }
    bool refused = (b->silent_ms && !o->kind->kept) || (o->kind->most && b->n >= o->kind->most);
    return refused ? ERROR_BUSY : 0;
}

int outbox_submit(struct outbox *b, struct outgoing *o)
{
    int status = may_submit(b, o);
    if (status < 0) {
        outgoing_free(o);
        return status;
    }
    list_append(&b->all, &o->link);
    b->n++;
    if (b->open && !b->silent_ms) {
        send_one(b, o);
    }
    watch(b);
    return 0;
}

static void settle_late(struct outgoing *o, const struct error *err)
{
    if (o->kind->late) {
        o->kind->late(o, err);
    } else if (err) {
        log_warning("the keeper of the database did not do what it was asked: %s", err->text);
    }
}

void outgoing_settle(struct outgoing *o, const struct wire_obj *result, const struct error *err)
{
    struct outbox *b = o->box;
    list_remove(&o->link);
    b->n--;
    if (o->kind->answer && !o->done) {
        o->kind->answer(o, result, err);
    } else {
        settle_late(o, err);
    }
    outgoing_free(o);
    if (b->stopping && b->n == 0) {
        b->drained(b);
    }
}

/* ---- silence --------------------------------------------------------------------------------- */

static void answer_alone(struct outbox *b)
{
    struct error err = ERROR_NULL;
    error_set(&err, ERROR_BUSY,
              "the gemmd that keeps database %s does not answer; what it was asked is done when it "
              "answers again or another takes over",
              b->database);
    LIST_EACH(node, &b->all) {
        struct outgoing *o = LIST_OF(node, struct outgoing, link);
        if (o->kind->alone && !o->done) {
            o->done = true;
            o->kind->alone(o, &err);
        }
    }
}

static void fall_silent(struct outbox *b)
{
    char address[8];
    long pid = 0;
    store_holder(b->database, &pid, address, sizeof(address));
    b->silent_ms = now_of(b) - b->patience_ms;
    log_warning(
        "the keeper of %s (pid %ld) has not answered for %llu ms: going on without it; what "
        "it is to write is kept in memory, %u rows so far",
        b->database, pid, (unsigned long long)b->patience_ms, b->n);
}

static uint64_t due_ms(const struct outbox *b)
{
    const struct outgoing *first = LIST_OF(b->all.next, struct outgoing, link);
    return (first->asked_ms > b->heard_ms ? first->asked_ms : b->heard_ms) + b->patience_ms;
}

static void on_timer(uv_timer_t *timer)
{
    struct outbox *b = timer->data;
    if (list_empty(&b->all)) {
        return;
    }
    uint64_t now = now_of(b);
    if (!b->silent_ms && now > due_ms(b) + AWAY_MS) {
        b->heard_ms = now + AWAY_MS - b->patience_ms;
        watch(b);
        return;
    }
    if (!b->silent_ms) {
        fall_silent(b);
    }
    answer_alone(b);
}

/* Whether who has come last waits, and can be answered alone. */
static bool last_waits(const struct outbox *b)
{
    const struct outgoing *last = LIST_OF(b->all.prev, struct outgoing, link);
    return last->kind->alone && !last->done;
}

static void watch(struct outbox *b)
{
    if (uv_is_closing((uv_handle_t *)&b->timer)) {
        return;
    }
    if (list_empty(&b->all)) {
        uv_timer_stop(&b->timer);
    } else if (!b->silent_ms) {
        uint64_t due = due_ms(b), now = now_of(b);
        uv_timer_start(&b->timer, on_timer, due > now ? due - now : 0, 0);
    } else if (last_waits(b)) { /* not before the call that asked has returned */
        uv_timer_start(&b->timer, on_timer, 0, 0);
    }
}

uint64_t outbox_silence_ms(const struct outbox *b)
{
    return b->silent_ms ? now_of(b) - b->silent_ms : 0;
}

/* An answer, to whatever: what was held back meanwhile follows. */
static void hear(struct outbox *b)
{
    b->heard_ms = now_of(b);
    if (b->silent_ms) {
        log_notice("the keeper of %s answers again, after %llu ms; it gets %u rows that were kept",
                   b->database, (unsigned long long)outbox_silence_ms(b), b->n);
        b->silent_ms = 0;
        send_unsent(b);
    }
}

/* ---- the connection -------------------------------------------------------------------------- */

void outbox_open(struct outbox *b)
{
    LIST_EACH(node, &b->all) /* what another one was sent counts no more */
    {
        LIST_OF(node, struct outgoing, link)->id = 0;
    }
    b->open = true;
    hear(b);
    send_unsent(b);
    watch(b);
}

void outbox_close(struct outbox *b)
{
    b->open = false;
}

static struct outgoing *find(struct outbox *b, uint32_t id)
{
    LIST_EACH(node, &b->all) {
        struct outgoing *o = LIST_OF(node, struct outgoing, link);
        if (o->id == id) {
            return o;
        }
    }
    return NULL;
}

bool outbox_response(struct outbox *b, const struct rpc_message *m)
{
    struct error err = ERROR_NULL;
    if (m->error) {
        rpc_get_error(m->error, &err);
    }
    if (err.code == ERROR_SHUTTING_DOWN) {
        return false;
    }
    struct outgoing *o = find(b, m->id);
    if (o) {
        hear(b);
        outgoing_settle(o, m->result, err.code ? &err : NULL);
        watch(b);
    }
    return true;
}

/* ---- life ------------------------------------------------------------------------------------ */

void outbox_init(struct outbox *b, uv_loop_t *loop, struct keeper_link *link, const char *database,
                 uint64_t patience_ms, void (*drained)(struct outbox *b))
{
    *b = (struct outbox){
        .link = link, .database = database, .patience_ms = patience_ms, .drained = drained};
    list_init(&b->all);
    uv_timer_init(loop, &b->timer);
    b->timer.data = b;
}

void outbox_take(struct outbox *b, struct list *out)
{
    list_init(out);
    while (!list_empty(&b->all)) {
        struct list *node = b->all.next;
        list_remove(node);
        list_append(out, node);
    }
    b->silent_ms = 0;
    watch(b);
}

void outbox_fail(struct outbox *b, const struct error *err)
{
    LIST_EACH(node, &b->all) {
        struct outgoing *o = LIST_OF(node, struct outgoing, link);
        list_remove(node);
        b->n--;
        if (o->kind->answer && !o->done) {
            o->kind->answer(o, NULL, err);
        } else if (o->kind->late) {
            o->kind->late(o, err);
        }
        outgoing_free(o);
    }
}

void outbox_deinit(struct outbox *b, uv_close_cb closed)
{
    uv_close((uv_handle_t *)&b->timer, closed);
}
