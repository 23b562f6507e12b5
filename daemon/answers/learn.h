/* SPDX-License-Identifier: Apache-2.0 */
/* Copies rows from the ledger to the hot cache, and makes rows of the cache's entries. */
#ifndef GEMMD_DAEMON_ANSWERS_LEARN_H
#define GEMMD_DAEMON_ANSWERS_LEARN_H

#include "daemon/daemon.h"

/* Puts a best that the ledger published or loaded into memory: a best of this device class into the
 * cache, a best of an alike class as a hint into daemon.alike. */
void learn_best(struct daemon *d, const struct best *b, bool saved);

/* True when the row `b` comes from a search. False when a job has only verified the key's entry
 * (`known`, or NULL) again, under tighter tolerances. Uses scratch->hint. */
bool learned_is_search(struct daemon *d, const struct cache_entry *known, const struct best *b);

enum { UID_UNKNOWN = -1 };

/* Makes a database row from a cache entry. The row's trial and user (UID_UNKNOWN), and the module
 * of an imported row, stay empty: the cache does not keep them. Uses scratch->answer and other. */
int learned_row(struct daemon *d, const struct cache_entry *e, struct best *out, struct error *err);
/* After a change of the quarantine: ranks the key's row (its id) again. Uses scratch->answer and
 * other. */
void learned_judge(struct daemon *d, const char *key);
/* True when the entry's row is only in memory: the database's newest row of the key, `row` (NULL:
 * no row), is another row. */
bool learned_only(const struct cache_entry *e, const struct best *row);

/* Reads all rows of a list of the ledger, page by page. The owner sets the members and keeps the
 * struct until `end`. */
struct learn_pages {
    struct daemon *daemon; /* borrowed */
    const char *what;      /* borrowed: name of the list, as in ledger_list */
    int64_t uid;           /* the user who asks for the list, or LEDGER_OURS */
    int64_t offset;        /* offset of the next page; 0 at the beginning */
    /* sets the list's filter, except `offset` */
    void (*filter)(struct learn_pages *x, struct record *filter);
    /* gets each row; an error ends reading */
    int (*row)(struct learn_pages *x, const struct wire_obj *row);
    /* called once, at the end; may free x */
    void (*end)(struct learn_pages *x, int status, const struct error *err);
};
void learn_pages(struct learn_pages *x);

/* ---- quarantine.c ---------------------------------------------------------------------------- */

/*
 * Keeps the daemon's list of quarantined variants (cache/quarantine_set.h) equal to the ledger's.
 * The list is read at the start, before each search, and after changes by this or another daemon.
 */

/* Reads the list from the ledger. When it has arrived, it replaces the daemon's list, except
 * entries that are not saved yet. */
void quarantine_read(struct daemon *d);
/* Marks these variants as quarantined; the key where the fault happened is unknown. */
void quarantine_known(struct daemon *d, char (*variants)[HASH_HEX], uint32_t n);
/* Adds an entry to the daemon's list at once, and writes it to the ledger; other daemons read it
 * from there. */
void quarantine_add(struct daemon *d, const struct quarantine *q);
/* Removes a variant's entries from the daemon's list. False: it had none. */
bool quarantine_remove(struct daemon *d, const char *variant);

/* ---- restore.c ------------------------------------------------------------------------------- */

/*
 * Writes rows again that were saved, that a damaged or replaced database has lost, and that the
 * cache still holds. Each cache entry becomes a row, which the ledger writes under its old number
 * if that number is missing. The row's trial and user are lost. Rows of other device classes are
 * not restored, since the cache does not hold them.
 */

struct restore {
    struct daemon *daemon; /* borrowed */
    /* rows were lost: restore_begin is called when all bests of the file have been read again,
     * unless that shows that none are missing */
    bool due;
    bool running;
    size_t at;       /* next slot of the cache to look at; after the last comes the first */
    unsigned flying; /* rows that the ledger is writing */
    size_t n;        /* rows written so far */
};

void restore_begin(struct restore *x); /* begins to write all rows that were saved */
/* hands all rows that are left to the ledger, before the ledger stops */
void restore_finish(struct restore *x);

#endif
