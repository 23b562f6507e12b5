/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two pitfalls of SQLite on a full disk:
 *
 * - SQLite may undo the whole transaction by itself. Then each following statement
 *   would run in a transaction of its own. So db_begin and db_end check that their transaction is
 *   still open.
 * - SQLite reports a full disk as SQLITE_FULL, or as an I/O error with ENOSPC, EDQUOT or EFBIG.
 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/db.h"

int db_open(struct db *db, const char *path, int flags, struct error *err)
{
    *db = (struct db){.path = strdup(path)};
    if (!db->path) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to open database %s", path);
    }
    errno = 0;
    int rc =
        sqlite3_open_v2(path, &db->h, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (rc != SQLITE_OK) {
        int r = db_fail(db, rc, err);
        bool damaged = db->damaged;
        db_close(db);
        db->damaged = damaged;
        return r;
    }
    sqlite3_busy_timeout(db->h, DB_PATIENCE_MS);
    return 0;
}

void db_close(struct db *db)
{
    for (size_t i = 0; i < db->n_cached; i++) {
        sqlite3_finalize(db->cached[i].st);
        free(db->cached[i].sql);
    }
    free(db->cached);
    sqlite3_close(db->h);
    free(db->path);
    *db = (struct db){0};
}

static bool disk_is_full(int rc, int e)
{
    return (rc & 0xff) == SQLITE_FULL ||
           ((rc & 0xff) == SQLITE_IOERR && (e == ENOSPC || e == EDQUOT || e == EFBIG));
}

static int db_fail_locked(const struct db *db, struct error *err)
{
    char who[PLACE_LOCKER_MAX];
    return place_locker(db->path, who)
               ? error_set(err, ERROR_BUSY, "database %s: locked by another program, %s: end it",
                           db->path, who)
               : error_set(err, ERROR_BUSY,
                           "database %s: locked by another program (an open sqlite3 shell?), which "
                           "is not seen from here; `lslocks` or `fuser` may say which: end it",
                           db->path);
}

int db_fail(struct db *db, int rc, struct error *err)
{
    /* SQLite keeps the system's error number only for some faults. For others errno has it: the
     * caller set errno to 0 before the call. */
    int e = errno;
    e = db->h && sqlite3_system_errno(db->h) ? sqlite3_system_errno(db->h) : e;
    /* false: gemmd itself, not SQLite, found the fault */
    bool said = db->h && sqlite3_errcode(db->h) != SQLITE_OK;
    const char *text = said ? sqlite3_errmsg(db->h) : sqlite3_errstr(rc);
    if (disk_is_full(rc, e)) {
        return error_set(
            err, ERROR_DISK_FULL,
            "database %s: no room on its disk (%s): free some space, or use --database on "
            "another disk",
            db->path, text);
    }
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        return error_set(err, ERROR_NO_MEMORY, "database %s: no memory", db->path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL: /* SQLite waited for a lock on the -shm file */
        return db_fail_locked(db, err);
    case SQLITE_INTERRUPT:
        return error_set(err, ERROR_CANCELLED, "database %s: interrupted", db->path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        db->damaged = true;
        return error_set(err, ERROR_STORE, "database %s: the file is damaged (%s)", db->path, text);
    case SQLITE_READONLY:
        return error_set(
            err, ERROR_STORE,
            "database %s: it is read-only (%s): gemmd must be able to write the file and "
            "its folder",
            db->path, text);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        return error_set(
            err, ERROR_STORE,
            "database %s: it cannot be opened (%s): gemmd's user %d must be able to read and "
            "write it",
            db->path, e ? strerror(e) : text, (int)geteuid());
    default:
        return error_set(err, ERROR_STORE, "database %s: %s, %s (SQLite code %d)", db->path, text,
                         e ? strerror(e) : "no reason given", rc);
    }
}

int db_exec(struct db *db, const char *sql, struct error *err)
{
    errno = 0;
    int rc = sqlite3_exec(db->h, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : db_fail(db, rc, err);
}

int db_int(struct db *db, const char *sql, int64_t *out, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    int r = db_first(db, &st, err, sql, "");
    *out = r == DB_ROW ? sqlite3_column_int64(st, 0) : 0;
    return r < 0 ? r : 0;
}

/* ---- statements ------------------------------------------------------------------------------ */

/* Makes room for another cached statement. The capacity is the number of statements, rounded up to
 * a power of two. */
static int cache_grow(struct db *db)
{
    size_t n = db->n_cached;
    if (n & (n - 1)) {
        return 0;
    }
    struct db_cached *grown = realloc(db->cached, (n ? 2 * n : 1) * sizeof(*grown));
    db->cached = grown ? grown : db->cached;
    return grown ? 0 : -1;
}

static int statement_of(struct db *db, const char *sql, sqlite3_stmt **out, struct error *err)
{
    if (!db->h) {
        return error_set(err, ERROR_STORE, "the database is closed: its rebuild failed");
    }
    for (size_t i = 0; i < db->n_cached; i++) {
        if (strcmp(db->cached[i].sql, sql) == 0) {
            *out = db->cached[i].st;
            return 0;
        }
    }
    char *copy = strdup(sql);
    if (!copy || cache_grow(db)) {
        free(copy);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a statement of %s", db->path);
    }
    errno = 0;
    int rc = sqlite3_prepare_v3(db->h, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    if (rc != SQLITE_OK) {
        free(copy);
        return db_fail(db, rc, err);
    }
    db->cached[db->n_cached++] = (struct db_cached){.sql = copy, .st = *out};
    return 0;
}

int db_vquery(struct db *db, sqlite3_stmt **out, struct error *err, const char *sql,
              const char *types, va_list args)
{
    int r = statement_of(db, sql, out, err);
    for (int i = 1; r == 0 && types[i - 1]; i++) {
        int rc = types[i - 1] == 't'
                     ? sqlite3_bind_text(*out, i, va_arg(args, const char *), -1, SQLITE_TRANSIENT)
                 : types[i - 1] == 'r' ? sqlite3_bind_double(*out, i, va_arg(args, double))
                                       : sqlite3_bind_int64(*out, i, va_arg(args, int64_t));
        if (rc != SQLITE_OK) {
            r = db_fail(db, rc, err);
        }
    }
    return r;
}

int db_query(struct db *db, sqlite3_stmt **out, struct error *err, const char *sql,
             const char *types, ...)
{
    va_list args;
    va_start(args, types);
    int r = db_vquery(db, out, err, sql, types, args);
    va_end(args);
    return r;
}

int db_step(struct db *db, sqlite3_stmt *st, struct error *err)
{
    errno = 0;
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        return DB_ROW;
    }
    return rc == SQLITE_DONE ? 0 : db_fail(db, rc, err);
}

static int db_vfirst(struct db *db, sqlite3_stmt **out, struct error *err, const char *sql,
                     const char *types, va_list args)
{
    int r = db_vquery(db, out, err, sql, types, args);
    return r ? r : db_step(db, *out, err);
}

int db_first(struct db *db, sqlite3_stmt **out, struct error *err, const char *sql,
             const char *types, ...)
{
    va_list args;
    va_start(args, types);
    int r = db_vfirst(db, out, err, sql, types, args);
    va_end(args);
    return r;
}

int db_has(struct db *db, struct error *err, const char *sql, const char *types, ...)
{
    DB_STMT_AUTO *st = NULL;
    va_list args;
    va_start(args, types);
    int r = db_vfirst(db, &st, err, sql, types, args);
    va_end(args);
    return r;
}

int db_run(struct db *db, int64_t *changes, struct error *err, const char *sql, const char *types,
           ...)
{
    DB_STMT_AUTO *st = NULL;
    va_list args;
    va_start(args, types);
    int r = db_vfirst(db, &st, err, sql, types, args);
    va_end(args);
    if (changes) {
        *changes = r < 0 ? 0 : sqlite3_changes64(db->h);
    }
    return r < 0 ? r : 0;
}

void db_copy_text(sqlite3_stmt *st, int column, char *out, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(st, column);
    snprintf(out, size, "%s", text ? text : "");
}

void db_stmt_done(sqlite3_stmt **st)
{
    if (*st) {
        sqlite3_reset(*st);
        sqlite3_clear_bindings(*st);
    }
}

void db_stmt_finalize(sqlite3_stmt **st)
{
    sqlite3_finalize(*st);
}

/* ---- transactions ---------------------------------------------------------------------------- */

static int lost_transaction(struct db *db, struct error *err)
{
    return error_set(err, ERROR_STORE, "database %s: SQLite undid the transaction", db->path);
}

static int db_run_savepoint(struct db *db, const char *verb, struct error *err)
{
    char sql[64];
    snprintf(sql, sizeof(sql), "%s level%u", verb, db->depth);
    return db_run(db, NULL, err, sql, "");
}

static void db_undo_transaction(struct db *db)
{
    /* a fault of ROLLBACK is dropped, since the caller already has the fault that led to it */
    struct error ignored;
    if (!db->h || sqlite3_get_autocommit(db->h)) {
        return;
    }
    if (db->depth == 0) {
        db_run(db, NULL, &ignored, "ROLLBACK", "");
    } else if (db_run_savepoint(db, "ROLLBACK TO", &ignored) ||
               db_run_savepoint(db, "RELEASE", &ignored)) {
        db->spoilt = true;
    }
}

int db_begin(struct db *db, struct error *err)
{
    int r;
    if (db->depth == 0) {
        db_undo_transaction(db); /* after a failed ROLLBACK a transaction may still be open */
        db->spoilt = false;
        r = db_run(db, NULL, err, "BEGIN IMMEDIATE", "");
    } else if (sqlite3_get_autocommit(db->h)) {
        r = lost_transaction(db, err);
    } else {
        r = db_run_savepoint(db, "SAVEPOINT", err);
    }
    db->depth += r == 0;
    return r;
}

int db_end(struct db *db, int status, struct error *err)
{
    assert(db->depth > 0);
    db->depth--;
    if (status >= 0 && (db->spoilt || sqlite3_get_autocommit(db->h))) {
        db_undo_transaction(db);
        return lost_transaction(db, err);
    }
    int r = 0;
    if (status >= 0) {
        r = db->depth == 0 ? db_run(db, NULL, err, "COMMIT", "")
                           : db_run_savepoint(db, "RELEASE", err);
    }
    if (status < 0 || r < 0) {
        db_undo_transaction(db);
    }
    return r < 0 ? r : status;
}
