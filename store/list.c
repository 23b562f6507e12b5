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
    const char *name, *sql;
    enum column_kind kind;
};

struct list {
    const char *name;
    const struct table *table;
    const char *from;  /* text behind SQL's FROM; NULL: the table itself */
    const char *order; /* order of the rows when the filter has no `sort` */
    /* `order` is a single column without equal values, so that `after` can page by it */
    bool by_one;
    struct computed computed[17];
};

#define BEST_COMPUTED                                                                              \
    {                                                                                              \
        {.name = "tflops", .sql = "(flops / time_us * 1e-6)"},                                     \
            {.name = "gbps", .sql = "(bytes / time_us * 1e-3)"},                                   \
            {.name = "floor_percent", .sql = "(100 * floor_us / time_us)"},                        \
            {.name = "speedup", .sql = "(reference_us / time_us)"}, {.name = NULL},                \
    }
/* A trial has no flops column; a best of the same key has the flops. */
#define TRIAL_FLOPS                                                                                \
    "(SELECT flops FROM best WHERE best.key = trial.key ORDER BY generation DESC LIMIT 1)"
/* The class of a trial is the class of its key's bests; without a best, today's class of the device
 * of the run. */
#define TRIAL_CLASS                                                                                \
    "coalesce((SELECT class FROM best WHERE best.key = trial.key LIMIT 1), (SELECT class FROM "    \
    "device WHERE uuid = (SELECT device FROM run WHERE run.id = trial.run)))"

/* The list `portfolio` is made from several tables (portfolio.c), the list `jobs` from sums of
 * rows, and the fleet's tables have no checksums: all columns of these lists are computed. */
static const struct schema no_columns = {.name = "portfolio"};
static const struct table portfolio = {
    .name = "portfolio", .schema = &no_columns, .rowid = "number"};
static const struct table job = {.name = "job", .schema = &no_columns, .rowid = "id"};
static const struct table fleet = {.name = "fleet", .schema = &no_columns, .rowid = "id"};
static const struct table fleet_row = {.name = "fleet_row", .schema = &no_columns, .rowid = "seq"};

/* 1: gemmd-fleet runs, and its server answers */
#define FLEET_ATTACHED                                                                             \
    "EXISTS (SELECT 1 FROM lease WHERE key = '" STORE_FLEET_KEY                                    \
    "' AND NOT is_gone(owner, boot) AND until_ms > boot_ms())"

static const struct list lists[] = {
    {"best", &tables[TABLE_BEST], "current_best", "key", true, BEST_COMPUTED},
    {"history", &tables[TABLE_BEST], NULL, "generation", true, BEST_COMPUTED},
    {"trials",
     &tables[TABLE_TRIAL],
     NULL,
     "id",
     true,
     {{.name = "speedup", .sql = "(1 / ratio)"},
      {.name = "tflops", .sql = "(" TRIAL_FLOPS " / time_us * 1e-6)"},
      {.name = "class", .sql = TRIAL_CLASS, .kind = COLUMN_TEXT},
      {.name = NULL}}},
    {"modules", &tables[TABLE_MODULE], NULL, "id, variant", false, {{.name = NULL}}},
    {"quarantine", &tables[TABLE_QUARANTINE], NULL, "id", true, {{.name = NULL}}},
    {"runs", &tables[TABLE_RUN], NULL, "id", true, {{.name = NULL}}},
    {"devices", &tables[TABLE_DEVICE], NULL, "uuid", true, {{.name = NULL}}},
    {"events", &tables[TABLE_EVENT], NULL, "id", true, {{.name = NULL}}},
    {"jobs",
     &job,
     NULL,
     "id",
     true,
     {{.name = "id", .sql = "id"},
      {.name = "uid", .sql = "uid"},
      {"job", "job", COLUMN_TEXT},
      {.name = "first_s", .sql = "first_s"},
      {.name = "last_s", .sql = "last_s"},
      {.name = "answers", .sql = "answers"},
      {.name = "exact", .sql = "exact"},
      {.name = "near", .sql = "near"},
      {.name = "portfolio", .sql = "portfolio"},
      {.name = "defaults", .sql = "defaults"},
      {.name = "keys", .sql = "keys"},
      {.name = NULL}}},
    {"served",
     &tables[TABLE_SERVED],
     "served_evidence",
     "id",
     true,
     {{"best_source", "best_source", COLUMN_TEXT},
      {.name = "best_s", .sql = "best_s"},
      {.name = "best_us", .sql = "best_us"},
      {.name = "served_us", .sql = "served_us"},
      {.name = "lost_us", .sql = "lost_us"},
      {.name = NULL}}},
    {"fleet",
     &fleet,
     NULL,
     "id",
     true,
     {{.name = "id", .sql = "id"},
      {"server", "server", COLUMN_TEXT},
      {"state", "state", COLUMN_TEXT},
      {.name = "since_s", .sql = "since_s"},
      {"text", "text", COLUMN_TEXT},
      {"epoch", "epoch", COLUMN_TEXT},
      {.name = "cursor", .sql = "cursor"},
      {.name = "host", .sql = "host"},
      {"counters", "counters", COLUMN_JSON},
      {.name = "attached", .sql = FLEET_ATTACHED},
      {.name = NULL}}},
    {"fleet_rows",
     &fleet_row,
     NULL,
     "seq",
     true,
     {{.name = "seq", .sql = "seq"},
      {"key", "key", COLUMN_TEXT},
      {.name = "generation", .sql = "generation"},
      {"origin", "origin", COLUMN_TEXT},
      {"state", "state", COLUMN_TEXT},
      {"reason", "reason", COLUMN_TEXT},
      {.name = "reported", .sql = "reported"},
      {.name = NULL}}},
    {"portfolio",
     &portfolio,
     NULL,
     "grp, member, key",
     false,
     {{"class", "class", COLUMN_TEXT},
      {"op", "op", COLUMN_TEXT},
      {"mode", "mode", COLUMN_TEXT},
      {"dtype_in", "dtype_in", COLUMN_TEXT},
      {"dtype_out", "dtype_out", COLUMN_TEXT},
      {.name = "batch_invariant", .sql = "batch_invariant"},
      {"stamp", "stamp", COLUMN_TEXT},
      {.name = "bound_percent", .sql = "bound_percent"},
      {.name = "shapes", .sql = "shapes"},
      {.name = "members", .sql = "members"},
      {.name = "member", .sql = "member"},
      {"config", "config", COLUMN_JSON},
      {"key", "key", COLUMN_TEXT},
      {"problem", "problem", COLUMN_JSON},
      {.name = "regret_percent", .sql = "regret_percent"},
      {.name = "ratio", .sql = "ratio"},
      {.name = NULL}}},
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

static int unknown_column(const struct list *l, const char *name, struct error *err)
{
    const struct schema *s = l->table->schema;
    char known[ERROR_TEXT_MAX] = "";
    size_t at = 0;
    for (size_t i = 0; i < s->n && at < sizeof(known); i++) {
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", at ? ", " : "",
                               row_column(&s->fields[i]));
    }
    for (const struct computed *c = l->computed; c->name && at < sizeof(known); c++) {
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", at ? ", " : "", c->name);
    }
    return error_set(err, ERROR_UNKNOWN_FIELD, "%s has no column '%s'; it has %s", l->name, name,
                     known);
}

/* The place of a stored or computed column in the rows; RECORD_FIELDS_MAX: no such column. */
static size_t list_find_column(const struct list *l, const char *name, size_t length)
{
    const struct schema *s = l->table->schema;
    for (size_t i = 0; i < s->n; i++) {
        const char *column = row_column(&s->fields[i]);
        if (strlen(column) == length && strncmp(column, name, length) == 0) {
            return i;
        }
    }
    for (size_t i = 0; l->computed[i].name; i++) {
        const char *column = l->computed[i].name;
        if (strlen(column) == length && strncmp(column, name, length) == 0) {
            return s->n + i;
        }
    }
    return RECORD_FIELDS_MAX;
}

/* Reads a comma list of columns. The column by which `after` pages is always returned. */
static int list_choose_columns(struct query_text *q, const struct value *v, struct error *err)
{
    const struct list *l = q->list;
    if (v->type != VALUE_TEXT) {
        return error_set(err, ERROR_INVALID, "columns must be a text, as in 'key,time_us'");
    }
    q->columns = l->by_one ? UINT64_C(1) << list_find_column(l, l->order, strlen(l->order)) : 0;
    for (const char *at = v->text; *at;) {
        const size_t n = strcspn(at, ","), place = list_find_column(l, at, n);
        if (place == RECORD_FIELDS_MAX) {
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

static int column_sql(const struct list *l, const char *name, char out[256], enum column_kind *kind,
                      struct error *err)
{
    const struct schema *s = l->table->schema;
    const char *dot = strchr(name, '.');
    for (size_t i = 0; i < s->n; i++) {
        const struct schema_field *f = &s->fields[i];
        const char *column = row_column(f);
        size_t n = strlen(column);
        if (strcmp(column, name) == 0) {
            *kind = f->kind == SCHEMA_INT || f->kind == SCHEMA_REAL || f->kind == SCHEMA_FLAG
                        ? COLUMN_NUMBER
                        : COLUMN_TEXT;
            snprintf(out, 256, "%s", column);
            return 0;
        }
        if (f->kind == SCHEMA_RECORD && dot && n == (size_t)(dot - name) &&
            strncmp(column, name, n) == 0) {
            /* A record's names have no character that could end the JSON path or the SQL text
             * here. */
            *kind = COLUMN_ANY;
            snprintf(out, 256, "json_extract(%s, '$.\"%s\"')", column, dot + 1);
            return 0;
        }
    }
    for (const struct computed *c = l->computed; c->name; c++) {
        if (strcmp(c->name, name) == 0) {
            *kind = c->kind;
            snprintf(out, 256, "%s", c->sql);
            return 0;
        }
    }
    return unknown_column(l, name, err);
}

static int add_condition(struct query_text *q, const char *name, struct value v, struct error *err)
{
    char sql[256];
    enum column_kind kind;
    int r = column_sql(q->list, name, sql, &kind, err);
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
    /* A problem has some flags only where they are true (op_field.restricts). */
    const bool absent =
        strncmp(name, "problem.", strlen("problem.")) == 0 && v.type == VALUE_BOOL && !v.flag;
    int n = part ? snprintf(end, room, " AND instr(lower(%s), lower(?%u))", sql, q->n_values)
            : kind == COLUMN_TEXT || kind == COLUMN_JSON
                ? snprintf(end, room, " AND %s = CAST(?%u AS TEXT)", sql, q->n_values)
                : snprintf(end, room, absent ? " AND coalesce(%s, 0) = ?%u" : " AND %s = ?%u", sql,
                           q->n_values);
    q->n_where += (size_t)n;
    return 0;
}

static int set_order(struct query_text *q, const char *sort, struct error *err)
{
    char sql[256];
    enum column_kind kind;
    bool down = sort[0] == '-';
    int r = column_sql(q->list, sort + down, sql, &kind, err);
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
    size_t at = (size_t)snprintf(out, SQL_MAX, "SELECT ");
    for (size_t i = 0; i < q->t->schema->n; i++) {
        const char *name = row_column(&q->t->schema->fields[i]);
        at += (size_t)snprintf(out + at, SQL_MAX - at, "%s, ", name);
    }
    at += (size_t)snprintf(out + at, SQL_MAX - at, "%s, %s",
                           list_has_checksums(q) ? "checksum" : "NULL", q->t->rowid);
    for (const struct computed *c = q->list->computed; c->name; c++) {
        at += (size_t)snprintf(out + at, SQL_MAX - at, ", %s", c->sql);
    }
    snprintf(out + at, SQL_MAX - at, " FROM %s %s ORDER BY %s LIMIT %lld OFFSET %lld", from,
             q->where, q->order, (long long)limit, (long long)offset);
}

static int list_put_row(sqlite3_stmt *st, const struct query_text *q, struct wire_buf *b)
{
    static const struct schema_field json = {.kind = SCHEMA_RECORD};
    const struct schema *s = q->t->schema;
    size_t n_computed = 0, n = 0;
    while (q->list->computed[n_computed].name) {
        n_computed++;
    }
    int r = 0;
    for (size_t i = 0; i < s->n + n_computed; i++) {
        n += q->columns >> i & 1;
    }
    wire_put_map(b, n);
    for (size_t i = 0; r == 0 && i < s->n; i++) {
        if (!(q->columns >> i & 1)) {
            continue;
        }
        wire_put_str(b, row_column(&s->fields[i]));
        r = row_put_wire(st, (int)i, &s->fields[i], b);
    }
    for (size_t i = 0; r == 0 && i < n_computed; i++) {
        const struct computed *c = &q->list->computed[i];
        if (!(q->columns >> (s->n + i) & 1)) {
            continue;
        }
        wire_put_str(b, c->name);
        r = row_put_wire(st, (int)(s->n + 2 + i), c->kind == COLUMN_JSON ? &json : NULL, b);
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
