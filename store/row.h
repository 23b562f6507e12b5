/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion of rows between the structs of proto/message.h and SQL columns. The same code serves
 * all tables; a `struct table` describes each. Column names are field names; row_column has the
 * exception.
 *
 * A cell is a single value on the way between struct and column. The checksum covers cells before a
 * row is written and after a row is read, so the checksum shows a bit that flips in between.
 */
#ifndef GEMMD_STORE_ROW_H
#define GEMMD_STORE_ROW_H

#include "proto/schema.h"
#include "store/db.h"

struct table {
    const char *name;
    const struct schema *schema;
    const char *rowid;  /* the column that numbers the rows; "rowid" when no field does */
    const char *parent; /* field that is the id of a row of another table; may be NULL */
    bool keyed;         /* rows are found by `key`; a row with a malformed key is bad */
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
/* Index of the table's field with this name, which exists. */
size_t row_find_field(const struct table *t, const char *name);

/* Insert of a row that exists already: fails, or replaces the row. ROW_UPDATE is not SQL's REPLACE,
 * which would delete a row that other rows refer to, and search for all of them. */
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

enum { ROW_BAD = 1 }; /* the checksum, the key, or a value, is wrong */
/* Checks the current row of a row_select_sql statement: 0, ROW_BAD, fault. */
int row_check(struct db *db, sqlite3_stmt *st, const struct table *t, struct row_scratch *x,
              struct error *err);
/* row_check, then fills the used fields of the object; the struct need not be zeroed. */
int row_read(struct db *db, sqlite3_stmt *st, const struct table *t, void *object,
             struct row_scratch *x, struct error *err);
/* Appends column `i` of the row as MessagePack: JSON columns as maps and arrays. `f` NULL: a
 * computed column. Returns 0 or ROW_BAD. */
int row_put_wire(sqlite3_stmt *st, int i, const struct schema_field *f, struct wire_buf *b);

#endif
