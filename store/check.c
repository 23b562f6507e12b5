/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thorough check of a file: pages, indexes, text of the schema, and the checksum of each row.
 * The check reads the whole file, so the ledger runs it in quiet moments only.
 */
#include <string.h>

#include "store/inner.h"

static int check_fail_damaged(struct store *s, struct error *err, const char *what)
{
    s->db.damaged = true;
    return error_set(err, ERROR_STORE, "database %s is damaged: %s", s->path, what);
}

/* Runs SQLite's integrity_check. quick_check would not compare indexes with tables, and lookups
 * depend on the indexes. */
static int check_pages(struct store *s, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    int r = db_first(&s->db, &st, err, "PRAGMA integrity_check(1)", "");
    if (r != DB_ROW) {
        return r;
    }
    const char *verdict = (const char *)sqlite3_column_text(st, 0);
    if (verdict && strcmp(verdict, "ok") == 0) {
        return 0;
    }
    return check_fail_damaged(s, err, verdict ? verdict : "integrity_check found no words");
}

/* Reads the whole schema as a single text. */
static int check_read_schema(struct db *db, sqlite3_stmt **st, struct error *err)
{
    int r =
        db_first(db, st, err,
                 "SELECT coalesce(group_concat(quote(type) || quote(name) || quote(tbl_name)"
                 " || quote(sql)), '') FROM (SELECT * FROM main.sqlite_schema WHERE name NOT LIKE"
                 " 'sqlite_stat%' ORDER BY type, name)",
                 "");
    return r < 0 || sqlite3_column_text(*st, 0) ? r : db_fail(db, SQLITE_NOMEM, err);
}

/* Compares the text of the schema with that of a new file, since a view with changed text would
 * show wrong figures to readers. All files run the same migration steps, so the texts are the
 * same. */
static int check_schema(struct store *s, struct error *err)
{
    struct db fresh = {0};
    DB_STMT_AUTO *ours = NULL;
    sqlite3_stmt *theirs = NULL;
    int r = db_open(&fresh, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    r = r ? r : version_migrate(&fresh, 0, true, err);
    r = r ? r : check_read_schema(&s->db, &ours, err);
    r = r < 0 ? r : check_read_schema(&fresh, &theirs, err);
    if (r >= 0) {
        const char *text = (const char *)sqlite3_column_text(ours, 0);
        r = strcmp(text, (const char *)sqlite3_column_text(theirs, 0)) == 0
                ? 0
                : check_fail_damaged(s, err, "the text of its schema is not gemmd's");
    }
    db_close(&fresh);
    return r;
}

int store_check(struct store *s, int64_t *bad_rows, struct error *err)
{
    *bad_rows = 0;
    int r = commit_met_newer(s, err) ? err->code : check_schema(s, err);
    r = r ? r : check_pages(s, err);
    for (enum table_id i = 0; r == 0 && i < TABLES; i++) {
        r = rows_check(s, i, NULL, "", bad_rows, err);
    }
    return r;
}
