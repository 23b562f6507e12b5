/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows: between the structs of proto/message.h and the columns of SQL. One code for all tables: a
 * table is a schema and a few words. Column names are the fields' names, but for two that SQL keeps
 * for itself (row_column).
 *
 * A cell is one value on its way. Cells are what checksums are made of, before a row is written and
 * after it was read, so a bit that flips anywhere between is noticed.
 */
#ifndef GEMMD_STORE_ROW_H
#define GEMMD_STORE_ROW_H

#include "proto/schema.h"
#include "store/db.h"

struct table {
    const char *name;
    const struct schema *schema;
    const char *rowid; /* the column that numbers the rows; "rowid" when no field does */
    int64_t (*id)(void *object, int64_t set); /* reads that field, or sets it when set > 0 */
    const char *parent; /* field that is the number of a row of another table; may be NULL */
    bool keyed;         /* rows are found by their `key`: one without a proper key is bad */
};

enum table_id {
    TABLE_DEVICE,
    TABLE_RUN,
    TABLE_TRIAL,
    TABLE_MODULE,
    TABLE_BEST,
    TABLE_QUARANTINE,
    TABLE_EVENT,
    TABLES
};
extern const struct table tables[TABLES]; /* parents before their children */

/* SQL name of a field: "index" is cuda_index. */
const char *row_column(const struct schema_field *f);

/* What an insert does when the row is there: fails, takes its place, or leaves it. Taking its place
 * is an update, not REPLACE: that would delete a row others refer to, and look for all of them. */
enum row_conflict { ROW_FAIL, ROW_UPDATE, ROW_IGNORE };

enum { ROW_SQL_MAX = 2560 };
/* "INSERT INTO t(...) VALUES (?, ...) ..." (ROW_UPDATE: gives the row's number) and "SELECT
 * <columns>, checksum, <rowid> FROM <from or t> " of a table. */
void row_insert_sql(const struct table *t, enum row_conflict conflict, char out[ROW_SQL_MAX]);
void row_select_sql(const struct table *t, const char *from, char out[ROW_SQL_MAX]);

/* Memory that rows use on their way, kept from row to row. */
struct row_scratch {
    char *text; /* owned */
    size_t cap;
    struct wire_buf packed;
};
void row_scratch_deinit(struct row_scratch *x); /* may be called twice */

/* JSON text of a record, in the scratch; NULL: no memory. */
const char *row_json(struct row_scratch *x, const struct record *r);

/* Binds the whole object, and its checksum last, to a statement of row_insert_sql. */
int row_bind(struct db *db, sqlite3_stmt *st, const struct table *t, const void *object,
             struct row_scratch *x, struct error *err);

enum { ROW_BAD = 1 }; /* the checksum, the key, or a value, is wrong */
/* Checks the row that a row_select_sql statement stands on: 0, ROW_BAD, fault. */
int row_check(struct db *db, sqlite3_stmt *st, const struct table *t, struct row_scratch *x,
              struct error *err);
/* Checks it and fills the object (only what is used of it; the struct need not be zeroed). */
int row_read(struct db *db, sqlite3_stmt *st, const struct table *t, void *object,
             struct row_scratch *x, struct error *err);
/* Appends column `i` of the row as MessagePack: JSON columns as maps and arrays. `f` NULL: a
 * computed column. 0 or ROW_BAD. */
int row_put_wire(sqlite3_stmt *st, int i, const struct schema_field *f, struct wire_buf *b);

#endif
