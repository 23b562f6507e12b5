/* SPDX-License-Identifier: Apache-2.0 */
/* The way to the keeper of the database, or to being it (follow.h): what it tells, what
 * happens when it goes, and the end. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/ledger/follow.h"
#include "daemon/ledger/wire.h"
#include "proto/lockfile.h"
#include "proto/paths.h"
#include "store/store.h"

enum {
    RETRY_MS = 25,             /* between attempts to find, or to be, the keeper */
    RETRY_FAULT_MS = 1000,     /* when the database cannot be opened */
    FOLLOW_PATIENCE_MS = 2000, /* for the keeper to say that we may follow */
    START_PATIENCE_MS = 5000,
    STOP_PATIENCE_MS = 3000, /* for the keeper to answer what was asked before the end */
};

static void attempt(struct shared *s);
static void retry_in(struct shared *s, uint64_t ms);
static void finish(struct shared *s);

/* ---- news ------------------------------------------------------------------------------------ */

void shared_news(struct shared *s, enum ledger_news_kind kind, const char *key,
                 const struct best *best, bool saved)
{
    struct ledger_news n = {.kind = kind, .key = key, .best = best, .saved = saved};
    s->reload_again = s->reload_again || (s->reloading && kind == NEWS_EVICTED);
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

static void note_given(struct shared *s, int64_t generation)
{
    s->base.generation = generation > s->base.generation ? generation : s->base.generation;
}

static void hear_best(struct shared *s, const struct best *b, bool saved)
{
    note_given(s, b->generation);
    heard_best(&s->heard, b, saved);
    shared_news(s, NEWS_BEST, b->key, b, saved);
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
        if (i == NEWS_EVICTED) {
            heard_evicted(&s->heard, key);
        }
        if (i != NEWS_BEST) {
            shared_news(s, i, key, NULL, false);
        } else if (schema_decode(&best_schema, SCHEMA_LENIENT, wire_find(params, "row"), s->best,
                                 &err) == 0) {
            hear_best(s, s->best, saved);
        }
    }
}

/* ---- what others did while nobody told us ---------------------------------------------------- */

static void ask_page(struct shared *s, bool first);

static void begin_reload(struct shared *s)
{
    s->reloading = true;
    s->reload_again = false;
    shared_news(s, NEWS_RELOADING, "", NULL, false);
    ask_page(s, true);
}

/* A reader finds a damaged file before its writer has mended it, perhaps. */
static void fail_reload(struct shared *s, const char *why)
{
    if (!s->reload_due) {
        log_warning("what was published meanwhile is not known yet: %s", why);
    }
    s->reloading = false;
    s->reload_due = true;
    retry_in(s, RETRY_FAULT_MS);
}

/* Of what was read before an eviction nobody knows whether it is there still: once more. */
static void on_page(void *ctx, int status, const struct best *bests, size_t n,
                    const struct error *err)
{
    struct shared *s = ctx;
    if (s->stopping) {
        return;
    }
    if (s->reload_again) {
        begin_reload(s);
        return;
    }
    if (status < 0) {
        fail_reload(s, err->text);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        shared_news(s, NEWS_LOADED, bests[i].key, &bests[i], true);
    }
    if (n > 0) {
        ask_page(s, false);
        return;
    }
    s->reloading = s->reload_due = false;
    if (s->missed) {
        s->missed = false;
        shared_news(s, NEWS_RELOADED, "", NULL, false);
    }
}

static void ask_page(struct shared *s, bool first)
{
    struct error err = ERROR_NULL;
    int status = s->base.ops->load(&s->base, first, on_page, s);
    if (status < 0) {
        ledger_refused(status, &err);
        fail_reload(s, err.text);
    }
}

static void reload(struct shared *s)
{
    if (s->reloading) {
        s->reload_again = true;
    } else {
        begin_reload(s);
    }
}

/* ---- finding the keeper, or becoming it ------------------------------------------------------ */

static void on_timer(uv_timer_t *timer)
{
    struct shared *s = timer->data;
    if (s->stopping) {
        finish(s);
    } else if (s->reload_due && !s->reloading && (s->writer || s->following)) {
        begin_reload(s);
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

/* Who waits for ready says it, too. */
static void tell_fault(struct shared *s, int status, const struct error *err)
{
    if (s->ready) {
        log_error("%s", err->text);
    }
    say_ready(s, status, err);
}

/* Nobody answers: at the start that is the user's to solve, later it may pass. */
static void still_nobody(struct shared *s)
{
    struct error err = ERROR_NULL;
    long pid = 0;
    char address[PATHS_MAX] = "", name[LOCKFILE_NAME_MAX];
    if (!s->ready && uv_now(s->loop) - s->started_ms > START_PATIENCE_MS) {
        store_holder(s->config.path, &pid, address, sizeof(address));
        struct lockfile_holder h = lockfile_of(pid);
        error_set(
            &err, ERROR_BUSY,
            "database %s is in use by another gemmd (%s), which does not answer on its socket "
            "'%.100s': stop that one, or give this one another --database",
            s->config.path, lockfile_name(&h, name), address);
        say_ready(s, err.code, &err);
        return;
    }
    retry_in(s, RETRY_MS);
}

static void on_applied(void *ctx, const struct wire_buf *result, const struct error *err)
{
    struct outgoing *o = ctx;
    struct shared *s = LIST_OF(o->box, struct shared, outbox);
    const struct wire_obj *map = NULL;
    if (!err) {
        wire_decode(s->doc, result->data, result->len, &map, NULL);
    }
    outgoing_settle(o, map, err);
}

/* What the last keeper has not answered, in its order. */
static void carry_out_rest(struct shared *s)
{
    struct list rest;
    outbox_take(&s->outbox, &rest);
    LIST_EACH(node, &rest) {
        struct outgoing *o = LIST_OF(node, struct outgoing, link);
        struct error err = ERROR_NULL;
        const struct wire_obj *params = NULL;
        list_remove(node);
        int status = wire_decode(s->doc, o->params.data, o->params.len, &params, &err);
        status = status ? status : ledger_wire_apply(&s->base, params, on_applied, o, &err);
        if (status != 0) {
            outgoing_settle(o, NULL, status < 0 ? &err : NULL);
        }
    }
}

/* As of a best that was kept for a silent keeper: it counts as unsaved until a keeper has it. */
static void given(struct outgoing *o, const struct error *err)
{
    struct shared *s = LIST_OF(o->box, struct shared, outbox);
    if (err && err->code != ERROR_SHUTTING_DOWN) {
        log_error("a best that the last keeper had not saved is lost: %s", err->text);
    }
    s->unsaved -= !err || err->code != ERROR_SHUTTING_DOWN;
}

static const struct outgoing_kind kind_restore = {.late = given, .kept = true};

/* To the next keeper, or oneself, what the last one had in its memory alone. */
static void give_heard(struct shared *s)
{
    LIST_EACH(node, &s->heard.all) {
        struct heard_row *r = LIST_OF(node, struct heard_row, link);
        struct outgoing *o = outgoing_new(&s->outbox, &kind_restore, NULL);
        if (o) {
            wire_put_map(&o->params, 2);
            wire_put_kv_str(&o->params, "verb", "restore");
            wire_put_str(&o->params, "row");
            wire_put_raw(&o->params, r->row.data, r->row.len);
        }
        s->unsaved += outbox_submit(&s->outbox, o) == 0;
        heard_forget(&s->heard, r);
    }
}

static void become_keeper(struct shared *s, struct ledger *writer)
{
    struct error none = ERROR_NULL;
    s->writer = writer;
    s->base.ops = s->keeps;
    note_given(s, writer->generation);
    if (s->ready) {
        log_notice("this gemmd is the keeper of %s now", s->config.path);
    }
    if (s->keeper[0]) {
        s->base.ops->unlease(&s->base, "", s->keeper);
    }
    give_heard(s);
    carry_out_rest(s);
    if (s->ready) {
        reload(s);
    }
    say_ready(s, 0, &none);
}

static void on_notice(void *ctx, const char *kind, const char *text)
{
    struct shared *s = ctx;
    s->config.notice(s->config.ctx, kind, text);
}

static void on_saved(void *ctx, const struct best *b)
{
    shared_news(ctx, NEWS_BEST, b->key, b, true);
}

static int open_home(struct shared *s, bool read_only, struct ledger **out, struct error *err)
{
    struct ledger_config c = s->config;
    c.read_only = read_only;
    c.notice = s->config.notice ? on_notice : NULL;
    c.saved = on_saved;
    c.ctx = s;
    c.generation = s->base.generation;
    return ledger_local_ops.start(out, s->loop, &c, err);
}

/* Of all that was told we have missed nothing, if the last keeper was the one that we followed to
 * its end (or we were it, in an attempt that failed). */
static void note_missed(struct shared *s)
{
    char address[PATHS_MAX];
    long last = 0;
    store_holder(s->config.path, &last, address, sizeof(address));
    s->missed = s->missed || (s->ready && last != strtol(s->keeper, NULL, 10) && last != getpid());
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
    note_missed(s);
    int status = open_home(s, false, &writer, &err);
    if (status == 0) {
        become_keeper(s, writer);
    } else if (status != ERROR_BUSY) {
        tell_fault(s, status, &err);
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
    s->follow_id = ++s->outbox.last_id;
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
    outbox_close(&s->outbox);
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
    char before[sizeof(s->keeper)];
    int64_t generation = 0;
    memcpy(before, s->keeper, sizeof(before));
    wire_copy_str(wire_find(m->result, "owner"), s->keeper, sizeof(s->keeper));
    wire_get_int(wire_find(m->result, "generation"), &generation);
    note_given(s, generation);
    if (!s->reader && open_home(s, true, &s->reader, &err) < 0) {
        tell_fault(s, err.code, &err);
        keeper_link_close(&s->link);
        return;
    }
    s->following = true;
    uv_timer_stop(&s->timer);
    if (strcmp(before, s->keeper) != 0) {
        give_heard(s);
    }
    outbox_open(&s->outbox);
    if (s->ready) {
        s->missed = true;
        reload(s);
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
    } else if (m->type == RPC_RESPONSE && !outbox_response(&s->outbox, m)) {
        keeper_link_close(link);
    }
}

const struct keeper_link_calls follow_link_calls = {on_up, on_message, on_down};

/* ---- life ------------------------------------------------------------------------------------ */

static void on_drained(struct outbox *b)
{
    finish(LIST_OF(b, struct shared, outbox));
}

void follow_start(struct shared *s)
{
    uv_timer_init(s->loop, &s->timer);
    s->timer.data = s;
    outbox_init(&s->outbox, s->loop, &s->link, s->config.path, s->config.keeper_ms, on_drained);
    retry_in(s, 0);
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

static void outbox_closed(uv_handle_t *handle)
{
    part_ended(LIST_OF(handle->data, struct shared, outbox));
}

static void fail_rest(struct shared *s)
{
    struct error e = ERROR_NULL;
    error_set(&e, ERROR_SHUTTING_DOWN,
              "gemmd is stopping, and the keeper of the database has not answered");
    outbox_fail(&s->outbox, &e);
    if (s->unsaved) {
        log_error("%lld bests were never saved: the keeper of %s did not answer; what it was sent "
                  "before, it may still write",
                  (long long)s->unsaved, s->config.path);
    }
}

/* Closes all parts; called again as each of them is closed. */
static void finish(struct shared *s)
{
    if (!s->ending) {
        s->ending = true;
        s->parts = 2;
        fail_rest(s);
        struct ledger *homes[] = {s->writer, s->reader};
        for (int i = 0; i < 2; i++) {
            if (homes[i]) {
                s->parts++;
                homes[i]->ops->stop(homes[i], part_ended, s);
            }
        }
        uv_close((uv_handle_t *)&s->timer, timer_closed);
        outbox_deinit(&s->outbox, outbox_closed);
        if (s->link.state != LINK_CLOSED) {
            s->parts++;
            keeper_link_close(&s->link);
        }
    } else if (s->parts == 0) {
        s->ended(s);
    }
}

void follow_stop(struct ledger *base, void (*stopped)(void *ctx), void *ctx)
{
    struct shared *s = shared_of(base);
    if (s->stopping) {
        return;
    }
    s->stopping = s->outbox.stopping = true;
    s->stopped = stopped;
    s->stopped_ctx = ctx;
    bool wait = s->following && s->outbox.n > 0 && !s->outbox.silent_ms;
    uv_timer_start(&s->timer, on_timer, wait ? STOP_PATIENCE_MS : 0, 0);
}
