/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: SQLite, synchronous. A single thread at a time owns a `struct store`. docs/store.md
 * describes tables, views and columns for readers: an interface.
 *
 * Each row from which gemmd makes answers has a checksum (hash64 over the columns in schema order).
 * A row with a wrong checksum is reported and treated as absent. Writes use WAL and
 * synchronous=FULL: after a call has returned 0, the row survives kill -9 and power loss.
 */
#ifndef GEMMD_STORE_STORE_H
#define GEMMD_STORE_STORE_H

#include <limits.h>

#include "proto/message.h"
#include "proto/wire.h"

enum { STORE_SCHEMA_VERSION = 6 };

enum { STORE_MISS = 1, STORE_THERE = 3 }; /* the row does not exist; the row exists already */

enum { STORE_IMPORTED_PER_KEY = 64 }; /* imported rows that a key keeps */

struct store;

enum store_flags {
    STORE_READ_ONLY = 1 << 0,
    STORE_FORCE_NETWORK_FS = 1 << 1, /* open on network file systems, too */
};

struct store_options {
    const char *path;
    unsigned flags;
    /* name of this writer in leases and changes (store_owner); NULL: that of this process */
    const char *owner;
    int64_t trials_per_key_max; /* trials that a key keeps; 0: 4096 */
    /* Called with events for people: corrupt rows, a file set aside, a migration. May be NULL. */
    void (*notice)(void *ctx, const char *kind, const char *text);
    void *ctx;
};

/* Opens the database, or makes a new one; migrates an older file to this schema version (after a
 * backup "<path>.v<old>.bak"). A file that is no database, or fails its header check, is renamed to
 * "<path>.corrupt-<time>" and rebuilt from all readable rows. ERROR_STORE: newer schema,
 * unreadable, read-only place, network file system (each with an error message of its own);
 * ERROR_DISK_FULL; ERROR_BUSY: another gemmd holds the commit lock and does not commit. */
int store_open(const struct store_options *o, struct store **out, struct error *err);
/* The highest generation that any gemmd has given; 0: no generation. */
int store_generation(struct store *s, int64_t *generation, struct error *err);
/* How often this store has opened a file. The number changes when the file was rebuilt, restored,
 * or replaced. */
unsigned store_opened(const struct store *s);
/* Read-only stores: opens the file again when the path leads to another (rebuilt) file. */
int store_refresh(struct store *s, struct error *err);
/* Sets how long a call waits for another program's lock on the file before ERROR_BUSY: 5 s by
 * default; stays set when the file is opened again. */
void store_set_patience(struct store *s, int ms);
/* Moves the WAL into the file and truncates it, but keeps the WAL file. Returns NULL. */
struct store *store_close(struct store *s);

/* Between begin and commit, the calls below are parts of one transaction, which is durable when
 * commit has returned 0. After a fault of a call or of the commit: call rollback or nothing, and
 * repeat the calls singly. */
int store_begin(struct store *s, struct error *err);
int store_commit(struct store *s, struct error *err); /* after a fault all is undone */
void store_rollback(struct store *s);

/* Thorough check, for quiet moments: pages, indexes, schema and each row's checksum. ERROR_STORE:
 * the file is damaged, and store_damaged is true from then on. ERROR_CANCELLED: store_interrupt. */
int store_check(struct store *s, int64_t *bad_rows, struct error *err);
/* From any thread: makes the running call end soon, with ERROR_CANCELLED. */
void store_interrupt(struct store *s);
/* True after a call met a damaged page. store_repair then does the same as store_open with a
 * damaged file. After a fault of store_repair each call fails (ERROR_STORE), and the repair may be
 * repeated. */
bool store_damaged(const struct store *s);
int store_repair(struct store *s, struct error *err);
/* Moves the rows in a WAL that has grown into the file itself. Call in a quiet moment. */
int store_tidy(struct store *s, struct error *err);
/* Probes whether the file can be written, by a write without effect. ERROR_DISK_FULL, ERROR_BUSY,
 * ERROR_STORE. */
int store_probe(struct store *s, struct error *err);

/* Reads the newest best of each key, the newest of all first. begin compares the rows and the index
 * of each key (load.c): ERROR_STORE with store_damaged when they disagree. page returns at most max
 * bests; *n 0: the end. find returns the best of a key (its id), in any order: 0 or STORE_MISS. A
 * key whose newest row is corrupt is skipped, or missing. Rows written after begin are left out. */
struct store_load;
int store_load_begin(struct store *s, struct store_load **out, struct error *err);
int store_load_page(struct store_load *l, struct best *out, uint32_t max, uint32_t *n,
                    struct error *err);
int store_load_find(struct store_load *l, const char *key, struct best *out, struct error *err);
struct store_load *store_load_end(struct store_load *l); /* accepts NULL; returns NULL */

int store_add_run(struct store *s, struct run *r, struct error *err); /* sets r->id */
int store_end_run(struct store *s, const struct run *r, struct error *err);
int store_add_trial(struct store *s, struct trial *t, struct error *err); /* sets t->id */
/* STORE_THERE: the key has a client's trial of this config that did not crash or hang. */
int store_add_trial_once(struct store *s, struct trial *t, struct error *err);
/* When the row exists already, add_module sets the row's used_s, and add_quarantine adds q->deaths
 * to the row's. */
int store_add_module(struct store *s, const struct module *m, struct error *err);
int store_add_quarantine(struct store *s, struct quarantine *q, struct error *err);
int store_add_event(struct store *s, struct event *e, struct error *err);
/* Adds answers in a transaction. `rows` is an array of maps of struct served_row. Adds each to the
 * row of the same uid, job, key, tier and config, if there is one. Every 64th new row deletes rows
 * whose last answer is older than STORE_SERVED_DAYS, and the oldest rows beyond the limits: of the
 * row's user, and of all users (STORE_SERVED_MAX). */
int store_add_served(struct store *s, const struct wire_obj *rows, struct error *err);
int store_put_device(struct store *s, const struct device_info *d, struct error *err);

/* A transaction that gives b->generation the next number and appends the row; durable on return (or
 * with the commit of the group). Sets b->trial to the newest good trial of that key, config and
 * stamp (kernel version), or 0. An imported row keeps its trial, if the store has it. After a fault
 * b->generation is 0. store_publish_again writes a row that the file has lost, with its old
 * generation, over a bad row of that generation if there is one. STORE_THERE: the file has the row.
 * ERROR_CONFLICT: another key has that generation. */
int store_publish(struct store *s, struct best *b, struct error *err);
int store_publish_again(struct store *s, struct best *b, struct error *err);
/* store_publish for a row that may come too late. On entry b->generation is the newest row of the
 * key that the caller knew (0: no row). ERROR_CONFLICT: store_overtaken; nothing is written, also
 * while the file is locked, since the file can be read. STORE_THERE: an imported row repeats the
 * key's newest row and is not written; *b becomes the newest row. A key keeps the last
 * STORE_IMPORTED_PER_KEY imported rows. A row of source `fleet`: store_fleet_confirm (fleet.h). */
int store_offer(struct store *s, struct best *b, struct error *err);
/* Decides whether b may replace `now`, the newest row of b's key (NULL: no row), when `now` came
 * after `known`: 0, or ERROR_CONFLICT. For an op with kernels (b->family):
 *   - A pin (manual) stays.
 *   - A tuned row stays when b is imported, trusted, partial, or verified with wider tolerances.
 *   - An imported b replaces only an imported row of the same user.
 *   - A manual b with `known` above 0 was verified again: the key must still be pinned to b.
 *     With `known` 0 the pin is new and never late. */
int store_overtaken(const struct best *now, const struct best *b, int64_t known, struct error *err);
/* These set the error message of a conflict and return ERROR_CONFLICT. */
int store_outranked(const char *key, struct error *err);
int store_belongs_to_another(const char *key, struct error *err);

/* Trials of a key with this stamp (kernel version), oldest first; malloc'ed array. Only trials
 * whose config would end in the same way again: of status ok, aborted, invalid, compile, resource,
 * wrong_result. store_avoid gives the variants that hung or crashed, until they leave
 * quarantine. */
int store_trials_of(struct store *s, const char *key, const char *stamp, struct trial **out,
                    uint32_t *n, struct error *err);
/* Reads the variants in quarantine on this device class and driver. */
int store_avoid(struct store *s, const char *class_, const char *driver, char (**out)[HASH_HEX],
                uint32_t *n, struct error *err);

/* Reads the ids of the modules that the newest bests of all keys name. */
int store_modules_of_bests(struct store *s, char (**out)[HASH_HEX], uint32_t *n, struct error *err);

/* ---- other gemmds of the file (owner.c, change.c) -------------------------------------------- */

enum { STORE_OWNER_MAX = 64 };
/* Names this process in leases and changes: "<pid>.<start time>.<pid namespace>.lock". */
void store_owner(char out[STORE_OWNER_MAX]);
/* True when /proc shows that the owner's process has ended. */
bool store_owner_is_lost(const char *owner);

/* A change by another gemmd. `name` by kind: "best" a key with another newest row, or without rows;
 * "evicted" a key whose rows were evicted; "quarantine" a variant; "lease" a key that was given
 * back ("": several); "daemon" the owner of a new daemon; "wanted" a device class. Of the fleet:
 * "asked" a key; "refused" a key; "stamps" a device class; "fleet" the last number that was read,
 * or "" (gemmd-fleet came or went). */
struct store_change {
    char kind[16], name[256];
};
/* Sets *seq to the number of the last change in the file. */
int store_changes_begin(struct store *s, int64_t *seq, struct error *err);
/* Changes of other gemmds after *after, at most max. *after becomes the last change that was
 * read; *n 0 and status 0: the end. STORE_MISSED: some changes are deleted already: read all
 * bests again. */
enum { STORE_MISSED = 4 };
int store_changes(struct store *s, int64_t *after, struct store_change *out, uint32_t max,
                  uint32_t *n, struct error *err);
/* Returns STORE_THERE when a change after number `seq` names the key, else 0. */
int store_changed_since(struct store *s, const char *key, int64_t seq, struct error *err);
/* Reads the newest best of a key: 0, or STORE_MISS. */
int store_best_of(struct store *s, const char *key, struct best *out, struct error *err);

/* Leases: a key has a single holder among the gemmds of a file. A lease ends after ttl_ms, or when
 * its owner has ended (known at once for processes of this host and container). The owner renews a
 * lease by a new store_lease. STORE_HELD: another gemmd holds the key. */
enum { STORE_HELD = 2 };
int store_lease(struct store *s, const char *key, int64_t ttl_ms, struct error *err);
int store_unlease(struct store *s, const char *key, struct error *err);
/* Leases a key for a search whose result the fleet may have, or give to other hosts (fleet.h). It
 * costs nothing more than store_lease while no gemmd-fleet is attached. */
enum { STORE_ASKED = 5, STORE_ALONE = 6 };
struct store_share {
    const char *key; /* all pointers are borrowed */
    int64_t ttl_ms;
    const char *class, *stamp; /* device class of the key, and stamp of the kernels */
    int64_t fleet_ms;          /* time to wait for the fleet's answer; 0: the fleet is not asked */
    bool only_ask;             /* ask the fleet, or do nothing: the key is not leased */
};
#define STORE_FLEET_KEY "fleet" /* key of the lease that stands for gemmd-fleet */
/* 0: leased. STORE_HELD: another gemmd holds the key, or another host, or the fleet has not
 * answered yet. STORE_ASKED: the same, and this call has asked the fleet. STORE_ALONE: leased,
 * since the fleet has not answered in time. */
int store_lease_shared(struct store *s, const struct store_share *w, struct error *err);
/* drop_gone deletes the rows of owners that have ended; leave deletes the rows of this owner, and
 * its questions to the fleet. */
int store_drop_gone(struct store *s, struct error *err);
int store_leave(struct store *s, struct error *err);
/* join registers this process as a daemon of the file; store_daemons counts the registered
 * daemons. */
int store_join(struct store *s, struct error *err);
/* Tells gemmd-fleet the device class of this daemon, and the stamps of its kernels, each on a
 * line. */
int store_announce(struct store *s, const char *class, const char *stamps, struct error *err);
int store_daemons(struct store *s, int64_t *n, struct error *err);

/* A search that waits at a daemon, and that a daemon with another device of the class may carry
 * out. */
struct store_wanted {
    const char *key, *class; /* all pointers are borrowed */
    int64_t uid;
    const void *search; /* the search's packed request */
    size_t n;
};
int store_want(struct store *s, const struct store_wanted *w, struct error *err);
int store_unwant(struct store *s, const char *key, struct error *err);
/* Finds the oldest search that another gemmd offers, whose key is not leased, and whose rank is
 * above *rank (0: any rank). Appends the search to *search and sets *rank. STORE_MISS: there is
 * none. */
int store_next_wanted(struct store *s, const char *class, int64_t *rank, int64_t *uid,
                      struct wire_buf *search, struct error *err);

/*
 * Listing, for people. `what`: best | history | trials | modules | quarantine | runs | devices |
 * events | jobs | served | portfolio | fleet | fleet_rows. `filter` holds column = value (text:
 * substring when it begins with '~'), plus "sort" (column, '-' in front: descending), "limit",
 * "offset", "after", "columns" (to return). "config.<name>" and "problem.<name>" reach into those
 * columns. Appends a MessagePack array of maps, at most PAGE_ROWS_MAX rows and max_bytes bytes;
 * *total: rows that match, and with "after" at most offset + PAGE_ROWS_MAX + 1 of them.
 * ERROR_UNKNOWN_FIELD names the columns. ERROR_DEADLINE: not done within STORE_LIST_MS.
 * ERROR_CANCELLED: store_interrupt. docs/store.md, "Listing", has the computed columns.
 */
enum { STORE_LIST_MS = 20000 };
int store_list(struct store *s, const char *what, const struct record *filter, size_t max_bytes,
               struct wire_buf *out, int64_t *total, struct error *err);

/* evict deletes all bests and trials of a key; unquarantine deletes the quarantine's rows of a
 * variant. *n (may be NULL): number of deleted rows. */
int store_evict(struct store *s, const char *key, int64_t *n, struct error *err);
int store_unquarantine(struct store *s, const char *variant, int64_t *n, struct error *err);
/* Removes a pin: the newest best of the key that is not `manual` is written again with a new
 * generation. STORE_MISS: there is no such best; the pin is deleted, and no row serves the key.
 * ERROR_NOT_FOUND: the current row is not `manual`, or missing. */
int store_unpin(struct store *s, const char *key, struct best *now, struct error *err);

/* Writes a complete copy as a single file, synced; ERROR_INVALID when path exists. */
int store_backup(struct store *s, const char *path, struct error *err);
/* Restores a backup: puts a copy of the database `from` in the place of `path`, which no process
 * may have open (ERROR_BUSY). Keeps the replaced file, with its log, under the name that `aside`
 * gets;
 * "": no file was there. ERROR_STORE: `from` is no database of gemmd's, is of a newer schema, or is
 * damaged; after a fault before the renames the database is unchanged. */
int store_replace(const char *path, const char *from, unsigned flags, char aside[PATH_MAX],
                  struct error *err);
/* Copies the database to <path>.snapshot, for rebuilds. Does nothing while the last snapshot is
 * younger than age_s, or when the database was not written since. */
int store_snapshot(struct store *s, int64_t age_s, struct error *err);

struct store_stats {
    int64_t bests, trials, modules, quarantined, generation, daemons, file_bytes, wal_bytes;
};
int store_stats(struct store *s, struct store_stats *out, struct error *err);

#endif
