/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger: gemmd's memory behind an asynchronous interface, so that no request waits for a disk.
 * SQLite runs on a writer thread (writer.c). Several daemons of a host write the same database as
 * equals and learn of each other's changes from its rows (news.c).
 *
 * Contract. All calls and callbacks are on the loop thread. A call returns a fault at once, without
 * a callback, or 0: then exactly one callback follows, never before the call has returned. Requests
 * are carried out in the order of the calls, except lists. After stop, pending requests still get
 * their callbacks (writes are carried out; reads may be ERROR_SHUTTING_DOWN), then `stopped`.
 *
 * A full disk stops nothing: writes fail with ERROR_DISK_FULL. The ledger keeps bests and rows of
 * quarantine in memory, retries every few seconds, and counts the bests in ledger_status.unsaved.
 * The same holds, with ERROR_BUSY, while another program or daemon locks the database. An unsaved
 * row has generation 0.
 */
#ifndef GEMMD_DAEMON_LEDGER_LEDGER_H
#define GEMMD_DAEMON_LEDGER_LEDGER_H

#include <limits.h>

#include <uv.h>

#include "proto/message.h"
#include "proto/wire.h"

struct ledger;

enum {
    LEDGER_OURS = -1, /* in place of a user's id: the daemon's own requests */
    /* duration of a daemon's lease in the database; the daemon renews it earlier */
    LEASE_LEDGER_MS = 15 * 1000,
};

enum ledger_news_kind {
    NEWS_BEST,       /* `best` was published, or was unsaved and is saved now */
    NEWS_EVICTED,    /* `key` was evicted */
    NEWS_FREED,      /* the lease of `key` has ended; "": several leases */
    NEWS_QUARANTINE, /* another daemon has changed the quarantine */
    NEWS_DAEMONS,    /* another daemon has started (ledger_daemons) */
    NEWS_FLEET,  /* gemmd-fleet came or went, or has read up to the number that `key` has ("": none)
                  */
    NEWS_WANTED, /* a search waits at another daemon; `key` is the device class of the search */
    /* All bests are read again when changes were missed, or the path leads to another file: */
    NEWS_RELOADING, /* begin: NEWS_LOADED follows for each best of the file */
    NEWS_LOADED,    /* `best` is in the file */
    NEWS_RELOADED,  /* end: bests that the reload did not name were deleted from the file */
    /* end: bests that the reload did not name are missing in this file, and may be restored */
    NEWS_RELOADED_LOST,
};

struct ledger_news {
    enum ledger_news_kind kind;
    const char *key;         /* borrowed */
    const struct best *best; /* borrowed; NEWS_BEST and NEWS_LOADED only */
    bool saved;
};

struct ledger_config {
    const char *path; /* database file */
    /* name of this daemon in rows of leases and changes; NULL: made from this process */
    const char *owner;
    bool read_only; /* only load, history, list, backup and status may be called */
    bool force_network_fs;
    int64_t trials_per_key_max;
    /* The cache directory, with the modules that bests name, and the bytes that it may hold (0: no
     * limit). Trimmed in quiet moments. cache_dir NULL: never trimmed. */
    const char *cache_dir;
    int64_t cache_max_bytes;
    /* Notices of the store (corruption, migration), on the loop thread. May be NULL. */
    void (*notice)(void *ctx, const char *kind, const char *text);
    /* Changes by any daemon of the database, including this daemon, on the loop thread. May be
     * NULL. */
    void (*news)(void *ctx, const struct ledger_news *n);
    void *ctx;
};

/* status: 0, a positive STORE_* outcome, or ERROR_*; with ERROR_* err->text has the message. */
typedef void (*ledger_done_cb)(void *ctx, int status, const struct error *err);
typedef void (*ledger_load_cb)(void *ctx, int status, const struct best *bests, size_t n,
                               const struct error *err);
typedef void (*ledger_best_cb)(void *ctx, int status, const struct best *b, bool saved,
                               const struct error *err);
typedef void (*ledger_id_cb)(void *ctx, int status, int64_t id, const struct error *err);
/* What a search of a key starts from: its trials, and variants to avoid (both borrowed). */
typedef void (*ledger_history_cb)(void *ctx, int status, const struct trial *trials, uint32_t n,
                                  char (*avoid)[HASH_HEX], uint32_t n_avoid,
                                  const struct error *err);
/* rows: a MessagePack array, borrowed during the call. */
typedef void (*ledger_list_cb)(void *ctx, int status, const void *rows, size_t n, int64_t total,
                               const struct error *err);

#define LEDGER_STATUS_FIELDS(X, T)                                                                 \
    X(T, INT, unsaved, 0)            /* bests in memory only */                                    \
    X(T, INT, unsaved_quarantine, 0) /* rows of quarantine that are in memory only */              \
    X(T, INT, lost_trials, 0)        /* trials that could not be written */                        \
    X(T, INT, bests, 0)                                                                            \
    X(T, INT, trials, 0)                                                                           \
    X(T, INT, modules, 0)                                                                          \
    X(T, INT, quarantined, 0)                                                                      \
    X(T, INT, file_bytes, 0)                                                                       \
    X(T, INT, wal_bytes, 0)                                                                        \
    X(T, INT, lists, 0)     /* unanswered lists of all users */                                    \
    X(T, INT, withdrawn, 0) /* lists that were cancelled since the start, because clients left */  \
    X(T, FLAG, disk_full, 0)                                                                       \
    X(T, FLAG, locked, 0) /* another program or daemon holds a lock of the database */             \
    X(T, INT, daemons, 0) /* daemons of the database, including this daemon */

/* The X fields are the fields that the method `status` gives as `store`; the others are not
 * sent. */
struct ledger_status {
    LEDGER_STATUS_FIELDS(SCHEMA_MEMBER, ledger_status)
    int64_t generation;
    int64_t cache_bytes, cache_modules; /* use of the cache directory, as last counted */
};
extern const struct schema ledger_status_schema;

/* Opens the database before it returns: only the start of the daemon may call this, since it waits
 * for the disk. Errors: as store_open. */
int ledger_start(struct ledger **out, uv_loop_t *loop, const struct ledger_config *c,
                 struct error *err);
void ledger_stop(struct ledger *l, void (*stopped)(void *ctx), void *ctx);

/* Reads the next page of all keys' newest bests; n = 0: the end. In pages, so that other requests
 * need not wait for all bests. `first`: begins with the first page. After a repair of the file the
 * load starts over by itself, and bests may come twice. */
int ledger_load(struct ledger *l, bool first, ledger_load_cb cb, void *ctx);
/* Finds the best of a key (its id) while ledger_load has not reached the end. Calls back with 0 and
 * the best, or with STORE_MISS (1) and no best. */
int ledger_find(struct ledger *l, const char *key, ledger_best_cb cb, void *ctx);
int ledger_history(struct ledger *l, const char *key, const char *stamp, const char *class_,
                   const char *driver, ledger_history_cb cb, void *ctx);
/* Writes a new best. b->generation: the generation of the key's newest row that the caller knew.
 * ERROR_CONFLICT: the key has a newer row that b does not replace (store_offer). */
int ledger_publish(struct ledger *l, const struct best *b, ledger_best_cb cb, void *ctx);
/* Writes a best that the file has lost, with its old generation. STORE_THERE (3) and no best: the
 * file has the best, or the key was changed since it was lost. ERROR_CONFLICT: another row has that
 * generation. */
int ledger_restore(struct ledger *l, const struct best *b, ledger_best_cb cb, void *ctx);
int ledger_lease(struct ledger *l, const char *key, int64_t ttl_ms, ledger_done_cb cb,
                 void *ctx); /* status STORE_HELD (2): another daemon holds the key */
int ledger_unlease(struct ledger *l, const char *key);

/* ---- the fleet (fleet.c) */
struct ledger_share {
    const char *key, *class, *stamp; /* borrowed */
    int64_t fleet_ms;                /* how long the fleet may take to answer; 0: it is not asked */
};
/* Leases a key for LEASE_LEDGER_MS, for a search that the fleet may spare. Status as
 * store_lease_shared: 0 and STORE_ALONE (6): leased; STORE_HELD (2), STORE_ASKED (5): not now. */
int ledger_share(struct ledger *l, const struct ledger_share *w, ledger_done_cb cb, void *ctx);
/* Asks the fleet for a key, if gemmd-fleet is attached. The key is not leased. */
void ledger_ask_fleet(struct ledger *l, const struct ledger_share *w);
/* Refuses the candidate `generation` of a key, for `reason`. Calls back with the row that is the
 * key's newest then; STORE_MISS: none. */
int ledger_refuse(struct ledger *l, const char *key, int64_t generation, const char *reason,
                  ledger_best_cb cb, void *ctx);
struct store_fleet_row;
/* `row`: the number that decides (row->seq 0: none), and its state; b NULL: its row is not here. */
typedef void (*ledger_fleet_cb)(void *ctx, int status, const struct best *b,
                                const struct store_fleet_row *row, const struct error *err);
/* Reads the row that answers a key at the fleet's number `seq` (store_fleet_find). */
int ledger_fleet_find(struct ledger *l, const char *key, int64_t seq, ledger_fleet_cb cb,
                      void *ctx);
/* Tells gemmd-fleet the stamps of this daemon's kernels, each on a line. */
void ledger_announce(struct ledger *l, const char *class_, const char *stamps);
/* want: offers a search of this daemon (a packed request of user `uid`) to other daemons of the
 * device class. unwant: withdraws the offer. next_wanted: finds the oldest search that another
 * daemon offers, of those with a rank above `rank`: `rows` is the user, an integer, and the packed
 * request; `total` is the search's rank; STORE_MISS (1): no search. */
void ledger_want(struct ledger *l, const char *key, const char *class_, int64_t uid,
                 const struct wire_buf *search);
void ledger_unwant(struct ledger *l, const char *key);
int ledger_next_wanted(struct ledger *l, const char *class_, int64_t rank, ledger_list_cb cb,
                       void *ctx);
/* Writes a client's trial; the callback comes when the trial is durable, or cannot be written.
 * ERROR_BUSY: no room (ledger_room). `once`: the trial is not written, STORE_THERE (3), when the
 * key has a client's trial of the same config that did not crash or hang. */
int ledger_record(struct ledger *l, const struct trial *t, bool once, ledger_done_cb cb, void *ctx);
/* Returns how many more trials of clients the queue accepts now. Clients' trials have a
 * separate share of the queue, so that they never displace trials that were measured here. */
uint32_t ledger_room(struct ledger *l);
int ledger_add_run(struct ledger *l, const struct run *r, ledger_id_cb cb, void *ctx);
/* Reads rows of the table `what`. Users take turns, LEDGER_OURS included. A list of one key or
 * number runs on the writer thread. Other lists run on a separate thread, each for at most
 * STORE_LIST_MS. */
int ledger_list(struct ledger *l, int64_t user, const char *what, const struct record *filter,
                size_t max_bytes, ledger_list_cb cb, void *ctx);
/* Cancels the lists that were asked for with this ctx: their callbacks come soon, with
 * ERROR_CANCELLED. */
void ledger_withdraw(struct ledger *l, const void *ctx);
/* the callback's id: number of rows removed */
int ledger_evict(struct ledger *l, const char *key, ledger_id_cb cb, void *ctx);
int ledger_unquarantine(struct ledger *l, const char *variant, ledger_id_cb cb, void *ctx);
int ledger_unpin(struct ledger *l, const char *key, ledger_best_cb cb, void *ctx);
int ledger_backup(struct ledger *l, const char *path, ledger_done_cb cb, void *ctx);
/* Adds answers to jobs: `rows` is an array of maps of struct served_row, copied. The callback gets
 * the rows again: after an error nothing was added. */
int ledger_add_served(struct ledger *l, const struct wire_buf *rows, ledger_list_cb cb, void *ctx);
/* Reads all changes by other daemons, which come as news before the callback. The callback's id:
 * the newest generation. */
int ledger_hear(struct ledger *l, ledger_id_cb cb, void *ctx);
int ledger_status(struct ledger *l, void (*cb)(void *ctx, const struct ledger_status *s),
                  void *ctx);

/* Without a ledger: store_replace (store/store.h). */
int ledger_replace_file(const char *path, const char *from, bool force_network_fs,
                        char aside[PATH_MAX], struct error *err);

/* These calls have no callback, and are carried out in order with all other requests. A row that
 * cannot be written is logged; trials are also counted (lost_trials). */
void ledger_add_trial(struct ledger *l, const struct trial *t);
void ledger_add_module(struct ledger *l, const struct module *m);
void ledger_add_quarantine(struct ledger *l, const struct quarantine *q);
void ledger_add_event(struct ledger *l, const struct event *e);
void ledger_put_device(struct ledger *l, const struct device_info *d);
void ledger_end_run(struct ledger *l, const struct run *r);
/* The highest generation that this daemon knows; the number of the database's daemons that it
 * knows, with itself. */
int64_t ledger_generation(const struct ledger *l);
int64_t ledger_daemons(const struct ledger *l);
/* Sets the error message for `status`, which a call of the ledger returned instead of calling back.
 * Returns status. */
int ledger_refused(int status, struct error *err);

#endif
