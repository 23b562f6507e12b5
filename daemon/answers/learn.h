/* SPDX-License-Identifier: Apache-2.0 */
/* Moves rows from the ledger to the hot cache, and back. */
#ifndef GEMMD_DAEMON_ANSWERS_LEARN_H
#define GEMMD_DAEMON_ANSWERS_LEARN_H

#include "daemon/daemon.h"

/* Learns a best that the ledger published or loaded. A best of this device class goes to the cache.
 * A best of a class that is alike becomes a hint (daemon.alike). */
void learn_best(struct daemon *d, const struct best *b, bool saved);

/* True when a row comes from a whole search. False when the key's known answer (`known`, or NULL)
 * was only verified again, with tighter tolerances. Uses scratch->hint. */
bool learned_is_search(struct daemon *d, const struct cache_entry *known, const struct best *b);

enum { UID_UNKNOWN = -1 };

/* Makes a database row from a cache entry. The row's trial and user (UID_UNKNOWN), and the module
 * of an imported row, stay empty: the cache does not keep them. Uses scratch->answer and other. */
int learned_row(struct daemon *d, const struct cache_entry *e, struct best *out, struct error *err);
/* After a change of the quarantine: ranks the key's row (its id) again. Uses scratch->answer and
 * other. */
void learned_judge(struct daemon *d, const char *key);
/* True when the key's answer is only in memory: `row`, the key's newest row in the database (NULL:
 * no row), is not the row of this answer. */
bool learned_only(const struct cache_entry *e, const struct best *row);

/* Reads all rows of a list of the ledger, page by page. The owner sets the members and keeps the
 * struct until `end`. */
struct learn_pages {
    struct daemon *daemon; /* borrowed */
    const char *what;      /* borrowed: the list */
    int64_t uid;           /* the user who asks for the list, or LEDGER_OURS */
    int64_t offset;        /* offset of the next page; 0 at the beginning */
    void (*filter)(struct learn_pages *x, struct record *filter);  /* fills all but `offset` */
    int (*row)(struct learn_pages *x, const struct wire_obj *row); /* an error ends reading */
    void (*end)(struct learn_pages *x, int status, const struct error *err); /* once; may free */
};
void learn_pages(struct learn_pages *x);

/* ---- quarantine.c ---------------------------------------------------------------------------- */

/*
 * Keeps the daemon's list of quarantined variants (cache/quarantine_set.h) equal to the ledger's.
 * The list is read at the start, before each search, and after changes by this or another daemon.
 */

/* Reads the list from the ledger, later replaces the daemon's list, and keeps unsaved entries. */
void quarantine_read(struct daemon *d);
/* Marks these variants as quarantined; the key where the fault happened is unknown. */
void quarantine_known(struct daemon *d, char (*variants)[HASH_HEX], uint32_t n);
/* Adds an entry here at once; other daemons see the entry when saved. */
void quarantine_add(struct daemon *d, const struct quarantine *q);
/* Removes a variant's entries. False: the variant was unknown here. */
bool quarantine_remove(struct daemon *d, const char *variant);

/* ---- restore.c ------------------------------------------------------------------------------- */

/*
 * Writes saved rows again that a damaged database has lost and the cache still holds. Each cache
 * entry becomes a row, which the ledger writes under its old number if that number is missing. The
 * row's trial and user are lost. Rows of other device classes are not in this cache.
 */

struct restore {
    struct daemon *daemon; /* borrowed */
    /* rows were lost: restore_begin follows when the file is read again, unless the file is intact
     */
    bool due;
    bool running;
    size_t at;       /* next slot of the cache to look at; after the last comes the first */
    unsigned flying; /* rows being written */
    size_t n;        /* rows written */
};

void restore_begin(struct restore *x);  /* checks and writes all rows */
void restore_finish(struct restore *x); /* writes the rest, before the ledger stops */

#endif
