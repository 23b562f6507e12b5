/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger at home: SQLite (store/) on one writer thread of its own, never libuv's pool.
 *
 * A request is one heap object. It moves: made on the loop thread, put into `todo` (under the
 * mutex), worked on by the writer thread, put into `done`, and answered on the loop thread, which
 * one uv_async_t wakes. At any time one thread owns it, so only the two lists are shared. Requests
 * are worked on, and answered, in the order they were made.
 *
 * A best that the disk would not take stays in `unsaved` (writer thread only) under the generation
 * that the store has set aside for it, and is tried again every RETRY_MS and at stop.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/ledger.h"
#include "store/store.h"

enum { LOAD_BATCH = 32, LOAD_AHEAD = 4, RETRY_MS = 2000, TIDY_AFTER_MS = 5000 };

struct local;

struct request {
    struct request *next;
    void (*work)(struct local *l, struct request *r);   /* writer thread; NULL: only answered */
    void (*answer)(struct local *l, struct request *r); /* loop thread; NULL: nobody waits */
    bool is_read; /* may be refused once stopping */
    int status;
    struct error err;
    void *ctx; /* borrowed, the caller's */
};

struct list {
    struct request *first, **last;
};

struct unsaved {
    struct unsaved *next;
    struct best best;
};

struct local {
    struct ledger base; /* first: a struct ledger * is this */
    struct store *store;            /* owned; the writer thread's while it runs */
    void (*notice)(void *ctx, const char *kind, const char *text);
    void *notice_ctx;
    uv_async_t wake;
    uv_thread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t more;            /* todo grew, a batch was answered, or stopping */
    struct list todo, done;         /* under the mutex */
    uint32_t ahead;                 /* load batches not yet answered; under the mutex */
    bool stopping;                  /* under the mutex; set once */
    bool ended;                     /* the thread has nothing left; under the mutex */
    struct unsaved *unsaved;        /* writer thread */
    int64_t n_unsaved, lost_trials; /* writer thread; copied into status requests */
    bool disk_full;                 /* writer thread */
    int64_t retry_at_ms;            /* writer thread */
    void (*stopped)(void *ctx);
    void *stopped_ctx;
};

/* ---- lists, and the two ends ---------------------------------------------------------------- */

static void list_init(struct list *q)
{
    q->first = NULL;
    q->last = &q->first;
}

static void list_push(struct list *q, struct request *r)
{
    r->next = NULL;
    *q->last = r;
    q->last = &r->next;
}

static struct request *list_pop(struct list *q)
{
    struct request *r = q->first;
    if (r) {
        q->first = r->next;
        if (!q->first) {
            q->last = &q->first;
        }
    }
    return r;
}

static struct local *local_of(struct ledger *l)
{
    return (struct local *)l;
}

/* Loop thread: hands a request to the writer. Takes r; NULL is a failed allocation. */
static int submit(struct local *l, struct request *r)
{
    if (!r) {
        return ERROR_NO_MEMORY;
    }
    pthread_mutex_lock(&l->mutex);
    bool late = l->stopping;
    if (!late) {
        list_push(&l->todo, r);
        pthread_cond_signal(&l->more);
    }
    pthread_mutex_unlock(&l->mutex);
    if (late) {
        free(r);
        return ERROR_SHUTTING_DOWN;
    }
    return 0;
}

/* Writer thread: hands an answer to the loop. */
static void respond(struct local *l, struct request *r)
{
    pthread_mutex_lock(&l->mutex);
    list_push(&l->done, r);
    pthread_mutex_unlock(&l->mutex);
    uv_async_send(&l->wake);
}

/* A zeroed request of a larger type, its base filled in. */
static void *request_new(size_t size, void (*work)(struct local *, struct request *),
                         void (*answer)(struct local *, struct request *), void *ctx)
{
    struct request *r = calloc(1, size);
    if (r) {
        r->work = work;
        r->answer = answer;
        r->ctx = ctx;
    }
    return r;
}

static const struct error *error_of(const struct request *r)
{
    return r->status < 0 ? &r->err : NULL;
}

static void note_status(struct local *l, int status)
{
    if (status == ERROR_DISK_FULL) {
        l->disk_full = true;
    } else if (status == 0) {
        l->disk_full = false;
    }
}

/* ---- notices -------------------------------------------------------------------------------- */

struct notice {
    struct request base;
    char kind[32];
    char text[ERROR_TEXT_MAX + 64];
};

static void notice_answer(struct local *l, struct request *r)
{
    struct notice *n = (struct notice *)r;
    if (l->notice) {
        l->notice(l->notice_ctx, n->kind, n->text);
    }
}

/* From the store, on whichever thread calls it. */
static void on_notice(void *ctx, const char *kind, const char *text)
{
    struct local *l = ctx;
    struct notice *n = request_new(sizeof(*n), NULL, notice_answer, NULL);
    if (n) {
        snprintf(n->kind, sizeof(n->kind), "%s", kind);
        snprintf(n->text, sizeof(n->text), "%s", text);
        respond(l, &n->base);
    }
}

/* ---- load ----------------------------------------------------------------------------------- */

struct load {
    struct request base;
    ledger_load_cb cb;
};
struct batch {
    struct request base;
    ledger_load_cb cb;
    uint32_t n;
    struct best bests[LOAD_BATCH];
};

static void batch_answer(struct local *l, struct request *r)
{
    struct batch *b = (struct batch *)r;
    b->cb(r->ctx, 0, b->bests, b->n, NULL);
    pthread_mutex_lock(&l->mutex);
    l->ahead--;
    pthread_cond_signal(&l->more);
    pthread_mutex_unlock(&l->mutex);
}

struct loading {
    struct local *l;
    struct load *load;
    struct batch *batch;
};

static void batch_send(struct loading *x)
{
    struct local *l = x->l;
    pthread_mutex_lock(&l->mutex);
    while (l->ahead >= LOAD_AHEAD) { /* the loop drains `done` also while stopping */
        pthread_cond_wait(&l->more, &l->mutex);
    }
    l->ahead++;
    pthread_mutex_unlock(&l->mutex);
    respond(l, &x->batch->base);
    x->batch = NULL;
}

static int load_row(void *ctx, const struct best *b)
{
    struct loading *x = ctx;
    if (!x->batch) {
        x->batch = malloc(sizeof(*x->batch)); /* large: only what is used gets touched */
        if (!x->batch) {
            x->load->base.status = error_set(&x->load->base.err, ERROR_NO_MEMORY,
                                             "no memory to load the database");
            return 1;
        }
        x->batch->base = (struct request){.answer = batch_answer, .ctx = x->load->base.ctx};
        x->batch->cb = x->load->cb;
        x->batch->n = 0;
    }
    x->batch->bests[x->batch->n++] = *b;
    if (x->batch->n == LOAD_BATCH) {
        batch_send(x);
    }
    return 0;
}

static void load_work(struct local *l, struct request *r)
{
    struct loading x = {.l = l, .load = (struct load *)r};
    int status = store_each_best(l->store, load_row, &x, &r->err);
    if (r->status == 0) {
        r->status = status;
    }
    if (x.batch) {
        batch_send(&x);
    }
}

static void load_answer(struct local *l, struct request *r)
{
    (void)l;
    ((struct load *)r)->cb(r->ctx, r->status, NULL, 0, error_of(r));
}

static int local_load(struct ledger *base, ledger_load_cb cb, void *ctx)
{
    struct load *q = request_new(sizeof(*q), load_work, load_answer, ctx);
    if (q) {
        q->cb = cb;
        q->base.is_read = true;
    }
    return submit(local_of(base), q ? &q->base : NULL);
}

/* ---- history -------------------------------------------------------------------------------- */

struct history {
    struct request base;
    ledger_history_cb cb;
    char key[HASH_HEX], stamp[STAMP_MAX], class_[192], driver[32];
    struct trial *trials; /* owned */
    char (*avoid)[HASH_HEX]; /* owned */
    uint32_t n, n_avoid;
};

static void history_work(struct local *l, struct request *r)
{
    struct history *h = (struct history *)r;
    r->status = store_trials_of(l->store, h->key, h->stamp, &h->trials, &h->n, &r->err);
    if (r->status == 0) {
        r->status = store_avoid(l->store, h->class_, h->driver, &h->avoid, &h->n_avoid, &r->err);
    }
}

static void history_answer(struct local *l, struct request *r)
{
    (void)l;
    struct history *h = (struct history *)r;
    h->cb(r->ctx, r->status, h->trials, h->n, h->avoid, h->n_avoid, error_of(r));
    free(h->trials);
    free(h->avoid);
}

static int local_history(struct ledger *base, const char *key, const char *stamp,
                         const char *class_, const char *driver, ledger_history_cb cb, void *ctx)
{
    struct history *h = request_new(sizeof(*h), history_work, history_answer, ctx);
    if (h) {
        h->cb = cb;
        h->base.is_read = true;
        snprintf(h->key, sizeof(h->key), "%s", key);
        snprintf(h->stamp, sizeof(h->stamp), "%s", stamp);
        snprintf(h->class_, sizeof(h->class_), "%s", class_);
        snprintf(h->driver, sizeof(h->driver), "%s", driver);
    }
    return submit(local_of(base), h ? &h->base : NULL);
}

/* ---- publish and unpin ------------------------------------------------------------------------ */

struct publish {
    struct request base;
    ledger_best_cb cb;
    bool saved;
    struct best best;
};

static void keep_unsaved(struct local *l, const struct best *b)
{
    struct unsaved *u = malloc(sizeof(*u));
    if (u) {
        u->best = *b;
        u->next = l->unsaved;
        l->unsaved = u;
        l->n_unsaved++;
    }
}

static void publish_work(struct local *l, struct request *r)
{
    struct publish *p = (struct publish *)r;
    r->status = store_publish(l->store, &p->best, &r->err);
    note_status(l, r->status);
    p->saved = r->status == 0;
    if (r->status < 0) { /* served from memory until the disk takes it */
        on_notice(l, r->status == ERROR_DISK_FULL ? "disk_full" : "unsaved", r->err.text);
        keep_unsaved(l, &p->best);
        r->status = 0;
    }
}

static void best_answer(struct local *l, struct request *r)
{
    (void)l;
    struct publish *p = (struct publish *)r;
    p->cb(r->ctx, r->status, r->status == 0 ? &p->best : NULL, p->saved, error_of(r));
}

static int local_publish(struct ledger *base, const struct best *b, ledger_best_cb cb, void *ctx)
{
    struct publish *p = request_new(sizeof(*p), publish_work, best_answer, ctx);
    if (p) {
        p->cb = cb;
        p->best = *b;
    }
    return submit(local_of(base), p ? &p->base : NULL);
}

static void unpin_work(struct local *l, struct request *r)
{
    struct publish *p = (struct publish *)r;
    char key[HASH_HEX];
    memcpy(key, p->best.key, sizeof(key));
    r->status = store_unpin(l->store, key, &p->best, &r->err);
    p->saved = r->status >= 0;
}

static int local_unpin(struct ledger *base, const char *key, ledger_best_cb cb, void *ctx)
{
    struct publish *p = request_new(sizeof(*p), unpin_work, best_answer, ctx);
    if (p) {
        p->cb = cb;
        snprintf(p->best.key, sizeof(p->best.key), "%s", key);
    }
    return submit(local_of(base), p ? &p->base : NULL);
}

/* Writer thread, from time to time: what the disk would not take. */
static void retry_unsaved(struct local *l)
{
    while (l->unsaved) {
        struct unsaved *u = l->unsaved;
        struct error err;
        int status = store_publish_again(l->store, &u->best, &err);
        note_status(l, status);
        if (status < 0) {
            return;
        }
        l->unsaved = u->next;
        l->n_unsaved--;
        free(u);
    }
}

/* ---- small calls: keys, texts, one number ------------------------------------------------------ */

struct small {
    struct request base;
    union {
        ledger_done_cb done;
        ledger_id_cb id;
    };
    char text[1024], owner[128];
    int64_t number;
};

static void done_answer(struct local *l, struct request *r)
{
    (void)l;
    ((struct small *)r)->done(r->ctx, r->status, error_of(r));
}

static void id_answer(struct local *l, struct request *r)
{
    (void)l;
    struct small *q = (struct small *)r;
    q->id(r->ctx, r->status, q->number, error_of(r));
}

static void lease_work(struct local *l, struct request *r)
{
    struct small *q = (struct small *)r;
    r->status = store_lease(l->store, q->text, q->owner, q->number, &r->err);
}

static void unlease_work(struct local *l, struct request *r)
{
    struct small *q = (struct small *)r;
    r->status = store_unlease(l->store, q->text, q->owner, &r->err);
}

static void evict_work(struct local *l, struct request *r)
{
    struct small *q = (struct small *)r;
    for (struct unsaved **at = &l->unsaved; *at;) { /* what is only in memory goes too */
        struct unsaved *u = *at;
        if (strcmp(u->best.key, q->text) != 0) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        l->n_unsaved--;
        free(u);
    }
    r->status = store_evict(l->store, q->text, &q->number, &r->err);
}

static void unquarantine_work(struct local *l, struct request *r)
{
    struct small *q = (struct small *)r;
    r->status = store_unquarantine(l->store, q->text, &q->number, &r->err);
}

static void backup_work(struct local *l, struct request *r)
{
    r->status = store_backup(l->store, ((struct small *)r)->text, &r->err);
}

static struct small *small_new(void (*work)(struct local *, struct request *),
                               void (*answer)(struct local *, struct request *), const char *text,
                               void *ctx)
{
    struct small *q = request_new(sizeof(*q), work, answer, ctx);
    if (q) {
        snprintf(q->text, sizeof(q->text), "%s", text);
    }
    return q;
}

static int local_lease(struct ledger *base, const char *key, const char *owner, int64_t ttl_ms,
                       ledger_done_cb cb, void *ctx)
{
    struct small *q = small_new(lease_work, done_answer, key, ctx);
    if (q) {
        q->done = cb;
        q->number = ttl_ms;
        snprintf(q->owner, sizeof(q->owner), "%s", owner);
    }
    return submit(local_of(base), q ? &q->base : NULL);
}

static int local_unlease(struct ledger *base, const char *key, const char *owner)
{
    struct small *q = small_new(unlease_work, NULL, key, NULL);
    if (q) {
        snprintf(q->owner, sizeof(q->owner), "%s", owner);
    }
    return submit(local_of(base), q ? &q->base : NULL);
}

static int local_evict(struct ledger *base, const char *key, ledger_id_cb cb, void *ctx)
{
    struct small *q = small_new(evict_work, id_answer, key, ctx);
    if (q) {
        q->id = cb;
    }
    return submit(local_of(base), q ? &q->base : NULL);
}

static int local_unquarantine(struct ledger *base, const char *variant, ledger_id_cb cb, void *ctx)
{
    struct small *q = small_new(unquarantine_work, id_answer, variant, ctx);
    if (q) {
        q->id = cb;
    }
    return submit(local_of(base), q ? &q->base : NULL);
}

static int local_backup(struct ledger *base, const char *path, ledger_done_cb cb, void *ctx)
{
    struct small *q = small_new(backup_work, done_answer, path, ctx);
    if (q) {
        q->done = cb;
    }
    return submit(local_of(base), q ? &q->base : NULL);
}

/* ---- list and status ------------------------------------------------------------------------- */

struct listing {
    struct request base;
    ledger_list_cb cb;
    char what[32];
    struct record filter;
    size_t max_bytes;
    struct wire_buf rows; /* owned */
    int64_t total;
};

static void list_work(struct local *l, struct request *r)
{
    struct listing *q = (struct listing *)r;
    r->status = store_list(l->store, q->what, &q->filter, q->max_bytes, &q->rows, &q->total, &r->err);
    if (r->status == 0 && q->rows.failed) {
        r->status = error_set(&r->err, ERROR_NO_MEMORY, "no memory for the rows of '%s'", q->what);
    }
}

static void list_answer(struct local *l, struct request *r)
{
    (void)l;
    struct listing *q = (struct listing *)r;
    q->cb(r->ctx, r->status, q->rows.data, q->rows.len, q->total, error_of(r));
    wire_buf_deinit(&q->rows);
}

static int local_list(struct ledger *base, const char *what, const struct record *filter,
                      size_t max_bytes, ledger_list_cb cb, void *ctx)
{
    struct listing *q = request_new(sizeof(*q), list_work, list_answer, ctx);
    if (q) {
        q->cb = cb;
        q->max_bytes = max_bytes;
        q->base.is_read = true;
        snprintf(q->what, sizeof(q->what), "%s", what);
        record_copy(&q->filter, filter);
    }
    return submit(local_of(base), q ? &q->base : NULL);
}

struct asking {
    struct request base;
    void (*cb)(void *ctx, const struct ledger_status *s);
    struct ledger_status status;
};

static void status_work(struct local *l, struct request *r)
{
    struct ledger_status *s = &((struct asking *)r)->status;
    struct store_stats stats = {0};
    struct error err;
    if (store_stats(l->store, &stats, &err) < 0) {
        on_notice(l, "store", err.text);
    }
    *s = (struct ledger_status){
        .unsaved = l->n_unsaved,
        .lost_trials = l->lost_trials,
        .disk_full = l->disk_full,
        .bests = stats.bests,
        .trials = stats.trials,
        .modules = stats.modules,
        .quarantined = stats.quarantined,
        .generation = stats.generation,
        .file_bytes = stats.file_bytes,
        .wal_bytes = stats.wal_bytes,
    };
}

static void status_answer(struct local *l, struct request *r)
{
    (void)l;
    struct asking *q = (struct asking *)r;
    q->cb(r->ctx, &q->status);
}

static int local_status(struct ledger *base, void (*cb)(void *, const struct ledger_status *),
                        void *ctx)
{
    struct asking *q = request_new(sizeof(*q), status_work, status_answer, ctx);
    if (q) {
        q->cb = cb;
    }
    return submit(local_of(base), q ? &q->base : NULL);
}

/* ---- evidence: written in order, answered by nobody --------------------------------------------- */

struct evidence {
    struct request base;
    ledger_id_cb id; /* add_run only */
    int64_t number;
    union {
        struct run run;
        struct trial trial;
        struct module module;
        struct quarantine quarantine;
        struct event event;
        struct device_info device;
    };
};

static void lost(struct local *l, struct request *r, const char *what)
{
    note_status(l, r->status);
    if (r->status < 0) {
        char text[ERROR_TEXT_MAX + 64];
        snprintf(text, sizeof(text), "a %s is not kept: %s", what, r->err.text);
        on_notice(l, "lost", text);
    }
}

static void run_work(struct local *l, struct request *r)
{
    struct evidence *e = (struct evidence *)r;
    r->status = store_add_run(l->store, &e->run, &r->err);
    e->number = e->run.id;
}

static void run_answer(struct local *l, struct request *r)
{
    (void)l;
    struct evidence *e = (struct evidence *)r;
    e->id(r->ctx, r->status, e->number, error_of(r));
}

static int local_add_run(struct ledger *base, const struct run *v, ledger_id_cb cb, void *ctx)
{
    struct evidence *e = request_new(sizeof(*e), run_work, run_answer, ctx);
    if (e) {
        e->id = cb;
        e->run = *v;
    }
    return submit(local_of(base), e ? &e->base : NULL);
}

static void trial_work(struct local *l, struct request *r)
{
    r->status = store_add_trial(l->store, &((struct evidence *)r)->trial, &r->err);
    l->lost_trials += r->status < 0;
    lost(l, r, "trial");
}

#define EVIDENCE_WORK(name, member, call, what)                                                    \
    static void name(struct local *l, struct request *r)                                           \
    {                                                                                              \
        r->status = call(l->store, &((struct evidence *)r)->member, &r->err);                      \
        lost(l, r, what);                                                                          \
    }
EVIDENCE_WORK(end_run_work, run, store_end_run, "run's end")
EVIDENCE_WORK(module_work, module, store_add_module, "module's row")
EVIDENCE_WORK(quarantine_work, quarantine, store_add_quarantine, "quarantine row")
EVIDENCE_WORK(event_work, event, store_add_event, "event")
EVIDENCE_WORK(device_work, device, store_put_device, "device's row")

#define EVIDENCE_CALL(name, type, member, work)                                                    \
    static void name(struct ledger *base, const struct type *v)                                    \
    {                                                                                              \
        struct evidence *e = request_new(sizeof(*e), work, NULL, NULL);                 \
        if (e) {                                                                                   \
            e->member = *v;                                                                        \
        }                                                                                          \
        submit(local_of(base), e ? &e->base : NULL);                                               \
    }
EVIDENCE_CALL(local_add_trial, trial, trial, trial_work)
EVIDENCE_CALL(local_add_module, module, module, module_work)
EVIDENCE_CALL(local_add_quarantine, quarantine, quarantine, quarantine_work)
EVIDENCE_CALL(local_add_event, event, event, event_work)
EVIDENCE_CALL(local_put_device, device_info, device, device_work)
EVIDENCE_CALL(local_end_run, run, run, end_run_work)

/* ---- the writer thread ----------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void wait_ms(struct local *l, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&l->more, &l->mutex, &until);
}

static void carry_out(struct local *l, struct request *r, bool stopping)
{
    if (stopping && r->is_read) {
        r->status = error_set(&r->err, ERROR_SHUTTING_DOWN, "gemmd is stopping");
    } else {
        r->work(l, r);
    }
    if (r->answer) {
        respond(l, r);
    } else {
        free(r);
    }
}

/* Between requests, the mutex not held: nothing here may wait for a quiet moment that never comes. */
static void upkeep(struct local *l, bool idle)
{
    int64_t now = now_ms();
    if (l->unsaved && now >= l->retry_at_ms) {
        retry_unsaved(l);
        l->retry_at_ms = now_ms() + RETRY_MS;
    }
    struct error err;
    if (idle && store_tidy(l->store, &err) < 0) {
        note_status(l, err.code); /* the WAL stays large for a while: no harm */
    }
}

static void writer(void *arg)
{
    struct local *l = arg;
    pthread_mutex_lock(&l->mutex);
    for (;;) {
        if (!l->todo.first && !l->stopping) {
            wait_ms(l, l->unsaved ? RETRY_MS : TIDY_AFTER_MS);
        }
        struct request *r = list_pop(&l->todo);
        bool stopping = l->stopping;
        if (!r && stopping) {
            break;
        }
        pthread_mutex_unlock(&l->mutex);
        if (r) {
            carry_out(l, r, stopping);
        }
        upkeep(l, !r);
        pthread_mutex_lock(&l->mutex);
    }
    pthread_mutex_unlock(&l->mutex);
    retry_unsaved(l);
    l->store = store_close(l->store);
    pthread_mutex_lock(&l->mutex);
    l->ended = true;
    pthread_mutex_unlock(&l->mutex);
    uv_async_send(&l->wake);
}

/* ---- life --------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *h)
{
    struct local *l = h->data;
    void (*stopped)(void *) = l->stopped;
    void *ctx = l->stopped_ctx;
    for (struct unsaved *u = l->unsaved, *next; u; u = next) {
        next = u->next;
        free(u);
    }
    pthread_cond_destroy(&l->more);
    pthread_mutex_destroy(&l->mutex);
    free(l);
    stopped(ctx);
}

static void on_wake(uv_async_t *h)
{
    struct local *l = h->data;
    for (;;) {
        pthread_mutex_lock(&l->mutex);
        struct request *r = list_pop(&l->done);
        bool ended = l->ended;
        pthread_mutex_unlock(&l->mutex);
        if (!r) {
            if (ended && !uv_is_closing((uv_handle_t *)h)) {
                uv_thread_join(&l->thread);
                uv_close((uv_handle_t *)h, on_closed);
            }
            return;
        }
        r->answer(l, r);
        free(r);
    }
}

static void local_init_lists(struct local *l)
{
    list_init(&l->todo);
    list_init(&l->done);
    pthread_mutex_init(&l->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* a clock that jumps delays no retry */
    pthread_cond_init(&l->more, &attr);
    pthread_condattr_destroy(&attr);
}

/* The start failed: the handle's memory is ours until the loop has run once more. */
static void on_unstarted(uv_handle_t *h)
{
    struct local *l = h->data;
    pthread_cond_destroy(&l->more);
    pthread_mutex_destroy(&l->mutex);
    free(l);
}

static int local_start(struct ledger **out, uv_loop_t *loop, const struct ledger_config *c,
                       struct error *err)
{
    struct local *l = calloc(1, sizeof(*l));
    if (!l) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the ledger");
    }
    l->base.ops = &ledger_local_ops;
    l->notice = c->notice;
    l->notice_ctx = c->ctx;
    local_init_lists(l);
    l->wake.data = l;
    int status = uv_async_init(loop, &l->wake, on_wake);
    if (status < 0) {
        error_set(err, ERROR_INTERNAL, "uv_async_init: %s", uv_strerror(status));
        goto err_lists;
    }
    struct store_options o = {
        .path = c->path,
        .flags = c->force_network_fs ? STORE_FORCE_NETWORK_FS : 0,
        .trials_per_key_max = c->trials_per_key_max,
        .notice = on_notice,
        .ctx = l,
    };
    if (store_open(&o, &l->store, err) < 0) {
        goto err_async;
    }
    status = uv_thread_create(&l->thread, writer, l);
    if (status < 0) {
        error_set(err, ERROR_INTERNAL, "the writer thread does not start: %s", uv_strerror(status));
        store_close(l->store);
        goto err_async;
    }
    *out = &l->base;
    return 0;

err_async:
    while (l->done.first) { /* notices of an open that failed: nobody listens yet, but say them */
        struct request *r = list_pop(&l->done);
        r->answer(l, r);
        free(r);
    }
    uv_close((uv_handle_t *)&l->wake, on_unstarted);
    return err ? err->code : ERROR_INTERNAL;
err_lists:
    free(l);
    return err ? err->code : ERROR_INTERNAL;
}

static void local_stop(struct ledger *base, void (*stopped)(void *ctx), void *ctx)
{
    struct local *l = local_of(base);
    l->stopped = stopped;
    l->stopped_ctx = ctx;
    pthread_mutex_lock(&l->mutex);
    l->stopping = true;
    pthread_cond_broadcast(&l->more);
    pthread_mutex_unlock(&l->mutex);
}

const struct ledger_ops ledger_local_ops = {
    .start = local_start,
    .stop = local_stop,
    .load = local_load,
    .history = local_history,
    .publish = local_publish,
    .lease = local_lease,
    .unlease = local_unlease,
    .add_run = local_add_run,
    .list = local_list,
    .evict = local_evict,
    .unquarantine = local_unquarantine,
    .unpin = local_unpin,
    .backup = local_backup,
    .status = local_status,
    .add_trial = local_add_trial,
    .add_module = local_add_module,
    .add_quarantine = local_add_quarantine,
    .add_event = local_add_event,
    .put_device = local_put_device,
    .end_run = local_end_run,
};
