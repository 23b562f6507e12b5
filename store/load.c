/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the newest best of each key. Two sources tell which row is a key's newest: the rows
 * themselves, and the index over (key, generation). A key is served only where both agree. So the
 * row before the newest never comes back when the newest row, or its index entry, is damaged: a
 * person may have replaced that config.
 *
 * Both sources are read first, by keys and generations only, which is quick. The temporary table
 * `newest` keeps the keys that may be served. Then any row may be returned, page by page or by key.
 * The sources may disagree since a newest row is bad (wrong checksum or key): then the key is
 * missing. Any other disagreement means that the file is damaged. Rows are read in file order,
 * newest first: quicker than a lookup through the index for each key.
 */
#include <stdlib.h>
#include <string.h>

#include "store/inner.h"

struct store_load {
    struct store *s;
    unsigned opened; /* value of s->opened when `newest` was made */
    int64_t before;  /* generation of the row that was returned last */
};

/* Reads the row of a generation without the index: 0; STORE_MISS: it is missing, or bad and
 * reported; or a fault. */
static int load_read_row(struct store *s, int64_t generation, struct best *out, struct error *err)
{
    return rows_first(s, TABLE_BEST, out, err, "best NOT INDEXED", "WHERE generation = ?1", "i",
                      generation);
}

static int load_read_index(struct store *s, struct error *err)
{
    int r = db_exec(&s->db,
                    "DROP TABLE IF EXISTS temp.newest;"
                    "CREATE TEMP TABLE newest(key TEXT PRIMARY KEY, generation INTEGER)"
                    " WITHOUT ROWID;"
                    "INSERT INTO newest SELECT key, max(generation) FROM best INDEXED BY best_key"
                    " GROUP BY key",
                    err);
    /* SQLITE_CONSTRAINT: a damaged index gives NULL as a key, or a key twice, since its entries are
     * not in order */
    return r < 0 && (sqlite3_errcode(s->db.h) & 0xff) == SQLITE_CONSTRAINT
               ? store_index_damaged(s, err)
               : r;
}

/* Judges each generation that the query returns, whose row contradicts the index. When the row is
 * bad, that is the reason, and it is reported. Else the file is damaged. The query's second column
 * tells whether a missing row is damage, too. */
static int load_explain_rows(struct store *s, const char *sql, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    struct best b;
    int r = db_query(&s->db, &st, err, sql, "");
    while (r == 0 && (r = db_step(&s->db, st, err)) == DB_ROW) {
        bool absent = sqlite3_column_int(st, 1);
        r = load_read_row(s, sqlite3_column_int64(st, 0), &b, err);
        if (r == 0 || (r == STORE_MISS && absent)) {
            return store_index_damaged(s, err);
        }
        r = r == STORE_MISS ? 0 : r;
    }
    return r;
}

static int load_compare_sources(struct store *s, struct error *err)
{
    int r = load_read_index(s, err);
    r = r ? r
          : load_explain_rows(s,
                              "SELECT b.generation, 0 FROM best AS b NOT INDEXED LEFT JOIN newest"
                              " AS n ON n.key = b.key"
                              " WHERE n.key IS NULL OR b.generation > n.generation",
                              err);
    r = r ? r
          : load_explain_rows(s,
                              "SELECT n.generation, b.generation IS NULL FROM newest AS n LEFT JOIN"
                              " best AS b NOT INDEXED ON b.generation = n.generation"
                              " WHERE b.key IS NOT n.key",
                              err);
    return r ? r
             : db_exec(&s->db,
                       "DELETE FROM newest WHERE generation IN"
                       " (SELECT row FROM bad_row WHERE tbl = 'best')",
                       err);
}

/* Makes the table `newest`. A transaction lets all queries see the same rows while another process
 * writes the file. */
static int load_read_newest(struct store_load *l, struct error *err)
{
    struct error ignored;
    struct db *db = &l->s->db;
    int r = db_exec(db, "BEGIN", err);
    if (r) {
        return r;
    }
    r = load_compare_sources(l->s, err);
    /* also after a fault: a rollback would empty the table of bad rows */
    int end = db_exec(db, "COMMIT", r ? &ignored : err);
    if (end) {
        db_exec(db, "ROLLBACK", &ignored);
    }
    l->opened = l->s->opened;
    return r ? r : end;
}

int store_load_begin(struct store *s, struct store_load **out, struct error *err)
{
    struct store_load *l = malloc(sizeof(*l));
    *out = NULL;
    if (!l) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to read %s", s->path);
    }
    *l = (struct store_load){.s = s, .before = INT64_MAX};
    int r = load_read_newest(l, err);
    if (r) {
        store_load_end(l);
        return r;
    }
    *out = l;
    return 0;
}

struct store_load *store_load_end(struct store_load *l)
{
    free(l);
    return NULL;
}

/* When the store has opened a file again, `newest` is gone with the old connection. */
static int load_continue(struct store_load *l, struct error *err)
{
    return l->opened == l->s->opened ? 0 : load_read_newest(l, err);
}

int store_load_page(struct store_load *l, struct best *out, uint32_t max, uint32_t *n,
                    struct error *err)
{
    *n = 0;
    int r = load_continue(l, err);
    r = r ? r
          : rows_page(l->s, TABLE_BEST, out, max, n, err, "best NOT INDEXED",
                      "WHERE generation < ?1 AND EXISTS (SELECT 1 FROM newest AS n"
                      " WHERE n.key = best.key AND n.generation = best.generation)"
                      " ORDER BY generation DESC",
                      l->before);
    l->before = *n ? out[*n - 1].generation : l->before;
    return r;
}

int store_load_find(struct store_load *l, const char *key, struct best *out, struct error *err)
{
    int r = load_continue(l, err);
    r = r ? r
          : rows_first(l->s, TABLE_BEST, out, err, "best NOT INDEXED",
                       "WHERE generation = (SELECT generation FROM newest WHERE key = ?1)", "t",
                       key);
    return r == 0 && strcmp(out->key, key) != 0 ? STORE_MISS : r;
}
