/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop's side of the ledger: makes requests, and answers finished requests. inner.h has the
 * overview.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger/inner.h"

/* ---- making requests ------------------------------------------------------------------------- */

static void put_in_line(struct ledger *l, struct request *r)
{
    if (r->verb->flags & VERB_PATIENT) {
        queue_push_turn(&l->patient, r);
    } else if (r->verb->flags & VERB_BRIEF) {
        queue_push_turn(&l->brief, r);
    } else {
        queue_push(&l->todo, r);
    }
}

int ledger_submit(struct ledger *l, struct request *r)
{
    bool trial = r && r->verb->flags & VERB_TRIAL, record = r && r->verb->flags & VERB_RECORD;
    int status = !r || r->row.failed ? ERROR_NO_MEMORY : 0;
    uv_mutex_lock(&l->mutex);
    if (status == 0 && l->stopping) {
        status = ERROR_SHUTTING_DOWN;
    } else if (status == 0 &&
               ((trial && l->trials >= TRIALS_MAX) || (record && l->records >= RECORDS_MAX))) {
        status = ERROR_BUSY;
    }
    if (status == 0) {
        l->trials += trial;
        l->records += record;
        put_in_line(l, r);
        uv_cond_signal(&l->more);
        if (l->checking) {
            store_interrupt(l->store);
        }
    } else {
        l->lost_trials += trial;
    }
    uv_mutex_unlock(&l->mutex);
    if (status) {
        request_free(r);
    }
    return status;
}

int ledger_ask(struct ledger *l, const struct verb *verb, const char *const text[4],
               const void *row, int64_t argument, union request_cb cb, void *ctx)
{
    struct request *r = request_new(verb, ctx, text);
    if (r) {
        r->cb = cb;
        r->argument = argument;
    }
    if (r && row) {
        schema_encode(&r->row, verb->row, row);
    }
    return ledger_submit(l, r);
}

/* ---- calls ----------------------------------------------------------------------------------- */

int ledger_load(struct ledger *l, bool first, ledger_load_cb cb, void *ctx)
{
    int status = ledger_ask(l, &verb_load, NO_TEXT, NULL, first, ANSWER(load), ctx);
    l->loads = status == 0;
    return status;
}

int ledger_find(struct ledger *l, const char *key, ledger_best_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_find, TEXTS(key), NULL, 0, ANSWER(best), ctx);
}

int ledger_history(struct ledger *l, const char *key, const char *stamp, const char *class_,
                   const char *driver, ledger_history_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_history, TEXTS(key, stamp, class_, driver), NULL, 0, ANSWER(history),
                      ctx);
}

int ledger_publish(struct ledger *l, const struct best *b, ledger_best_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_publish, NO_TEXT, b, b->generation, ANSWER(best), ctx);
}

int ledger_restore(struct ledger *l, const struct best *b, ledger_best_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_restore, NO_TEXT, b, l->heard, ANSWER(best), ctx);
}

int ledger_unpin(struct ledger *l, const char *key, ledger_best_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_unpin, TEXTS(key), NULL, 0, ANSWER(best), ctx);
}

int ledger_lease(struct ledger *l, const char *key, int64_t ttl_ms, ledger_done_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_lease, TEXTS(key), NULL, ttl_ms, ANSWER(done), ctx);
}

int ledger_unlease(struct ledger *l, const char *key)
{
    int status = ledger_ask(l, &verb_unlease, TEXTS(key), NULL, 0, NOBODY, NULL);
    news_tell(l, NEWS_FREED, key, NULL, false); /* later requests are carried out after it */
    return status;
}

void ledger_want(struct ledger *l, const char *key, const char *class_, int64_t uid,
                 const struct wire_buf *search)
{
    struct request *r = request_new(&verb_want, NULL, TEXTS(key, class_));
    if (r) {
        wire_put_raw(&r->row, search->data, search->len);
        r->argument = uid;
    }
    ledger_submit(l, r);
}

void ledger_unwant(struct ledger *l, const char *key)
{
    ledger_ask(l, &verb_unwant, TEXTS(key), NULL, 0, NOBODY, NULL);
}

int ledger_next_wanted(struct ledger *l, const char *class_, int64_t rank, ledger_list_cb cb,
                       void *ctx)
{
    return ledger_ask(l, &verb_next_wanted, TEXTS(class_), NULL, rank, ANSWER(list), ctx);
}

int ledger_record(struct ledger *l, const struct trial *t, bool once, ledger_done_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_record, NO_TEXT, t, once, ANSWER(done), ctx);
}

uint32_t ledger_room(struct ledger *l)
{
    uv_mutex_lock(&l->mutex);
    uint32_t room = RECORDS_MAX - l->records;
    uv_mutex_unlock(&l->mutex);
    return room;
}

int ledger_add_run(struct ledger *l, const struct run *run, ledger_id_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_add_run, NO_TEXT, run, 0, ANSWER(id), ctx);
}

static bool is_equal(const struct record *filter, const char *column)
{
    struct value v;
    return filter && record_get(filter, column, &v) &&
           !(v.type == VALUE_TEXT && (v.text[0] == '~' || !v.text[0]));
}

/* True for a list of one key, generation or id: an index finds its few rows. */
static bool is_brief(const char *what, const struct record *filter)
{
    bool best = strcmp(what, "best") == 0, history = strcmp(what, "history") == 0,
         fleet = strcmp(what, "fleet_rows") == 0, trials = strcmp(what, "trials") == 0,
         runs = strcmp(what, "runs") == 0;
    return ((best || history || trials || fleet) && is_equal(filter, "key")) ||
           (history && is_equal(filter, "generation")) ||
           ((trials || runs) && is_equal(filter, "id"));
}

/* Returns the ledger that carries out lists, and makes it for the first list: a list may read the
 * whole file, and no other request waits for the list. Returns `l` when a second ledger cannot be
 * made. */
static struct ledger *lists_home(struct ledger *l)
{
    struct error ignored = ERROR_NULL;
    const struct ledger_config c = {.path = l->path, .read_only = true, .force_network_fs = true};
    if (!l->lists && !l->ending && ledger_start(&l->lists, l->wake.loop, &c, &ignored) == 0) {
        l->lists->whole = l;
    }
    return l->lists && !l->ending ? l->lists : l;
}

void ledger_make_snapshot(struct ledger *l)
{
    ledger_ask(lists_home(l), &verb_snapshot, NO_TEXT, NULL, 0, NOBODY, NULL);
}

static void mark_withdrawn(struct queue *q, const void *ctx)
{
    for (struct request *r = q->first; r; r = r->next) {
        r->withdrawn = r->withdrawn || r->ctx == ctx;
        for (struct request *x = r->behind.first; x; x = x->next) {
            x->withdrawn = x->withdrawn || x->ctx == ctx;
        }
    }
}

void ledger_withdraw(struct ledger *l, const void *ctx)
{
    uv_mutex_lock(&l->mutex);
    mark_withdrawn(&l->patient, ctx);
    if (l->listing && l->listing->ctx == ctx) {
        ((struct request *)l->listing)->withdrawn = true;
        if (l->list_works) {
            store_interrupt(l->store);
        }
    }
    uv_mutex_unlock(&l->mutex);
    if (l->lists) {
        ledger_withdraw(l->lists, ctx);
    }
}

int ledger_list(struct ledger *l, int64_t user, const char *what, const struct record *filter,
                size_t max_bytes, ledger_list_cb cb, void *ctx)
{
    const struct verb *verb = is_brief(what, filter) ? &verb_list_key : &verb_list;
    struct request *r = request_new(verb, ctx, TEXTS(what));
    if (r && filter) {
        record_pack(&r->filter, filter);
    }
    if (r && r->filter.failed) {
        request_free(r);
        r = NULL;
    }
    if (r) {
        r->user = user;
        r->cb.list = cb;
        r->argument = (int64_t)max_bytes;
    }
    struct ledger *home = l, *at = verb == &verb_list ? lists_home(home) : home;
    if (r && at != home) {
        uv_mutex_lock(&home->mutex);
        r->after = home->n_taken + (home->todo.first != NULL);
        uv_mutex_unlock(&home->mutex);
    }
    int status = ledger_submit(at, r);
    home->n_lists += status == 0;
    return status;
}

int ledger_evict(struct ledger *l, const char *key, ledger_id_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_evict, TEXTS(key), NULL, 0, ANSWER(id), ctx);
}

int ledger_unquarantine(struct ledger *l, const char *variant, ledger_id_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_unquarantine, TEXTS(variant), NULL, 0, ANSWER(id), ctx);
}

int ledger_backup(struct ledger *l, const char *path, ledger_done_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_backup, TEXTS(path), NULL, 0, ANSWER(done), ctx);
}

int ledger_add_served(struct ledger *l, const struct wire_buf *rows, ledger_list_cb cb, void *ctx)
{
    struct request *r = request_new(&verb_add_served, ctx, NO_TEXT);
    if (r) {
        r->cb.list = cb;
        wire_put_raw(&r->row, rows->data, rows->len);
        r->row.failed = r->row.failed || rows->failed;
    }
    return ledger_submit(l, r);
}

int ledger_replace_file(const char *path, const char *from, bool force_network_fs,
                        char aside[PATH_MAX], struct error *err)
{
    return store_replace(path, from, force_network_fs ? STORE_FORCE_NETWORK_FS : 0, aside, err);
}

int ledger_hear(struct ledger *l, ledger_id_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_hear, NO_TEXT, NULL, 0, ANSWER(id), ctx);
}

int ledger_status(struct ledger *l, void (*cb)(void *, const struct ledger_status *), void *ctx)
{
    struct request *r = request_new(&verb_status, ctx, NO_TEXT);
    if (r && !(r->counts = calloc(1, sizeof(*r->counts)))) {
        request_free(r);
        r = NULL;
    }
    if (r) {
        r->cb.status = cb;
    }
    return ledger_submit(l, r);
}

#define EVIDENCE(call, type)                                                                       \
    void ledger_##call(struct ledger *l, const struct type *row)                                   \
    {                                                                                              \
        ledger_ask(l, &verb_##call, NO_TEXT, row, 0, NOBODY, NULL);                                \
    }
EVIDENCE(add_trial, trial)
EVIDENCE(add_module, module)
EVIDENCE(add_quarantine, quarantine)
EVIDENCE(add_event, event)
EVIDENCE(put_device, device_info)
EVIDENCE(end_run, run)

int64_t ledger_generation(const struct ledger *l)
{
    return l->generation;
}

int64_t ledger_daemons(const struct ledger *l)
{
    return l->daemons;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void ledger_free_parts(struct ledger *l)
{
    store_close(l->store);
    wire_doc_free(l->loop_doc);
    wire_doc_free(l->doc);
    free(l->answered);
    free(l->object);
    free(l->cache_dir);
    free(l->database);
    free(l->path);
    free(l);
}

static void ledger_free(struct ledger *l)
{
    for (struct request *r; (r = queue_pop(&l->done));) {
        request_free(r);
    }
    uv_cond_destroy(&l->carried);
    uv_cond_destroy(&l->more);
    uv_mutex_destroy(&l->mutex);
    ledger_free_parts(l);
}

static void ledger_on_closed(uv_handle_t *h)
{
    struct ledger *l = h->data;
    if (--l->open > 0) {
        return;
    }
    void (*stopped)(void *) = l->stopped;
    void *ctx = l->stopped_ctx;
    ledger_free(l);
    if (stopped) {
        stopped(ctx);
    }
}

static struct request *next_done(struct ledger *l, bool *ended)
{
    uv_mutex_lock(&l->mutex);
    struct request *r = queue_pop(&l->done);
    *ended = l->ended;
    uv_mutex_unlock(&l->mutex);
    return r;
}

/* Hands a list that found the file damaged to the writing ledger, which repairs the file and
 * carries out the list. False: not handed over. */
static bool list_again(struct ledger *l, struct request *r)
{
    struct ledger *whole = (struct ledger *)l->whole;
    if (!whole || whole->ending || r->status != ERROR_STORE) {
        return false;
    }
    uv_mutex_lock(&whole->mutex);
    put_in_line(whole, r);
    uv_cond_signal(&whole->more);
    uv_mutex_unlock(&whole->mutex);
    return true;
}

static void ledger_close_handles(struct ledger *l)
{
    l->open = 3;
    news_close(l, ledger_on_closed);
    uv_close((uv_handle_t *)&l->wake, ledger_on_closed);
}

static void on_wake(uv_async_t *h)
{
    struct ledger *l = h->data;
    bool ended;
    uint64_t until = uv_hrtime() + ANSWERS_NS;
    for (struct request *r; (r = next_done(l, &ended));) {
        bool page = r->verb->flags & VERB_PAGE;
        l->heard = r->heard > l->heard ? r->heard : l->heard;
        if (!list_again(l, r)) {
            r->verb->answer(l, r);
            request_free(r);
        }
        if (page || uv_hrtime() > until) { /* the loop looks at the sockets before more answers */
            uv_async_send(h);
            return;
        }
    }
    if (ended && !uv_is_closing((uv_handle_t *)h)) {
        uv_thread_join(&l->thread);
        ledger_close_handles(l);
    }
}

static struct ledger *ledger_new(const struct ledger_config *c)
{
    struct ledger *l = calloc(1, sizeof(*l));
    if (!l) {
        return NULL;
    }
    l->read_only = c->read_only;
    l->path = strdup(c->path);
    l->notice = c->notice;
    l->news = c->news;
    l->notice_ctx = c->ctx;
    queue_init(&l->todo);
    queue_init(&l->brief);
    queue_init(&l->patient);
    queue_init(&l->done);
    queue_init(&l->unsaved);
    queue_init(&l->quarantined);
    l->answered = malloc(sizeof(*l->answered));
    l->object = malloc(sizeof(*l->object));
    l->loop_doc = wire_doc_new();
    l->doc = wire_doc_new();
    if (!l->answered || !l->object || !l->loop_doc || !l->doc || !l->path ||
        uv_mutex_init(&l->mutex)) {
        goto err_parts;
    }
    if (uv_cond_init(&l->more)) {
        goto err_mutex;
    }
    if (uv_cond_init(&l->carried)) {
        goto err_more;
    }
    return l;

err_more:
    uv_cond_destroy(&l->more);
err_mutex:
    uv_mutex_destroy(&l->mutex);
err_parts:
    ledger_free_parts(l);
    return NULL;
}

/* Registers this daemon with the database, and deletes rows of daemons that have ended. */
static int join_others(struct ledger *l, struct error *err)
{
    int r = store_generation(l->store, &l->generation, err);
    if (l->read_only) {
        return r;
    }
    r = r ? r : store_drop_gone(l->store, err);
    r = r ? r : store_join(l->store, err);
    r = r ? r : store_changes_begin(l->store, &l->changes, err);
    l->opened = store_opened(l->store);
    return r ? r : store_daemons(l->store, &l->daemons, err);
}

static int join_database(struct ledger *l, struct error *err)
{
    int r = join_others(l, err);
    if (r == ERROR_STORE && !l->read_only && store_damaged(l->store) &&
        store_repair(l->store, err) == 0) {
        r = join_others(l, err);
    }
    if (r == ERROR_DISK_FULL || r == ERROR_BUSY) {
        /* the daemon starts and serves the bests of the file, although it cannot write now */
        ledger_notice(l, "lease", err->text);
        return 0;
    }
    return r;
}

/* Only the loop's thread handles signals: the new thread blocks them all. */
static int start_thread(struct ledger *l)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = uv_thread_create(&l->thread, writer_run, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

/* Keeps the paths of the cache directory and the database. Without memory for them the cache is not
 * trimmed, but the ledger starts. */
static void set_cache(struct ledger *l, const struct ledger_config *c)
{
    l->database = c->cache_dir ? realpath(c->path, NULL) : NULL;
    l->cache_dir = l->database ? strdup(c->cache_dir) : NULL;
    l->cache_max_bytes = c->cache_max_bytes;
    l->trim_at = c->read_only ? UINT64_MAX : writer_now_ms() + IDLE_MS;
}

int ledger_start(struct ledger **out, uv_loop_t *loop, const struct ledger_config *c,
                 struct error *err)
{
    struct ledger *l = ledger_new(c);
    if (!l) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the ledger");
    }
    struct store_options o = {
        .path = c->path,
        .owner = c->owner,
        .flags = (c->force_network_fs ? STORE_FORCE_NETWORK_FS : 0) |
                 (c->read_only ? STORE_READ_ONLY : 0),
        .trials_per_key_max = c->trials_per_key_max,
        .notice = ledger_notice,
        .ctx = l,
    };
    int r = store_open(&o, &l->store, err);
    r = r ? r : join_database(l, err);
    if (r < 0) {
        ledger_tell_kept(l);
        ledger_free(l);
        return r;
    }
    store_set_patience(l->store, PATIENCE_MS);
    set_cache(l, c);
    l->wake.data = l;
    r = uv_async_init(loop, &l->wake, on_wake);
    if (r) {
        ledger_free(l);
        return error_set(err, ERROR_INTERNAL, "uv_async_init: %s", uv_strerror(r));
    }
    news_start(l);
    r = start_thread(l);
    if (r) {
        ledger_close_handles(l);
        return error_set(err, ERROR_INTERNAL, "starting the ledger's thread: %s", uv_strerror(r));
    }
    uv_async_send(&l->wake); /* delivers the notices kept since the store was opened */
    *out = l;
    return 0;
}

static void stop_thread(struct ledger *l)
{
    uv_mutex_lock(&l->mutex);
    l->stopping = true;
    uv_cond_signal(&l->more);
    if (l->checking || l->list_works) {
        store_interrupt(l->store);
    }
    uv_mutex_unlock(&l->mutex);
}

static void lists_stopped(void *ctx)
{
    struct ledger *l = ctx;
    l->lists = NULL;
    stop_thread(l);
}

void ledger_stop(struct ledger *l, void (*stopped)(void *ctx), void *ctx)
{
    if (l->ending) {
        return;
    }
    l->ending = true;
    l->stopped = stopped;
    l->stopped_ctx = ctx;
    if (l->lists) {
        ledger_stop(l->lists, lists_stopped, l);
    } else {
        stop_thread(l);
    }
}
