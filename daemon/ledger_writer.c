/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer thread of the local ledger: carries requests out in their order.
 *
 * Writes that follow one another share a transaction, and are answered when it is durable. When a
 * group fails, each of its writes is tried again alone, so one that cannot be done takes no other
 * with it; and when SQLite has met damaged pages, the file is repaired first.
 *
 * A best that cannot be written is kept in memory under the generation that the store has reserved
 * for it, and tried again every RETRY_MS and at the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger_local.h"

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

__attribute__((format(printf, 3, 4))) static void notice(struct local *l, const char *kind,
                                                         const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    local_notice(l, kind, text);
}

static const char *sentence(const struct request *r)
{
    return r->err ? r->err->text : "no memory";
}

/* The request's row in l->object, where the verb's work finds it. */
static int decode(struct local *l, const struct wire_buf *row, const struct schema *schema,
                  struct error *err)
{
    const struct wire_obj *map;
    int r = wire_decode(l->doc, row->data, row->len, &map, err);
    return r ? r : schema_decode(schema, SCHEMA_LENIENT, map, l->object, err);
}

static int encode(struct wire_buf *row, const struct schema *schema, const void *object,
                  struct error *err)
{
    wire_buf_clear(row);
    row->failed = false;
    schema_encode(row, schema, object);
    return row->failed ? error_set(err, ERROR_NO_MEMORY, "no memory for a row") : 0;
}

/* ---- what is not saved ------------------------------------------------------------------------
 */

/* A row was written, or not. */
static void note_disk(struct local *l, int status, const char *text)
{
    if (status == ERROR_DISK_FULL && !l->disk_full) {
        l->disk_full = true;
        notice(l, "disk_full", "%s; answers are served from memory until there is room", text);
    } else if (status == 0 && l->disk_full) {
        l->disk_full = false;
        notice(l, "disk_room", "the database can be written again");
    }
}

static void keep_unsaved(struct local *l, struct request *r)
{
    struct best *b = l->object;
    struct error ignored;
    struct unsaved *u = calloc(1, sizeof(*u));
    if (!u || decode(l, &r->row, &best_schema, &ignored) ||
        (wire_put_raw(&u->row, r->row.data, r->row.len), u->row.failed)) {
        notice(l, "lost", "a best could not be saved, nor kept in memory: %s", sentence(r));
        if (u) {
            wire_buf_deinit(&u->row);
        }
        free(u);
        return;
    }
    memcpy(u->key, b->key, sizeof(u->key));
    *l->unsaved_last = u;
    l->unsaved_last = &u->next;
    l->n_unsaved++;
}

/* Forgets the first of them, or those of a key. Returns how many. */
static int64_t drop_unsaved(struct local *l, const char *key)
{
    int64_t n = 0;
    struct unsaved **at = &l->unsaved;
    while (*at && !(key == NULL && n == 1)) {
        struct unsaved *u = *at;
        if (key && strcmp(u->key, key) != 0) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        wire_buf_deinit(&u->row);
        free(u);
        n++;
    }
    while (*at) {
        at = &(*at)->next;
    }
    l->unsaved_last = at;
    l->n_unsaved -= n;
    return n;
}

static int save_unsaved(struct local *l, struct error *err)
{
    while (l->unsaved) {
        int r = decode(l, &l->unsaved->row, &best_schema, err);
        r = r ? r : store_publish_again(l->store, l->object, err);
        note_disk(l, r, err->text);
        if (r < 0) {
            return r;
        }
        l->dirty = true;
        drop_unsaved(l, NULL);
    }
    return 0;
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
        keep_unsaved(l, r);
        l->retry_at = now_ms() + RETRY_MS;
        r->status = 0;
    }
}

static int work_unpin(struct local *l, struct request *r, struct error *err)
{
    int status = save_unsaved(l, err); /* the newest may be among them */
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
        r->number += drop_unsaved(l, r->text[0]);
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
    return store_unlease(l->store, r->text[0], r->text[1], err);
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
        notice(l, "lost", "a row of table %s was not written: %s",
               r->verb->row ? r->verb->row->name : "lease", sentence(r));
    }
}

/* ---- verbs that read
 * ------------------------------------------------------------------------------ */

struct loading {
    struct local *l;
    struct request *load, *batch;
    struct error *err;
    int status;
};

/* As it is, less the unused parts of its records. */
static void copy_best(struct best *to, const struct best *from)
{
    for (size_t i = 0; i < best_schema.n; i++) {
        const struct schema_field *f = &best_schema.fields[i];
        char *at = (char *)to + f->offset;
        const char *source = (const char *)from + f->offset;
        if (f->kind == SCHEMA_RECORD) {
            record_copy((struct record *)at, (const struct record *)source);
        } else {
            memcpy(at, source, f->size);
        }
    }
}

static void batch_send(struct loading *x)
{
    struct local *l = x->l;
    local_respond(l, x->batch);
    x->batch = NULL;
}

/* Waits until the loop has taken enough of those before. */
static bool batch_begin(struct loading *x)
{
    struct local *l = x->l;
    struct best *bests = NULL;
    uv_mutex_lock(&l->mutex);
    while (l->ahead >= LOAD_AHEAD) { /* the loop takes them also while stopping */
        uv_cond_wait(&l->more, &l->mutex);
    }
    bool stopping = l->stopping;
    if (!stopping) {
        bests = l->spare[l->ahead];
        l->spare[l->ahead++] = NULL;
    }
    uv_mutex_unlock(&l->mutex);
    if (stopping) {
        x->status = error_set(x->err, ERROR_SHUTTING_DOWN, "gemmd is stopping");
        return false;
    }
    x->batch = calloc(1, sizeof(*x->batch));
    bests = bests ? bests : malloc(LOAD_BATCH * sizeof(*bests));
    if (!x->batch || !bests) {
        uv_mutex_lock(&l->mutex);
        l->spare[--l->ahead] = bests;
        uv_mutex_unlock(&l->mutex);
        free(x->batch);
        x->batch = NULL;
        x->status = error_set(x->err, ERROR_NO_MEMORY, "no memory to load the database");
        return false;
    }
    x->batch->verb = &verb_batch;
    x->batch->cb = x->load->cb;
    x->batch->ctx = x->load->ctx;
    x->batch->batch.bests = bests;
    return true;
}

static int load_row(void *ctx, const struct best *best)
{
    struct loading *x = ctx;
    if (!x->batch && !batch_begin(x)) {
        return 1;
    }
    copy_best(&x->batch->batch.bests[x->batch->batch.n++], best);
    if (x->batch->batch.n == LOAD_BATCH) {
        batch_send(x);
    }
    return x->status;
}

static int work_load(struct local *l, struct request *r, struct error *err)
{
    struct loading x = {.l = l, .load = r, .err = err};
    int status = store_each_best(l->store, load_row, &x, err);
    if (x.batch) {
        batch_send(&x);
    }
    l->check_due = true;
    return status ? status : x.status;
}

/* A load's memory goes with its last answer. */
static void settle_load(struct local *l, struct request *r)
{
    (void)r;
    uv_mutex_lock(&l->mutex);
    while (l->ahead > 0) {
        uv_cond_wait(&l->more, &l->mutex);
    }
    for (int i = 0; i < LOAD_AHEAD; i++) {
        free(l->spare[i]);
        l->spare[i] = NULL;
    }
    uv_mutex_unlock(&l->mutex);
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
    return status;
}

const struct verb verb_load = {VERB_READ, NULL, work_load, settle_load, answer_load};
const struct verb verb_batch = {0, NULL, NULL, NULL, answer_batch};
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

/* ---- carrying out
 * --------------------------------------------------------------------------------- */

static int work(struct local *l, struct request *r, struct error *err)
{
    int status = r->verb->row ? decode(l, &r->row, r->verb->row, err) : 0;
    return status ? status : r->verb->work(l, r, err);
}

static void finish(struct local *l, struct request *r, int status, const struct error *err)
{
    r->status = status;
    if (status < 0 && (r->err = malloc(sizeof(*r->err)))) {
        *r->err = *err;
    }
    if (r->verb->flags & VERB_GROUP) {
        l->dirty = true;
        if (status < 0 || r->verb->row) { /* the others may have found nothing to write */
            note_disk(l, status, err->text);
        }
    }
    if (r->verb->settle) {
        r->verb->settle(l, r);
    }
    if (r->verb->answer) {
        local_respond(l, r);
    } else {
        request_free(r);
    }
}

/* 0: the store is whole again. Not more often than every RETRY_MS: a failing one reads all rows. */
static int repair(struct local *l)
{
    struct error err = ERROR_NULL;
    if (now_ms() < l->retry_at) {
        return ERROR_STORE;
    }
    int r = store_repair(l->store, &err);
    if (r) {
        l->retry_at = now_ms() + RETRY_MS;
        notice(l, "damaged", "%s", err.text);
    }
    return r;
}

static void carry_out_alone(struct local *l, struct request *r)
{
    struct error err = ERROR_NULL;
    int status = work(l, r, &err);
    if (status < 0 && store_damaged(l->store) && repair(l) == 0) {
        status = work(l, r, &err);
    }
    finish(l, r, status, &err);
}

static bool is_fault_of_store(int status)
{
    return status == ERROR_STORE || status == ERROR_DISK_FULL || status == ERROR_NO_MEMORY ||
           status == ERROR_BUSY || status == ERROR_IO;
}

/* All of a queue in one transaction. False: nothing was done. */
static bool try_group(struct local *l, struct queue *q)
{
    struct error errors[GROUP_MAX];
    int statuses[GROUP_MAX];
    size_t n = 0;
    if (store_begin(l->store, &errors[0])) {
        return false;
    }
    for (struct request *r = q->first; r; r = r->next, n++) {
        statuses[n] = work(l, r, &errors[n]);
        if (is_fault_of_store(statuses[n])) {
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
        finish(l, r, statuses[n], &errors[n]);
    }
    return true;
}

static void carry_out_group(struct local *l, struct queue *q)
{
    if (q->first->next && try_group(l, q)) {
        return;
    }
    for (struct request *r; (r = queue_pop(q));) {
        carry_out_alone(l, r);
    }
}

static void refuse(struct local *l, struct request *r)
{
    struct error err;
    finish(l, r, error_set(&err, ERROR_SHUTTING_DOWN, "gemmd is stopping"), &err);
}

static void carry_out(struct local *l, struct queue *q, bool stopping)
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
        } else if (stopping && q->first->verb->flags & VERB_READ) {
            refuse(l, queue_pop(q));
        } else {
            carry_out_alone(l, queue_pop(q));
        }
    }
}

/* ---- upkeep, and the thread
 * ------------------------------------------------------------------------ */

/* Reads the whole file, until a request comes: then it is done at the next quiet moment. */
static void check(struct local *l)
{
    struct error err = ERROR_NULL;
    int64_t bad;
    uv_mutex_lock(&l->mutex);
    l->checking = !l->todo.first && !l->stopping;
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
        repair(l);
    }
}

static void upkeep(struct local *l)
{
    struct error err = ERROR_NULL;
    uint64_t now = now_ms();
    if (l->unsaved && now >= l->retry_at) {
        save_unsaved(l, &err);
        l->retry_at = now_ms() + RETRY_MS;
    }
    if (now >= l->idle_at) {
        if (l->dirty && store_tidy(l->store, &err)) {
            notice(l, "wal", "%s", err.text);
        }
        l->dirty = false;
        if (l->check_due) {
            check(l);
            l->idle_at = now_ms() + IDLE_MS;
        }
    }
}

/* Until the next thing that is due without a request; 0: nothing is. */
static uint64_t wait_ms(const struct local *l)
{
    uint64_t now = now_ms(), at = UINT64_MAX;
    if (l->unsaved) {
        at = l->retry_at;
    }
    if ((l->dirty || l->check_due) && l->idle_at < at) {
        at = l->idle_at;
    }
    return at == UINT64_MAX ? 0 : at > now ? at - now : 1;
}

static void end(struct local *l)
{
    struct error err = ERROR_NULL;
    if (save_unsaved(l, &err) < 0) {
        notice(l, "lost", "%lld bests were never saved: %s", (long long)l->n_unsaved, err.text);
    }
    while (drop_unsaved(l, NULL)) {
    }
    l->store = store_close(l->store);
    uv_mutex_lock(&l->mutex);
    l->ended = true;
    uv_mutex_unlock(&l->mutex);
    uv_async_send(&l->wake);
}

void writer_run(void *local)
{
    struct local *l = local;
    struct queue q;
    l->unsaved_last = &l->unsaved;
    l->idle_at = now_ms() + IDLE_MS;
    for (;;) {
        uv_mutex_lock(&l->mutex);
        uint64_t ms = wait_ms(l);
        if (!l->todo.first && !l->stopping) {
            if (ms) {
                uv_cond_timedwait(&l->more, &l->mutex, ms * 1000000);
            } else {
                uv_cond_wait(&l->more, &l->mutex);
            }
        }
        queue_init(&q);
        for (struct request *r; (r = queue_pop(&l->todo));) {
            queue_push(&q, r);
        }
        l->trials = 0;
        bool stopping = l->stopping;
        uv_mutex_unlock(&l->mutex);
        if (q.first) {
            carry_out(l, &q, stopping);
            l->idle_at = now_ms() + IDLE_MS;
        } else if (stopping) {
            break;
        }
        upkeep(l);
    }
    end(l);
}
