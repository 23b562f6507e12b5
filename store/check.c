/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thorough look at a file: its pages, whether each index fits its table, the text of its
 * schema, and every row's checksum. It takes as long as reading the whole file, so it is done when
 * nothing else is.
 */
#include <string.h>

#include "store/db.h"
#include "store/inner.h"

static int check_fail_damaged(struct store *s, struct error *err, const char *what)
{
    s->db.damaged = true;
    return error_set(err, ERROR_STORE, "database %s is damaged: %s", s->path, what);
}

/* quick_check would not compare indexes with their tables, and what they say decides what is
 * found. */
static int check_pages(struct store *s, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    int r = db_query(&s->db, &st, err, "PRAGMA integrity_check(1)", "");
    r = r ? r : db_step(&s->db, st, err);
    if (r != DB_ROW) {
        return r;
    }
    const char *verdict = (const char *)sqlite3_column_text(st, 0);
    if (verdict && strcmp(verdict, "ok") == 0) {
        return 0;
    }
    return check_fail_damaged(s, err, verdict ? verdict : "integrity_check found no words");
}

/* All of a file's description of itself, as one text. */
static int check_read_schema(struct db *db, sqlite3_stmt **st, struct error *err)
{
    int r =
        db_query(db, st, err,
                 "SELECT coalesce(group_concat(quote(type) || quote(name) || quote(tbl_name)"
                 " || quote(sql)), '') FROM (SELECT * FROM main.sqlite_schema WHERE name NOT LIKE"
                 " 'sqlite_stat%' ORDER BY type, name)",
                 "");
    r = r ? r : db_step(db, *st, err);
    return r < 0 || sqlite3_column_text(*st, 0) ? r : db_fail(db, SQLITE_NOMEM, err);
}

/* A view whose text has changed shows wrong figures to whoever reads it. Every file has come
 * through the same steps, so that a new one has the same texts. */
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
    int r = check_schema(s, err);
    r = r ? r : check_pages(s, err);
    for (enum table_id i = 0; r == 0 && i < TABLES; i++) {
        r = rows_check(s, i, NULL, "", bad_rows, err);
    }
    return r;
}
