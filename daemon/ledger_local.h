/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local ledger from the inside: ledger_local.c is its loop side, ledger_writer.c its thread,
 * ledger_verbs.c what each request does there, ledger_modules.c what it does for the cache directory.
 *
 * A request is one heap object that one thread owns at a time: made on the loop, moved to `todo`
 * under the mutex, worked on by the writer, moved to `done`, answered and freed on the loop, which
 * one uv_async_t wakes. Rows travel in it as MessagePack, so a waiting trial costs its own few
 * hundred bytes and not the 12 KiB of a struct trial.
 */
#ifndef GEMMD_DAEMON_LEDGER_LOCAL_H
#define GEMMD_DAEMON_LEDGER_LOCAL_H

#include "daemon/ledger.h"
#include "kernels/modules.h"
#include "store/store.h"

enum {
    LOAD_PAGE = 64,     /* rows of one load callback */
    GROUP_MAX = 256,    /* writes of one transaction */
    TRIALS_MAX = 16384, /* trials waiting; more are lost, and counted */
    RETRY_MS = 2000,    /* between attempts to save what is unsaved, or to repair the file */
    IDLE_MS = 5000,     /* quiet, before the file is tidied and checked, and the cache directory */
    BUSY_TRIM_MS = 30000, /* after a write the cache directory waits no longer for quiet */
};

struct local;
struct request;

enum verb_flags {
    VERB_READ = 1 << 0,  /* may be refused once stopping */
    VERB_GROUP = 1 << 1, /* a write that can share a transaction */
    VERB_TRIAL = 1 << 2, /* counted: queued, and lost */
};

/* What a request asks for. */
struct verb {
    unsigned flags;
    const struct schema *row; /* of request.row; NULL: none */
    /* Writer thread. Calls the store and fills the request's results; no other effect, since it may
     * be undone with its group and called again. Returns the status. */
    int (*work)(struct local *l, struct request *r, struct error *err);
    /* Writer thread, once, when the status is final. May be NULL. */
    void (*settle)(struct local *l, struct request *r);
    void (*answer)(struct local *l, struct request *r); /* loop thread; NULL: nobody waits */
};

struct request {
    struct request *next;
    const struct verb *verb;
    union {
        ledger_done_cb done;
        ledger_load_cb load;
        ledger_best_cb best;
        ledger_id_cb id;
        ledger_history_cb history;
        ledger_list_cb list;
        void (*status)(void *ctx, const struct ledger_status *s);
    } cb;
    void *ctx; /* borrowed, the caller's */
    int status;
    struct error *err;   /* owned; NULL: none */
    struct wire_buf row; /* owned: a row going in, or coming back; the page of a list */
    int64_t argument;    /* ttl_ms, max_bytes, first */
    int64_t number;      /* coming back: id, rows, total */
    bool saved;
    union { /* results and large arguments; owned */
        struct {
            struct trial *trials;
            char (*avoid)[HASH_HEX];
            uint32_t n, n_avoid;
        } history;
        struct {
            struct best *bests;
            uint32_t n;
        } page;
        struct record *filter;
        struct ledger_status *counts;
    };
    const char *text[4]; /* in `tail`; "" when not given */
    char tail[];
};

struct queue {
    struct request *first, **last;
};

/* A best that the store would not take. */
struct unsaved {
    struct unsaved *next;
    char key[HASH_HEX];
    struct wire_buf row; /* owned; its generation is reserved by the store */
};

struct local {
    struct ledger base; /* first: a struct ledger * is this */
    void (*notice)(void *ctx, const char *kind, const char *text);
    void *notice_ctx; /* borrowed */

    /* loop thread */
    uv_async_t wake;
    uv_thread_t thread;
    struct best *answered;     /* owned: the best that a callback is given */
    struct wire_doc *loop_doc; /* owned */
    void (*stopped)(void *ctx);
    void *stopped_ctx;

    /* both, under the mutex */
    uv_mutex_t mutex;
    uv_cond_t more; /* todo grew, or stopping */
    struct queue todo, done;
    uint32_t trials;                /* in todo */
    int64_t lost_trials;
    bool stopping, ended, checking;
    bool read_only; /* fixed at the start */

    /* writer thread */
    struct store *store;  /* owned */
    struct store_load *loading; /* owned; NULL: no load is under way */
    void *object;         /* owned: a row, decoded */
    struct wire_doc *doc; /* owned */
    struct unsaved *unsaved, **unsaved_last;
    int64_t n_unsaved;
    bool disk_full, dirty, check_due;
    uint64_t retry_at, idle_at; /* uv_hrtime() / 1e6 */
    char *cache_dir, *database;  /* owned; NULL: no cache directory to look after */
    int64_t cache_max_bytes;
    struct modules_usage cache; /* as it was */
    uint64_t cache_counted_at;  /* 0: never */
    uint64_t trim_at;           /* when the cache is looked after */
};

void queue_init(struct queue *q);
void queue_push(struct queue *q, struct request *r);
struct request *queue_pop(struct queue *q);
void request_free(struct request *r);

/* Any thread: hands an answer (or a notice) to the loop. */
void local_respond(struct local *l, struct request *r);
/* Any thread: to be told to the notice callback, on the loop. */
void local_notice(void *local, const char *kind, const char *text);

/* On the writer thread, for the verbs (ledger_writer.c). */
uint64_t writer_now_ms(void);
__attribute__((format(printf, 3, 4))) void writer_notice(struct local *l, const char *kind,
                                                         const char *format, ...);
/* A packed row into l->object. */
int writer_decode(struct local *l, const struct wire_buf *row, const struct schema *schema,
                  struct error *err);
const char *request_sentence(const struct request *r); /* of its fault */
/* A row was written, or not: what `disk_full` says, and its notices. */
void writer_note_disk(struct local *l, int status, const char *text);

/* Bests that the store would not take. drop: those of a key, or (NULL) the first; returns how many.
 */
void unsaved_keep(struct local *l, struct request *r);
int64_t unsaved_drop(struct local *l, const char *key);
int unsaved_save(struct local *l, struct error *err); /* all of them, or a fault */

/* The thread. Ends when `stopping` is set and all is done. */
void writer_run(void *local);

/* ledger_modules.c, on that thread. trim: with a cache_dir only; sets when it is due again. */
void ledger_modules_trim(struct local *l);
void ledger_modules_count(struct local *l, struct ledger_status *out);

/* ledger_verbs.c */
extern const struct verb verb_load, verb_find, verb_history, verb_publish, verb_unpin, verb_lease,
    verb_unlease, verb_add_run, verb_list, verb_evict, verb_unquarantine, verb_backup, verb_status,
    verb_add_trial, verb_add_module, verb_add_quarantine, verb_add_event, verb_put_device,
    verb_end_run;

/* The verbs' answers, on the loop thread (ledger_local.c). */
void answer_load(struct local *l, struct request *r);
void answer_history(struct local *l, struct request *r);
void answer_best(struct local *l, struct request *r);
void answer_done(struct local *l, struct request *r);
void answer_id(struct local *l, struct request *r);
void answer_list(struct local *l, struct request *r);
void answer_status(struct local *l, struct request *r);

#endif
