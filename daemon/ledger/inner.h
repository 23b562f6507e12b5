/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the ledger: SQLite (store/) on a separate writer thread, never in libuv's
 * pool. Requests go from the loop to `todo` under the mutex, and return by `done`; a uv_async_t
 * wakes the loop. Each part calls only the parts above it:
 *
 *   request   a request, queues, and functions that both threads use
 *   unsaved   bests and rows of quarantine that the store could not write
 *   modules   the cache directory
 *   news      changes by other daemons, on the loop
 *   verbs     the work of each request on the thread, and its answer on the loop
 *   writer    the thread: order, transactions, upkeep
 *   ledger    the ledger's calls, start and stop
 */
#ifndef GEMMD_DAEMON_LEDGER_INNER_H
#define GEMMD_DAEMON_LEDGER_INNER_H

#include "daemon/ledger/ledger.h"
#include "kernels/modules.h"
#include "store/store.h"
#include "proto/message.h"

/* ---- rows ------------------------------------------------------------------------------------ */

/*
 * A decoded row. The schema of the verb tells the type. The rows of waiting requests are packed:
 * most are much smaller then.
 */

union ledger_row {
    struct best best;
    struct trial trial;
    struct module module;
    struct quarantine quarantine;
    struct run run;
    struct event event;
    struct device_info device;
};

/* ---- request.c ------------------------------------------------------------------------------- */

/*
 * A request to the ledger: a heap object that a single thread owns at a time. The loop makes
 * the request, the writer works on it, and the loop answers and frees it. Rows travel in a request
 * as MessagePack: a waiting trial takes a few hundred bytes, not the 12 KiB of a struct trial.
 */

struct request;

enum verb_flags {
    VERB_READ = 1 << 0,    /* may be refused once stopping */
    VERB_GROUP = 1 << 1,   /* a write that can share a transaction */
    VERB_TRIAL = 1 << 2,   /* a trial of a job: counted while queued, and when lost */
    VERB_PAGE = 1 << 3,    /* reads a page of rows: other requests run before the next page */
    VERB_RECORD = 1 << 4,  /* a client's trial: counted while queued */
    VERB_PATIENT = 1 << 5, /* may read the whole file: runs alone, after all waiting requests */
    VERB_BRIEF = 1 << 6,   /* reads a key's rows: a few run among other requests, users in turn */
};

/* A kind of request. */
struct verb {
    unsigned flags;
    const struct schema *row; /* schema of request.row; NULL: the request has no row */
    /* Writer thread. Calls the store and fills the request's results. No other effect: the work may
     * be undone with its group and called again. Returns the status. */
    int (*work)(struct ledger *l, struct request *r, struct error *err);
    /* Writer thread, once, when the status is final. May be NULL. */
    void (*settle)(struct ledger *l, struct request *r);
    void (*answer)(struct ledger *l, struct request *r); /* loop thread; NULL: no answer */
};

struct queue {
    struct request *first, **last;
};

union request_cb {
    ledger_done_cb done;
    ledger_load_cb load;
    ledger_best_cb best;
    ledger_id_cb id;
    ledger_history_cb history;
    ledger_list_cb list;
    void (*status)(void *ctx, const struct ledger_status *s);
};

struct request {
    struct request *next;
    const struct verb *verb;
    int64_t user;        /* of a list: the user of the client, or LEDGER_OURS */
    struct queue behind; /* in a queue of turns: further requests of the same user */
    union request_cb cb;
    void *ctx; /* borrowed, the caller's */
    int status;
    struct error *err; /* set by request_fail; NULL: none */
    /* owned: the row of the request, then the row of the answer, or the page of a list */
    struct wire_buf row;
    /* the call's ttl_ms, max_bytes or `first`; of a publish the generation that its caller knew */
    int64_t argument;
    int64_t number; /* set by the writer: an id, a number of rows, or a total */
    /* set by the writer: the number of the last change that this answer includes */
    int64_t heard;
    bool saved;
    bool withdrawn; /* the client has left; under the mutex */
    uint64_t after; /* for a list on another thread: the value of n_carried to wait for */
    union {
        struct trial *trials;
        struct best *bests;
        struct ledger_status *counts;
        void *results; /* owned */
    };
    uint32_t n, n_avoid;     /* number of trials or bests; of quarantined variants */
    char (*avoid)[HASH_HEX]; /* owned */
    /* owned: the filter of a list, packed; mostly a hundredth of the size of a struct record */
    struct wire_buf filter;
    const char *text[4]; /* the texts lie in `tail`; "" when not given */
    char tail[];
};

/* Makes a request with copies of up to four texts (NULL ends the array). NULL: no memory. */
struct request *request_new(const struct verb *verb, void *ctx, const char *const text[4]);
#define TEXTS(...) ((const char *const[4]){__VA_ARGS__})
#define NO_TEXT    TEXTS(NULL)
void request_free(struct request *r);
void request_fail(struct request *r, const struct error *err); /* r->err, also without memory */

void queue_init(struct queue *q);
void queue_push(struct queue *q, struct request *r);
void queue_move(struct queue *to, struct queue *from); /* moves all requests to the end of `to` */
struct request *queue_pop(struct queue *q);            /* NULL: empty */
struct request *queue_remove(struct queue *q, struct request **at);
/* Frees the requests with this text[0]; NULL: all. Returns how many. */
int64_t queue_drop(struct queue *q, const char *name);
int64_t queue_count(const struct queue *q);

/* A queue of turns holds a request of each user, with more requests of that user behind it. So each
 * user waits for at most one request of each other user. Users are few. */
void queue_push_turn(struct queue *q, struct request *r);
struct request *queue_pop_turn(struct queue *q); /* NULL: empty */

/* ---- ledger.c -------------------------------------------------------------------------------- */

enum {
    LOAD_PAGE = 64,      /* rows of one load callback */
    ANSWERS_NS = 500000, /* time for answers on the loop before sockets get a turn */
    GROUP_MAX = 256,     /* writes of one transaction */
    /* the most lists of a key (VERB_BRIEF) that run before newer requests and before a list that
     * may read the whole file (VERB_PATIENT) */
    BRIEF_MAX = 32,
    /* the most waiting trials of this daemon's jobs; further trials are lost (lost_trials) */
    TRIALS_MAX = 16384,
    /* the most waiting trials that clients have sent; further trials are refused */
    RECORDS_MAX = 8192,
    RETRY_MS = 2000, /* time between attempts to save unsaved rows, or to repair the file */
    /* The wait for another program that locks the database. It is short, since the only writer
     * thread waits, and 0 while the lock is known to be held. LAST_PATIENCE_MS: when the ledger
     * stops. */
    PATIENCE_MS = 1000,
    LAST_PATIENCE_MS = 2000,
    /* after this time without requests the file and the cache directory are tidied and checked */
    IDLE_MS = 5000,
    /* after this time since a write the cache directory is trimmed even if requests keep coming */
    BUSY_TRIM_MS = 30000,
    SNAPSHOT_S = 3600, /* seconds between snapshots of a database in use */
};

struct ledger {
    void (*notice)(void *ctx, const char *kind, const char *text);
    void (*news)(void *ctx, const struct ledger_news *n);
    void *notice_ctx; /* borrowed; for notice and news */

    /* loop thread */
    struct ledger *lists;         /* owned: carries out lists, on its own thread and connection */
    const struct ledger *whole;   /* the ledger that owns this one as `lists`; NULL: none */
    int64_t generation;           /* the highest known generation */
    int64_t daemons;              /* daemons of the database, as far as known */
    int64_t n_lists, n_withdrawn; /* count of unanswered lists; count of lists whose clients left */
    bool ending;                  /* `lists` ends before this ledger */
    uv_fs_event_t watch;          /* the watch of the database's lock file (news.c) */
    ino_t watched;                /* inode of the watched lock file */
    uv_timer_t timer;
    bool changes_asked, changes_again; /* changes are being read; changes must be read again */
    bool loads;                        /* the daemon is reading all bests, page by page */
    /* all bests are being read again; that reading must start over */
    bool reloading, reload_again;
    /* a reload is due; it is due because the path leads to another file */
    bool reload_due, reload_lost;
    uint64_t snapshot_at; /* uv_now of the next snapshot */
    int64_t heard;        /* number of the last change that was passed to `news` */
    unsigned open;        /* number of handles that are not closed yet */
    uv_async_t wake;
    uv_thread_t thread;
    struct best *answered;     /* owned: the best for a callback */
    struct wire_doc *loop_doc; /* owned */
    void (*stopped)(void *ctx);
    void *stopped_ctx;

    /* both, under the mutex */
    uv_mutex_t mutex;
    uv_cond_t more; /* signalled when a queue of work grew, or when the ledger stops */
    struct queue todo, done;
    struct queue brief, patient; /* queues of turns (request.c) */
    uint32_t trials, records;    /* number of VERB_TRIAL and VERB_RECORD requests in `todo` */
    /* number of times that the writer took all of `todo`; the last such time whose requests are
     * all done */
    uint64_t n_taken, n_carried;
    uv_cond_t carried; /* n_carried grew */
    int64_t lost_trials;
    const struct request
        *listing; /* the list request that the writer carries out now; NULL: none */
    bool stopping, ended;
    /* a check of the file or a list runs in the store, and may be interrupted */
    bool checking, list_works;
    bool read_only; /* fixed at the start */

    /* writer thread */
    struct store *store;               /* owned */
    unsigned opened;                   /* value of store_opened when all bests were read */
    int64_t changes;                   /* number of the last change that was read */
    struct store_load *loading;        /* owned; NULL: no load is under way */
    union ledger_row *object;          /* owned: a row, decoded */
    struct wire_doc *doc;              /* owned */
    struct queue unsaved, quarantined; /* see unsaved.c below */
    bool disk_full, dirty, check_due, unrepaired; /* disk_full, unrepaired: reported already */
    bool locked;    /* another program holds the write lock, and this was reported */
    bool lost_said; /* the loss of a row was reported, and no row was written since that report */
    /* When to try to save next, when to try to repair next, and when a quiet moment begins:
     * uv_hrtime() / 1e6 */
    uint64_t save_at, repair_at, idle_at;
    char *path;                 /* owned: the database's path, as given */
    char *cache_dir, *database; /* owned; NULL: no cache directory to trim */
    int64_t cache_max_bytes;
    struct modules_usage cache; /* use of the cache directory, as last counted */
    uint64_t cache_counted_at;  /* 0: never */
    uint64_t trim_at;           /* the time when the cache is trimmed next */
};

/* Loop: hands a request to the writer. Owns r from now on; NULL is a failed allocation. */
int ledger_submit(struct ledger *l, struct request *r);
/* Loop: makes a snapshot of the database, on the thread of lists. */
void ledger_make_snapshot(struct ledger *l);
/* Any thread: hands an answer to the loop. */
void ledger_respond(struct ledger *l, struct request *r);
/* Any thread: queues a notice for the loop. The store gets this function as its `notice`. */
void ledger_notice(void *ledger, const char *kind, const char *text);
/* answers finished requests at once, when the ledger does not start */
void ledger_tell_kept(struct ledger *l);

/* ---- on the writer thread -------------------------------------------------------------------- */

uint64_t writer_now_ms(void);
__attribute__((format(printf, 3, 4))) void writer_notice(struct ledger *l, const char *kind,
                                                         const char *format, ...);
int writer_decode(struct ledger *l, const struct wire_buf *row, const struct schema *schema,
                  void *out, struct error *err);
/* True after a fault that a later attempt may not meet again. */
bool writer_fault_of_store(int status);
/* Updates `disk_full` and `locked` after a write, and queues their notices. */
void writer_note_disk(struct ledger *l, int status, const char *text);

/* ---- unsaved.c ------------------------------------------------------------------------------- */

/*
 * Rows that the store could not write and that must not be lost, on the writer thread. Saved every
 * RETRY_MS and at the end. A best gets its generation when it is saved. Rows of quarantine are kept
 * so that a kernel that hung the device does not run again after a restart.
 *
 * Each row is a request in a queue, with the name of the row in text[0]: a key or a variant. Of a
 * best, `argument` is the generation of the key's newest row that the caller knew, and text[1] is
 * "" unless a client has brought the row.
 */

void unsaved_keep(struct ledger *l, struct request *r);
/* Finds the unsaved best of a key that was offered last; NULL: none. Borrowed. */
const struct request *unsaved_newest(const struct ledger *l, const char *key);
void unsaved_keep_quarantine(struct ledger *l, struct request *r);
bool unsaved_any(const struct ledger *l);
int unsaved_save(struct ledger *l, struct error *err); /* 0: all are saved */

/* ---- modules.c ------------------------------------------------------------------------------- */

/* The cache directory, on the writer thread (modules.c gives the reason). */

void ledger_modules_trim(struct ledger *l); /* needs cache_dir; sets trim_at */
void ledger_modules_count(struct ledger *l, struct ledger_status *out);

/* ---- news.c ---------------------------------------------------------------------------------- */

/*
 * News, on the loop: changes by all daemons of the database, in the order in which the writer
 * thread read them, for the callback of ledger_config.
 *
 * News of other daemons are rows of the table `change`, which the writer thread reads. It reads the
 * named key from the file at that moment, so that a change that is read twice, or late, still gives
 * the present state. After missed changes, or when the file is another one, all bests are read
 * again.
 */

void news_tell(struct ledger *l, enum ledger_news_kind kind, const char *key,
               const struct best *best, bool saved);
/* Called when the news of a page of changes were passed on. `more`: another page follows. */
void news_asked(struct ledger *l, bool more);
/* Has all bests read again. `lost`: the file is another one, and may have lost rows. */
void news_reload(struct ledger *l, bool lost);
/* Called when the daemon has read all bests. */
void news_loaded(struct ledger *l);

/* call after the loop handle `wake` was made */
void news_start(struct ledger *l);
void news_close(struct ledger *l, uv_close_cb closed); /* two handles with data `l` */

/* ---- verbs.c --------------------------------------------------------------------------------- */

/* The verbs (struct verb above). */

extern const struct verb verb_load, verb_find, verb_history, verb_publish, verb_restore, verb_unpin,
    verb_lease, verb_unlease, verb_add_run, verb_list, verb_list_key, verb_evict, verb_unquarantine,
    verb_backup, verb_status, verb_record, verb_add_trial, verb_add_module, verb_add_quarantine,
    verb_add_event, verb_put_device, verb_end_run, verb_changes, verb_want, verb_unwant,
    verb_next_wanted, verb_snapshot;
/* The writer makes requests of these two verbs, to bring news to the loop. verb_saved: an unsaved
 * row was saved, or another daemon has written a row. */
extern const struct verb verb_saved;
/* verb_reload: all bests must be read again; `saved` false: the path leads to another file. */
extern const struct verb verb_reload;

/* On the writer thread: reports all changes of other daemons to the loop. STORE_MISSED: some
 * changes are deleted, and all bests are read again. */
int verbs_tell_changes(struct ledger *l, struct error *err);

/* ---- writer.c -------------------------------------------------------------------------------- */

/* Runs the writer thread of a struct ledger. Ends when `stopping` is set and all requests are
 * done. */
void writer_run(void *ledger);

#endif
