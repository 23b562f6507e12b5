/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: SQLite, and nothing but SQLite. Synchronous; one thread at a time owns a `struct
 * store`. What ops read (tables, views, columns) is in docs/store.md: it is an interface.
 *
 * Every row that answers are made from carries a checksum (hash64 over its columns in schema
 * order); a row whose checksum is wrong is reported and treated as absent. Writes are WAL with
 * synchronous=FULL: when a call has returned 0, the row survives kill -9 and power loss.
 */
#ifndef GEMMD_STORE_STORE_H
#define GEMMD_STORE_STORE_H

#include "proto/message.h"
#include "proto/wire.h"

enum { STORE_SCHEMA_VERSION = 4 };

enum { STORE_MISS = 1, STORE_THERE = 3 }; /* what is asked for is not there; is there already */

enum { STORE_IMPORTED_PER_KEY = 64 }; /* imported rows of a key that are kept */

struct store;

enum store_flags {
    STORE_READ_ONLY = 1 << 0,
    STORE_FORCE_NETWORK_FS = 1 << 1, /* open on NFS and the like all the same */
};

struct store_options {
    const char *path;
    unsigned flags;
    const char *owner;          /* who writes (store_owner); NULL: this process */
    int64_t trials_per_key_max; /* retention: 0 = 4096 */
    /* Called for what ops should hear: corrupt rows, a file set aside, a migration. May be NULL. */
    void (*notice)(void *ctx, const char *kind, const char *text);
    void *ctx;
};

/* Opens or creates; migrates forward (after a backup "<path>.v<old>.bak"). A file that is no
 * database, or fails its header check, is renamed aside ("<path>.corrupt-<time>") and rebuilt from
 * what is readable. ERROR_STORE: newer schema, unreadable, read-only place, network file system
 * (each its own sentence); ERROR_DISK_FULL; ERROR_BUSY: another gemmd holds the commit lock and
 * does not let go. */
int store_open(const struct store_options *o, struct store **out, struct error *err);
/* The highest generation that has been given, by any gemmd; 0: none. */
int store_generation(struct store *s, int64_t *generation, struct error *err);
/* How often a file was opened for this store: another one than before has another number, since
 * the file was rebuilt, restored, or replaced. */
unsigned store_opened(const struct store *s);
/* Read-only stores: opens the file again when the path leads to another one by now (it was
 * rebuilt). */
int store_refresh(struct store *s, struct error *err);
/* How long a call waits for another program that has locked the file, before it is ERROR_BUSY: 5 s
 * unless told, also after it was opened anew. */
void store_set_patience(struct store *s, int ms);
struct store *
store_close(struct store *s); /* truncating checkpoint; keeps the WAL file (PERSIST) */

/* Several of the calls below as one transaction, durable when commit has returned 0. After a fault
 * in between, or of the commit, call rollback or nothing, and make the calls again one by one. */
int store_begin(struct store *s, struct error *err);
int store_commit(struct store *s, struct error *err); /* on a fault all is undone */
void store_rollback(struct store *s);

/* Thorough check, for the background: pages, indexes, schema and every row checksum. A damaged file
 * is ERROR_STORE, and store_damaged is true from then on. ERROR_CANCELLED: store_interrupt. */
int store_check(struct store *s, int64_t *bad_rows, struct error *err);
/* From any thread, while a call runs: it ends soon, with ERROR_CANCELLED. */
void store_interrupt(struct store *s);
/* Whether any call met a damaged page. store_repair then does what store_open does with a damaged
 * file; after a fault of it every call fails (ERROR_STORE), and it may be tried again. */
bool store_damaged(const struct store *s);
int store_repair(struct store *s, struct error *err);
/* When idle: moves a WAL that has grown back into the file. */
int store_tidy(struct store *s, struct error *err);
/* Whether it can be written: writes what is there already. ERROR_DISK_FULL, ERROR_BUSY,
 * ERROR_STORE.
 */
int store_probe(struct store *s, struct error *err);

/* Current bests, newest first. begin hears both witnesses of every key (load.c): ERROR_STORE with
 * store_damaged when rows and index disagree. Then pages, of at most max bests, *n 0: there are no
 * more; and find, of one key (its id), in any order: 0 or STORE_MISS. A key whose newest row is
 * corrupt is skipped, or missing. What is written meanwhile is not among them. */
struct store_load;
int store_load_begin(struct store *s, struct store_load **out, struct error *err);
int store_load_page(struct store_load *l, struct best *out, uint32_t max, uint32_t *n,
                    struct error *err);
int store_load_find(struct store_load *l, const char *key, struct best *out, struct error *err);
struct store_load *store_load_end(struct store_load *l); /* NULL in, NULL out */
/* All of that in one; the callback's return != 0 stops. */
int store_each_best(struct store *s, int (*row)(void *ctx, const struct best *b), void *ctx,
                    struct error *err);

int store_add_run(struct store *s, struct run *r, struct error *err); /* sets r->id */
int store_end_run(struct store *s, const struct run *r, struct error *err);
int store_add_trial(struct store *s, struct trial *t, struct error *err);           /* sets t->id */
int store_add_module(struct store *s, const struct module *m, struct error *err);   /* or touches */
int store_add_quarantine(struct store *s, struct quarantine *q, struct error *err); /* or counts */
int store_add_event(struct store *s, struct event *e, struct error *err);
int store_put_device(struct store *s, const struct device_info *d, struct error *err);

/* One transaction: gives b->generation the next number, appends, durable on return (or with the
 * commit of the group). b->trial 0, unless imported: the newest good trial of that key, config and
 * stamp is looked up; a trial that is not in the store becomes 0. After a fault b->generation is 0.
 * store_publish_again writes a row that the file has lost, under its number. STORE_THERE: so is the
 * row; nothing is written. A bad row of that number is replaced. ERROR_CONFLICT: another key has
 * it. */
int store_publish(struct store *s, struct best *b, struct error *err);
int store_publish_again(struct store *s, struct best *b, struct error *err);
/* The same for a row that may come too late. b->generation is, going in, the newest row of the key
 * that was known to who offers it (0: none). ERROR_CONFLICT, and nothing is written:
 * store_overtaken; also while the file is locked, since it can be read. STORE_THERE: an imported
 * row that says what the key's newest one says is not written again: *b becomes that one. Of a key
 * the last STORE_IMPORTED_PER_KEY imported rows are kept. */
int store_offer(struct store *s, struct best *b, struct error *err);
/* Whether `now`, the newest row of b's key (NULL: none), has come after `known` and is not for b to
 * push out: 0, or ERROR_CONFLICT. Of an op that has kernels (b->family) a pin stays whoever comes,
 * and what was tuned stays when b is imported or partial, or was verified less tightly. An imported
 * b takes the place of the same user's imported row only. A pin (manual) with a `known` was
 * verified again: the key must be pinned to it still; without, it was pinned now, and is never
 * late. */
int store_overtaken(const struct best *now, const struct best *b, int64_t known, struct error *err);
/* The sentences of such conflicts, and ERROR_CONFLICT. */
int store_outranked(const char *key, struct error *err);
int store_belongs_to_another(const char *key, struct error *err);

/* Finished trials of a key with this stamp, oldest first (resume); malloc'ed array. Finished is
 * what would come out the same again: ok, aborted, invalid, compile, resource, wrong_result. What
 * hung or crashed is kept away by store_avoid, and may be tried again when taken out of there. */
int store_trials_of(struct store *s, const char *key, const char *stamp, struct trial **out,
                    uint32_t *n, struct error *err);
/* Variants that may not run on this device class (driver: those of another driver are free). */
int store_avoid(struct store *s, const char *class_, const char *driver, char (**out)[HASH_HEX],
                uint32_t *n, struct error *err);

/* ---- other gemmds of the file (change.c) ----------------------------------------------------- */

enum { STORE_OWNER_MAX = 64 };
/* This process in leases and changes: "<pid>.<when it began>.<its process namespace>". */
void store_owner(char out[STORE_OWNER_MAX]);
/* Whether such a process is known to have gone. */
bool store_owner_is_lost(const char *owner);

/* What another gemmd has changed: kind "best" (name: a key, whose newest row is another now, or
 * gone), "quarantine" (a variant), "lease" (a key that was given back; "": several), "daemon" (who
 * came), "wanted" (a device class). */
struct store_change {
    char kind[16], name[256];
};
/* The number of the last change. */
int store_changes_begin(struct store *s, int64_t *seq, struct error *err);
/* Those of others after *after, which becomes the last that was looked at: at most max; *n 0 and
 * status 0: there are no more. STORE_MISSED: some are gone already; what is known is to be read
 * anew. */
enum { STORE_MISSED = 4 };
int store_changes(struct store *s, int64_t *after, struct store_change *out, uint32_t max,
                  uint32_t *n, struct error *err);
/* STORE_THERE: a key has been changed after that change; else 0. */
int store_changed_since(struct store *s, const char *key, int64_t seq, struct error *err);
/* The newest row of a key: 0, STORE_MISS. */
int store_best_of(struct store *s, const char *key, struct best *out, struct error *err);

/* Leases: one holder per key among the gemmds of a file. A lease is over when its owner has gone
 * (known at once of processes of this host and container), or after ttl_ms. Its owner takes it
 * again to renew it. STORE_HELD: another has it. */
enum { STORE_HELD = 2 };
int store_lease(struct store *s, const char *key, int64_t ttl_ms, struct error *err);
int store_unlease(struct store *s, const char *key, struct error *err);
/* Takes out the rows of owners who have gone; and all of ours, at the end. */
int store_drop_gone(struct store *s, struct error *err);
int store_leave(struct store *s, struct error *err);
/* This process serves the file; how many do. */
int store_join(struct store *s, struct error *err);
int store_daemons(struct store *s, int64_t *n, struct error *err);

/* Searches that wait here, and that another device of the class may carry out. */
struct store_wanted {
    const char *key, *class; /* borrowed, all of them */
    int64_t uid;
    const void *search; /* a packed request */
    size_t n;
};
int store_want(struct store *s, const struct store_wanted *w, struct error *err);
int store_unwant(struct store *s, const char *key, struct error *err);
/* The oldest of another gemmd whose key nobody has leased; appends to *search. STORE_MISS. */
int store_next_wanted(struct store *s, const char *class, int64_t *uid, struct wire_buf *search,
                      struct error *err);

/*
 * Listing, for people. `what`: best | history | trials | modules | quarantine | runs | devices |
 * events. `filter` holds column = value (text: substring when it begins with '~'), plus "sort"
 * (column, '-' in front: descending), "limit", "offset". Appends one MessagePack array of maps, at
 * most PAGE_ROWS_MAX rows and max_bytes bytes; *total: rows that match. ERROR_UNKNOWN_FIELD names
 * the columns. "config.<name>" and "problem.<name>" reach into those columns. Columns beside the
 * stored ones, and all details: docs/store.md, "Listing". ERROR_DEADLINE: not done within
 * STORE_LIST_MS. ERROR_CANCELLED: store_interrupt.
 */
enum { STORE_LIST_MS = 20000 };
int store_list(struct store *s, const char *what, const struct record *filter, size_t max_bytes,
               struct wire_buf *out, int64_t *total, struct error *err);

/* Removes: best and trials of a key (evict), a quarantine row, a pin. *n (may be NULL): rows
 * removed. */
int store_evict(struct store *s, const char *key, int64_t *n, struct error *err);
int store_unquarantine(struct store *s, const char *variant, int64_t *n, struct error *err);
/* The newest best of the key that is not `manual` becomes the current one (a new generation).
 * STORE_MISS: there is none; the pin is gone and nothing serves the key. ERROR_NOT_FOUND: the
 * current one is not `manual`, or there is none. */
int store_unpin(struct store *s, const char *key, struct best *now, struct error *err);

/* A complete copy in one file, synced; ERROR_INVALID when path exists. */
int store_backup(struct store *s, const char *path, struct error *err);
/* A copy for rebuilds, as <path>.snapshot; nothing is done while it is younger than age_s, or while
 * the database has not been written to since. */
int store_snapshot(struct store *s, int64_t age_s, struct error *err);

struct store_stats {
    int64_t bests, trials, modules, quarantined, generation, daemons, file_bytes, wal_bytes;
};
int store_stats(struct store *s, struct store_stats *out, struct error *err);

#endif
