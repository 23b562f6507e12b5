/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer thread of the ledger carries out requests in order, except lists. A filter without an
 * index makes SQLite read the whole file, and a client may send a thousand such lists. A separate
 * read-only ledger (ledger.c) carries out these lists, by the same code on another thread, each
 * after all writes that waited before the list. Lists of one key stay here, and some of them run
 * before newer requests. Users take turns in both queues, so nobody waits for all lists of another
 * user. When a client leaves, its lists are skipped or interrupted.
 *
 * Consecutive writes are a group: they share a transaction, and are answered when it is durable.
 * After a failed group each write is tried alone, so that an impossible write fails alone. When
 * SQLite has found damaged pages, the file is repaired before the next attempt.
 *
 * The first write that finds the file's write lock held by another program waits for the lock.
 * Until the lock is free, later writes fail at once, and their rows are kept as on a full disk.
 */

#include "daemon/ledger/inner.h"

/* ---- carrying out ---------------------------------------------------------------------------- */

static int writer_work_request(struct ledger *l, struct request *r, struct error *err)
{
    int status = r->verb->row ? writer_decode(l, &r->row, r->verb->row, l->object, err) : 0;
    status = status ? status : r->verb->work(l, r, err);
    r->heard = l->changes;
    return status;
}

/* A list must show the writes that its client sent before. So the thread of lists waits here until
 * the writer thread has carried out all requests before the list. */
static void wait_for_writes(const struct ledger *l, const struct request *r)
{
    struct ledger *whole = (struct ledger *)l->whole;
    if (!whole) {
        return;
    }
    uv_mutex_lock(&whole->mutex);
    while (whole->n_carried < r->after) {
        uv_cond_wait(&whole->carried, &whole->mutex);
    }
    uv_mutex_unlock(&whole->mutex);
}

/* Begins a list that may read the whole file (VERB_PATIENT). False: the client has left. */
static bool writer_begin_list(struct ledger *l, const struct request *r)
{
    uv_mutex_lock(&l->mutex);
    l->list_works = !r->withdrawn && !l->stopping;
    bool begins = l->list_works;
    uv_mutex_unlock(&l->mutex);
    return begins;
}

static void end_list(struct ledger *l)
{
    uv_mutex_lock(&l->mutex);
    l->list_works = false;
    l->listing = NULL;
    uv_mutex_unlock(&l->mutex);
}

static void writer_finish_request(struct ledger *l, struct request *r, int status,
                                  const struct error *err)
{
    r->status = status;
    if (status < 0) {
        request_fail(r, err);
    }
    if (r->verb->flags & VERB_GROUP) {
        l->dirty = true;
        if (status < 0 || r->verb->row) {
            /* a write without a row may have found nothing to write, and says nothing about the
             * disk */
            writer_note_disk(l, status, err->text);
        }
    } else if (status == ERROR_BUSY && !l->read_only) {
        writer_note_disk(l, status, err->text);
    }
    if (r->verb->settle) {
        r->verb->settle(l, r);
    }
    if (r->verb->answer) {
        ledger_respond(l, r);
    } else {
        request_free(r);
    }
}

/* Repairs a damaged store. Returns 0 when the store is whole again. Tries at most every RETRY_MS: a
 * repair that fails reads all rows. */
static int writer_repair_store(struct ledger *l)
{
    struct error err = ERROR_NULL;
    if (writer_now_ms() < l->repair_at) {
        return ERROR_STORE;
    }
    int r = store_repair(l->store, &err);
    if (r) {
        l->repair_at = writer_now_ms() + RETRY_MS;
    }
    if (r && !l->unrepaired) {
        writer_notice(l, "damaged", "%s", err.text);
    }
    l->unrepaired = r != 0;
    return r;
}

/* A read-only ledger leaves the repair to the writing ledger, and opens the file again. */
static bool wants_repair(const struct ledger *l)
{
    return !l->read_only && store_damaged(l->store);
}

static int writer_try_request(struct ledger *l, struct request *r, struct error *err)
{
    bool patient = r->verb->flags & VERB_PATIENT;
    if (patient) {
        wait_for_writes(l, r);
    }
    /* before the list begins: from then on the loop may interrupt the handle that is open now */
    int status = l->read_only ? store_refresh(l->store, err) : 0;
    if (status == 0 && patient && !writer_begin_list(l, r)) {
        return error_set(err, ERROR_CANCELLED, "nobody waits for this list");
    }
    return status ? status : writer_work_request(l, r, err);
}

static void carry_out_alone(struct ledger *l, struct request *r, bool stopping)
{
    struct error err = ERROR_NULL;
    int status = stopping && r->verb->flags & VERB_READ
                     ? error_set(&err, ERROR_SHUTTING_DOWN, "gemmd is stopping")
                     : writer_try_request(l, r, &err);
    if (r->verb->flags & VERB_PATIENT) {
        /* from here on the client's leaving interrupts nothing: a repair must run to its end */
        end_list(l);
    }
    bool failed = status < 0 && status != ERROR_CANCELLED && status != ERROR_SHUTTING_DOWN;
    if (failed && store_damaged(l->store) && writer_repair_store(l) == 0) {
        status = writer_work_request(l, r, &err);
    }
    writer_finish_request(l, r, status, &err);
}

/* Carries out a queue in a transaction. False: no request was carried out. */
static bool try_group(struct ledger *l, struct queue *q)
{
    struct error errors[GROUP_MAX];
    int statuses[GROUP_MAX];
    size_t n = 0;
    if (l->unsaved.first && unsaved_save(l, &errors[0])) {
        /* unsaved rows could not be saved before the group; within the group a rollback would undo
         * them */
        return false;
    }
    int begun = store_begin(l->store, &errors[0]);
    if (begun == ERROR_BUSY) {
        writer_note_disk(l, begun, errors[0].text);
    }
    if (begun) {
        return false;
    }
    for (struct request *r = q->first; r; r = r->next, n++) {
        statuses[n] = writer_work_request(l, r, &errors[n]);
        if (writer_fault_of_store(statuses[n])) {
            store_rollback(l->store);
            return false;
        }
    }
    struct error err;
    if (store_commit(l->store, &err)) {
        return false;
    }
    n = 0;
    for (struct request *r; (r = queue_pop(q)); n++) {
        writer_finish_request(l, r, statuses[n], &errors[n]);
    }
    return true;
}

static void carry_out_group(struct ledger *l, struct queue *q)
{
    if (q->first->next && try_group(l, q)) {
        return;
    }
    for (struct request *r; (r = queue_pop(q));) {
        carry_out_alone(l, r, false);
    }
}

static void writer_carry_out(struct ledger *l, struct queue *q, bool stopping)
{
    struct queue group;
    while (q->first) {
        size_t n = 0;
        queue_init(&group);
        while (q->first && q->first->verb->flags & VERB_GROUP && n < GROUP_MAX) {
            queue_push(&group, queue_pop(q));
            n++;
        }
        if (n > 0) {
            carry_out_group(l, &group);
        } else {
            carry_out_alone(l, queue_pop(q), stopping);
        }
    }
}

/* ---- upkeep, and the thread ------------------------------------------------------------------ */

/* True when no request waits. The caller holds the mutex. */
static bool writer_is_idle(const struct ledger *l)
{
    return !l->todo.first && !l->brief.first && !l->patient.first;
}

/* Checks the whole file. A request interrupts the check, which runs again at the next quiet
 * moment. */
static void writer_check_file(struct ledger *l)
{
    struct error err = ERROR_NULL;
    int64_t bad;
    uv_mutex_lock(&l->mutex);
    l->checking = writer_is_idle(l) && !l->stopping;
    bool go = l->checking;
    uv_mutex_unlock(&l->mutex);
    if (!go) {
        return;
    }
    int r = store_check(l->store, &bad, &err);
    uv_mutex_lock(&l->mutex);
    l->checking = false;
    uv_mutex_unlock(&l->mutex);
    l->check_due = r == ERROR_CANCELLED;
    if (r < 0 && r != ERROR_CANCELLED && store_damaged(l->store)) {
        writer_repair_store(l);
    }
}

/* True when the thread must try to write again later: to save unsaved rows, or to learn that the
 * disk is no longer full, or the file no longer locked. */
static bool waits_for_room(const struct ledger *l)
{
    return unsaved_any(l) || l->disk_full || l->locked;
}

static void writer_do_upkeep(struct ledger *l)
{
    struct error err = ERROR_NULL;
    uint64_t now = writer_now_ms();
    if (wants_repair(l)) {
        writer_repair_store(l);
    }
    if (waits_for_room(l) && now >= l->save_at) {
        if (unsaved_any(l)) {
            unsaved_save(l, &err);
        } else {
            writer_note_disk(l, store_probe(l->store, &err), err.text);
        }
        l->save_at = writer_now_ms() + RETRY_MS;
    }
    if (l->dirty && l->trim_at > now + BUSY_TRIM_MS) {
        l->trim_at = now + BUSY_TRIM_MS;
    }
    if (now >= l->idle_at) {
        if (l->dirty && store_tidy(l->store, &err)) {
            writer_notice(l, "wal", "%s", err.text);
        }
        if (l->cache_dir && l->dirty) {
            l->trim_at = now;
        }
        l->dirty = false;
        if (l->check_due) {
            writer_check_file(l);
            l->idle_at = writer_now_ms() + IDLE_MS;
        }
    }
    if (l->cache_dir && now >= l->trim_at) {
        ledger_modules_trim(l);
    }
}

/* Returns the time until the next upkeep in ms; 0: no upkeep is due. */
static uint64_t wait_ms(const struct ledger *l)
{
    uint64_t now = writer_now_ms(), at = UINT64_MAX;
    if (waits_for_room(l)) {
        at = l->save_at;
    }
    if (wants_repair(l) && l->repair_at < at) {
        at = l->repair_at;
    }
    if ((l->dirty || l->check_due) && l->idle_at < at) {
        at = l->idle_at;
    }
    if (l->cache_dir && l->trim_at < at) {
        at = l->trim_at;
    }
    return at == UINT64_MAX ? 0 : at > now ? at - now : 1;
}

/* Saves all unsaved rows when the ledger stops. The first write waits for another program's lock;
 * closing the file does not, since closing may leave out the checkpoint of the log. */
static void save_last(struct ledger *l)
{
    struct error err = ERROR_NULL;
    if (unsaved_any(l)) {
        store_set_patience(l->store, LAST_PATIENCE_MS);
    }
    int r = unsaved_save(l, &err);
    if (r < 0 && wants_repair(l) && store_repair(l->store, &err) == 0) {
        r = unsaved_save(l, &err);
    }
    if (r < 0 && l->unsaved.first) {
        writer_notice(l, "lost", "%lld bests were never saved: %s",
                      (long long)queue_count(&l->unsaved), err.text);
    }
    int64_t quarantined = queue_drop(&l->quarantined, NULL);
    if (quarantined) {
        writer_notice(
            l, "lost",
            "%lld rows of quarantine were never saved, and their kernels may be launched again: %s",
            (long long)quarantined, err.text);
    }
    store_set_patience(l->store, l->locked ? 0 : PATIENCE_MS);
}

static void writer_end_thread(struct ledger *l)
{
    struct error err = ERROR_NULL;
    if (wants_repair(l)) {
        store_repair(l->store, &err);
    }
    save_last(l);
    queue_drop(&l->unsaved, NULL);
    l->loading = store_load_end(l->loading);
    if (!l->read_only && store_leave(l->store, &err) < 0) {
        /* then the leases end a little later, with this process */
        writer_notice(l, "lease", "%s", err.text);
    }
    if (!l->read_only && store_snapshot(l->store, 0, &err) < 0) {
        writer_notice(l, "snapshot", "no snapshot of the database was made: %s", err.text);
    }
    l->store = store_close(l->store);
    uv_mutex_lock(&l->mutex);
    l->ended = true;
    uv_mutex_unlock(&l->mutex);
    uv_async_send(&l->wake);
}

/* Moves the next requests to `q`: all of `todo`, and some of the queues of turns (BRIEF_MAX). The
 * caller holds the mutex. */
static void writer_take_requests(struct ledger *l, struct queue *q)
{
    struct request *r;
    queue_init(q);
    queue_move(q, &l->todo);
    l->trials = l->records = 0;
    for (int i = 0; i < BRIEF_MAX && (r = queue_pop_turn(&l->brief)); i++) {
        queue_push(q, r);
    }
    l->listing = r = queue_pop_turn(&l->patient);
    if (r) {
        queue_push(q, r);
    }
}

/* When another file has been opened, has all bests read again as after a loss: the file may lack
 * rows that memory still has. If changes were missed, verbs_tell_changes has all bests read again,
 * and rows that the file lacks count as deleted. */
static void look_at_file(struct ledger *l)
{
    struct error ignored;
    if (l->read_only || store_opened(l->store) == l->opened) {
        return;
    }
    int status = verbs_tell_changes(l, &ignored);
    struct request *r = status == 0 ? request_new(&verb_reload, NULL, NO_TEXT) : NULL;
    if (status >= 0 && (r || status == STORE_MISSED)) {
        l->opened = store_opened(l->store);
    }
    if (r) {
        ledger_respond(l, r);
    }
}

static void tell_carried(struct ledger *l)
{
    uv_mutex_lock(&l->mutex);
    l->n_carried = l->n_taken;
    uv_cond_signal(&l->carried);
    uv_mutex_unlock(&l->mutex);
}

void writer_run(void *ledger)
{
    struct ledger *l = ledger;
    struct queue q;
    l->idle_at = writer_now_ms() + IDLE_MS;
    verbs_tell_fleet(l);
    for (;;) {
        uv_mutex_lock(&l->mutex);
        uint64_t ms = wait_ms(l);
        if (writer_is_idle(l) && !l->stopping) {
            if (ms) {
                uv_cond_timedwait(&l->more, &l->mutex, ms * 1000000);
            } else {
                uv_cond_wait(&l->more, &l->mutex);
            }
        }
        writer_take_requests(l, &q);
        l->n_taken++;
        bool stopping = l->stopping;
        uv_mutex_unlock(&l->mutex);
        if (q.first) {
            writer_carry_out(l, &q, stopping);
            l->idle_at = writer_now_ms() + IDLE_MS;
        } else if (stopping) {
            break;
        }
        tell_carried(l);
        writer_do_upkeep(l);
        look_at_file(l);
    }
    writer_end_thread(l);
}
