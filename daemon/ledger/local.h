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
#include "daemon/ledger/row.h"
#include "kernels/modules.h"
#include "store/store.h"

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
    uv_fs_event_t watch;          /* of the database's lock file (news.h) */
    ino_t watched;                /* that one */
    uv_timer_t timer;
    bool changes_asked, changes_again; /* changes are being read; and once more */
    bool loads;                        /* the daemon reads page after page */
    bool reloading, reload_again;      /* all bests are read anew; and once more */
    bool reload_due, reload_lost;      /* they are to be; the file is another one */
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
/* Any thread: hands an answer to the loop. */
void local_respond(struct local *l, struct request *r);
/* Any thread: to be told to the notice callback, on the loop. As the store's notice. */
void local_notice(void *local, const char *kind, const char *text);
/* The same before there is a loop handle: told when the loop runs, or by local_tell_kept. */
void local_keep_notice(void *local, const char *kind, const char *text);
void local_tell_kept(struct local *l);

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

#endif
