/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list `portfolio` (portfolio.h). SQL gathers the evidence into temporary tables: the shapes,
 * in the order of their groups, the configs, in the order of their texts, so that no tie depends on
 * what was measured first, and the newest trial of each pair of these. The members of each group
 * are chosen from arrays.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "store/portfolio.h"

static const double BOUND_PERCENT = 5, BOUND_PERCENT_MAX = 1000;

static int portfolio_fail_memory(struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "no memory for a portfolio");
}

/* ---- gathering ------------------------------------------------------------------------------- */

#define TEXT_OF(name) "coalesce(json_extract(problem, '$." name "'), '') AS " name
#define GROUP         "class, op, mode, dtype_in, dtype_out, stamp"

static const char gather_sql[] =
    "DROP VIEW IF EXISTS temp.portfolio_trial;"
    "DROP TABLE IF EXISTS temp.portfolio_shape;"
    "DROP TABLE IF EXISTS temp.portfolio_config;"
    "DROP TABLE IF EXISTS temp.portfolio_pair;"
    "CREATE TEMP VIEW portfolio_trial AS SELECT id, key, stamp, config, ratio FROM trial"
    " WHERE status = 'ok' AND ratio > 0 AND id NOT IN"
    " (SELECT row FROM bad_row WHERE tbl = 'trial');"
    "CREATE TEMP TABLE portfolio_shape(number INTEGER PRIMARY KEY, grp INTEGER, " GROUP ","
    " key TEXT, best INTEGER, config INTEGER, place INTEGER, members INTEGER, regret REAL,"
    " time REAL, UNIQUE (key, stamp));"
    "INSERT INTO portfolio_shape SELECT row_number() OVER (ORDER BY " GROUP ", key),"
    " dense_rank() OVER (ORDER BY " GROUP "), " GROUP ", key, generation, 0, 0, 0, 0, 0 FROM"
    " (SELECT b.*, t.stamp AS stamp, " TEXT_OF("mode") ", " TEXT_OF("dtype_in") ", " TEXT_OF(
        "dtype_out") " FROM (SELECT key, generation, class, op, problem FROM current_best"
                     " WHERE generation NOT IN (SELECT row FROM bad_row WHERE tbl = 'best')) AS b"
                     " JOIN (SELECT DISTINCT key, stamp FROM portfolio_trial) AS t USING (key));"
                     "CREATE TEMP TABLE portfolio_config(number INTEGER PRIMARY KEY, config TEXT "
                     "UNIQUE);"
                     "INSERT INTO portfolio_config SELECT row_number() OVER (ORDER BY config), "
                     "config FROM"
                     " (SELECT DISTINCT config FROM portfolio_trial);"
                     "CREATE TEMP TABLE portfolio_pair(shape INTEGER, config INTEGER, time REAL, "
                     "trial INTEGER,"
                     " PRIMARY KEY (shape, config)) WITHOUT ROWID;"
                     "INSERT INTO portfolio_pair SELECT s.number, c.number, t.ratio, max(t.id) FROM"
                     " portfolio_trial AS t JOIN portfolio_shape AS s USING (key, stamp)"
                     " JOIN portfolio_config AS c ON c.config = t.config GROUP BY 1, 2;";

/* Bad rows are noted in bad_row. *good: there are none. */
static int portfolio_check_rows(struct store *s, enum table_id table, const char *from,
                                const char *tail, bool *good, struct error *err)
{
    ROWS_AUTO rows = {0};
    *good = true;
    int r = rows_begin(&rows, s, table, err, from, tail, "");
    while (r == 0 && (r = db_step(&s->db, rows.st, err)) == DB_ROW) {
        r = row_check(&s->db, rows.st, rows.t, &s->scratch, err);
        if (r == ROW_BAD) {
            *good = false;
            r = rows_bad(s, rows.t, sqlite3_column_int64(rows.st, (int)rows.t->schema->n + 1), err);
        }
    }
    return r;
}

/* ---- members --------------------------------------------------------------------------------- */

struct choosing {
    struct portfolio_pair *pairs;     /* owned; of one group, shapes counted from its first */
    struct portfolio_choice *choices; /* owned */
    int64_t n_configs;
    double bound;
};

static int portfolio_choose_group(struct store *s, struct choosing *x, int64_t first,
                                  int64_t shapes, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    size_t n = 0;
    uint32_t members;
    int r = db_query(&s->db, &st, err,
                     "SELECT shape, config, time FROM portfolio_pair WHERE shape >= ?1 AND"
                     " shape < ?2",
                     "ii", first, first + shapes);
    while (r == 0 && (r = db_step(&s->db, st, err)) == DB_ROW) {
        x->pairs[n++] = (struct portfolio_pair){(uint32_t)(sqlite3_column_int64(st, 0) - first),
                                                (uint32_t)sqlite3_column_int64(st, 1) - 1,
                                                sqlite3_column_double(st, 2)};
        r = 0;
    }
    r = r ? r
          : portfolio_choose_members(x->pairs, n, (uint32_t)shapes, (uint32_t)x->n_configs,
                                     x->bound, x->choices, &members, err);
    for (int64_t i = 0; r == 0 && i < shapes; i++) {
        const struct portfolio_choice *c = &x->choices[i];
        r = db_run(&s->db, NULL, err,
                   "UPDATE portfolio_shape SET config = ?1, place = ?2, members = ?3, regret = ?4,"
                   " time = ?5 WHERE number = ?6",
                   "iiirri", (int64_t)c->config + 1, (int64_t)c->place + 1, (int64_t)members,
                   c->regret, c->time, first + i);
    }
    return r;
}

static int portfolio_choose_groups(struct store *s, double bound_percent, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    struct choosing x = {.bound = bound_percent / 100};
    int64_t pairs = 0, shapes = 0;
    int r = db_int(&s->db, "SELECT count(*) FROM portfolio_pair", &pairs, err);
    r = r ? r : db_int(&s->db, "SELECT count(*) FROM portfolio_shape", &shapes, err);
    r = r ? r : db_int(&s->db, "SELECT count(*) FROM portfolio_config", &x.n_configs, err);
    x.pairs = malloc(((size_t)pairs + 1) * sizeof(*x.pairs));
    x.choices = malloc(((size_t)shapes + 1) * sizeof(*x.choices));
    r = r || (x.pairs && x.choices) ? r : portfolio_fail_memory(err);
    r = r ? r
          : db_query(&s->db, &st, err,
                     "SELECT min(number), count(*) FROM portfolio_shape GROUP BY grp", "");
    while (r == 0 && (r = db_step(&s->db, st, err)) == DB_ROW) {
        r = portfolio_choose_group(s, &x, sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
                                   err);
    }
    free(x.pairs);
    free(x.choices);
    return r;
}

/* ---- keeping it ------------------------------------------------------------------------------ */

/* There may be hundreds of thousands of trials: those that decided, of each shape the best one and
 * its member's, have their checksums looked at afterwards. */
static int portfolio_make_good(struct store *s, double bound_percent, bool *good, struct error *err)
{
    int r = portfolio_check_rows(s, TABLE_BEST, "current_best", "", good, err);
    r = r ? r : db_exec(&s->db, gather_sql, err);
    r = r ? r : portfolio_choose_groups(s, bound_percent, err);
    return r ? r
             : portfolio_check_rows(s, TABLE_TRIAL, NULL,
                                    "WHERE id IN (SELECT trial FROM portfolio_pair AS p JOIN"
                                    " portfolio_shape AS s ON s.number = p.shape JOIN (SELECT"
                                    " shape, min(time) AS least FROM portfolio_pair GROUP BY shape)"
                                    " USING (shape) WHERE p.config = s.config OR p.time = least)",
                                    good, err);
}

/* In one view of the database. Again without the bad rows, which are fewer each time. */
static int portfolio_make(struct store *s, double bound_percent, struct error *err)
{
    struct error ignored;
    bool good = false;
    int r = db_exec(&s->db, "BEGIN", err);
    if (r) {
        return r;
    }
    while (r == 0 && !good) {
        r = portfolio_make_good(s, bound_percent, &good, err);
    }
    if (r || (r = db_exec(&s->db, "COMMIT", err))) {
        db_exec(&s->db, "ROLLBACK", &ignored);
    }
    return r;
}

/* One that is up to date, of this bound. */
static int portfolio_refresh(struct store *s, double bound_percent, struct error *err)
{
    int64_t version;
    int r = db_int(&s->db, "PRAGMA data_version", &version, err); /* changes by others */
    if (r || (s->portfolio.made && s->portfolio.version == version &&
              s->portfolio.changes == sqlite3_total_changes64(s->db.h) &&
              s->portfolio.bound_percent == bound_percent)) {
        return r;
    }
    s->portfolio.made = false;
    r = portfolio_make(s, bound_percent, err);
    s->portfolio.made = r == 0;
    s->portfolio.version = version;
    s->portfolio.changes = sqlite3_total_changes64(s->db.h);
    s->portfolio.bound_percent = bound_percent;
    return r;
}

/* ---- listing --------------------------------------------------------------------------------- */

struct portfolio_filter {
    const char *class, *op, *mode, *stamp; /* NULL: any; borrowed from the filter */
    double bound_percent;
    int64_t limit, offset;
};

static int portfolio_refuse_filter(const char *name, const char *what, struct error *err)
{
    return error_set(err, ERROR_INVALID, "%s of a portfolio must be %s", name, what);
}

static int portfolio_read_field(struct portfolio_filter *w, const char *name, const struct value *v,
                                struct error *err)
{
    const struct {
        const char *name, **text;
    } texts[] = {{"class", &w->class}, {"op", &w->op}, {"mode", &w->mode}, {"stamp", &w->stamp}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].text = v->type == VALUE_TEXT ? v->text : "";
            return 0;
        }
    }
    if (strcmp(name, "bound") == 0) {
        w->bound_percent = v->type == VALUE_INT    ? (double)v->integer
                           : v->type == VALUE_REAL ? v->real
                                                   : -1;
        bool good = w->bound_percent >= 0 && w->bound_percent <= BOUND_PERCENT_MAX;
        return good ? 0 : portfolio_refuse_filter(name, "percent from 0 to 1000", err);
    }
    int64_t *number = strcmp(name, "limit") == 0    ? &w->limit
                      : strcmp(name, "offset") == 0 ? &w->offset
                                                    : NULL;
    if (!number) {
        return error_set(
            err, ERROR_UNKNOWN_FIELD,
            "portfolio has no filter '%s'; it has class, op, mode, stamp, bound, limit, "
            "offset",
            name);
    }
    *number = v->type == VALUE_INT ? v->integer : -1;
    return *number >= (number == &w->limit)
               ? 0
               : portfolio_refuse_filter(name, "an integer from 0 on", err);
}

static void portfolio_put_row(struct wire_buf *b, sqlite3_stmt *st)
{
    static const struct schema_field json = {.kind = SCHEMA_RECORD};
    int n = sqlite3_column_count(st);
    wire_put_map(b, (size_t)n);
    for (int i = 0; i < n; i++) {
        const char *name = sqlite3_column_name(st, i);
        bool is_json = strcmp(name, "config") == 0 || strcmp(name, "problem") == 0;
        wire_put_str(b, name);
        if (row_put_wire(st, i, is_json ? &json : NULL, b)) {
            wire_put_nil(b);
        }
    }
}

/* Appends the rows of the page; *total: all that the filter lets through. */
static int portfolio_fill_page(struct store *s, const struct portfolio_filter *w, size_t max_bytes,
                               struct wire_buf *rows, uint32_t *n, int64_t *total,
                               struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    bool full = false;
    *n = 0;
    *total = 0;
    int r = db_query(&s->db, &st, err,
                     "SELECT s.class, s.op, mode, dtype_in, dtype_out, s.stamp,"
                     " ?5 AS bound_percent, count(*) OVER (PARTITION BY grp) AS shapes, members,"
                     " place AS member, c.config AS config, s.key, problem,"
                     " 100 * regret AS regret_percent, time AS ratio FROM portfolio_shape AS s"
                     " JOIN portfolio_config AS c ON c.number = s.config"
                     " JOIN best AS b ON b.generation = s.best"
                     " WHERE s.class = coalesce(?1, s.class) AND s.op = coalesce(?2, s.op)"
                     " AND mode = coalesce(?3, mode) AND s.stamp = coalesce(?4, s.stamp)"
                     " ORDER BY grp, place, s.key",
                     "ttttr", w->class, w->op, w->mode, w->stamp, w->bound_percent);
    while (r == 0 && (r = db_step(&s->db, st, err)) == DB_ROW) {
        const size_t before = rows->len;
        const int64_t number = (*total)++;
        r = 0;
        if (full || number < w->offset || *n >= w->limit) {
            continue;
        }
        portfolio_put_row(rows, st);
        full = rows->len > max_bytes;
        rows->len = full ? before : rows->len;
        *n += !full;
    }
    return r;
}

int portfolio_list(struct store *s, const struct record *filter, size_t max_bytes,
                   struct wire_buf *out, int64_t *total, struct error *err)
{
    enum { ARRAY_HEADER_MAX = 5 };
    struct portfolio_filter w = {.bound_percent = BOUND_PERCENT, .limit = PAGE_ROWS_MAX};
    WIRE_BUF_AUTO rows = WIRE_BUF_NULL;
    uint32_t n;
    int r = 0;
    for (size_t i = 0; r == 0 && filter && i < filter->n; i++) {
        struct value v = record_at(filter, i);
        r = portfolio_read_field(&w, filter->fields[i].name, &v, err);
    }
    w.limit = w.limit < PAGE_ROWS_MAX ? w.limit : PAGE_ROWS_MAX;
    r = r ? r : portfolio_refresh(s, w.bound_percent, err);
    r = r ? r : portfolio_fill_page(s, &w, max_bytes - ARRAY_HEADER_MAX, &rows, &n, total, err);
    if (r) {
        return r;
    }
    wire_put_array(out, n);
    wire_put_raw(out, rows.data, rows.len);
    return rows.failed || out->failed ? portfolio_fail_memory(err) : 0;
}
