/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listing. No text of a client becomes SQL: names are looked up in the table of columns, and values
 * are bound. Besides the stored columns a list has computed columns, and names inside the JSON
 * columns ("config.num_stages"). Counts and pages leave bad rows out.
 *
 * Each list has a default order, mostly by a unique column. A client that pages by `after`, the
 * last row of the page before, misses and repeats no remaining row while other clients add and
 * remove rows. A client that pages by `offset`, or sorts by another column, may miss or repeat
 * rows.
 */
#include <stdio.h>
#include <string.h>

#include "proto/limits.h"
#include "store/inner.h"

enum column_kind { COLUMN_NUMBER, COLUMN_TEXT, COLUMN_JSON, COLUMN_ANY };

struct computed {
    const char *name;
    enum column_kind kind;
    const char *sql; /* NULL: the name itself, a column of `from` */
};

struct list {
    const char *name;
    const struct table *table;
    const char *from;  /* text behind SQL's FROM; NULL: the table itself */
    const char *order; /* order of the rows when the filter has no `sort` */
    /* `order` is a single column without equal values, so that `after` can page by it */
    bool by_one;
    const struct computed *computed; /* ends with the name NULL */
};

/* A trial has no flops column; a best of the same key has the flops. */
#define TRIAL_FLOPS                                                                                \
    "(SELECT flops FROM best WHERE best.key = trial.key ORDER BY generation DESC LIMIT 1)"
/* The class of a trial is the class of its key's bests; without a best, today's class of the device
 * of the run. */
#define TRIAL_CLASS                                                                                \
    "coalesce((SELECT class FROM best WHERE best.key = trial.key LIMIT 1), (SELECT class FROM "    \
    "device WHERE uuid = (SELECT device FROM run WHERE run.id = trial.run)))"
/* 1: gemmd-fleet runs, and its server answers */
#define FLEET_ATTACHED                                                                             \
    "EXISTS (SELECT 1 FROM lease WHERE key = '" STORE_FLEET_KEY                                    \
    "' AND NOT is_gone(owner, boot) AND until_ms > boot_ms())"

static const struct computed of_none[] = {{NULL, COLUMN_ANY, NULL}};
static const struct computed of_best[] = {
    {"tflops", COLUMN_NUMBER, "(flops / time_us * 1e-6)"},
    {"gbps", COLUMN_NUMBER, "(bytes / time_us * 1e-3)"},
    {"floor_percent", COLUMN_NUMBER, "(100 * floor_us / time_us)"},
    {"speedup", COLUMN_NUMBER, "(reference_us / time_us)"},
    {NULL, COLUMN_ANY, NULL}};
static const struct computed of_trials[] = {
    {"speedup", COLUMN_NUMBER, "(1 / ratio)"},
    {"tflops", COLUMN_NUMBER, "(" TRIAL_FLOPS " / time_us * 1e-6)"},
    {"class", COLUMN_TEXT, TRIAL_CLASS},
    {NULL, COLUMN_ANY, NULL}};
static const struct computed of_jobs[] = {
    {"id", COLUMN_NUMBER, NULL},        {"uid", COLUMN_NUMBER, NULL},
    {"job", COLUMN_TEXT, NULL},         {"first_s", COLUMN_NUMBER, NULL},
    {"last_s", COLUMN_NUMBER, NULL},    {"answers", COLUMN_NUMBER, NULL},
    {"exact", COLUMN_NUMBER, NULL},     {"near", COLUMN_NUMBER, NULL},
    {"portfolio", COLUMN_NUMBER, NULL}, {"defaults", COLUMN_NUMBER, NULL},
    {"keys", COLUMN_NUMBER, NULL},      {NULL, COLUMN_ANY, NULL}};
static const struct computed of_served[] = {
    {"best_source", COLUMN_TEXT, NULL}, {"best_s", COLUMN_NUMBER, NULL},
    {"best_us", COLUMN_NUMBER, NULL},   {"served_us", COLUMN_NUMBER, NULL},
    {"lost_us", COLUMN_NUMBER, NULL},   {NULL, COLUMN_ANY, NULL}};
static const struct computed of_fleet[] = {
    {"id", COLUMN_NUMBER, NULL},     {"server", COLUMN_TEXT, NULL},
    {"state", COLUMN_TEXT, NULL},    {"since_s", COLUMN_NUMBER, NULL},
    {"text", COLUMN_TEXT, NULL},     {"epoch", COLUMN_TEXT, NULL},
    {"cursor", COLUMN_NUMBER, NULL}, {"host", COLUMN_NUMBER, NULL},
    {"counters", COLUMN_JSON, NULL}, {"attached", COLUMN_NUMBER, FLEET_ATTACHED},
    {NULL, COLUMN_ANY, NULL}};
static const struct computed of_fleet_rows[] = {
    {"seq", COLUMN_NUMBER, NULL},        {"key", COLUMN_TEXT, NULL},
    {"generation", COLUMN_NUMBER, NULL}, {"origin", COLUMN_TEXT, NULL},
    {"state", COLUMN_TEXT, NULL},        {"reason", COLUMN_TEXT, NULL},
    {"reported", COLUMN_NUMBER, NULL},   {NULL, COLUMN_ANY, NULL}};
static const struct computed of_portfolio[] = {{"class", COLUMN_TEXT, NULL},
                                               {"op", COLUMN_TEXT, NULL},
                                               {"mode", COLUMN_TEXT, NULL},
                                               {"dtype_in", COLUMN_TEXT, NULL},
                                               {"dtype_out", COLUMN_TEXT, NULL},
                                               {"batch_invariant", COLUMN_NUMBER, NULL},
                                               {"stamp", COLUMN_TEXT, NULL},
                                               {"bound_percent", COLUMN_NUMBER, NULL},
                                               {"shapes", COLUMN_NUMBER, NULL},
                                               {"members", COLUMN_NUMBER, NULL},
                                               {"member", COLUMN_NUMBER, NULL},
                                               {"config", COLUMN_JSON, NULL},
                                               {"key", COLUMN_TEXT, NULL},
                                               {"problem", COLUMN_JSON, NULL},
                                               {"regret_percent", COLUMN_NUMBER, NULL},
                                               {"ratio", COLUMN_NUMBER, NULL},
                                               {NULL, COLUMN_ANY, NULL}};

/* The list `portfolio` is made from several tables (portfolio.c), the list `jobs` from sums of
 * rows, and the fleet's tables have no checksums: all columns of these lists are computed. */
static const struct schema no_columns = {.name = "portfolio"};
static const struct table portfolio = {
    .name = "portfolio", .schema = &no_columns, .rowid = "number"};
static const struct table job = {.name = "job", .schema = &no_columns, .rowid = "id"};
static const struct table fleet = {.name = "fleet", .schema = &no_columns, .rowid = "id"};
static const struct table fleet_row = {.name = "fleet_row", .schema = &no_columns, .rowid = "seq"};

static const struct list lists[] = {
    {"best", &tables[TABLE_BEST], "current_best", "key", true, of_best},
    {"history", &tables[TABLE_BEST], NULL, "generation", true, of_best},
    {"trials", &tables[TABLE_TRIAL], NULL, "id", true, of_trials},
    {"modules", &tables[TABLE_MODULE], NULL, "id, variant", false, of_none},
    {"quarantine", &tables[TABLE_QUARANTINE], NULL, "id", true, of_none},
    {"runs", &tables[TABLE_RUN], NULL, "id", true, of_none},
    {"devices", &tables[TABLE_DEVICE], NULL, "uuid", true, of_none},
    {"events", &tables[TABLE_EVENT], NULL, "id", true, of_none},
    {"jobs", &job, NULL, "id", true, of_jobs},
    {"served", &tables[TABLE_SERVED], "served_evidence", "id", true, of_served},
    {"fleet", &fleet, NULL, "id", true, of_fleet},
    {"fleet_rows", &fleet_row, NULL, "seq", true, of_fleet_rows},
    {"portfolio", &portfolio, NULL, "grp, member, key", false, of_portfolio},
};

enum { N_LISTS = sizeof(lists) / sizeof(lists[0]), SQL_MAX = 16 * 1024 };

/* A query under construction: text, and the values to bind in order. */
struct query_text {
    const struct list *list;
    const struct table *t;
    uint64_t columns; /* a bit for each column to return: stored columns, then computed columns */
    char where[SQL_MAX - 4096], order[1024];
    size_t n_where;
    struct value values[RECORD_FIELDS_MAX];
    uint32_t n_values;
};

static bool list_has_checksums(const struct query_text *q)
{
    return q->t->schema != &no_columns;
}

static int find_list(const char *what, const struct list **out, struct error *err)
{
    for (size_t i = 0; i < N_LISTS; i++) {
        if (strcmp(lists[i].name, what) == 0) {
            *out = &lists[i];
            return 0;
        }
    }
    return error_set(
        err, ERROR_INVALID,
        "there is no list '%s': it is one of best, history, trials, modules, "
        "quarantine, runs, devices, events, jobs, served, portfolio, fleet, fleet_rows",
        what);
}

/* A stored or computed column of a list. */
struct column {
    const char *name, *sql;
    enum column_kind kind;
    const struct schema_field *field; /* form of its values; NULL: plain */
};

/* Describes column `i`: first come the stored columns, then the computed. False: there is none. */
static bool list_get_column(const struct list *l, size_t i, struct column *out)
{
    static const struct schema_field json = {.kind = SCHEMA_RECORD};
    const struct schema *s = l->table->schema;
    if (i < s->n) {
        const struct schema_field *f = &s->fields[i];
        const bool number =
            f->kind == SCHEMA_INT || f->kind == SCHEMA_REAL || f->kind == SCHEMA_FLAG;
        *out =
            (struct column){row_column(f), row_column(f), number ? COLUMN_NUMBER : COLUMN_TEXT, f};
        return true;
    }
    const struct computed *c = &l->computed[i - s->n];
    *out = (struct column){c->name, c->sql ? c->sql : c->name, c->kind,
                           c->kind == COLUMN_JSON ? &json : NULL};
    return c->name;
}

static int unknown_column(const struct list *l, const char *name, struct error *err)
{
    char known[ERROR_TEXT_MAX] = "";
    struct column c;
    for (size_t i = 0, at = 0; list_get_column(l, i, &c) && at < sizeof(known); i++) {
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "", c.name);
    }
    return error_set(err, ERROR_UNKNOWN_FIELD, "%s has no column '%s'; it has %s", l->name, name,
                     known);
}

/* Finds a column by the first `length` bytes of `name`. *place: its place in the rows. */
static bool list_find_column(const struct list *l, const char *name, size_t length, size_t *place,
                             struct column *out)
{
    *place = 0;
    while (list_get_column(l, *place, out)) {
        if (strlen(out->name) == length && strncmp(out->name, name, length) == 0) {
            return true;
        }
        ++*place;
    }
    return false;
}

/* Reads a comma list of columns. The column by which `after` pages is always returned. */
static int list_choose_columns(struct query_text *q, const struct value *v, struct error *err)
{
    const struct list *l = q->list;
    struct column c;
    size_t place;
    if (v->type != VALUE_TEXT) {
        return error_set(err, ERROR_INVALID, "columns must be a text, as in 'key,time_us'");
    }
    bool found = l->by_one && list_find_column(l, l->order, strlen(l->order), &place, &c);
    q->columns = found ? UINT64_C(1) << place : 0;
    for (const char *at = v->text; *at;) {
        const size_t n = strcspn(at, ",");
        if (!list_find_column(l, at, n, &place, &c)) {
            char name[64];
            snprintf(name, sizeof(name), "%.*s", (int)(n < sizeof(name) ? n : sizeof(name) - 1),
                     at);
            return unknown_column(l, name, err);
        }
        q->columns |= UINT64_C(1) << place;
        at += n + (at[n] == ',');
    }
    return 0;
}

/* Describes the column of this name, or the value in a stored record, as in "config.num_stages". */
static int list_read_name(const struct list *l, const char *name, char sql[256],
                          enum column_kind *kind, struct error *err)
{
    const size_t n = strcspn(name, ".");
    struct column c;
    size_t place;
    if (list_find_column(l, name, strlen(name), &place, &c)) {
        *kind = c.kind;
        snprintf(sql, 256, "%s", c.sql);
        return 0;
    }
    if (name[n] && list_find_column(l, name, n, &place, &c) && place < l->table->schema->n &&
        c.field->kind == SCHEMA_RECORD) {
        /* A record's names have no character that could end the JSON path or the SQL text here. */
        *kind = COLUMN_ANY;
        snprintf(sql, 256, "json_extract(%s, '$.\"%s\"')", c.sql, name + n + 1);
        return 0;
    }
    return unknown_column(l, name, err);
}

/* Adds the condition that a value in a record is v, of v's type: SQLite takes true for 1. */
static void list_compare_value(struct query_text *q, const char *name, const char *sql,
                               const struct value *v)
{
    const char *place = sql + strlen("json_extract");
    /* A problem has some flags only where they are true (op_field.restricts). */
    const bool absent =
        strncmp(name, "problem.", strlen("problem.")) == 0 && v->type == VALUE_BOOL && !v->flag;
    const char *types = v->type == VALUE_BOOL   ? "'true', 'false'"
                        : v->type == VALUE_TEXT ? "'text'"
                                                : "'integer', 'real'";
    q->n_where += (size_t)snprintf(
        q->where + q->n_where, sizeof(q->where) - q->n_where,
        " AND coalesce(%s, %s) = ?%u AND coalesce(json_type%s, '%s') IN (%s)", sql,
        absent ? "0" : "NULL", q->n_values, place, absent ? "false" : "null", types);
}

static int add_condition(struct query_text *q, const char *name, struct value v, struct error *err)
{
    char sql[256];
    enum column_kind kind;
    int r = list_read_name(q->list, name, sql, &kind, err);
    if (r) {
        return r;
    }
    bool part = v.type == VALUE_TEXT && v.text[0] == '~';
    if (kind == COLUMN_NUMBER && v.type == VALUE_TEXT && !part) {
        return error_set(err, ERROR_INVALID, "column %s of %s holds numbers, not '%.100s'", name,
                         q->list->name, v.text);
    }
    q->values[q->n_values++] = part ? VALUE_OF_TEXT(v.text + 1) : v;
    char *end = q->where + q->n_where;
    /* the buffer suffices for all fields that a record may have */
    size_t room = sizeof(q->where) - q->n_where;
    if (part) {
        q->n_where +=
            (size_t)snprintf(end, room, " AND instr(lower(%s), lower(?%u))", sql, q->n_values);
    } else if (kind == COLUMN_TEXT || kind == COLUMN_JSON) {
        q->n_where += (size_t)snprintf(end, room, " AND %s = CAST(?%u AS TEXT)", sql, q->n_values);
    } else if (kind == COLUMN_ANY) {
        list_compare_value(q, name, sql, &v);
    } else {
        q->n_where += (size_t)snprintf(end, room, " AND %s = ?%u", sql, q->n_values);
    }
    return 0;
}

static int set_order(struct query_text *q, const char *sort, struct error *err)
{
    char sql[256];
    enum column_kind kind;
    bool down = sort[0] == '-';
    int r = list_read_name(q->list, sort + down, sql, &kind, err);
    /* NULLs come last in both directions; the row number makes the order unique. */
    snprintf(q->order, sizeof(q->order), "%s IS NULL, %s%s, %s", r ? "0" : sql, r ? "0" : sql,
             down ? " DESC" : "", q->t->rowid);
    return r;
}

/* Restricts the list to rows behind the row with this value, in the list's default order. */
static int add_after(struct query_text *q, struct value v, bool sorted, struct error *err)
{
    if (sorted || !q->list->by_one) {
        return error_set(err, ERROR_INVALID,
                         "'after' needs the default order of %s, by a unique column: use offset",
                         q->list->name);
    }
    q->values[q->n_values++] = v;
    q->n_where += (size_t)snprintf(q->where + q->n_where, sizeof(q->where) - q->n_where,
                                   " AND %s > ?%u", q->list->order, q->n_values);
    return 0;
}

static int get_number(const char *name, const struct value *v, int64_t min, int64_t *out,
                      struct error *err)
{
    if (v->type != VALUE_INT || v->integer < min) {
        return error_set(err, ERROR_INVALID, "%s must be an integer of %d or more", name, (int)min);
    }
    *out = v->integer;
    return 0;
}

static int list_read_filter(struct query_text *q, const struct record *filter, int64_t *limit,
                            int64_t *offset, struct error *err)
{
    int r = 0;
    q->n_where = (size_t)snprintf(q->where, sizeof(q->where),
                                  "WHERE %s NOT IN (SELECT row FROM bad_row WHERE tbl = '%s')",
                                  q->t->rowid, q->t->name);
    snprintf(q->order, sizeof(q->order), "%s", q->list->order);
    for (size_t i = 0; r == 0 && filter && i < filter->n; i++) {
        const char *name = filter->fields[i].name;
        struct value v = record_at(filter, i), sort;
        if (strcmp(name, "limit") == 0) {
            r = get_number(name, &v, 1, limit, err);
        } else if (strcmp(name, "offset") == 0) {
            r = get_number(name, &v, 0, offset, err);
        } else if (q->t == &portfolio && strcmp(name, "bound") == 0) {
            continue; /* portfolio_refresh has already used this field */
        } else if (strcmp(name, "columns") == 0) {
            r = list_choose_columns(q, &v, err);
        } else if (strcmp(name, "after") == 0) {
            r = add_after(q, v, record_get(filter, "sort", &sort), err);
        } else if (strcmp(name, "sort") == 0) {
            r = v.type == VALUE_TEXT ? set_order(q, v.text, err)
                                     : error_set(err, ERROR_INVALID, "sort must name a column");
        } else {
            r = add_condition(q, name, v, err);
        }
    }
    return r;
}

static int bind_values(struct store *s, sqlite3_stmt *st, const struct query_text *q,
                       struct error *err)
{
    int rc = SQLITE_OK;
    for (uint32_t i = 0; rc == SQLITE_OK && i < q->n_values; i++) {
        const struct value *v = &q->values[i];
        int at = (int)i + 1;
        rc = v->type == VALUE_TEXT   ? sqlite3_bind_text(st, at, v->text, -1, SQLITE_STATIC)
             : v->type == VALUE_REAL ? sqlite3_bind_double(st, at, v->real)
             : v->type == VALUE_BOOL ? sqlite3_bind_int64(st, at, v->flag)
                                     : sqlite3_bind_int64(st, at, v->integer);
    }
    return rc == SQLITE_OK ? 0 : db_fail(&s->db, rc, err);
}

/* Prepares a statement outside the cache of statements, which clients' filters would fill. */
static int list_prepare_query(struct store *s, sqlite3_stmt **st, const struct query_text *q,
                              const char *sql, struct error *err)
{
    if (!s->db.h) {
        return error_set(err, ERROR_STORE, "the database is closed: its rebuild failed");
    }
    int rc = sqlite3_prepare_v2(s->db.h, sql, -1, st, NULL);
    return rc == SQLITE_OK ? bind_values(s, *st, q, err) : db_fail(&s->db, rc, err);
}

/* Counts the matching rows, at most `most` of them (-1: all). */
static int list_count_rows(struct store *s, const struct query_text *q, int64_t most,
                           int64_t *total, struct error *err)
{
    char sql[SQL_MAX];
    DB_ONCE_AUTO *st = NULL;
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM (SELECT 1 FROM %s %s LIMIT %lld)",
             q->list->from ? q->list->from : q->t->name, q->where, (long long)most);
    int r = list_prepare_query(s, &st, q, sql, err);
    r = r ? r : db_step(&s->db, st, err);
    if (r == DB_ROW) {
        *total = sqlite3_column_int64(st, 0);
    }
    return r < 0 ? r : 0;
}

static void page_sql(const struct query_text *q, int64_t limit, int64_t offset, char out[SQL_MAX])
{
    const char *from = q->list->from ? q->list->from : q->t->name;
    const size_t stored = q->t->schema->n;
    struct column c;
    size_t at = (size_t)snprintf(out, SQL_MAX, "SELECT ");
    for (size_t i = 0; i < stored && list_get_column(q->list, i, &c); i++) {
        at += (size_t)snprintf(out + at, SQL_MAX - at, "%s, ", c.sql);
    }
    at += (size_t)snprintf(out + at, SQL_MAX - at, "%s, %s",
                           list_has_checksums(q) ? "checksum" : "NULL", q->t->rowid);
    for (size_t i = stored; list_get_column(q->list, i, &c); i++) {
        at += (size_t)snprintf(out + at, SQL_MAX - at, ", %s", c.sql);
    }
    snprintf(out + at, SQL_MAX - at, " FROM %s %s ORDER BY %s LIMIT %lld OFFSET %lld", from,
             q->where, q->order, (long long)limit, (long long)offset);
}

static int list_put_row(sqlite3_stmt *st, const struct query_text *q, struct wire_buf *b)
{
    const size_t stored = q->t->schema->n;
    struct column c;
    size_t n = 0;
    int r = 0;
    for (size_t i = 0; list_get_column(q->list, i, &c); i++) {
        n += q->columns >> i & 1;
    }
    wire_put_map(b, n);
    for (size_t i = 0; r == 0 && list_get_column(q->list, i, &c); i++) {
        if (q->columns >> i & 1) { /* the checksum and the row's number lie between both kinds */
            wire_put_str(b, c.name);
            r = row_put_wire(st, (int)(i < stored ? i : i + 2), c.field, b);
        }
    }
    return r;
}

/* Reads the rows of a page. ROW_BAD: a bad row was found and noted; call again. */
static int read_page(struct store *s, const struct query_text *q, const char *sql, size_t max_bytes,
                     struct wire_buf *rows, uint32_t *n, struct error *err)
{
    DB_ONCE_AUTO *st = NULL;
    int r = list_prepare_query(s, &st, q, sql, err);
    bool bad = false, full = false;
    while (r == 0 && !full && (r = db_step(&s->db, st, err)) == DB_ROW) {
        size_t before = rows->len;
        r = list_has_checksums(q) ? row_check(&s->db, st, q->t, &s->scratch, err) : 0;
        r = r ? r : list_put_row(st, q, rows);
        if (r == ROW_BAD) {
            bad = true;
            r = rows_bad(s, q->t, sqlite3_column_int64(st, (int)q->t->schema->n + 1), err);
            rows->len = before;
        } else if (r == 0 && rows->len > max_bytes) {
            rows->len = before;
            full = true;
        } else if (r == 0) {
            ++*n;
        }
    }
    if (full && *n == 0 && !bad) {
        r = error_set(err, ERROR_TOO_LARGE, "a row of %s has more than %zu bytes", q->list->name,
                      max_bytes);
    }
    return r ? r : bad ? ROW_BAD : 0;
}

static int make_list(struct store *s, const char *what, const struct record *filter,
                     size_t max_bytes, struct wire_buf *out, int64_t *total, struct error *err)
{
    enum { ARRAY_HEADER_MAX = 5 };
    char sql[SQL_MAX];
    struct query_text q = {.columns = UINT64_MAX};
    int64_t limit = PAGE_ROWS_MAX, offset = 0;
    WIRE_BUF_AUTO rows = WIRE_BUF_NULL;
    uint32_t n = 0;
    int r = find_list(what, &q.list, err);
    if (r) {
        return r;
    }
    q.t = q.list->table;
    r = q.t == &portfolio ? portfolio_refresh(s, filter, err) : 0;
    r = r ? r : list_read_filter(&q, filter, &limit, &offset, err);
    if (r) {
        return r;
    }
    page_sql(&q, limit < PAGE_ROWS_MAX ? limit : PAGE_ROWS_MAX, offset, sql);
    do {
        wire_buf_clear(&rows);
        n = 0;
        r = read_page(s, &q, sql, max_bytes - ARRAY_HEADER_MAX, &rows, &n, err);
    } while (r == ROW_BAD);
    /* With `after` one row beyond the page suffices: it shows that there are more. A reader who
     * pages through 100,000 keys would otherwise wait mostly for counts. */
    const bool behind = filter && record_has_n(filter, "after", strlen("after"));
    const int64_t most =
        behind && offset < INT64_MAX - PAGE_ROWS_MAX ? offset + PAGE_ROWS_MAX + 1 : -1;
    r = r ? r : list_count_rows(s, &q, most, total, err);
    if (r) {
        return r;
    }
    wire_put_array(out, n);
    wire_put_raw(out, rows.data, rows.len);
    return rows.failed || out->failed ? error_set(err, ERROR_NO_MEMORY, "no memory for a page") : 0;
}

static int is_late(void *until)
{
    return store_read_clock(CLOCK_MONOTONIC) >= *(const int64_t *)until;
}

int store_list(struct store *s, const char *what, const struct record *filter, size_t max_bytes,
               struct wire_buf *out, int64_t *total, struct error *err)
{
    enum { STEPS = 100000 }; /* SQLite's steps between checks of the clock: about a millisecond */
    int64_t until = store_read_clock(CLOCK_MONOTONIC) + STORE_LIST_MS;
    if (s->db.h) {
        sqlite3_progress_handler(s->db.h, STEPS, is_late, &until);
    }
    int r = make_list(s, what, filter, max_bytes, out, total, err);
    if (s->db.h) {
        sqlite3_progress_handler(s->db.h, 0, NULL, NULL);
    }
    return r == ERROR_CANCELLED && is_late(&until)
               ? error_set(err, ERROR_DEADLINE,
                           "the list was not made within %d s: ask for less by a filter of a key",
                           STORE_LIST_MS / 1000)
               : r;
}
