/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the .c files of the store share. */
#ifndef GEMMD_STORE_INNER_H
#define GEMMD_STORE_INNER_H

#include <limits.h>
#include <sys/stat.h>
#include <time.h>

#include "proto/schema.h"
#include "store/db.h"
#include "store/store.h"

/* ---- the form of a row (row.c) --------------------------------------------------------------- */

/*
 * Conversion of rows between the structs of proto/message.h and SQL columns. The same code serves
 * all tables; a `struct table` describes each. Column names are field names; row_column has the
 * exception.
 *
 * A cell is a single value on the way between struct and column. The checksum covers cells before a
 * row is written and after a row is read, so the checksum shows a bit that flips in between.
 */

struct table {
    const char *name;
    const struct schema *schema;
    const char *rowid; /* the column with the number of a row; "rowid" when no field has it */
    /* a field with the id of a row in the table of the same name; NULL: no such field */
    const char *parent;
    bool keyed; /* rows are found by `key`; a row with a malformed key is bad */
};

enum table_id {
    TABLE_DEVICE,
    TABLE_RUN,
    TABLE_TRIAL,
    TABLE_MODULE,
    TABLE_BEST,
    TABLE_QUARANTINE,
    TABLE_EVENT,
    TABLE_SERVED,
    TABLES
};
/* a table comes before the tables whose rows refer to it */
extern const struct table tables[TABLES];

/* Returns a field's name in SQL: the same name, but "cuda_index" for the field "index". */
const char *row_column(const struct schema_field *f);
/* Returns the object's integer field of this name. The table must have such a field. */
int64_t *row_int(const struct table *t, const char *name, void *object);

/* What an insert of an existing row does: fail, or replace the row. ROW_UPDATE is not SQL's
 * REPLACE, which would delete a row that other rows refer to, and search for all of them. */
enum row_conflict { ROW_FAIL, ROW_UPDATE };

enum { ROW_SQL_MAX = 2560 };
/* Build "INSERT INTO t(...) VALUES (?, ...) ..." (ROW_UPDATE: returns the row's number) and "SELECT
 * <columns>, checksum, <rowid> FROM <from or t> " of a table. */
void row_insert_sql(const struct table *t, enum row_conflict conflict, char out[ROW_SQL_MAX]);
void row_select_sql(const struct table *t, const char *from, char out[ROW_SQL_MAX]);

/* Buffers that the conversion of a row needs, reused for the next row. */
struct row_scratch {
    char *text; /* owned */
    size_t cap;
    struct wire_buf packed;
};
void row_scratch_deinit(struct row_scratch *x); /* may be called twice */

/* JSON text of a record, in the scratch; NULL: no memory. */
const char *row_json(struct row_scratch *x, const struct record *r);

/* Binds all fields of the object, and the checksum last, to a statement of row_insert_sql. */
int row_bind(struct db *db, sqlite3_stmt *st, const struct table *t, const void *object,
             struct row_scratch *x, struct error *err);

enum { ROW_BAD = 1 }; /* the row's checksum, key, or a value is wrong */
/* Checks the current row of a row_select_sql statement against its checksum: 0, ROW_BAD, or a
 * fault. */
int row_check(struct db *db, sqlite3_stmt *st, const struct table *t, struct row_scratch *x,
              struct error *err);
/* As row_check; a good row fills the object. The struct need not be zeroed: text, lists and records
 * are filled only as far as they are used. */
int row_read(struct db *db, sqlite3_stmt *st, const struct table *t, void *object,
             struct row_scratch *x, struct error *err);
/* Appends column `i` of the row as MessagePack: JSON columns as maps and arrays. `f` NULL: a
 * computed column. Returns 0 or ROW_BAD. */
int row_put_wire(sqlite3_stmt *st, int i, const struct schema_field *f, struct wire_buf *b);

/* ---- the store ------------------------------------------------------------------------------- */

enum {
    STORE_TRIALS_PER_KEY = 4096,
    STORE_EVENTS_MAX = 10000,
    STORE_SERVED_DAYS = 30,
    STORE_SERVED_MAX = 16384, /* rows of `served`; a quarter of them for one user */
    /* After a rebuild generations go on above a gap of this size: lost rows may have had higher
     * numbers than the rows that were found. */
    STORE_GENERATION_GAP = 1000,
    STORE_OWNERS_SEEN = 6, /* few: daemon/start.c reserves 40 files, for these too */
};

/* A process that owned a row when the store looked (owner.c). */
struct owner_seen {
    char name[STORE_OWNER_MAX]; /* "": a free place */
    int fd;                     /* pidfd */
};

struct store {
    struct db db;
    char *path; /* owned; absolute */
    unsigned flags;
    /* descriptor of the commit lock's file; -1: the store is read-only, or not open yet */
    int lock_fd;
    unsigned locks; /* nesting depth of the commit lock; above 0: held */
    struct {        /* the lock file's text as last read or written (commit.c) */
        dev_t dev;
        ino_t ino;
        int64_t given;
        long pid;
        bool whole; /* each line of the text has its fixed length */
    } noted;
    int64_t seen;    /* SQLite's data_version when next_id was read; -1: read next_id again */
    int log_pages;   /* pages of the log after the last commit */
    unsigned opened; /* how often this store has opened a file */
    char owner[STORE_OWNER_MAX];
    int64_t trials_per_key_max;
    int patience_ms; /* how long calls wait for locks of other programs */
    /* time of the last commit of all gemmds, noted when the lock's holder was found stuck */
    int64_t stuck_ns;
    void (*notice)(void *ctx, const char *kind, const char *text);
    void *ctx;
    struct stat file; /* the open file, as stat(2) shows it */
    struct stat log;  /* the open file's log likewise; st_ino 0: there is no log */
    char boot[40];    /* this boot of the host: leases of other boots are over */
    /* owners of rows; next_owner counts how often one took the place of another that lives */
    struct owner_seen seen_owners[STORE_OWNERS_SEEN];
    unsigned next_owner;

    int64_t next_id[TABLES]; /* next id of each table; checksums include ids */
    struct row_scratch scratch;

    /* counted when SQLite's total_changes was stats_at and data_version stats_others; a change of
     * either: count again */
    struct store_stats stats;
    int64_t stats_at, stats_others;

    /* the portfolio that was listed last; its rows are in temporary tables (portfolio.c) */
    struct {
        bool made;
        double bound_percent;
        /* SQLite's total_changes and data_version when the portfolio was made */
        int64_t changes, version;
    } portfolio;
};

__attribute__((format(printf, 3, 4))) void store_notice(struct store *s, const char *kind,
                                                        const char *format, ...);
int64_t store_read_clock(clockid_t clock); /* milliseconds */
/* Reports an index that does not fit the rows of its table: the file needs a repair. */
int store_index_damaged(struct store *s, struct error *err);

/* Opens and prepares the database of s->path. After ERROR_STORE s->db.damaged says whether a
 * rebuild can help. (attach.c) */
int store_attach(struct store *s, struct error *err);
int store_attach_again(struct store *s, struct error *err); /* after a fault the store is closed */
void store_detach(struct store *s);
/* Checks that s->path still leads to the open file, and to its log. Puts a removed file back,
 * or opens another gemmd's file, unless a transaction is open. ERROR_STORE: neither helps; or a
 * fault of writing. (restore.c) */
int store_in_place(struct store *s, struct error *err);
/* 1: the path leads to the open file, and owner and mode are read again; 0: no file has the name;
 * -1: another file has the name. */
int store_is_named(struct store *s);

/* ---- rows (rows.c) --------------------------------------------------------------------------- */

/* Rows of a table: "SELECT ... FROM <from or table> <tail>". Bad rows are reported and skipped. */
struct rows {
    struct store *s;       /* borrowed */
    const struct table *t; /* borrowed */
    sqlite3_stmt *st;      /* borrowed from the cache */
};
int rows_begin(struct rows *r, struct store *s, enum table_id table, struct error *err,
               const char *from, const char *tail, const char *types, ...);
int rows_next(struct rows *r, void *object, struct error *err); /* 0: no more rows; DB_ROW; fault */
void rows_end(struct rows *r);                                  /* may be called twice */
#define ROWS_AUTO __attribute__((cleanup(rows_end))) struct rows

/* Reads the first row that is not bad: 0, STORE_MISS, or a fault. */
int rows_first(struct store *s, enum table_id table, void *object, struct error *err,
               const char *from, const char *tail, const char *types, ...);

/* Reads at most max rows that are not bad into the array `out` of the table's structs; *n: their
 * number, also after a fault. `number`: ?1 in `tail`. */
int rows_page(struct store *s, enum table_id table, void *out, uint32_t max, uint32_t *n,
              struct error *err, const char *from, const char *tail, int64_t number);

/* Writes a row that has its number (rows_number), and its checksum. */
int rows_put(struct store *s, enum table_id table, enum row_conflict conflict, const void *object,
             struct error *err);
void rows_number(struct store *s, enum table_id table, void *object);
/* Notes that generations up to this number were given to rows. New bests get higher numbers, also
 * after the file, or an older copy of the file, is opened again. */
void rows_given(struct store *s, int64_t generation);
/* Reports a bad row once; listings leave the row out from now on. */
int rows_bad(struct store *s, const struct table *t, int64_t rowid, struct error *err);
/* Compares rows with their checksums. Reports bad rows, and adds the number of bad rows to *bad. */
int rows_check(struct store *s, enum table_id table, const char *from, const char *tail,
               int64_t *bad, struct error *err);

/* Sets the table's next row number above the highest number that the file has had. */
int rows_number_on(struct store *s, enum table_id table, struct error *err);

/* ---- the commit lock (commit.c) -------------------------------------------------------------- */

/* May be nested. ERROR_BUSY: another gemmd holds the lock and has not committed for two seconds. */
int commit_lock(struct store *s, struct error *err);
/* True when a newer gemmd has migrated the file: this one may neither write nor rebuild it. */
bool commit_met_newer(struct store *s, struct error *err);
void commit_unlock(struct store *s);
/* Writes into the lock file that the file at the path is the database. The caller holds the
 * lock. */
void commit_note_file(struct store *s);
/* true when the lock file names the file at the path */
bool commit_is_noted(const struct store *s);
void commit_attach(struct store *s); /* call after each opening of a file */
int commit_checkpoint(struct store *s, struct error *err);

/* Each write of rows stands between write_begin and write_end; the calls may be nested. The
 * outermost pair holds the commit lock and checks that the file is in place (store_in_place): a
 * file without a name would lose the rows. write_end undoes the transaction when status is below 0.
 * Returns status, or the fault of the commit. */
int write_begin(struct store *s, struct error *err);
int write_end(struct store *s, int status, struct error *err);
/* Adds a row of `change`, in a transaction (change.c). */
int change_add(struct store *s, const char *kind, const char *name, struct error *err);
/* True for the reason of a row of `quarantine` that came from the fleet (fleet_quarantine.c). */
#define FLEET_REASON "fleet: "
bool fleet_is_reason(const char *reason);
/* Runs one or two DELETE statements with ?1 `name` and ?2 this owner (`types`: db_query), in a
 * transaction. When they delete rows and `kind` is not NULL, adds a row of `change`. *n (may be
 * NULL): deleted rows. (write.c) */
int write_delete(struct store *s, const char *const sql[2], const char *types, const char *name,
                 const char *kind, int64_t *n, struct error *err);
/* The SQL function is_gone(owner, boot): true when the owner of a row of `lease` or `wanted` has
 * ended, or the host was booted since (owner.c). */
/* Locks the byte of s->owner in the lock file: the kernel frees it when this process ends. */
void owner_lock_byte(const struct store *s);
void owner_is_gone(sqlite3_context *ctx, int n, sqlite3_value **args);
/* Closes the descriptors of all owners that were seen. */
void owners_forget(struct store *s);
/* Registers the SQL functions, after each opening of a file (change.c). */
int change_attach(struct store *s, struct error *err);
/* Sets the object's reference to its parent row (table.parent) to 0 when the store lacks that row:
 * the row was not written, or was lost in a rebuild. (write.c) */
int write_known_parent(struct store *s, enum table_id table, void *object, struct error *err);
/* Sets b->trial to a trial of this key and config with the same time, else to the newest; 0: there
 * is none. An imported row keeps its trial, if the store has it. (write.c) */
int write_find_trial(struct store *s, struct best *b, struct error *err);

/* ---- the log (log.c) ------------------------------------------------------------------------- */

/* Checks the log of a file that no process has open. Reports damage in the middle of the log, which
 * SQLite would take for its end. */
void log_look(struct store *s);
/* Makes a file that was cut to 0 bytes a damaged one, and says so; leaves other files as they are.
 */
void log_look_at_nothing(struct store *s);

/* ---- the list portfolio (portfolio.c) -------------------------------------------------------- */

/* Makes the temporary table `portfolio` anew when the database has changed since the last call, or
 * the filter has another `bound` (percent, default 5). The table is kept for the next page. */
int portfolio_refresh(struct store *s, const struct record *filter, struct error *err);

/* ---- salvage (salvage.c) --------------------------------------------------------------------- */

/* Sets the (closed) file aside and makes a new file of all readable rows. The notice quotes `why`.
 * After a fault the damaged file is in its old place. */
int salvage_rebuild(struct store *s, const char *why, struct error *err);
/* Copies <path><part> to a name beside the files that were set aside; returns the name in
 * `aside`. */
int salvage_copy_aside(const char *path, const char *part, char aside[PATH_MAX]);
/* Finishes a rebuild that was interrupted at its last steps; removes leftovers of an earlier
 * crash. */
int salvage_resume(const char *path, struct error *err);

/* ---- mend.c ---------------------------------------------------------------------------------- */

/* Copies the damaged file `path` and its log to <path>.mended and <path>.mended-wal. In the copy, a
 * new file's header and schema replace the damaged header and schema, so that SQLite finds the
 * tables. The damaged file stays as it is. Call mend_remove at the end, also after a fault. */
int mend_make(const char *path, struct error *err);
void mend_remove(const char *path);

#endif
