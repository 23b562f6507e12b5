/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local ledger from the inside: SQLite (store/) on one writer thread of its own, never libuv's
 * pool. Requests go from the loop to `todo` under the mutex, and come back by `done`, for which one
 * uv_async_t wakes the loop. The parts, each calling only those above it:
 *
 *   request   a request, and queues
 *   home      this struct, and what both threads do with it
 *   unsaved   bests, and rows of quarantine, that the store would not take
 *   modules   the cache directory
 *   news      what other daemons have changed, on the loop
 *   verbs     what each request does on the thread, and its answer on the loop
 *   writer    the thread: order, transactions, upkeep
 *   local     the ledger's calls, and its life
 */
#ifndef GEMMD_DAEMON_LEDGER_LOCAL_H
#define GEMMD_DAEMON_LEDGER_LOCAL_H

#include "daemon/ledger/request.h"
#include "kernels/modules.h"
#include "store/store.h"
#include "proto/message.h"

/* ---- rows ------------------------------------------------------------------------------------ */

/*
 * Any row that a ledger takes, decoded: on the wire (wire.c) and on the writer's thread.
 * Which one it is, its verb's schema says; rows that wait are packed (they are mostly much
 * smaller).
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

/* ---- local.c --------------------------------------------------------------------------------- */

enum {
    LOAD_PAGE = 64,      /* rows of one load callback */
    ANSWERS_NS = 500000, /* of answering on the loop: then sockets come first */
    GROUP_MAX = 256,     /* writes of one transaction */
    BRIEF_MAX = 32, /* of keys whose rows are read: before what has come meanwhile, and a list */
    TRIALS_MAX = 16384, /* trials waiting; more are lost, and counted */
    RECORDS_MAX = 8192, /* of clients, beside them; more are refused */
    RETRY_MS = 2000,    /* between attempts to save what is unsaved, or to repair the file */
    /* What waits for another program's lock, waits on the one thread that answers all; but not
     * while it is known to be held; and once more at the end. */
    PATIENCE_MS = 1000,
    LAST_PATIENCE_MS = 2000,
    IDLE_MS = 5000, /* quiet, before the file is tidied and checked, and the cache directory */
    BUSY_TRIM_MS = 30000, /* after a write the cache directory waits no longer for quiet */
    SNAPSHOT_S = 3600,    /* between snapshots of a database that is written to */
};

/* A best that the store would not take. */
struct unsaved {
    struct unsaved *next;
    char key[HASH_HEX];
    int64_t generation; /* of a row that the file has lost; 0: it gets one */
    int64_t known;      /* the newest row of the key that was known when it was offered */
    bool imported;
    struct wire_buf row; /* owned */
};

struct local {
    struct ledger base; /* first: a struct ledger * is this */
    void (*notice)(void *ctx, const char *kind, const char *text);
    void (*news)(void *ctx, const struct ledger_news *n);
    void *notice_ctx; /* borrowed: of both */

    /* loop thread */
    struct local *lists;       /* owned: carries lists out, on a thread and connection of its own */
    const struct local *whole; /* of such a home: the one whose lists it carries out */
    int64_t n_lists, n_withdrawn; /* lists not answered yet; given up, since their clients left */
    bool ending;                  /* `lists` ends before this one does */
    uv_fs_event_t watch;          /* of the database's lock file (news.c) */
    ino_t watched;                /* that one */
    uv_timer_t timer;
    bool changes_asked, changes_again; /* changes are being read; and once more */
    bool loads;                        /* the daemon reads page after page */
    bool reloading, reload_again;      /* all bests are read anew; and once more */
    bool reload_due, reload_lost;      /* they are to be; the file is another one */
    uint64_t snapshot_at;              /* uv_now: when one is due */
    int64_t heard;                     /* the last change that was told */
    unsigned open;                     /* handles that are not closed yet */
    uv_async_t wake;
    uv_thread_t thread;
    struct best *answered;     /* owned: the best that a callback is given */
    struct wire_doc *loop_doc; /* owned */
    void (*stopped)(void *ctx);
    void *stopped_ctx;

    /* both, under the mutex */
    uv_mutex_t mutex;
    uv_cond_t more; /* one of those to be carried out grew, or stopping */
    struct queue todo, done;
    struct queue brief, patient; /* in turns */
    uint32_t trials, records;    /* in todo */
    uint64_t n_taken, n_carried; /* how often the writer has taken todo, and carried it out */
    uv_cond_t carried;           /* n_carried grew */
    int64_t lost_trials;
    const struct request *listing; /* a patient request that was taken; NULL: none is */
    bool stopping, ended;
    bool checking, list_works; /* the store works, and may be interrupted */
    bool read_only;            /* fixed at the start */

    /* writer thread */
    struct store *store;        /* owned */
    unsigned opened;            /* its number when all was read (store_opened) */
    int64_t changes;            /* the last change that was looked at */
    struct store_load *loading; /* owned; NULL: no load is under way */
    union ledger_row *object;   /* owned: a row, decoded */
    struct wire_doc *doc;       /* owned */
    struct unsaved *unsaved, **unsaved_last;
    int64_t n_unsaved;
    struct queue quarantined; /* requests whose rows of quarantine the store would not take */
    bool disk_full, dirty, check_due, unrepaired; /* which was said, of the first and the last */
    bool locked;    /* another program has the database's write lock, which was said */
    bool lost_said; /* that rows which nobody waits for are lost, since the last one was written */
    /* uv_hrtime() / 1e6: not before, what could not be saved, or not be repaired; and when it is
     * quiet */
    uint64_t save_at, repair_at, idle_at;
    char *path;                 /* owned: of the database, as it was given */
    char *cache_dir, *database; /* owned; NULL: no cache directory to look after */
    int64_t cache_max_bytes;
    struct modules_usage cache; /* as it was */
    uint64_t cache_counted_at;  /* 0: never */
    uint64_t trim_at;           /* when the cache is looked after */
};

/* Loop: hands a request to the writer. Takes r; NULL is a failed allocation. */
int local_submit(struct local *l, struct request *r);
/* Loop: has a snapshot of the database made, on the thread of lists. */
void local_make_snapshot(struct local *l);
/* Any thread: hands an answer to the loop. */
void local_respond(struct local *l, struct request *r);
/* Any thread: to be told to the notice callback, on the loop. As the store's notice. */
void local_notice(void *local, const char *kind, const char *text);
void local_tell_kept(struct local *l); /* at once, where the ledger does not start */

/* ---- on the writer thread -------------------------------------------------------------------- */

uint64_t writer_now_ms(void);
__attribute__((format(printf, 3, 4))) void writer_notice(struct local *l, const char *kind,
                                                         const char *format, ...);
/* A packed row into l->object. */
int writer_decode(struct local *l, const struct wire_buf *row, const struct schema *schema,
                  struct error *err);
/* The row may be written another time. */
bool writer_fault_of_store(int status);
/* A row was written, or not: what `disk_full` and `locked` say, and their notices. */
void writer_note_disk(struct local *l, int status, const char *text);

/* ---- unsaved.c ------------------------------------------------------------------------------- */

/*
 * What the store would not take and must not be lost, on the writer thread: tried again every
 * RETRY_MS and at the end. Bests get their generation when they are saved; rows of quarantine are
 * kept, since a kernel that hung the device is not to do it again after a restart.
 */

void unsaved_keep(struct local *l, struct request *r);
/* Of a key, the last that was offered; NULL: there is none. Borrowed. */
const struct unsaved *unsaved_newest(const struct local *l, const char *key);
int unsaved_read(struct local *l, const struct unsaved *u, struct best *out, struct error *err);
/* Forgets those of a key, or (NULL) the first. Returns how many. */
int64_t unsaved_drop(struct local *l, const char *key);
/* Takes the row of a request. */
void unsaved_keep_quarantine(struct local *l, struct request *r);
/* Forgets the rows of a variant, or (NULL) all. Returns how many. */
int64_t unsaved_drop_quarantine(struct local *l, const char *variant);
int64_t unsaved_count_quarantine(const struct local *l); /* how many there are */
bool unsaved_any(const struct local *l);
int unsaved_save(struct local *l, struct error *err); /* all of them, or a fault */

/* ---- modules.c ------------------------------------------------------------------------------- */

/* The cache directory, on the writer thread (modules.c says why there). */

void ledger_modules_trim(struct local *l); /* with a cache_dir only; sets when it is due again */
void ledger_modules_count(struct local *l, struct ledger_status *out);

/* ---- news.c ---------------------------------------------------------------------------------- */

/*
 * News, on the loop: what this daemon and the others of its database have changed there. All are
 * told to the callback of ledger_config, in the order in which the writer thread met them.
 *
 * Others' news are rows of the table `change`, read on the writer thread. What they say of a key is
 * read from the file at that moment, so that a change that is met twice, or late, says what is true
 * now. When changes were missed, or the file is another one by now, all bests are read anew.
 */

void news_tell(struct local *l, enum ledger_news_kind kind, const char *key,
               const struct best *best, bool saved);
/* A page of changes was read and told. `more`: there is another one. */
void news_asked(struct local *l, bool more);
/* All bests are to be read anew. `lost`: the file is another one, and may lack what it had. */
void news_reload(struct local *l, bool lost);
/* The daemon's own loading has ended. */
void news_loaded(struct local *l);

void news_start(struct local *l);                     /* with the loop handle `wake` made */
void news_close(struct local *l, uv_close_cb closed); /* two handles, whose data is `l` */

/* ---- verbs.c --------------------------------------------------------------------------------- */

/* What can be asked of the local ledger (request.h says what a verb is). */

extern const struct verb verb_load, verb_find, verb_history, verb_publish, verb_restore, verb_unpin,
    verb_lease, verb_unlease, verb_add_run, verb_list, verb_list_key, verb_evict, verb_unquarantine,
    verb_backup, verb_status, verb_record, verb_add_trial, verb_add_module, verb_add_quarantine,
    verb_add_event, verb_put_device, verb_end_run, verb_changes, verb_want, verb_unwant,
    verb_next_wanted, verb_snapshot;
/* Nobody asks for these: news on their way to the loop. The row of a request that could not be
 * saved, and is now; or that another daemon has written. */
extern const struct verb verb_saved;
/* All bests are to be read anew; `saved` false: the file is another one. */
extern const struct verb verb_reload;

/* On the writer thread: tells all that others have changed. STORE_MISSED: not all of it is known,
 * and it is read anew. */
int verbs_tell_changes(struct local *l, struct error *err);

/* ---- writer.c -------------------------------------------------------------------------------- */

/* The writer thread of the local ledger. */

/* Of a struct local. Ends when `stopping` is set and all is done. */
void writer_run(void *local);

#endif
