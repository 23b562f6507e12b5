/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum covers the name and value of each column, in order, as MessagePack, hashed to 64
 * bits. NULL, 0 in an integer column and '' are left out, since all three read as "nothing". So a
 * later version can add a column, and old rows keep their checksums. A real 0 is included: NULL in
 * a real column means "not known".
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hash.h"
#include "store/inner.h"

const struct table tables[TABLES] = {
    [TABLE_DEVICE] = {"device", &device_info_schema, "rowid", NULL, false},
    [TABLE_RUN] = {"run", &run_schema, "id", NULL, false},
    [TABLE_TRIAL] = {"trial", &trial_schema, "id", "run", false},
    [TABLE_MODULE] = {"module", &module_schema, "rowid", NULL, false},
    [TABLE_BEST] = {"best", &best_schema, "generation", "trial", true},
    [TABLE_QUARANTINE] = {"quarantine", &quarantine_schema, "id", NULL, false},
    [TABLE_EVENT] = {"event", &event_schema, "id", NULL, false},
    [TABLE_SERVED] = {"served", &served_row_schema, "id", NULL, false},
};

const char *row_column(const struct schema_field *f)
{
    return strcmp(f->name, "index") == 0 ? "cuda_index" : f->name;
}

int64_t *row_int(const struct table *t, const char *name, void *object)
{
    const struct schema_field *f = t->schema->fields;
    while (strcmp(f->name, name) != 0) {
        f++;
    }
    return (int64_t *)(void *)((char *)object + f->offset);
}

__attribute__((format(printf, 3, 4))) static size_t put(char *out, size_t at, const char *format,
                                                        ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out + at, ROW_SQL_MAX - at, format, args);
    va_end(args);
    assert(n >= 0 && at + (size_t)n < ROW_SQL_MAX);
    return at + (size_t)n;
}

void row_insert_sql(const struct table *t, enum row_conflict conflict, char out[ROW_SQL_MAX])
{
    size_t at = put(out, 0, "INSERT INTO %s(", t->name);
    for (size_t i = 0; i < t->schema->n; i++) {
        at = put(out, at, "%s, ", row_column(&t->schema->fields[i]));
    }
    at = put(out, at, "checksum) VALUES (");
    for (size_t i = 0; i < t->schema->n; i++) {
        at = put(out, at, "?, ");
    }
    at = put(out, at, "?)");
    if (conflict == ROW_FAIL) {
        return;
    }
    at = put(out, at, " ON CONFLICT DO UPDATE SET checksum = excluded.checksum");
    for (size_t i = 0; i < t->schema->n; i++) {
        const char *name = row_column(&t->schema->fields[i]);
        if (strcmp(name, t->rowid) != 0) {
            at = put(out, at, ", %s = excluded.%s", name, name);
        }
    }
    put(out, at, " RETURNING %s", t->rowid);
}

void row_select_sql(const struct table *t, const char *from, char out[ROW_SQL_MAX])
{
    size_t at = put(out, 0, "SELECT ");
    for (size_t i = 0; i < t->schema->n; i++) {
        at = put(out, at, "%s, ", row_column(&t->schema->fields[i]));
    }
    put(out, at, "checksum, %s FROM %s ", t->rowid, from ? from : t->name);
}

void row_scratch_deinit(struct row_scratch *x)
{
    free(x->text);
    wire_buf_deinit(&x->packed);
    *x = (struct row_scratch){0};
}

/* ---- cells ----------------------------------------------------------------------------------- */

enum cell_type { CELL_NULL, CELL_INT, CELL_REAL, CELL_TEXT, CELL_WRONG };

struct cell {
    enum cell_type type;
    int64_t integer;
    double real;
    const char *text; /* borrowed from the object, the scratch or the statement */
    size_t n;
};

static struct cell cell_text(const char *text)
{
    return (struct cell){.type = CELL_TEXT, .text = text, .n = strlen(text)};
}

static struct cell cell_real(double v)
{
    /* SQLite stores -0.0 as 0.0 */
    return (struct cell){.type = isnan(v) ? CELL_NULL : CELL_REAL, .real = v + 0.0};
}

static bool scratch_room(struct row_scratch *x, size_t n)
{
    if (n > x->cap) {
        char *grown = realloc(x->text, n + 256);
        if (!grown) {
            return false;
        }
        x->text = grown;
        x->cap = n + 256;
    }
    return true;
}

const char *row_json(struct row_scratch *x, const struct record *r)
{
    size_t n = record_to_json(r, x->text, x->cap);
    if (n >= x->cap) {
        if (!scratch_room(x, n + 1)) {
            return NULL;
        }
        record_to_json(r, x->text, x->cap);
    }
    return x->text;
}

/* The layout of every REALS member: a count, then the values. */
struct reals {
    uint32_t n;
    double v[];
};

static const char *reals_json(struct row_scratch *x, const struct reals *r)
{
    enum { REAL_TEXT = 32 };
    if (!scratch_room(x, (size_t)r->n * REAL_TEXT + 3)) {
        return NULL;
    }
    size_t at = 0;
    x->text[at++] = '[';
    for (uint32_t i = 0; i < r->n; i++) {
        x->text[at] = ',';
        at += i > 0;
        if (isfinite(r->v[i])) {
            at += value_format(&VALUE_OF_REAL(r->v[i]), x->text + at, REAL_TEXT);
        } else {
            at += (size_t)sprintf(x->text + at, "null");
        }
    }
    strcpy(x->text + at, "]");
    return x->text;
}

/* Makes the cell of an object's field. The cell's text may lie in the scratch, and is valid until
 * the next call. */
static struct cell cell_of(const struct table *t, const struct schema_field *f, const void *object,
                           struct row_scratch *x)
{
    const char *at = (const char *)object + f->offset;
    const char *json;
    struct cell c = {.type = CELL_INT};
    switch (f->kind) {
    case SCHEMA_INT:
        c.integer = *(const int64_t *)at;
        if (c.integer == 0 && t->parent && strcmp(f->name, t->parent) == 0) {
            c.type = CELL_NULL; /* the object refers to no row */
        }
        return c;
    case SCHEMA_FLAG:
        c.integer = *(const bool *)at;
        return c;
    case SCHEMA_REAL:
        return cell_real(*(const double *)at);
    case SCHEMA_TEXT:
        return cell_text(at);
    case SCHEMA_RECORD:
        json = row_json(x, (const struct record *)at);
        break;
    default:
        json = reals_json(x, (const struct reals *)at);
        break;
    }
    return json ? cell_text(json) : (struct cell){.type = CELL_WRONG};
}

static struct cell cell_read(sqlite3_stmt *st, int i)
{
    struct cell c = {.type = CELL_WRONG};
    switch (sqlite3_column_type(st, i)) {
    case SQLITE_NULL:
        c.type = CELL_NULL;
        break;
    case SQLITE_INTEGER:
        c = (struct cell){.type = CELL_INT, .integer = sqlite3_column_int64(st, i)};
        break;
    case SQLITE_FLOAT:
        c = cell_real(sqlite3_column_double(st, i));
        break;
    case SQLITE_TEXT:
        c.text = (const char *)sqlite3_column_text(st, i);
        c.n = (size_t)sqlite3_column_bytes(st, i);
        c.type = c.text ? CELL_TEXT : CELL_WRONG;
        break;
    default:
        break;
    }
    return c;
}

static int cell_bind(sqlite3_stmt *st, int i, const struct cell *c)
{
    switch (c->type) {
    case CELL_NULL:
        return sqlite3_bind_null(st, i);
    case CELL_INT:
        return sqlite3_bind_int64(st, i, c->integer);
    case CELL_REAL:
        return sqlite3_bind_double(st, i, c->real);
    case CELL_TEXT:
        return sqlite3_bind_text(st, i, c->text, (int)c->n, SQLITE_TRANSIENT);
    default:
        return SQLITE_NOMEM;
    }
}

static void checksum_add(struct wire_buf *b, const struct schema_field *f, const struct cell *c)
{
    bool nothing = c->type == CELL_NULL || (c->type == CELL_INT && c->integer == 0) ||
                   (c->type == CELL_TEXT && c->n == 0);
    if (nothing) {
        return;
    }
    wire_put_str(b, row_column(f));
    if (c->type == CELL_INT) {
        wire_put_int(b, c->integer);
    } else if (c->type == CELL_REAL) {
        wire_put_real(b, c->real);
    } else {
        wire_put_strn(b, c->text, c->n);
    }
}

static int64_t checksum_end(const struct wire_buf *b)
{
    uint64_t sum = hash64(b->data, b->len);
    int64_t column;
    memcpy(&column, &sum, sizeof(column));
    return column;
}

/* ---- rows ------------------------------------------------------------------------------------ */

int row_bind(struct db *db, sqlite3_stmt *st, const struct table *t, const void *object,
             struct row_scratch *x, struct error *err)
{
    int n = (int)t->schema->n;
    wire_buf_clear(&x->packed);
    for (int i = 0; i < n; i++) {
        const struct schema_field *f = &t->schema->fields[i];
        struct cell c = cell_of(t, f, object, x);
        int rc = cell_bind(st, i + 1, &c);
        if (rc != SQLITE_OK) {
            return db_fail(db, rc, err);
        }
        checksum_add(&x->packed, f, &c);
    }
    if (x->packed.failed) {
        return db_fail(db, SQLITE_NOMEM, err);
    }
    int rc = sqlite3_bind_int64(st, n + 1, checksum_end(&x->packed));
    return rc == SQLITE_OK ? 0 : db_fail(db, rc, err);
}

/* True when the cell is a key that is no id. Such a row is bad even when its checksum fits: another
 * program wrote it. */
static bool is_bad_key(const struct table *t, const struct schema_field *f, const struct cell *c)
{
    return t->keyed && strcmp(f->name, "key") == 0 &&
           (c->type != CELL_TEXT || c->n != HASH_HEX - 1 || !hash_is_hex(c->text));
}

int row_check(struct db *db, sqlite3_stmt *st, const struct table *t, struct row_scratch *x,
              struct error *err)
{
    int n = (int)t->schema->n;
    wire_buf_clear(&x->packed);
    for (int i = 0; i < n; i++) {
        struct cell c = cell_read(st, i);
        if (c.type == CELL_WRONG) {
            return sqlite3_errcode(db->h) == SQLITE_NOMEM ? db_fail(db, SQLITE_NOMEM, err)
                                                          : ROW_BAD;
        }
        if (is_bad_key(t, &t->schema->fields[i], &c)) {
            return ROW_BAD;
        }
        checksum_add(&x->packed, &t->schema->fields[i], &c);
    }
    if (x->packed.failed) {
        return db_fail(db, SQLITE_NOMEM, err);
    }
    return sqlite3_column_type(st, n) == SQLITE_INTEGER &&
                   sqlite3_column_int64(st, n) == checksum_end(&x->packed)
               ? 0
               : ROW_BAD;
}

/* Parses a JSON array of numbers, as reals_json writes it. */
static int read_reals(const struct cell *c, struct reals *out, size_t size)
{
    const size_t room = (size - offsetof(struct reals, v)) / sizeof(double);
    const char *at = c->text;
    out->n = 0;
    if (strcmp(at, "[]") == 0) {
        return 0;
    }
    for (char before = '['; *at == before && out->n < room; before = ',') {
        bool known = strncmp(at + 1, "null", 4) != 0;
        char *end = (char *)at + 5;
        out->v[out->n++] = known ? strtod(at + 1, &end) : NAN;
        if (end == at + 1) {
            return ROW_BAD;
        }
        at = end;
    }
    return strcmp(at, "]") == 0 ? 0 : ROW_BAD;
}

static int row_read_text(const struct cell *c, char *out, size_t size)
{
    if (c->n >= size || memchr(c->n ? c->text : "x", 0, c->n ? c->n : 1)) {
        return ROW_BAD;
    }
    memcpy(out, c->n ? c->text : "", c->n);
    out[c->n] = 0;
    return 0;
}

static int read_field(const struct cell *c, const struct schema_field *f, void *object,
                      struct error *err)
{
    char *at = (char *)object + f->offset;
    switch (f->kind) {
    case SCHEMA_INT:
        *(int64_t *)at = c->integer;
        return c->type == CELL_INT || c->type == CELL_NULL ? 0 : ROW_BAD;
    case SCHEMA_FLAG:
        *(bool *)at = c->integer != 0;
        return c->type == CELL_INT ? 0 : ROW_BAD;
    case SCHEMA_REAL:
        *(double *)at = c->type == CELL_REAL ? c->real : NAN;
        return c->type == CELL_REAL || c->type == CELL_NULL ? 0 : ROW_BAD;
    default:
        break;
    }
    if (c->type != CELL_TEXT) {
        return ROW_BAD;
    }
    if (f->kind == SCHEMA_TEXT) {
        return row_read_text(c, at, f->size);
    }
    if (f->kind == SCHEMA_RECORD) {
        int r = record_from_json((struct record *)at, c->text, c->n, err);
        return r == 0 || r == ERROR_NO_MEMORY ? r : ROW_BAD;
    }
    return read_reals(c, (struct reals *)at, f->size);
}

int row_read(struct db *db, sqlite3_stmt *st, const struct table *t, void *object,
             struct row_scratch *x, struct error *err)
{
    int r = row_check(db, st, t, x, err);
    for (size_t i = 0; r == 0 && i < t->schema->n; i++) {
        struct cell c = cell_read(st, (int)i);
        r = read_field(&c, &t->schema->fields[i], object, err);
    }
    return r;
}

int row_put_wire(sqlite3_stmt *st, int i, const struct schema_field *f, struct wire_buf *b)
{
    struct error ignored;
    struct cell c = cell_read(st, i);
    bool json = f && (f->kind == SCHEMA_RECORD || f->kind == SCHEMA_REALS);
    if (json) {
        return c.type == CELL_TEXT && wire_from_json(b, c.text, &ignored) == 0 ? 0 : ROW_BAD;
    }
    if (c.type == CELL_NULL) {
        wire_put_nil(b);
    } else if (c.type == CELL_INT && f && f->kind == SCHEMA_FLAG) {
        wire_put_bool(b, c.integer != 0);
    } else if (c.type == CELL_INT) {
        wire_put_int(b, c.integer);
    } else if (c.type == CELL_REAL) {
        wire_put_real(b, c.real);
    } else {
        wire_put_strn(b, c.text, c.n);
    }
    return c.type == CELL_WRONG ? ROW_BAD : 0;
}
