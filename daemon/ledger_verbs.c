/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each request of the local ledger does on the writer thread: a call of the store, and what
 * follows from its final status. The order and the transactions are ledger_writer.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger_local.h"

static int encode(struct wire_buf *row, const struct schema *schema, const void *object,
                  struct error *err)
{
    wire_buf_clear(row);
    row->failed = false;
    schema_encode(row, schema, object);
    return row->failed ? error_set(err, ERROR_NO_MEMORY, "no memory for a row") : 0;
}

/* ---- verbs that write
 * ---------------------------------------------------------------------------- */

static int work_publish(struct local *l, struct request *r, struct error *err)
{
    int status = store_publish(l->store, l->object, err);
    /* also after a fault: the generation is reserved */
    int back = encode(&r->row, &best_schema, l->object, err);
    return status ? status : back;
}

static void settle_publish(struct local *l, struct request *r)
{
    r->saved = r->status == 0;
    if (r->status < 0 && !r->row.failed) {
        unsaved_keep(l, r);
        l->retry_at = writer_now_ms() + RETRY_MS;
        r->status = 0;
    }
}

static int work_unpin(struct local *l, struct request *r, struct error *err)
{
    int status = unsaved_save(l, err); /* the newest may be among them */
    status = status ? status : store_unpin(l->store, r->text[0], l->object, err);
    if (status == 0) {
        status = encode(&r->row, &best_schema, l->object, err);
        r->saved = true;
    }
    return status;
}

static int work_evict(struct local *l, struct request *r, struct error *err)
{
    return store_evict(l->store, r->text[0], &r->number, err);
}

static void settle_evict(struct local *l, struct request *r)
{
    if (r->status == 0) {
        r->number += unsaved_drop(l, r->text[0]);
    }
}

static int work_unquarantine(struct local *l, struct request *r, struct error *err)
{
    return store_unquarantine(l->store, r->text[0], &r->number, err);
}

static int work_lease(struct local *l, struct request *r, struct error *err)
{
    return store_lease(l->store, r->text[0], r->text[1], r->argument, err);
}

static int work_unlease(struct local *l, struct request *r, struct error *err)
{
    return r->text[0][0] ? store_unlease(l->store, r->text[0], r->text[1], err)
                         : store_end_leases(l->store, r->text[1], NULL, NULL, err);
}

static int work_add_run(struct local *l, struct request *r, struct error *err)
{
    struct run *run = l->object;
    int status = store_add_run(l->store, run, err);
    r->number = status < 0 ? 0 : run->id;
    return status;
}

static int work_add_trial(struct local *l, struct request *r, struct error *err)
{
    (void)r;
    return store_add_trial(l->store, l->object, err);
}

static int work_add_module(struct local *l, struct request *r, struct error *err)
{
    (void)r;
    return store_add_module(l->store, l->object, err);
}

static int work_add_quarantine(struct local *l, struct request *r, struct error *err)
{
    (void)r;
    return store_add_quarantine(l->store, l->object, err);
}

static int work_add_event(struct local *l, struct request *r, struct error *err)
{
    (void)r;
    return store_add_event(l->store, l->object, err);
}

static int work_put_device(struct local *l, struct request *r, struct error *err)
{
    (void)r;
    return store_put_device(l->store, l->object, err);
}

static int work_end_run(struct local *l, struct request *r, struct error *err)
{
    (void)r;
    return store_end_run(l->store, l->object, err);
}

/* Nobody waits for these: what is lost is said, but a full disk only once. */
static void settle_evidence(struct local *l, struct request *r)
{
    if (r->status >= 0) {
        return;
    }
    if (r->verb->flags & VERB_TRIAL) {
        uv_mutex_lock(&l->mutex);
        l->lost_trials++;
        uv_mutex_unlock(&l->mutex);
    }
    if (r->status != ERROR_DISK_FULL) {
        writer_notice(l, "lost", "a row of table %s was not written: %s",
                      r->verb->row ? r->verb->row->name : "lease", request_sentence(r));
    }
}

/* ---- verbs that read
 * ------------------------------------------------------------------------------ */

/* After a fault, which may lead to a repair, the next page is the first one again. */
static int work_load(struct local *l, struct request *r, struct error *err)
{
    r->page.bests = r->page.bests ? r->page.bests : malloc(LOAD_PAGE * sizeof(*r->page.bests));
    if (!r->page.bests) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to load the database");
    }
    if (r->argument) {
        l->loading = store_load_end(l->loading);
    }
    int status = l->loading ? 0 : store_load_begin(l->store, &l->loading, err);
    status = status ? status
                    : store_load_page(l->loading, r->page.bests, LOAD_PAGE, &r->page.n, err);
    if (status < 0 || r->page.n == 0) {
        l->loading = store_load_end(l->loading);
        l->check_due = l->check_due || (status == 0 && !l->read_only); /* its writer does */
    }
    return status;
}

static int work_find(struct local *l, struct request *r, struct error *err)
{
    int status = l->loading ? store_load_find(l->loading, r->text[0], l->object, err) : STORE_MISS;
    if (status == 0) {
        status = encode(&r->row, &best_schema, l->object, err);
        r->saved = true;
    }
    return status;
}

static int work_history(struct local *l, struct request *r, struct error *err)
{
    int status =
        store_trials_of(l->store, r->text[0], r->text[1], &r->history.trials, &r->history.n, err);
    return status ? status
                  : store_avoid(l->store, r->text[2], r->text[3], &r->history.avoid,
                                &r->history.n_avoid, err);
}

static int work_list(struct local *l, struct request *r, struct error *err)
{
    wire_buf_clear(&r->row);
    return store_list(l->store, r->text[0], r->filter, (size_t)r->argument, &r->row, &r->number,
                      err);
}

static int work_backup(struct local *l, struct request *r, struct error *err)
{
    return store_backup(l->store, r->text[0], err);
}

static int work_status(struct local *l, struct request *r, struct error *err)
{
    struct store_stats s = {0};
    int status = store_stats(l->store, &s, err);
    uv_mutex_lock(&l->mutex);
    int64_t lost = l->lost_trials;
    uv_mutex_unlock(&l->mutex);
    *r->counts = (struct ledger_status){
        .unsaved = l->n_unsaved,
        .lost_trials = lost,
        .disk_full = l->disk_full,
        .bests = s.bests,
        .trials = s.trials,
        .modules = s.modules,
        .quarantined = s.quarantined,
        .generation = s.generation,
        .file_bytes = s.file_bytes,
        .wal_bytes = s.wal_bytes,
    };
    ledger_modules_count(l, r->counts);
    return status;
}

const struct verb verb_load = {VERB_READ, NULL, work_load, NULL, answer_load};
const struct verb verb_find = {VERB_READ, NULL, work_find, NULL, answer_best};
const struct verb verb_history = {VERB_READ, NULL, work_history, NULL, answer_history};
const struct verb verb_list = {VERB_READ, NULL, work_list, NULL, answer_list};
const struct verb verb_status = {0, NULL, work_status, NULL, answer_status};
const struct verb verb_backup = {0, NULL, work_backup, NULL, answer_done};
const struct verb verb_unpin = {0, NULL, work_unpin, NULL, answer_best};
const struct verb verb_publish = {VERB_GROUP, &best_schema, work_publish, settle_publish,
                                  answer_best};
const struct verb verb_evict = {VERB_GROUP, NULL, work_evict, settle_evict, answer_id};
const struct verb verb_unquarantine = {VERB_GROUP, NULL, work_unquarantine, NULL, answer_id};
const struct verb verb_lease = {VERB_GROUP, NULL, work_lease, NULL, answer_done};
const struct verb verb_unlease = {VERB_GROUP, NULL, work_unlease, settle_evidence, NULL};
const struct verb verb_add_run = {VERB_GROUP, &run_schema, work_add_run, NULL, answer_id};
const struct verb verb_add_trial = {VERB_GROUP | VERB_TRIAL, &trial_schema, work_add_trial,
                                    settle_evidence, NULL};
const struct verb verb_add_module = {VERB_GROUP, &module_schema, work_add_module, settle_evidence,
                                     NULL};
const struct verb verb_add_quarantine = {VERB_GROUP, &quarantine_schema, work_add_quarantine,
                                         settle_evidence, NULL};
const struct verb verb_add_event = {VERB_GROUP, &event_schema, work_add_event, settle_evidence,
                                    NULL};
const struct verb verb_put_device = {VERB_GROUP, &device_info_schema, work_put_device,
                                     settle_evidence, NULL};
const struct verb verb_end_run = {VERB_GROUP, &run_schema, work_end_run, settle_evidence, NULL};
