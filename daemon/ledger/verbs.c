/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs: the work of each request on the writer thread (a call of the store, then the
 * consequences of the final status), and the answer on the loop. writer.c has order and
 * transactions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/ledger/inner.h"
#include "store/fleet.h"

static const struct verb verb_news;

int verbs_take_best(struct ledger *l, struct request *r, int status, struct error *err)
{
    if (status) {
        return status;
    }
    wire_buf_clear(&r->row);
    r->row.failed = false;
    schema_encode(&r->row, &best_schema, &l->object->best);
    r->saved = true;
    return r->row.failed ? error_set(err, ERROR_NO_MEMORY, "no memory for a row") : 0;
}

/* ---- verbs that write ------------------------------------------------------------------------ */

/* Offers a best to the store. Unsaved rows are saved before, since the daemon published them
 * earlier. */
static int verbs_offer_row(struct ledger *l, const struct wire_buf *row, int64_t known,
                           struct error *err)
{
    struct best *b = &l->object->best;
    const struct request *u = unsaved_newest(l, b->key);
    struct best now;
    if (u) {
        int r = writer_decode(l, &u->row, &best_schema, &now, err);
        now.generation = INT64_MAX; /* the unsaved row will get a generation above all others */
        r = r ? r : store_overtaken(&now, b, known, err);
        r = r ? r : unsaved_save(l, err);
        r = r ? r : writer_decode(l, row, &best_schema, l->object, err);
        if (r) {
            return r;
        }
        known = INT64_MAX; /* the caller knew the unsaved row, which is the key's newest now */
    }
    b->generation = known;
    return store_offer(l->store, b, err);
}

static int work_publish(struct ledger *l, struct request *r, struct error *err)
{
    int status = verbs_offer_row(l, &r->row, r->argument, err);
    if (status < 0) {
        return status; /* after a failure r->row stays the caller's row, which is kept as unsaved */
    }
    int back = verbs_take_best(l, r, 0, err);
    return back ? back : status;
}

static void keep_unsaved(struct ledger *l, struct request *r)
{
    r->saved = r->status >= 0;
    if (r->status < 0 && r->status != ERROR_CONFLICT && !r->row.failed) {
        unsaved_keep(l, r); /* a new best has generation 0 until it is saved */
        l->save_at = writer_now_ms() + RETRY_MS;
        r->status = 0;
    }
}

static void settle_publish(struct ledger *l, struct request *r)
{
    keep_unsaved(l, r);
    if (r->status == STORE_THERE) {
        r->status = 0; /* the file's newest row is equal to the brought row, and is the answer */
    }
}

/* Writes a best that the file has lost, with its old generation. */
static int work_restore(struct ledger *l, struct request *r, struct error *err)
{
    struct best *b = &l->object->best;
    /* above INT64_MAX / 2 too few generations would be left for new bests */
    bool proper = b->generation > 0 && b->generation < INT64_MAX / 2;
    /* STORE_THERE: the key was changed since, so its best is not lost */
    int status =
        proper ? store_changed_since(l->store, b->key, r->argument, err)
               : error_set(err, ERROR_CONFLICT, "a best of generation %lld cannot be restored",
                           (long long)b->generation);
    status = status ? status : store_publish_again(l->store, b, err);
    return verbs_take_best(l, r, status, err);
}

static int work_unpin(struct ledger *l, struct request *r, struct error *err)
{
    /* an unsaved row may be the key's newest, the one to unpin */
    int status = unsaved_save(l, err);
    status = status ? status : store_unpin(l->store, r->text[0], &l->object->best, err);
    return verbs_take_best(l, r, status, err);
}

static int work_evict(struct ledger *l, struct request *r, struct error *err)
{
    struct error ignored;
    int status = store_evict(l->store, r->text[0], &r->number, err);
    bool memory = writer_fault_of_store(status) && unsaved_newest(l, r->text[0]);
    return memory && store_best_of(l->store, r->text[0], &l->object->best, &ignored) == STORE_MISS
               /* the file does not have the key, so it is enough that settle_removal drops the
                * unsaved row */
               ? 0
               : status;
}

/* Removes the rows from memory, too. */
static void settle_removal(struct ledger *l, struct request *r)
{
    if (r->status == 0) {
        r->number += queue_drop(r->verb == &verb_evict ? &l->unsaved : &l->quarantined, r->text[0]);
    }
}

static int work_unquarantine(struct ledger *l, struct request *r, struct error *err)
{
    return store_unquarantine(l->store, r->text[0], &r->number, err);
}

static int work_lease(struct ledger *l, struct request *r, struct error *err)
{
    return store_lease(l->store, r->text[0], r->argument, err);
}

static int work_unlease(struct ledger *l, struct request *r, struct error *err)
{
    return store_unlease(l->store, r->text[0], err);
}

static int work_want(struct ledger *l, struct request *r, struct error *err)
{
    const struct store_wanted w = {.key = r->text[0],
                                   .class = r->text[1],
                                   .uid = r->argument,
                                   .search = r->row.data,
                                   .n = r->row.len};
    return store_want(l->store, &w, err);
}

static int work_unwant(struct ledger *l, struct request *r, struct error *err)
{
    return store_unwant(l->store, r->text[0], err);
}

static int work_add_run(struct ledger *l, struct request *r, struct error *err)
{
    struct run *run = &l->object->run;
    int status = store_add_run(l->store, run, err);
    r->number = status < 0 ? 0 : run->id;
    return status;
}

#define WORK_OF_ROW(call, member)                                                                  \
    static int work_##call(struct ledger *l, struct request *r, struct error *err)                 \
    {                                                                                              \
        (void)r;                                                                                   \
        return store_##call(l->store, &l->object->member, err);                                    \
    }
WORK_OF_ROW(add_trial, trial)
WORK_OF_ROW(add_trial_once, trial)
WORK_OF_ROW(add_module, module)
WORK_OF_ROW(add_quarantine, quarantine)
WORK_OF_ROW(add_event, event)
WORK_OF_ROW(put_device, device)
WORK_OF_ROW(end_run, run)

static int work_add_served(struct ledger *l, struct request *r, struct error *err)
{
    const struct wire_obj *rows;
    int status = wire_decode(l->doc, r->row.data, r->row.len, &rows, err);
    return status ? status : store_add_served(l->store, rows, err);
}

/* Reports that the row of a request without a callback is lost. After a fault of the store only the
 * first lost row is reported, until a row is written again. A full disk and a locked file have
 * their own reports. */
static void say_lost(struct ledger *l, const struct request *r, const char *how)
{
    const char *table = r->verb->row                                       ? r->verb->row->name
                        : r->verb == &verb_want || r->verb == &verb_unwant ? "wanted"
                                                                           : "lease";
    bool told = r->status == ERROR_DISK_FULL || r->status == ERROR_BUSY;
    if (!told && !(r->status == ERROR_STORE && l->lost_said)) {
        l->lost_said = r->status == ERROR_STORE;
        writer_notice(l, "lost", "a row of table %s was not written%s: %s", table, how,
                      r->err->text);
    }
}

static void settle_evidence(struct ledger *l, struct request *r)
{
    if (r->status >= 0) {
        return;
    }
    if (r->verb->flags & VERB_TRIAL) {
        uv_mutex_lock(&l->mutex);
        l->lost_trials++;
        uv_mutex_unlock(&l->mutex);
    }
    say_lost(l, r, "");
}

static void settle_quarantine(struct ledger *l, struct request *r)
{
    if (writer_fault_of_store(r->status)) {
        say_lost(l, r, ", and is kept in memory until it can be");
        unsaved_keep_quarantine(l, r);
        l->save_at = writer_now_ms() + RETRY_MS;
    } else {
        settle_evidence(l, r);
    }
}

/* ---- verbs that read ------------------------------------------------------------------------- */

/* Reads a page of bests. After a fault, which may lead to a repair, the next page is the first
 * again. */
static int work_load(struct ledger *l, struct request *r, struct error *err)
{
    r->bests = r->bests ? r->bests : malloc(LOAD_PAGE * sizeof(*r->bests));
    if (!r->bests) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to load the database");
    }
    if (r->argument) {
        l->loading = store_load_end(l->loading);
    }
    int status = l->loading ? 0 : store_load_begin(l->store, &l->loading, err);
    status = status ? status : store_load_page(l->loading, r->bests, LOAD_PAGE, &r->n, err);
    if (status < 0 || r->n == 0) {
        l->loading = store_load_end(l->loading);
        /* after a whole load the writer checks the file */
        l->check_due = l->check_due || (status == 0 && !l->read_only);
    }
    return status;
}

static int work_find(struct ledger *l, struct request *r, struct error *err)
{
    int status =
        l->loading ? store_load_find(l->loading, r->text[0], &l->object->best, err) : STORE_MISS;
    return verbs_take_best(l, r, status, err);
}

static int work_history(struct ledger *l, struct request *r, struct error *err)
{
    free(r->trials); /* results of an attempt before the file was repaired */
    free(r->avoid);
    r->trials = NULL;
    r->avoid = NULL;
    int status = store_trials_of(l->store, r->text[0], r->text[1], &r->trials, &r->n, err);
    return status ? status
                  : store_avoid(l->store, r->text[2], r->text[3], &r->avoid, &r->n_avoid, err);
}

static int work_list(struct ledger *l, struct request *r, struct error *err)
{
    struct record filter;
    const struct wire_obj *map;
    record_init(&filter);
    int status = r->filter.len ? wire_decode(l->doc, r->filter.data, r->filter.len, &map, err) : 0;
    status = status || !r->filter.len ? status : record_unpack(&filter, map, err);
    wire_buf_clear(&r->row);
    return status ? status
                  : store_list(l->store, r->text[0], &filter, (size_t)r->argument, &r->row,
                               &r->number, err);
}

static int work_backup(struct ledger *l, struct request *r, struct error *err)
{
    return store_backup(l->store, r->text[0], err);
}

static int work_snapshot(struct ledger *l, struct request *r, struct error *err)
{
    return store_snapshot(l->store, SNAPSHOT_S, err);
}

static int work_record(struct ledger *l, struct request *r, struct error *err)
{
    return r->argument ? work_add_trial_once(l, r, err) : work_add_trial(l, r, err);
}

static int work_next_wanted(struct ledger *l, struct request *r, struct error *err)
{
    WIRE_BUF_AUTO search = WIRE_BUF_NULL;
    int64_t uid = 0;
    r->number = r->argument;
    int status = store_next_wanted(l->store, r->text[0], &r->number, &uid, &search, err);
    wire_buf_clear(&r->row);
    wire_put_int(&r->row, uid);
    wire_put_raw(&r->row, search.data, search.len);
    return status < 0 || !r->row.failed ? status
                                        : error_set(err, ERROR_NO_MEMORY, "no memory for a job");
}

/* ---- changes by other daemons ---------------------------------------------------------------- */

void verbs_respond_news(struct ledger *l, enum ledger_news_kind kind, const char *text)
{
    const struct verb *verb = kind == NEWS_BEST        ? &verb_saved
                              : kind == NEWS_RELOADING ? &verb_reload
                                                       : &verb_news;
    struct request *r = request_new(verb, NULL, TEXTS(text));
    struct error ignored;
    if (r && kind == NEWS_BEST && verbs_take_best(l, r, 0, &ignored)) {
        request_free(r);
        r = NULL;
    }
    if (r) {
        r->number = kind;
        r->saved = true;
        r->heard = l->changes;
        ledger_respond(l, r);
    } else {
        /* no memory: with -1 the next read of changes finds them missed, and all bests are read
         * again */
        l->changes = -1;
    }
}

static int tell_change(struct ledger *l, const struct store_change *c, struct error *err)
{
    static const struct {
        const char *kind;
        enum ledger_news_kind news;
    } plain[] = {{"lease", NEWS_FREED},
                 {"quarantine", NEWS_QUARANTINE},
                 {"wanted", NEWS_WANTED},
                 {"daemon", NEWS_DAEMONS},
                 {"fleet", NEWS_FLEET}};
    const bool evicted = strcmp(c->kind, "evicted") == 0;
    if (evicted && queue_drop(&l->unsaved, c->name)) {
        writer_notice(l, "lost", "a best of key %.12s was not saved: another gemmd evicted the key",
                      c->name);
    }
    if (evicted || strcmp(c->kind, "best") == 0) {
        int r = store_best_of(l->store, c->name, &l->object->best, err);
        if (r == 0) {
            verbs_respond_news(l, NEWS_BEST, c->name);
        } else if (r > 0) {
            verbs_respond_news(l, NEWS_EVICTED, c->name);
        }
        return r < 0 ? r : 0;
    }
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        if (strcmp(c->kind, plain[i].kind) == 0) {
            verbs_respond_news(l, plain[i].news, c->name);
        }
    }
    return 0;
}

/* Reports a page of changes to the loop. *more: another page follows. After a fault the next call
 * reads the same changes again. STORE_MISSED: some rows of `change` were deleted before this daemon
 * read them, and all bests are read again. */
static int tell_changes(struct ledger *l, bool *more, struct error *err)
{
    enum { PAGE = 64 };
    struct store_change page[PAGE];
    uint32_t n;
    int64_t at = l->changes;
    int status = store_changes(l->store, &at, page, PAGE, &n, err);
    if (status == STORE_MISSED) {
        verbs_respond_news(l, NEWS_RELOADING, "");
    }
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        status = tell_change(l, &page[i], err);
    }
    l->changes = status < 0 ? l->changes : at;
    *more = status == 0 && n == PAGE;
    return status;
}

static int work_changes(struct ledger *l, struct request *r, struct error *err)
{
    bool more = false;
    int status = tell_changes(l, &more, err);
    r->number = more;
    return status;
}

void verbs_tell_fleet(struct ledger *l)
{
    struct store_fleet fleet;
    struct error ignored;
    char cursor[24];
    if (!l->read_only && store_fleet_read(l->store, &fleet, &ignored) == 0) {
        snprintf(cursor, sizeof(cursor), "%lld", (long long)fleet.cursor);
        verbs_respond_news(l, NEWS_FLEET, cursor);
    }
}

int verbs_tell_changes(struct ledger *l, struct error *err)
{
    int status = 0;
    for (bool more = !l->read_only; more;) {
        status = tell_changes(l, &more, err);
    }
    return status;
}

void verbs_settle_lease(struct ledger *l, struct request *r)
{
    struct error ignored;
    if (r->status == 0 || r->status == STORE_ALONE) {
        verbs_tell_changes(l, &ignored);
    }
}

/* The changes are read last: another gemmd may commit between the two. */
static int work_hear(struct ledger *l, struct request *r, struct error *err)
{
    int status = store_generation(l->store, &r->number, err);
    return status ? status : verbs_tell_changes(l, err);
}

static int work_status(struct ledger *l, struct request *r, struct error *err)
{
    struct store_stats s = {0};
    /* the loop learns of the changes before it learns the generation that they led to */
    verbs_tell_changes(l, err);
    int status = store_stats(l->store, &s, err);
    uv_mutex_lock(&l->mutex);
    int64_t lost = l->lost_trials;
    uv_mutex_unlock(&l->mutex);
    *r->counts = (struct ledger_status){
        .unsaved = queue_count(&l->unsaved),
        .unsaved_quarantine = queue_count(&l->quarantined),
        .lost_trials = lost,
        .disk_full = l->disk_full,
        .locked = l->locked,
        .bests = s.bests,
        .trials = s.trials,
        .modules = s.modules,
        .quarantined = s.quarantined,
        .generation = s.generation,
        .file_bytes = s.file_bytes,
        .wal_bytes = s.wal_bytes,
        .daemons = s.daemons,
    };
    ledger_modules_count(l, r->counts);
    return status;
}

/* ---- answers, on the loop -------------------------------------------------------------------- */

static void answer_load(struct ledger *l, struct request *r)
{
    l->loads = r->status == 0 && r->n > 0;
    r->cb.load(r->ctx, r->status, r->bests, r->n, r->err);
}

static void answer_history(struct ledger *l, struct request *r)
{
    r->cb.history(r->ctx, r->status, r->trials, r->n, r->avoid, r->n_avoid, r->err);
}

int verbs_decode_answered(struct ledger *l, const struct request *r, struct error *err)
{
    const struct wire_obj *map;
    if (r->status) {
        return r->status;
    }
    int status = wire_decode(l->loop_doc, r->row.data, r->row.len, &map, err);
    return status ? status : schema_decode(&best_schema, SCHEMA_LENIENT, map, l->answered, err);
}

void verbs_answer_best(struct ledger *l, struct request *r)
{
    struct error err = ERROR_NULL;
    int status = verbs_decode_answered(l, r, &err);
    bool written = r->verb != &verb_find;
    if (written && status == 0) {
        news_tell(l, NEWS_BEST, l->answered->key, l->answered, r->saved);
    } else if (written && status == STORE_MISS) {
        news_tell(l, NEWS_EVICTED, r->text[0], NULL, false);
    }
    r->cb.best(r->ctx, status, status == 0 ? l->answered : NULL, r->saved,
               status < 0 && !r->err ? &err : r->err);
}

static void answer_evicted(struct ledger *l, struct request *r)
{
    if (r->status >= 0) {
        news_tell(l, NEWS_EVICTED, r->text[0], NULL, false);
    }
    r->cb.id(r->ctx, r->status, r->number, r->err);
}

static void tell_saved(struct ledger *l, struct request *r)
{
    struct error err = ERROR_NULL;
    if (verbs_decode_answered(l, r, &err) == 0) {
        news_tell(l, NEWS_BEST, l->answered->key, l->answered, true);
    }
}

static void tell_news(struct ledger *l, struct request *r)
{
    /* NEWS_DAEMONS: a daemon has started. When daemons end, the number is right again after the
     * next ledger_status */
    l->daemons += r->number == NEWS_DAEMONS;
    news_tell(l, (enum ledger_news_kind)r->number, r->text[0], NULL, false);
}

static void tell_reload(struct ledger *l, struct request *r)
{
    news_reload(l, !r->saved);
}

static void answer_changes(struct ledger *l, struct request *r)
{
    news_asked(l, r->number);
}

void verbs_answer_done(struct ledger *l, struct request *r)
{
    r->cb.done(r->ctx, r->status, r->err);
}

static void answer_id(struct ledger *l, struct request *r)
{
    r->cb.id(r->ctx, r->status, r->number, r->err);
}

static void answer_list(struct ledger *l, struct request *r)
{
    struct ledger *home = l->whole ? (struct ledger *)l->whole : l;
    home->n_lists--;
    home->n_withdrawn += r->withdrawn && r->status == ERROR_CANCELLED;
    r->cb.list(r->ctx, r->status, r->row.data, r->row.len, r->number, r->err);
}

static void answer_rows(struct ledger *l, struct request *r)
{
    r->cb.list(r->ctx, r->status, r->row.data, r->row.len, r->number, r->err);
}

static void answer_status(struct ledger *l, struct request *r)
{
    r->counts->lists = l->n_lists;
    r->counts->withdrawn = l->n_withdrawn;
    l->daemons = r->counts->daemons;
    r->cb.status(r->ctx, r->counts);
}

static void answer_snapshot(struct ledger *l, struct request *r)
{
    if (r->status < 0 && r->status != ERROR_CANCELLED && r->status != ERROR_SHUTTING_DOWN) {
        log_warning("no snapshot of the database was made: %s", r->err->text);
    }
}

/* ---- the verbs ------------------------------------------------------------------------------- */

#define VERB(name, flags, row, work, settle, answer)                                               \
    const struct verb verb_##name = {flags, row, work, settle, answer}
VERB(load, VERB_READ | VERB_PAGE, NULL, work_load, NULL, answer_load);
VERB(find, VERB_READ, NULL, work_find, NULL, verbs_answer_best);
VERB(history, VERB_READ, NULL, work_history, NULL, answer_history);
VERB(list, VERB_READ | VERB_PATIENT, NULL, work_list, NULL, answer_list);
VERB(list_key, VERB_READ | VERB_BRIEF, NULL, work_list, NULL, answer_list);
VERB(status, 0, NULL, work_status, NULL, answer_status);
VERB(hear, 0, NULL, work_hear, NULL, answer_id);
VERB(backup, 0, NULL, work_backup, NULL, verbs_answer_done);
VERB(snapshot, VERB_READ | VERB_PATIENT, NULL, work_snapshot, NULL, answer_snapshot);
VERB(changes, VERB_READ, NULL, work_changes, NULL, answer_changes);
VERB(next_wanted, VERB_READ, NULL, work_next_wanted, NULL, answer_rows);
VERB(unpin, 0, NULL, work_unpin, NULL, verbs_answer_best);
VERB(publish, VERB_GROUP, &best_schema, work_publish, settle_publish, verbs_answer_best);
VERB(restore, VERB_GROUP, &best_schema, work_restore, keep_unsaved, verbs_answer_best);
VERB(evict, VERB_GROUP, NULL, work_evict, settle_removal, answer_evicted);
VERB(unquarantine, VERB_GROUP, NULL, work_unquarantine, settle_removal, answer_id);
VERB(lease, VERB_GROUP, NULL, work_lease, verbs_settle_lease, verbs_answer_done);
VERB(unlease, VERB_GROUP, NULL, work_unlease, settle_evidence, NULL);
VERB(want, VERB_GROUP, NULL, work_want, settle_evidence, NULL);
VERB(unwant, VERB_GROUP, NULL, work_unwant, settle_evidence, NULL);
VERB(add_run, VERB_GROUP, &run_schema, work_add_run, NULL, answer_id);
VERB(record, VERB_GROUP | VERB_RECORD, &trial_schema, work_record, NULL, verbs_answer_done);
VERB(add_trial, VERB_GROUP | VERB_TRIAL, &trial_schema, work_add_trial, settle_evidence, NULL);
VERB(add_module, VERB_GROUP, &module_schema, work_add_module, settle_evidence, NULL);
VERB(add_quarantine, VERB_GROUP, &quarantine_schema, work_add_quarantine, settle_quarantine, NULL);
VERB(add_event, VERB_GROUP, &event_schema, work_add_event, settle_evidence, NULL);
VERB(add_served, VERB_GROUP, NULL, work_add_served, NULL, answer_rows);
VERB(put_device, VERB_GROUP, &device_info_schema, work_put_device, settle_evidence, NULL);
VERB(end_run, VERB_GROUP, &run_schema, work_end_run, settle_evidence, NULL);

const struct verb verb_saved = {.answer = tell_saved};
const struct verb verb_reload = {.answer = tell_reload};
static const struct verb verb_news = {.answer = tell_news};
