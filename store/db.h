/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One SQLite connection, and the habits we keep with it: prepared statements are kept by their
 * text, transactions nest, and every SQLite code becomes one of ours, with a sentence that names
 * the file.
 *
 * A statement from db_query belongs to the cache; declare it DB_STMT_AUTO, so that it is reset when
 * the function ends (a statement left open would hold a read transaction, and the WAL could grow).
 */
#ifndef GEMMD_STORE_DB_H
#define GEMMD_STORE_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <sqlite3.h>

#include "proto/error.h"

struct db_cached {
    char *sql;        /* owned */
    sqlite3_stmt *st; /* owned */
};

struct db {
    sqlite3 *h;     /* owned; NULL: closed */
    char *path;     /* owned */
    bool damaged;   /* SQLite met a page that cannot be (SQLITE_CORRUPT, SQLITE_NOTADB) */
    unsigned depth; /* transactions begun and not ended */
    bool spoilt;    /* an inner one could not be undone: the outermost may not commit */
    size_t n_cached, cap_cached;
    struct db_cached *cached; /* owned */
};

enum {
    DB_ROW = 1,
    /* The sqlite3 shell of a person may hold the file for a moment (a checkpoint at its exit). */
    DB_PATIENCE_MS = 5000,
};

/* flags: those of sqlite3_open_v2. The settings of docs/store.md are made by the caller. */
int db_open(struct db *db, const char *path, int flags, struct error *err);
void db_close(struct db *db); /* may be called twice, and of a zeroed struct */

/* A SQLite result code as one of ours, with a sentence. */
int db_fail(struct db *db, int rc, struct error *err);

int db_exec(struct db *db, const char *sql, struct error *err); /* any number of statements */
/* The first column of the first row; 0 when there is no row. */
int db_int(struct db *db, const char *sql, int64_t *out, struct error *err);

/* A kept statement, bound: one letter of `types` per parameter: t const char * (NULL: SQL NULL),
 * i int64_t, r double. */
int db_query(struct db *db, sqlite3_stmt **out, struct error *err, const char *sql,
             const char *types, ...);
int db_vquery(struct db *db, sqlite3_stmt **out, struct error *err, const char *sql,
              const char *types, va_list args);
int db_step(struct db *db, sqlite3_stmt *st, struct error *err); /* 0 done, DB_ROW, fault */
/* db_query and db_step for statements that return no rows; *changes (may be NULL): rows changed. */
int db_run(struct db *db, int64_t *changes, struct error *err, const char *sql, const char *types,
           ...);

void db_stmt_done(sqlite3_stmt **st);
#define DB_STMT_AUTO __attribute__((cleanup(db_stmt_done))) sqlite3_stmt
void db_stmt_finalize(sqlite3_stmt **st); /* for those prepared without the cache */
#define DB_ONCE_AUTO __attribute__((cleanup(db_stmt_finalize))) sqlite3_stmt

/* The outermost takes the write lock; inner ones are savepoints. db_end commits when status >= 0,
 * else undoes; it returns status, or why the commit failed (then all is undone). */
int db_begin(struct db *db, struct error *err);
int db_end(struct db *db, int status, struct error *err);

/* ---- version.c ------------------------------------------------------------------------------ */

/* Schema versions of the file, and the way from one to the next. docs/store.md tells ops. */

enum { VERSION_APPLICATION_ID = 0x67656d6d }; /* "gemm", in the file's header */

/* [v] leads from version v to v + 1: statements, NULL at the end. (version_steps.c) */
extern const char *const *const version_steps[];

enum version_state { VERSION_CURRENT = 0, VERSION_EMPTY = 1, VERSION_OLD = 2 };

/* What a file is by its application id and `user_version`; `empty`: it has no tables. ERROR_STORE:
 * newer than this program, or another program's. */
int version_judge(const char *path, int64_t id, int64_t version, bool empty, struct error *err);
/* The same of the open file. */
int version_of(struct db *db, int64_t *version, struct error *err);
/* From `version` to STORE_SCHEMA_VERSION, each step in one transaction, after writing
 * "<path>.v<version>.bak" when the file is not empty. */
int version_migrate(struct db *db, int64_t version, bool empty, struct error *err);
/* A complete copy in one file, synced to disk, for whoever may read `like`; `path` must not
 * exist. */
int version_copy_to(struct db *db, const char *path, const struct stat *like, struct error *err);

#endif
