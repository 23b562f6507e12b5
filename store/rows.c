/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes whole rows of any table. A row with a wrong checksum or key is never returned:
 * the notice callback gets a single report, and the temporary table bad_row notes the row, so that
 * listings count and page without it.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "store/inner.h"

static int rows_begin_query(struct rows *r, struct store *s, enum table_id table, struct error *err,
                            const char *from, const char *tail, const char *types, va_list args)
{
    char sql[2 * ROW_SQL_MAX];
    *r = (struct rows){.s = s, .t = &tables[table]};
    row_select_sql(r->t, from, sql);
    size_t n = strlen(sql);
    snprintf(sql + n, sizeof(sql) - n, "%s", tail);
    return db_vquery(&s->db, &r->st, err, sql, types, args);
}

int rows_begin(struct rows *r, struct store *s, enum table_id table, struct error *err,
               const char *from, const char *tail, const char *types, ...)
{
    va_list args;
    va_start(args, types);
    int status = rows_begin_query(r, s, table, err, from, tail, types, args);
    va_end(args);
    return status;
}

int rows_first(struct store *s, enum table_id table, void *object, struct error *err,
               const char *from, const char *tail, const char *types, ...)
{
    ROWS_AUTO rows = {0};
    va_list args;
    va_start(args, types);
    int r = rows_begin_query(&rows, s, table, err, from, tail, types, args);
    va_end(args);
    r = r ? r : rows_next(&rows, object, err);
    return r < 0 ? r : r == DB_ROW ? 0 : STORE_MISS;
}

int rows_page(struct store *s, enum table_id table, void *out, uint32_t max, uint32_t *n,
              struct error *err, const char *from, const char *tail, int64_t number)
{
    ROWS_AUTO rows = {0};
    int r = rows_begin(&rows, s, table, err, from, tail, "i", number);
    r = r ? r : DB_ROW;
    for (*n = 0; r == DB_ROW && *n < max; *n += r == DB_ROW) {
        r = rows_next(&rows, (char *)out + *n * tables[table].schema->size, err);
    }
    return r < 0 ? r : 0;
}

int rows_next(struct rows *r, void *object, struct error *err)
{
    struct db *db = &r->s->db;
    for (;;) {
        int status = db_step(db, r->st, err);
        if (status != DB_ROW) {
            return status;
        }
        status = row_read(db, r->st, r->t, object, &r->s->scratch, err);
        if (status == 0) {
            return DB_ROW;
        }
        if (status == ROW_BAD) {
            int64_t rowid = sqlite3_column_int64(r->st, (int)r->t->schema->n + 1);
            status = rows_bad(r->s, r->t, rowid, err);
        }
        if (status < 0) {
            return status;
        }
    }
}

void rows_end(struct rows *r)
{
    db_stmt_done(&r->st);
    r->st = NULL;
}

int rows_put(struct store *s, enum table_id table, enum row_conflict conflict, const void *object,
             struct error *err)
{
    char sql[ROW_SQL_MAX];
    DB_STMT_AUTO *st = NULL;
    row_insert_sql(&tables[table], conflict, sql);
    int r = db_query(&s->db, &st, err, sql, "");
    r = r ? r : row_bind(&s->db, st, &tables[table], object, &s->scratch, err);
    r = r ? r : db_step(&s->db, st, err);
    if (r == DB_ROW) { /* this write may have replaced a bad row */
        const int64_t rowid = sqlite3_column_int64(st, 0);
        r = db_step(&s->db, st, err);
        r = r ? r
              : db_run(&s->db, NULL, err, "DELETE FROM temp.bad_row WHERE tbl = ?1 AND row = ?2",
                       "ti", tables[table].name, rowid);
    }
    return r;
}

void rows_number(struct store *s, enum table_id table, void *object)
{
    *row_int(&tables[table], tables[table].rowid, object) = s->next_id[table]++;
    if (table == TABLE_BEST) {
        rows_given(s, s->next_id[table] - 1);
    }
}

void rows_given(struct store *s, int64_t generation)
{
    int64_t *next = &s->next_id[TABLE_BEST];
    *next = generation >= *next ? generation + 1 : *next;
}

/* Finds the number for the table's next row: above all rows, and above removed rows, whose highest
 * number sqlite_sequence has. */
static int next_number(struct store *s, enum table_id table, int64_t *next, struct error *err)
{
    const struct table *t = &tables[table];
    char sql[256];
    snprintf(sql, sizeof(sql),
             "SELECT 1 + max(coalesce((SELECT max(%s) FROM %s), 0),"
             " coalesce((SELECT seq FROM sqlite_sequence WHERE name = '%s'), 0))",
             t->rowid, t->name, t->name);
    return db_int(&s->db, sql, next, err);
}

int rows_number_on(struct store *s, enum table_id table, struct error *err)
{
    int64_t next = 0;
    bool numbered = strcmp(tables[table].rowid, "rowid") != 0;
    int r = numbered ? next_number(s, table, &next, err) : 0;
    if (r == 0 && table == TABLE_BEST && next <= s->noted.given) {
        next = s->noted.given + 1;
    }
    s->next_id[table] = r ? s->next_id[table] : next;
    return r;
}

int store_generation(struct store *s, int64_t *generation, struct error *err)
{
    int r = next_number(s, TABLE_BEST, generation, err);
    *generation -= r == 0;
    if (r == 0 && *generation < s->noted.given) {
        *generation = s->noted.given;
    }
    return r;
}

int rows_bad(struct store *s, const struct table *t, int64_t rowid, struct error *err)
{
    int64_t news;
    int r = db_run(&s->db, &news, err, "INSERT OR IGNORE INTO temp.bad_row VALUES (?1, ?2)", "ti",
                   t->name, rowid);
    if (r == 0 && news) {
        store_notice(s, "corrupt_row",
                     "database %s: row %" PRId64
                     " of table %s has a wrong checksum%s; it is ignored",
                     s->path, rowid, t->name, t->keyed ? ", or no proper key" : "");
    }
    return r;
}

int rows_check(struct store *s, enum table_id table, const char *from, const char *tail,
               int64_t *bad, struct error *err)
{
    ROWS_AUTO rows = {0};
    int r = rows_begin(&rows, s, table, err, from, tail, "");
    while (r == 0 && (r = db_step(&s->db, rows.st, err)) == DB_ROW) {
        r = row_check(&s->db, rows.st, rows.t, &s->scratch, err);
        if (r == ROW_BAD) {
            ++*bad;
            r = rows_bad(s, rows.t, sqlite3_column_int64(rows.st, (int)rows.t->schema->n + 1), err);
        }
    }
    return r;
}

/* ---- notices --------------------------------------------------------------------------------- */

void store_notice(struct store *s, const char *kind, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (s->notice) {
        s->notice(s->ctx, kind, text);
    }
}

int64_t store_read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int store_index_damaged(struct store *s, struct error *err)
{
    s->db.damaged = true;
    return error_set(err, ERROR_STORE,
                     "database %s is damaged: its index of keys does not fit its rows", s->path);
}
