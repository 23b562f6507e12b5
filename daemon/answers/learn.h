/* SPDX-License-Identifier: Apache-2.0 */
/* From the ledger's rows to the hot cache, and back. */
#ifndef GEMMD_DAEMON_ANSWERS_LEARN_H
#define GEMMD_DAEMON_ANSWERS_LEARN_H

#include "daemon/daemon.h"

/* A best that the ledger has published, or had: into the cache when it is this class's, and then
 * daemon.learned is told; among the hints (daemon.alike) when it is of a class that is alike. */
void learn_best(struct daemon *d, const struct best *b, bool saved);

/* Whether a row is what a whole search found, and not just the key's known answer (its entry, or
 * NULL) verified again, more tightly. Uses scratch->hint. */
bool learned_is_search(struct daemon *d, const struct cache_entry *known, const struct best *b);

enum { UID_UNKNOWN = -1 };

/* The row that an answer of the cache was made of, but for what is not known any more: its trial,
 * who asked for it (UID_UNKNOWN), the module of what was imported. Uses scratch->answer and
 * other. */
int learned_row(struct daemon *d, const struct cache_entry *e, struct best *out, struct error *err);
/* Whether a key's row (its id) serves by what is in quarantine now. Uses scratch->answer and
 * other. */
void learned_judge(struct daemon *d, const char *key);
/* Whether the key's answer is only in memory; then the newest row of the database, `row` (NULL:
 * there is none), is another. */
bool learned_only(const struct cache_entry *e, const struct best *row);

/* ---- quarantine.c ---------------------------------------------------------------------------- */

/*
 * Keeps the daemon's list of what is in quarantine (cache/quarantine_set.h) as the ledger has it:
 * read at the start, before each search, and when it was changed here or by another daemon of the
 * database.
 */

/* Asks the ledger; what it says comes later, and is the list then, with what is not saved yet. */
void quarantine_read(struct daemon *d);
/* These are, wherever that happened. */
void quarantine_known(struct daemon *d, char (*variants)[HASH_HEX], uint32_t n);
/* Here at once; at other daemons of the database when it is saved. */
void quarantine_add(struct daemon *d, const struct quarantine *q);
/* Whatever device it was of. False: it was not known here. */
bool quarantine_remove(struct daemon *d, const char *variant);

/* ---- restore.c ------------------------------------------------------------------------------- */

/*
 * What the database has lost, by damage, and the cache still holds is written again: it was told as
 * saved. Of each answer a row is made, which the ledger writes under its old number if that is not
 * there; the trial that measured it, and who asked for it, are not known any more. Rows of other
 * classes of devices are not in this cache.
 */

struct restore {
    struct daemon *daemon; /* borrowed */
    bool due; /* the file has lost rows; it is read anew before they are written again */
    bool running;
    size_t at;       /* slot of the cache that comes next; all are looked at, round and round */
    unsigned flying; /* rows on their way to the ledger */
    size_t n;        /* written so far */
};

void restore_init(struct restore *x, struct daemon *d);
void restore_await(struct restore *x);  /* the file has lost rows, and is read anew first */
void restore_drop(struct restore *x);   /* the file is believed */
void restore_begin(struct restore *x);  /* the file may have lost rows */
void restore_finish(struct restore *x); /* before the ledger is stopped: all that is left */

#endif
