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
 *   fleet     the same for calls about the fleet
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
 * A decoded row, of the type that the request's verb has a schema for. Rows of waiting requests
 * stay packed, since most are much smaller then.
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
    VERB_READ = 1 << 0,  /* a read: may be refused once the ledger stops */
    VERB_GROUP = 1 << 1, /* a write that can share a transaction */
    /* a trial of a job: counted in ledger.trials while queued, and in lost_trials when lost */
    VERB_TRIAL = 1 << 2,
    VERB_PAGE = 1 << 3,    /* reads a page of rows: other requests run before the next page */
    VERB_RECORD = 1 << 4,  /* a client's trial: counted in ledger.records while queued */
    VERB_PATIENT = 1 << 5, /* may read the whole file: runs alone, after all waiting requests */
    VERB_BRIEF = 1 << 6,   /* reads a key's rows: some run before newer requests, users in turn */
};

/* A kind of request. */
struct verb {
    unsigned flags;
    const struct schema *row; /* schema of request.row; NULL: the request has no row */
    /* On the writer thread: calls the store and fills the request's results. It has no other
     * effect, since a group of writes may be undone and each called again. Returns the status. */
    int (*work)(struct ledger *l, struct request *r, struct error *err);
    /* On the writer thread, once, when r->status is final: other effects. May be NULL. */
    void (*settle)(struct ledger *l, struct request *r);
    void (*answer)(struct ledger *l, struct request *r); /* on the loop; NULL: no answer */
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
    ledger_fleet_cb fleet;
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
    /* owned: the row of the request; when it is carried out, the row of the answer, or the page of
     * a list */
    struct wire_buf row;
    /* the call's ttl_ms, max_bytes or `first`; of a publish the generation that its caller knew */
    int64_t argument;
    int64_t number; /* set by the writer, by verb: an id, a number of rows, or a total */
    /* set by the writer: number of the last row of `change` that this answer includes */
    int64_t heard;
    bool saved;
    bool withdrawn; /* the client has left, so nobody needs the list; under the mutex */
    /* for a list on the other thread: it begins when the writing ledger's n_carried is this */
    uint64_t after;
    union {
        struct trial *trials;
        struct best *bests;
        struct ledger_status *counts;
        struct store_fleet_row *fleet_row;
        void *results; /* owned */
    };
    uint32_t n, n_avoid;     /* number of trials or bests; number of variants in `avoid` */
    char (*avoid)[HASH_HEX]; /* owned: quarantined variants */
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
/* sets r->err, also without memory */
void request_fail(struct request *r, const struct error *err);

void queue_init(struct queue *q);
void queue_push(struct queue *q, struct request *r);
void queue_move(struct queue *to, struct queue *from); /* moves all requests to the end of `to` */
struct request *queue_pop(struct queue *q);            /* NULL: empty */
struct request *queue_remove(struct queue *q, struct request **at);
/* Frees the queue's requests with text[0] = `name`; NULL: all requests. Returns their number. */
int64_t queue_drop(struct queue *q, const char *name);
int64_t queue_count(const struct queue *q);

/* A queue of turns holds a request of each user, with more requests of that user behind it. So
 * before each of its requests a user waits for at most one request of each other user. The queue is
 * a list, since users are few. */
void queue_push_turn(struct queue *q, struct request *r);
struct request *queue_pop_turn(struct queue *q); /* NULL: empty */

/* ---- ledger.c -------------------------------------------------------------------------------- */

enum {
    LOAD_PAGE = 64,      /* rows of one load callback */
    ANSWERS_NS = 500000, /* time for answers on the loop before sockets get a turn */
    GROUP_MAX = 256,     /* writes of one transaction */
    /* the most lists of a key (VERB_BRIEF) that the writer takes at once, before it looks at newer
     * requests and at a list that may read the whole file (VERB_PATIENT) */
    BRIEF_MAX = 32,
    /* the most waiting trials of this daemon's jobs; further trials are lost (lost_trials) */
    TRIALS_MAX = 16384,
    /* the most waiting trials that clients have sent; further trials are refused */
    RECORDS_MAX = 8192,
    RETRY_MS = 2000, /* time between attempts to save unsaved rows, or to repair the file */
    /* How long a write waits for another program's lock of the database. The wait is short, since
     * the only writer thread waits, and 0 after a write has found the lock held. LAST_PATIENCE_MS:
     * when the ledger stops. */
    PATIENCE_MS = 1000,
    LAST_PATIENCE_MS = 2000,
    /* after this time without requests the file and the cache directory are tidied and checked */
    IDLE_MS = 5000,
    /* this long after a write the cache directory is trimmed even if requests keep coming */
    BUSY_TRIM_MS = 30000,
    SNAPSHOT_S = 3600, /* seconds between snapshots of a database in use */
};

struct ledger {
    void (*notice)(void *ctx, const char *kind, const char *text);
    void (*news)(void *ctx, const struct ledger_news *n);
    void *notice_ctx; /* borrowed; for notice and news */

    /* members of the loop thread */
    struct ledger *lists;       /* owned: carries out lists, on its own thread and connection */
    const struct ledger *whole; /* the ledger that owns this one as `lists`; NULL: none */
    int64_t generation;         /* the highest generation that this daemon knows */
    int64_t daemons; /* number of daemons of the database that this daemon knows, with itself */
    /* number of unanswered lists; number of lists cancelled because clients left */
    int64_t n_lists, n_withdrawn;
    bool ending;         /* the ledger ends, and first waits for the end of `lists` */
    uv_fs_event_t watch; /* the watch of the database's lock file (news.c) */
    ino_t watched;       /* inode of the watched lock file */
    uv_timer_t timer;
    /* the writer reads changes; it must read them once more after that */
    bool changes_asked, changes_again;
    bool loads; /* the daemon is reading all bests, page by page */
    /* all bests are being read again; that reading must start over from the first page */
    bool reloading, reload_again;
    /* all bests must be read again; the reason: the path leads to another file */
    bool reload_due, reload_lost;
    uint64_t snapshot_at; /* uv_now of the next snapshot */
    int64_t heard;        /* number of the last row of `change` that was passed to `news` */
    unsigned open;        /* number of handles that are not closed yet */
    uv_async_t wake;
    uv_thread_t thread;
    struct best *answered;     /* owned: the best that a callback gets */
    struct wire_doc *loop_doc; /* owned */
    void (*stopped)(void *ctx);
    void *stopped_ctx;

    /* members of both threads, under the mutex */
    uv_mutex_t mutex;
    uv_cond_t more; /* signalled when a queue of work grew, or when the ledger stops */
    struct queue todo, done;
    struct queue brief, patient; /* queues in which users take turns (request.c) */
    uint32_t trials, records;    /* number of VERB_TRIAL and VERB_RECORD requests in `todo` */
    /* number of times that the writer took all of `todo`; the last such time whose requests are
     * all done */
    uint64_t n_taken, n_carried;
    uv_cond_t carried; /* signalled when n_carried grew */
    int64_t lost_trials;
    /* the list that this ledger's thread carries out now; NULL: none */
    const struct request *listing;
    bool stopping, ended;
    /* a check of the file, or a list, runs in the store, and another thread may interrupt it */
    bool checking, list_works;
    bool read_only; /* fixed at the start */

    /* members of the writer thread */
    struct store *store; /* owned */
    /* value of store_opened when all bests were read last; another value: another file is open */
    unsigned opened;
    int64_t changes;                   /* number of the last row of `change` that was read */
    struct store_load *loading;        /* owned; NULL: no load is under way */
    union ledger_row *object;          /* owned: the row of the request in work, decoded */
    struct wire_doc *doc;              /* owned */
    struct queue unsaved, quarantined; /* see unsaved.c below */
    /* disk_full, unrepaired: faults that were reported already; dirty: rows were written since the
     * last quiet moment; check_due: the file is checked at the next */
    bool disk_full, dirty, check_due, unrepaired;
    bool locked;    /* another program holds the write lock, and this was reported */
    bool lost_said; /* a lost row was reported, and no row has been written since */
    /* Times (uv_hrtime() / 1e6) of the next attempt to save unsaved rows, of the next attempt to
     * repair, and of the next quiet moment if no request comes before */
    uint64_t save_at, repair_at, idle_at;
    char *path;                 /* owned: the database's path, as given */
    char *cache_dir, *database; /* owned; NULL: no cache directory to trim */
    int64_t cache_max_bytes;
    struct modules_usage cache; /* use of the cache directory, as last counted */
    uint64_t cache_counted_at;  /* time of that count; 0: never counted */
    uint64_t trim_at;           /* the time when the cache is trimmed next */
};

/* On the loop: hands a request to the writer, which owns r from now on. r NULL: its allocation
 * failed; returns ERROR_NO_MEMORY. */
int ledger_submit(struct ledger *l, struct request *r);
/* On the loop: makes a request, and hands it over. `row` is encoded by the verb's schema; NULL: the
 * request has no row. */
int ledger_ask(struct ledger *l, const struct verb *verb, const char *const text[4],
               const void *row, int64_t argument, union request_cb cb, void *ctx);
#define ANSWER(kind) ((union request_cb){.kind = cb})
#define NOBODY       ((union request_cb){.done = NULL})
/* On the loop: has a snapshot of the database made, on the thread of lists. */
void ledger_make_snapshot(struct ledger *l);
/* On any thread: hands a finished request to the loop, which answers it. */
void ledger_respond(struct ledger *l, struct request *r);
/* On any thread: queues a notice (for log and events) for the loop. The store gets this function as
 * its `notice`. */
void ledger_notice(void *ledger, const char *kind, const char *text);
/* passes on the notices kept so far, when the ledger does not start */
void ledger_tell_kept(struct ledger *l);

/* ---- on the writer thread -------------------------------------------------------------------- */

uint64_t writer_now_ms(void);
__attribute__((format(printf, 3, 4))) void writer_notice(struct ledger *l, const char *kind,
                                                         const char *format, ...);
int writer_decode(struct ledger *l, const struct wire_buf *row, const struct schema *schema,
                  void *out, struct error *err);
/* True for the status of a fault of disk or file, which a later attempt may not meet again. */
bool writer_fault_of_store(int status);
/* Updates `disk_full` and `locked` after a write, and queues their notices. */
void writer_note_disk(struct ledger *l, int status, const char *text);

/* ---- unsaved.c ------------------------------------------------------------------------------- */

/*
 * Rows that the store could not write and that must not be lost, on the writer thread. It tries to
 * save them every RETRY_MS and when the ledger stops. A best gets its generation when it is saved.
 * Rows of quarantine are kept so that a kernel that hung the device does not run again after a
 * restart.
 *
 * Each row is a request in a queue, with the name of the row in text[0]: a key or a variant. For a
 * best, `argument` is the generation of the key's newest row that the caller of ledger_publish
 * knew, and text[1] is "" unless a client has brought the row (`put`, `import`).
 */

void unsaved_keep(struct ledger *l, struct request *r);
/* Finds the unsaved best of a key that the daemon published last; NULL: none. Borrowed. */
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
 * News of other daemons are rows of the table `change`, which the writer thread reads. For each row
 * it reads the named key from the file as it is then, so that a change that is read twice, or late,
 * still gives the present state. When rows of `change` were deleted before they were read, or the
 * path leads to another file, all bests are read again.
 */

void news_tell(struct ledger *l, enum ledger_news_kind kind, const char *key,
               const struct best *best, bool saved);
/* Called when the writer has read a page of changes, and the loop has passed on their news. `more`:
 * another page follows. */
void news_asked(struct ledger *l, bool more);
/* Has all bests read again. `lost`: the file is another one, and may have lost rows. */
void news_reload(struct ledger *l, bool lost);

/* call when the handle `wake` exists: it has the loop */
void news_start(struct ledger *l);
void news_close(struct ledger *l, uv_close_cb closed); /* closes two handles, whose data is `l` */

/* ---- verbs.c --------------------------------------------------------------------------------- */

/* The verbs (struct verb above). */

extern const struct verb verb_load, verb_find, verb_history, verb_publish, verb_restore, verb_unpin,
    verb_lease, verb_unlease, verb_add_run, verb_list, verb_list_key, verb_evict, verb_unquarantine,
    verb_backup, verb_status, verb_record, verb_add_trial, verb_add_module, verb_add_quarantine,
    verb_add_event, verb_add_served, verb_put_device, verb_end_run, verb_changes, verb_want,
    verb_unwant, verb_next_wanted, verb_snapshot, verb_hear;
/* The writer itself makes requests of these two verbs, to bring news to the loop. verb_saved: an
 * unsaved row was saved, or another daemon has written a row. */
extern const struct verb verb_saved;
/* verb_reload: all bests must be read again; `saved` false: the path leads to another file. */
extern const struct verb verb_reload;

/* On the writer thread: reports all changes of other daemons to the loop. STORE_MISSED: some rows
 * of `change` were deleted before this daemon read them, and all bests are read again. */
int verbs_tell_changes(struct ledger *l, struct error *err);
/* The same, when the request has leased a key: the new holder must know all changes so far. */
void verbs_settle_lease(struct ledger *l, struct request *r);
/* On the writer thread: makes l->object->best the row of the answer, unless `status` says that no
 * row was read or written. Returns status, or the fault of encoding. */
int verbs_take_best(struct ledger *l, struct request *r, int status, struct error *err);
/* On the loop: decodes the row of a successful request into l->answered. Returns the request's
 * status, or the fault of decoding. */
int verbs_decode_answered(struct ledger *l, const struct request *r, struct error *err);
void verbs_answer_done(struct ledger *l, struct request *r); /* on the loop: calls back */
/* On the loop: passes on that a best was written as news, then calls back with that best. */
void verbs_answer_best(struct ledger *l, struct request *r);
/* Hands news to the loop. NEWS_BEST is about l->object->best. */
void verbs_respond_news(struct ledger *l, enum ledger_news_kind kind, const char *text);
/* Tells the loop how far gemmd-fleet has read, when the thread starts. */
void verbs_tell_fleet(struct ledger *l);

/* ---- writer.c -------------------------------------------------------------------------------- */

/* Runs the writer thread of a struct ledger. Ends when `stopping` is set and all requests are
 * done. */
void writer_run(void *ledger);

#endif
