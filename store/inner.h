/* SPDX-License-Identifier: Apache-2.0 */
/* The store from the inside: what its .c files share. */
#ifndef GEMMD_STORE_INNER_H
#define GEMMD_STORE_INNER_H

#include <limits.h>
#include <sys/stat.h>
#include <time.h>

#include "store/row.h"
#include "store/store.h"

enum {
    STORE_TRIALS_PER_KEY = 4096,
    STORE_EVENTS_MAX = 10000,
    /* After a rebuild generations go on this much higher: the lost rows' numbers are not known. */
    STORE_GENERATION_GAP = 1000,
};

struct store {
    struct db db;
    char *path; /* owned; absolute */
    unsigned flags;
    int lock_fd;    /* the commit lock's file; -1: read-only, or not open yet */
    unsigned locks; /* how often it was taken and not let go: above 0 it is held */
    struct {        /* its text (commit.c) */
        dev_t dev;
        ino_t ino;
        int64_t given;
        long pid;
        bool whole; /* the lines have their places */
    } noted;
    int64_t seen;    /* data_version when the numbers below were read; -1: never */
    int log_pages;   /* that the log has */
    unsigned opened; /* how often a file was opened */
    char owner[STORE_OWNER_MAX];
    int64_t trials_per_key_max;
    int patience_ms;       /* for other programs' locks */
    struct timespec stuck; /* the last commit when the lock was found to be stuck */
    void (*notice)(void *ctx, const char *kind, const char *text);
    void *ctx;
    struct stat file; /* that is open */
    struct stat log;  /* its log; st_ino 0: there is none */
    char boot[40];    /* this boot of the host: leases of another one are over */

    int64_t next_id[TABLES]; /* whoever has the lock counts by itself: ids are part of checksums */
    char counted_key[HASH_HEX]; /* retention: whose trials `counted` is, while above 0 */
    int64_t counted;
    struct row_scratch scratch;

    struct store_stats stats;       /* of the time when `stats_at` changes had been made */
    int64_t stats_at, stats_others; /* and data_version */

    struct { /* the last one that was listed, in temporary tables (portfolio.c) */
        bool made;
        double bound_percent;
        int64_t changes, version; /* of the database when it was made */
    } portfolio;
};

__attribute__((format(printf, 3, 4))) void store_notice(struct store *s, const char *kind,
                                                        const char *format, ...);
/* An index led to a row that it should not have led to, or to none: the file needs a repair. */
int store_index_damaged(struct store *s, struct error *err);

/* Opens and prepares the database of s->path; on ERROR_STORE s->db.damaged says whether a rebuild
 * can help. (attach.c) */
int store_attach(struct store *s, struct error *err);
int store_attach_again(struct store *s, struct error *err); /* on a fault it is closed */
void store_detach(struct store *s);
/* That the path leads to the file that is open, and to its log. One that was removed is put back,
 * unless a transaction is open. ERROR_STORE: another file has its place, or the faults of writing.
 * (restore.c) */
int store_in_place(struct store *s, struct error *err);
/* 1: its path is still its own, whose owner and mode are looked at again; 0: nobody's; -1:
 * another's. */
int store_is_named(struct store *s);

/* ---- rows (rows.c) --------------------------------------------------------------------------- */

/* Rows of a table: "SELECT ... FROM <from or table> <tail>". Bad ones are reported and skipped. */
struct rows {
    struct store *s;       /* borrowed */
    const struct table *t; /* borrowed */
    sqlite3_stmt *st;      /* borrowed from the cache */
};
int rows_begin(struct rows *r, struct store *s, enum table_id table, struct error *err,
               const char *from, const char *tail, const char *types, ...);
int rows_next(struct rows *r, void *object, struct error *err); /* 0 end, DB_ROW, fault */
void rows_end(struct rows *r);                                  /* may be called twice */
#define ROWS_AUTO __attribute__((cleanup(rows_end))) struct rows

/* The first good row: 0, STORE_MISS, fault. */
int rows_first(struct store *s, enum table_id table, void *object, struct error *err,
               const char *from, const char *tail, const char *types, ...);

/* Writes a row, its number set, with its checksum. */
int rows_put(struct store *s, enum table_id table, enum row_conflict conflict, const void *object,
             struct error *err);
/* Gives the object the next number of its table. */
void rows_number(struct store *s, enum table_id table, void *object);
/* Bests up to this generation have been given: new ones get higher numbers, also after the next
 * opening of the file, or of an older copy of it. */
void rows_given(struct store *s, int64_t generation);
/* Reports a row once, and leaves it out of listings from now on. */
int rows_bad(struct store *s, const struct table *t, int64_t rowid, struct error *err);
/* Looks at rows' checksums alone; adds to *bad how many are wrong, which are reported. */
int rows_check(struct store *s, enum table_id table, const char *from, const char *tail,
               int64_t *bad, struct error *err);

/* Numbers of a table go on above what the file has. */
int rows_number_on(struct store *s, enum table_id table, struct error *err);

/* ---- the commit lock (commit.c) -------------------------------------------------------------- */

/* May be nested. ERROR_BUSY: another gemmd holds it, and has not committed for two seconds. */
int commit_lock(struct store *s, struct error *err);
void commit_unlock(struct store *s);
/* In the lock file, for the other gemmds: the file at the path is the database; a generation was
 * given. Under the lock. */
void commit_note_file(struct store *s);
void commit_note_given(struct store *s, int64_t generation);
bool commit_is_noted(const struct store *s); /* the file at the path is the one that was noted */
void commit_attach(struct store *s);         /* of a file that was opened just now */
int commit_checkpoint(struct store *s, struct error *err);

/* Every write of rows begins and ends here, and may be nested: the outermost one holds the commit
 * lock, and looks whether the file is in its place (store_in_place), so that nothing is written
 * into what nobody can open any more. write_end: a status below 0 undoes what was written since;
 * returns the status, or the fault of the commit. */
int write_begin(struct store *s, struct error *err);
int write_end(struct store *s, int status, struct error *err);
/* In a transaction: a row of `change` (change.c). */
int change_add(struct store *s, const char *kind, const char *name, struct error *err);
/* The SQL functions of a file that was opened just now. (change.c) */
int change_attach(struct store *s, struct error *err);
/* A reference to a row that is not in the store (its writing failed, it was lost in a rebuild)
 * becomes 0. (write.c) */
int write_known_parent(struct store *s, enum table_id table, void *object, struct error *err);

/* ---- the log (log.c) ------------------------------------------------------------------------- */

/* Of a file that nobody has open: says when its log is damaged, which SQLite would pass over. */
void log_look(struct store *s);

/* ---- salvage (salvage.c) --------------------------------------------------------------------- */

/* Sets the (closed) file aside and puts a new one in its place, made of the rows that can be read.
 * `why` is told to people. On a fault the damaged file is where it was. */
int salvage_rebuild(struct store *s, const char *why, struct error *err);
/* Copies <path><part> beside what is set aside; its name in `aside`. */
int salvage_copy_aside(const char *path, const char *part, char aside[PATH_MAX]);
/* Ends a rebuild that was interrupted at its last steps, removes what an earlier crash left. */
int salvage_resume(const char *path, struct error *err);

#endif
