/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SQLite connection. Prepared statements are cached by their text, transactions nest, and each
 * SQLite result code becomes an ERROR_* code with an error message that names the file.
 *
 * The cache owns the statements of db_query. Declare them DB_STMT_AUTO, so that the end of the
 * function resets them: an open statement holds a read transaction, and the WAL cannot be reset.
 */
#ifndef GEMMD_STORE_DB_H
#define GEMMD_STORE_DB_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <sqlite3.h>

#include "proto/error.h"

struct db_cached {
    char *sql;        /* owned */
    sqlite3_stmt *st; /* owned */
};

struct db {
    sqlite3 *h;   /* owned; NULL: closed */
    char *path;   /* owned */
    bool damaged; /* SQLite met a damaged page (SQLITE_CORRUPT, SQLITE_NOTADB) */
    /* number of open transactions, each inside the one before: a transaction, then savepoints */
    unsigned depth;
    bool spoilt; /* an inner transaction could not be undone: the outermost must not commit */
    size_t n_cached;
    struct db_cached *cached; /* owned */
};

enum {
    DB_ROW = 1,
    /* wait for a lock of another program: a person's sqlite3 shell locks the file for a moment (it
     * makes a checkpoint when it exits) */
    DB_PATIENCE_MS = 5000,
};

/* flags: as in sqlite3_open_v2. The caller then runs the PRAGMAs of docs/store.md. */
int db_open(struct db *db, const char *path, int flags, struct error *err);
void db_close(struct db *db); /* may be called twice, and on a zeroed struct */

/* Returns the ERROR_* code of a SQLite result code; err gets an error message. */
int db_fail(struct db *db, int rc, struct error *err);

int db_exec(struct db *db, const char *sql, struct error *err); /* one or more statements */
/* Reads the first column of the first row; 0 without a row. */
int db_int(struct db *db, const char *sql, int64_t *out, struct error *err);

/* Gets a cached statement and binds its parameters. `types` has a letter for each parameter: t
 * const char * (NULL: SQL NULL), i int64_t, r double. */
int db_query(struct db *db, sqlite3_stmt **out, struct error *err, const char *sql,
             const char *types, ...);
int db_vquery(struct db *db, sqlite3_stmt **out, struct error *err, const char *sql,
              const char *types, va_list args);
/* 0: no more rows; DB_ROW; fault */
int db_step(struct db *db, sqlite3_stmt *st, struct error *err);
/* db_query, and the db_step to the first row. */
int db_first(struct db *db, sqlite3_stmt **out, struct error *err, const char *sql,
             const char *types, ...);
/* db_first for a query of which only this counts: has it a row (DB_ROW) or not (0)? */
int db_has(struct db *db, struct error *err, const char *sql, const char *types, ...);
/* db_first for statements that return no rows; *changes (may be NULL): rows changed. */
int db_run(struct db *db, int64_t *changes, struct error *err, const char *sql, const char *types,
           ...);

/* Copies a text of the statement's current row; NULL becomes "". */
void db_copy_text(sqlite3_stmt *st, int column, char *out, size_t size);
#define DB_COPY(to, st, column) db_copy_text((st), (column), (to), sizeof(to))

void db_stmt_done(sqlite3_stmt **st);
#define DB_STMT_AUTO __attribute__((cleanup(db_stmt_done))) sqlite3_stmt
/* ends a statement that was prepared without the cache */
void db_stmt_finalize(sqlite3_stmt **st);
#define DB_ONCE_AUTO __attribute__((cleanup(db_stmt_finalize))) sqlite3_stmt

/* The outermost db_begin takes the write lock; inner transactions are savepoints. db_end commits
 * when status >= 0, else undoes, and returns status. When the commit fails, all is undone and
 * db_end returns the fault. */
int db_begin(struct db *db, struct error *err);
int db_end(struct db *db, int status, struct error *err);

/* ---- version.c ------------------------------------------------------------------------------ */

/* Schema versions of the file, and the migration from each version to the next (docs/store.md). */

enum { VERSION_APPLICATION_ID = 0x67656d6d }; /* "gemm", in the file's header */

/* version_steps[v] has the statements that migrate version v to v + 1; NULL at the end. */
extern const char *const *const version_steps[];

enum version_state { VERSION_CURRENT = 0, VERSION_EMPTY = 1, VERSION_OLD = 2 };

/* Judges a file by its application id and `user_version`; `empty`: the file has no tables.
 * ERROR_STORE: a newer gemmd, or another program, wrote the file. */
int version_judge(const char *path, int64_t id, int64_t version, bool empty, struct error *err);
/* version_judge for the open file; *version becomes its schema version. */
int version_of(struct db *db, int64_t *version, struct error *err);
/* Migrates from `version` to STORE_SCHEMA_VERSION, each step in a transaction. Writes
 * "<path>.v<version>.bak" first when the file is not empty. */
int version_migrate(struct db *db, int64_t version, bool empty, struct error *err);
/* Writes a complete copy as a single file and syncs the copy. The copy gets the owner and mode of
 * `like`. `path` must not exist. */
int version_copy_to(struct db *db, const char *path, const struct stat *like, struct error *err);

/* ---- place.c -------------------------------------------------------------------------------- */

/* Where a database may live: its real path, and the kind of file system. */

/* Resolves `path` to an absolute path without symbolic links: two names of a file must not get two
 * locks. *out is malloc'ed. ERROR_STORE: the folder is missing or no folder; the path is no plain
 * file; or another user can change the folder, the file, or the files that SQLite opens beside the
 * file (proto/trust.h). */
int place_resolve(const char *path, char **out, struct error *err);

/* Makes a missing file, closed to group and others. SQLite gives the mode of the database to the
 * files beside the database. */
void place_create(const char *path);

/* Takes the rights of group and others away from a database and the files that SQLite opens beside
 * it: a user with the right to read these files can lock them. */
void place_close_to_others(const char *path);

enum { PLACE_LOCKER_MAX = 64 };
/* Finds the process that locks the database in the kernel's list of locks, never this process: "pid
 * 12 (sqlite3)". false: no process found. */
bool place_locker(const char *path, char out[PLACE_LOCKER_MAX]);
void place_name_process(long pid, char out[PLACE_LOCKER_MAX]); /* "pid 12 (sqlite3)" */

/* ERROR_STORE when the folder of `path` lies on a network file system: SQLite's WAL needs shared
 * memory and locks, which these file systems lack. */
int place_refuse_network(const char *path, struct error *err);

/* Makes a new, empty file with the owner and mode of `like`: when a database was closed to other
 * users, so are its copies. Returns 0, or -1 with errno. */
int place_create_like(const char *path, const struct stat *like);

/* Makes all changes of names in the folder of `path` durable. Returns 0, or -1 with errno. */
int place_sync_folder(const char *path);
int place_sync(const char *path); /* makes the file's contents durable, too */

/* fstatfs(2), which tests replace. */
extern int (*place_fstatfs)(int fd, struct statfs *out);
/* stat(2) and unlink(2) of <path><suffix>. */
int place_stat(const char *path, const char *suffix, struct stat *out);
void place_unlink(const char *path, const char *suffix);
int64_t place_time_ns(const struct stat *st); /* time of the last write */
/* Copies a file to the new file `to`, with the owner and mode of `from`. */
int place_copy_bytes(const char *from, const char *to, struct error *err);
/* Closes a descriptor at the end of the function; below 0: none is open. */
void place_close(const int *fd);
#define PLACE_FD_AUTO __attribute__((cleanup(place_close))) int
/* Reads the beginning of a file, at most `size` bytes. Returns their number; 0: also a fault. */
size_t place_read(const char *path, void *out, size_t size);
/* Makes a free name for a database that is set aside, with its log: "<path>.<word>-<time>". */
void place_name_aside(const char *path, const char *word, char out[PATH_MAX]);
/* Renames <from><suffix> to <to><suffix>, if that file is there. */
int place_rename(const char *from, const char *to, const char *suffix, struct error *err);
/* Sets the error of a failed system call (errno): "<doing> <path>: <reason>". Returns its code. */
int place_fail_io(const char *doing, const char *path, struct error *err);

#endif
