/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list `portfolio` (docs/store.md): for each group of shapes, a small set of configs, so that
 * no shape takes longer than its best time plus a bound in percent. A group shares device class,
 * op, mode, types, batch_invariant, and the stamp (kernel version) of the trials: times of other
 * kernel versions are left out. The evidence is trials of status ok, each as the ratio of its time
 * to the time of the reference kernel in the same run; only the newest trial of a key and config is
 * used. The *regret* of a config for a shape is its time / the shape's best time - 1.
 *
 * Finding the smallest set is set cover, which is hard. The greedy algorithm takes the config that
 * covers most uncovered shapes, again and again. Its set is at most 1 + ln(shapes) times as large.
 * Then superfluous members are dropped. Ties go to the smaller sum of regrets, then to the config
 * whose text is lower, so that the result does not depend on the order of measurements.
 *
 * SQL does the work in temporary tables, for all groups at once: a round finds the next member of
 * each group that has uncovered shapes.
 */
#include "store/inner.h"

enum { BOUND_PERCENT = 5, BOUND_PERCENT_MAX = 1000 };

#define GROUP "class, op, mode, dtype_in, dtype_out, batch_invariant, stamp"

/* portfolio_good has the pairs of shape and config whose regret is within the bound, portfolio_open
 * the shapes that no member covers yet. */
static const char gather_sql[] =
    "DROP VIEW IF EXISTS temp.portfolio_trial;"
    "DROP TABLE IF EXISTS temp.portfolio_shape;"
    "DROP TABLE IF EXISTS temp.portfolio_config;"
    "DROP TABLE IF EXISTS temp.portfolio_good;"
    "DROP TABLE IF EXISTS temp.portfolio_open;"
    "DROP TABLE IF EXISTS temp.portfolio_member;"
    "DROP TABLE IF EXISTS temp.portfolio;"
    "CREATE TEMP VIEW portfolio_trial AS SELECT id, key, stamp, config, ratio FROM trial"
    " WHERE status = 'ok' AND ratio > 0 AND id NOT IN"
    " (SELECT row FROM bad_row WHERE tbl = 'trial');"
    "CREATE TEMP TABLE portfolio_shape(number INTEGER PRIMARY KEY, grp INTEGER, " GROUP ","
    " key TEXT, problem TEXT, UNIQUE (key, stamp));"
    "INSERT INTO portfolio_shape SELECT row_number() OVER (ORDER BY " GROUP ", key),"
    " dense_rank() OVER (ORDER BY " GROUP "), " GROUP ", key, problem FROM"
    " (SELECT b.*, t.stamp AS stamp, coalesce(json_extract(problem, '$.mode'), '') AS mode,"
    " coalesce(json_extract(problem, '$.dtype_in'), '') AS dtype_in,"
    " coalesce(json_extract(problem, '$.dtype_out'), '') AS dtype_out,"
    " coalesce(json_extract(problem, '$.batch_invariant'), 0) AS batch_invariant"
    " FROM (SELECT key, class, op, problem FROM current_best"
    " WHERE generation NOT IN (SELECT row FROM bad_row WHERE tbl = 'best')) AS b"
    " JOIN (SELECT DISTINCT key, stamp FROM portfolio_trial) AS t USING (key));"
    "CREATE TEMP TABLE portfolio_config(number INTEGER PRIMARY KEY, config TEXT UNIQUE);"
    "INSERT INTO portfolio_config SELECT row_number() OVER (ORDER BY config), config FROM"
    " (SELECT DISTINCT config FROM portfolio_trial);"
    "CREATE TEMP TABLE portfolio_good(grp INTEGER, shape INTEGER, config INTEGER, time REAL,"
    " trial INTEGER, regret REAL, PRIMARY KEY (shape, config)) WITHOUT ROWID;"
    "CREATE TEMP TABLE portfolio_open(shape INTEGER PRIMARY KEY);"
    "INSERT INTO portfolio_open SELECT number FROM portfolio_shape;"
    "CREATE TEMP TABLE portfolio_member(grp INTEGER, config INTEGER, place INTEGER,"
    " PRIMARY KEY (grp, config)) WITHOUT ROWID;";

/* Makes a row for each shape, with the member of its group that has the least regret. */
static const char assign_sql[] =
    "CREATE TEMP TABLE portfolio AS SELECT s.number, s.grp, " GROUP ", ?1 AS bound_percent,"
    " count(*) OVER (PARTITION BY s.grp) AS shapes, members, member, c.config AS config, key,"
    " problem, 100 * regret AS regret_percent, time AS ratio, g.config AS chosen"
    " FROM portfolio_shape AS s JOIN"
    " (SELECT shape, config, time, regret, members, member,"
    " row_number() OVER (PARTITION BY shape ORDER BY regret, member) AS rank"
    " FROM portfolio_good JOIN (SELECT grp, config, count(*) OVER (PARTITION BY grp) AS members,"
    " row_number() OVER (PARTITION BY grp ORDER BY place) AS member FROM portfolio_member)"
    " USING (grp, config)) AS g ON g.shape = s.number AND rank = 1"
    " JOIN portfolio_config AS c ON c.number = g.config";

static int portfolio_choose_members(struct store *s, double bound_percent, struct error *err)
{
    int64_t added = 1, place = 0;
    int r = db_run(&s->db, NULL, err,
                   "INSERT INTO portfolio_good SELECT * FROM"
                   " (SELECT *, time / min(time) OVER (PARTITION BY shape) - 1 AS regret FROM"
                   " (SELECT s.grp, s.number AS shape, c.number AS config, t.ratio AS time,"
                   " max(t.id) AS trial FROM portfolio_trial AS t"
                   " JOIN portfolio_shape AS s USING (key, stamp)"
                   " JOIN portfolio_config AS c ON c.config = t.config GROUP BY 2, 3))"
                   " WHERE regret <= ?1 / 100",
                   "r", bound_percent);
    for (; r == 0 && added > 0; place++) {
        r = db_run(&s->db, &added, err,
                   "INSERT INTO portfolio_member SELECT grp, config, ?1 FROM (SELECT grp, config,"
                   " row_number() OVER (PARTITION BY grp ORDER BY count(*) DESC, sum(regret),"
                   " config) AS rank FROM portfolio_good WHERE shape IN portfolio_open"
                   " GROUP BY grp, config) WHERE rank = 1",
                   "i", place);
        r = r ? r
              : db_run(&s->db, NULL, err,
                       "DELETE FROM portfolio_open WHERE shape IN (SELECT shape FROM portfolio_good"
                       " JOIN portfolio_member USING (grp, config) WHERE place = ?1)",
                       "i", place);
    }
    /* Drops superfluous members, the last first: late members were chosen for few shapes. A shape
     * with a single member needs that member. */
    while (r == 0 && place-- > 0) {
        r = db_run(&s->db, NULL, err,
                   "DELETE FROM portfolio_member WHERE place = ?1 AND (grp, config) NOT IN"
                   " (SELECT grp, config FROM portfolio_good JOIN portfolio_member"
                   " USING (grp, config) GROUP BY shape HAVING count(*) = 1)",
                   "i", place);
    }
    return r;
}

/* Makes the portfolio, then checks the checksums of the trials that decided: each shape's fastest
 * trial, and the trial of its member. To check all would take long: a database may have hundreds of
 * thousands of trials. */
static int portfolio_make_good(struct store *s, double bound_percent, int64_t *bad,
                               struct error *err)
{
    int r = rows_check(s, TABLE_BEST, "current_best", "", bad, err);
    *bad = 0;
    r = r ? r : db_exec(&s->db, gather_sql, err);
    r = r ? r : portfolio_choose_members(s, bound_percent, err);
    r = r ? r : db_run(&s->db, NULL, err, assign_sql, "r", bound_percent);
    return r ? r
             : rows_check(s, TABLE_TRIAL, NULL,
                          "WHERE id IN (SELECT trial FROM portfolio_good WHERE regret = 0 OR"
                          " (shape, config) IN (SELECT number, chosen FROM temp.portfolio))",
                          bad, err);
}

/* Makes the portfolio in a read transaction. When a trial that decided is a bad row, makes the
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
    /* the version changes with commits of other connections */
    int r = db_int(&s->db, "PRAGMA data_version", &version, err);
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
