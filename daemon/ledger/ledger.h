/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger: what gemmd remembers, behind one asynchronous interface, so that a request never
 * waits for a disk: SQLite on a writer thread of its own (local.c). Several daemons of a host write
 * one database, as equals, and hear of one another by its rows (news.c).
 *
 * Contract. All calls and callbacks are on the loop thread. A call either returns a fault at once
 * (then no callback comes), or 0 and exactly one callback follows, never before the call has
 * returned. Requests are carried out in the order they were made, but for lists. After stop,
 * pending requests still get their callbacks (writes are carried out; reads may be
 * ERROR_SHUTTING_DOWN), then `stopped`.
 *
 * A full disk does not stop anything: writes then fail with ERROR_DISK_FULL; the ledger keeps
 * bests and rows of quarantine in memory, retries every few seconds, and counts the bests in
 * ledger_status.unsaved. Another program or daemon that has locked the database is the same, but
 * for ERROR_BUSY. What is only in memory has no generation (0) until it is saved.
 */
#ifndef GEMMD_DAEMON_LEDGER_LEDGER_H
#define GEMMD_DAEMON_LEDGER_LEDGER_H

#include <uv.h>

#include "proto/message.h"
#include "proto/wire.h"

struct ledger;

enum {
    LEDGER_OURS = -1,            /* a user who is none: what a daemon asks for itself */
    LEASE_LEDGER_MS = 15 * 1000, /* a lease towards other daemons, which is renewed before */
};

enum ledger_news_kind {
    NEWS_BEST,       /* `best` was published, or saved at last */
    NEWS_EVICTED,    /* `key` is forgotten */
    NEWS_FREED,      /* the lease of `key` has ended; "": of several */
    NEWS_QUARANTINE, /* another daemon has changed what is in quarantine */
    NEWS_DAEMONS,    /* another daemon has come: ledger->daemons */
    NEWS_WANTED,     /* a search waits at another daemon; `key`: its device class */
    /* Changes were missed, or the file is another one: */
    NEWS_RELOADING,     /* what is in the file now follows */
    NEWS_LOADED,        /* `best` is there */
    NEWS_RELOADED,      /* that was all: what was saved and was not among it is there no more */
    NEWS_RELOADED_LOST, /* that was all: what was saved and was not among it, the file has lost */
};

struct ledger_news {
    enum ledger_news_kind kind;
    const char *key;         /* borrowed */
    const struct best *best; /* borrowed; NEWS_BEST and NEWS_LOADED only */
    bool saved;
};

struct ledger_config {
    const char *path;  /* database file */
    const char *owner; /* who we are in leases and changes; NULL: this process */
    bool read_only;    /* only load, history, list, backup, status */
    bool force_network_fs;
    int64_t trials_per_key_max;
    /* The modules that bests name, and how many bytes the directory may hold (0: no limit); it is
     * looked after in quiet moments. NULL: not looked after. */
    const char *cache_dir;
    int64_t cache_max_bytes;
    /* Notices of the store (corruption, migration), on the loop thread. May be NULL. */
    void (*notice)(void *ctx, const char *kind, const char *text);
    /* What any daemon of the database has changed, this one too, on the loop thread. May be
     * NULL. */
    void (*news)(void *ctx, const struct ledger_news *n);
    void *ctx;
};

/* status: 0, a positive outcome, or ERROR_*; err->text holds the sentence on faults. */
typedef void (*ledger_done_cb)(void *ctx, int status, const struct error *err);
typedef void (*ledger_load_cb)(void *ctx, int status, const struct best *bests, size_t n,
                               const struct error *err);
typedef void (*ledger_best_cb)(void *ctx, int status, const struct best *b, bool saved,
                               const struct error *err);
typedef void (*ledger_id_cb)(void *ctx, int status, int64_t id, const struct error *err);
/* Resume data of one key: arrays are borrowed for the length of the call. */
typedef void (*ledger_history_cb)(void *ctx, int status, const struct trial *trials, uint32_t n,
                                  char (*avoid)[HASH_HEX], uint32_t n_avoid,
                                  const struct error *err);
/* rows: one MessagePack array, borrowed for the length of the call. */
typedef void (*ledger_list_cb)(void *ctx, int status, const void *rows, size_t n, int64_t total,
                               const struct error *err);

#define LEDGER_STATUS_FIELDS(X, T)                                                                 \
    X(T, INT, unsaved, 0)            /* bests that are only in memory */                           \
    X(T, INT, unsaved_quarantine, 0) /* rows of quarantine, likewise */                            \
    X(T, INT, lost_trials, 0)        /* trials that could not be written */                        \
    X(T, INT, bests, 0)                                                                            \
    X(T, INT, trials, 0)                                                                           \
    X(T, INT, modules, 0)                                                                          \
    X(T, INT, quarantined, 0)                                                                      \
    X(T, INT, generation, 0)                                                                       \
    X(T, INT, file_bytes, 0)                                                                       \
    X(T, INT, wal_bytes, 0)                                                                        \
    X(T, INT, lists, 0)     /* lists of any user that are not answered yet */                      \
    X(T, INT, withdrawn, 0) /* lists that were given up since the start: their clients left */     \
    X(T, FLAG, disk_full, 0)                                                                       \
    X(T, FLAG, locked, 0)     /* another program or daemon holds a lock of the database */         \
    X(T, INT, cache_bytes, 0) /* of the cache directory, seconds ago */                            \
    X(T, INT, cache_modules, 0)                                                                    \
    X(T, INT, daemons, 0) /* that use the database, this one counted */
SCHEMA_STRUCT(ledger_status, LEDGER_STATUS_FIELDS);

struct ledger_ops {
    /* Opens at once (start-up may wait for it); faults as store_open. */
    int (*start)(struct ledger **out, uv_loop_t *loop, const struct ledger_config *c,
                 struct error *err);
    void (*stop)(struct ledger *l, void (*stopped)(void *ctx), void *ctx);

    /* The next page of the current bests; n = 0: there are no more. Page by page, so that nothing
     * else waits for all of them. `first`: from the beginning; after a repair of the file that is
     * done without being asked for, and bests may come twice. */
    int (*load)(struct ledger *l, bool first, ledger_load_cb cb, void *ctx);
    /* While a load is under way: the best of a key (its id): 0, or STORE_MISS (1) and no best. */
    int (*find)(struct ledger *l, const char *key, ledger_best_cb cb, void *ctx);
    int (*history)(struct ledger *l, const char *key, const char *stamp, const char *class_,
                   const char *driver, ledger_history_cb cb, void *ctx);
    /* b->generation: the newest row of its key that the caller knew. ERROR_CONFLICT: the key has
     * got an answer since that this one does not push out (store_offer). */
    int (*publish)(struct ledger *l, const struct best *b, ledger_best_cb cb, void *ctx);
    /* A best that the file has lost, under its number. STORE_THERE (3), and no best: it is there,
     * or the key was changed since. ERROR_CONFLICT: the number is another's. */
    int (*restore)(struct ledger *l, const struct best *b, ledger_best_cb cb, void *ctx);
    int (*lease)(struct ledger *l, const char *key, int64_t ttl_ms, ledger_done_cb cb,
                 void *ctx); /* status STORE_HELD (2): another daemon holds it */
    int (*unlease)(struct ledger *l, const char *key);
    /* A search (a packed request of user `uid`) waits here: other devices of the class may carry it
     * out. unwant: it does not any more. next_wanted: the oldest one of another daemon: the packed
     * request as rows, the user as total; STORE_MISS (1): there is none. */
    void (*want)(struct ledger *l, const char *key, const char *class_, int64_t uid,
                 const struct wire_buf *search);
    void (*unwant)(struct ledger *l, const char *key);
    int (*next_wanted)(struct ledger *l, const char *class_, ledger_list_cb cb, void *ctx);
    /* A trial that a client brings: told when it is durable, or not kept. ERROR_BUSY: see
     * `room`. */
    int (*record)(struct ledger *l, const struct trial *t, ledger_done_cb cb, void *ctx);
    /* How many more of them are taken now. They have a queue's share of their own: who brings many
     * takes the place of nothing that was measured here. */
    uint32_t (*room)(struct ledger *l);
    int (*add_run)(struct ledger *l, const struct run *r, ledger_id_cb cb, void *ctx);
    /* Users take turns, and LEDGER_OURS is one. Lists of one key or number are carried out with all
     * other requests; the rest has a thread of its own, and STORE_LIST_MS each. */
    int (*list)(struct ledger *l, int64_t user, const char *what, const struct record *filter,
                size_t max_bytes, ledger_list_cb cb, void *ctx);
    /* Nobody waits for the lists of ctx any more: their callbacks come soon, ERROR_CANCELLED. */
    void (*withdraw)(struct ledger *l, const void *ctx);
    int (*evict)(struct ledger *l, const char *key, ledger_id_cb cb, void *ctx); /* id: rows */
    int (*unquarantine)(struct ledger *l, const char *variant, ledger_id_cb cb, void *ctx);
    int (*unpin)(struct ledger *l, const char *key, ledger_best_cb cb, void *ctx);
    int (*backup)(struct ledger *l, const char *path, ledger_done_cb cb, void *ctx);
    int (*status)(struct ledger *l, void (*cb)(void *ctx, const struct ledger_status *s),
                  void *ctx);

    /* Kept in order with the rest, answered by nobody: failures are counted and logged. */
    void (*add_trial)(struct ledger *l, const struct trial *t);
    void (*add_module)(struct ledger *l, const struct module *m);
    void (*add_quarantine)(struct ledger *l, const struct quarantine *q);
    void (*add_event)(struct ledger *l, const struct event *e);
    void (*put_device)(struct ledger *l, const struct device_info *d);
    void (*end_run)(struct ledger *l, const struct run *r);
};

struct ledger { /* embedded first in struct local */
    const struct ledger_ops *ops;
    int64_t generation; /* the highest that is known to have been given */
    int64_t daemons;    /* that use the database, as far as was told */
};
extern const struct ledger_ops ledger_local_ops;
/* The sentence for a call's fault at once. Returns status. */
int ledger_refused(int status, struct error *err);

#endif
