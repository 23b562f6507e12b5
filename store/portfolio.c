/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list `portfolio` (portfolio.h). SQL gathers the evidence into temporary tables. Shapes are
 * numbered in the order of groups, configs in the order of texts, so that ties do not depend on the
 * order of measurements. Each pair of shape and config keeps the newest trial. The members of each
 * group are chosen from arrays.
 */
#include <stdlib.h>
#include <string.h>

#include "store/portfolio.h"

enum { BOUND_PERCENT = 5, BOUND_PERCENT_MAX = 1000 };

static int portfolio_fail_memory(struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "no memory for a portfolio");
}

/* ---- gathering ------------------------------------------------------------------------------- */

#define GROUP "class, op, mode, dtype_in, dtype_out, stamp"

static const char gather_sql[] =
    "DROP VIEW IF EXISTS temp.portfolio;"
    "DROP VIEW IF EXISTS temp.portfolio_trial;"
    "DROP TABLE IF EXISTS temp.portfolio_shape;"
    "DROP TABLE IF EXISTS temp.portfolio_config;"
    "DROP TABLE IF EXISTS temp.portfolio_pair;"
    "CREATE TEMP VIEW portfolio_trial AS SELECT id, key, stamp, config, ratio FROM trial"
    " WHERE status = 'ok' AND ratio > 0 AND id NOT IN"
    " (SELECT row FROM bad_row WHERE tbl = 'trial');"
    "CREATE TEMP TABLE portfolio_shape(number INTEGER PRIMARY KEY, grp INTEGER, " GROUP ","
    " key TEXT, best INTEGER, config INTEGER, place INTEGER, members INTEGER, regret REAL,"
    " time REAL, bound_percent REAL, UNIQUE (key, stamp));"
    "INSERT INTO portfolio_shape SELECT row_number() OVER (ORDER BY " GROUP ", key),"
    " dense_rank() OVER (ORDER BY " GROUP "), " GROUP ", key, generation, 0, 0, 0, 0, 0, 0 FROM"
    " (SELECT b.*, t.stamp AS stamp, coalesce(json_extract(problem, '$.mode'), '') AS mode,"
    " coalesce(json_extract(problem, '$.dtype_in'), '') AS dtype_in,"
    " coalesce(json_extract(problem, '$.dtype_out'), '') AS dtype_out"
    " FROM (SELECT key, generation, class, op, problem FROM current_best"
    " WHERE generation NOT IN (SELECT row FROM bad_row WHERE tbl = 'best')) AS b"
    " JOIN (SELECT DISTINCT key, stamp FROM portfolio_trial) AS t USING (key));"
    "CREATE TEMP TABLE portfolio_config(number INTEGER PRIMARY KEY, config TEXT UNIQUE);"
    "INSERT INTO portfolio_config SELECT row_number() OVER (ORDER BY config), config FROM"
    " (SELECT DISTINCT config FROM portfolio_trial);"
    "CREATE TEMP TABLE portfolio_pair(shape INTEGER, config INTEGER, time REAL, trial INTEGER,"
    " PRIMARY KEY (shape, config)) WITHOUT ROWID;"
    "INSERT INTO portfolio_pair SELECT s.number, c.number, t.ratio, max(t.id) FROM"
    " portfolio_trial AS t JOIN portfolio_shape AS s USING (key, stamp)"
    " JOIN portfolio_config AS c ON c.config = t.config GROUP BY 1, 2;"
    "CREATE TEMP VIEW portfolio AS SELECT s.number, grp, s.class, s.op, mode, dtype_in, dtype_out,"
    " s.stamp, bound_percent, count(*) OVER (PARTITION BY grp) AS shapes, members,"
    " place AS member, c.config AS config, s.key, problem, 100 * regret AS regret_percent,"
    " time AS ratio FROM portfolio_shape AS s JOIN portfolio_config AS c ON c.number = s.config"
    " JOIN best AS b ON b.generation = s.best";

/* ---- members --------------------------------------------------------------------------------- */

struct choosing {
    struct portfolio_pair *pairs;     /* owned; pairs of a group; shape 0 is the group's first */
    struct portfolio_choice *choices; /* owned */
    int64_t n_configs;
    double bound_percent;
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
                                     x->bound_percent / 100, x->choices, &members, err);
    for (int64_t i = 0; r == 0 && i < shapes; i++) {
        const struct portfolio_choice *c = &x->choices[i];
        r = db_run(&s->db, NULL, err,
                   "UPDATE portfolio_shape SET config = ?1, place = ?2, members = ?3, regret = ?4,"
                   " time = ?5, bound_percent = ?6 WHERE number = ?7",
                   "iiirrri", (int64_t)c->config + 1, (int64_t)c->place + 1, (int64_t)members,
                   c->regret, c->time, x->bound_percent, first + i);
    }
    return r;
}

static int portfolio_choose_groups(struct store *s, double bound_percent, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    struct choosing x = {.bound_percent = bound_percent};
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

/* ---- cache ----------------------------------------------------------------------------------- */

/* Checks only the checksums of the deciding trials, afterwards: each shape's fastest trial and its
 * member's. A database may have hundreds of thousands of trials. */
static int portfolio_make_good(struct store *s, double bound_percent, int64_t *bad,
                               struct error *err)
{
    int r = rows_check(s, TABLE_BEST, "current_best", "", bad, err);
    *bad = 0;
    r = r ? r : db_exec(&s->db, gather_sql, err);
    r = r ? r : portfolio_choose_groups(s, bound_percent, err);
    return r ? r
             : rows_check(s, TABLE_TRIAL, NULL,
                          "WHERE id IN (SELECT trial FROM portfolio_pair AS p JOIN"
                          " portfolio_shape AS s ON s.number = p.shape JOIN (SELECT"
                          " shape, min(time) AS least FROM portfolio_pair GROUP BY shape)"
                          " USING (shape) WHERE p.config = s.config OR p.time = least)",
                          bad, err);
}

/* Makes the portfolio in a read transaction. When a deciding trial is a bad row, makes the
 * portfolio again without that row. */
static int portfolio_make(struct store *s, double bound_percent, struct error *err)
{
    struct error ignored;
    int64_t bad = 0;
    int r = db_exec(&s->db, "BEGIN", err);
    if (r) {
        return r;
    }
    do {
        r = portfolio_make_good(s, bound_percent, &bad, err);
    } while (r == 0 && bad);
    if (r || (r = db_exec(&s->db, "COMMIT", err))) {
        db_exec(&s->db, "ROLLBACK", &ignored);
    }
    return r;
}

int portfolio_refresh(struct store *s, const struct record *filter, struct error *err)
{
    struct value v = VALUE_OF_INT(BOUND_PERCENT);
    if (filter) {
        record_get(filter, "bound", &v);
    }
    const double bound = v.type == VALUE_INT    ? (double)v.integer
                         : v.type == VALUE_REAL ? v.real
                                                : -1;
    if (!(bound >= 0 && bound <= BOUND_PERCENT_MAX)) {
        return error_set(err, ERROR_INVALID, "bound of a portfolio must be percent from 0 to %d",
                         BOUND_PERCENT_MAX);
    }
    int64_t version;
    int r = db_int(&s->db, "PRAGMA data_version", &version, err); /* changes by other connections */
    if (r || (s->portfolio.made && s->portfolio.version == version &&
              s->portfolio.changes == sqlite3_total_changes64(s->db.h) &&
              s->portfolio.bound_percent == bound)) {
        return r;
    }
    r = portfolio_make(s, bound, err);
    s->portfolio.made = r == 0;
    s->portfolio.version = version;
    s->portfolio.changes = sqlite3_total_changes64(s->db.h);
    s->portfolio.bound_percent = bound;
    return r;
}
