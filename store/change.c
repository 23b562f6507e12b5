/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows by which the daemons of a file tell each other of changes (`change`) and of waiting searches
 * (`wanted`). lease.c has the keys that a daemon tunes. The rows have no checksums: a wrong row
 * costs a second tuning of a key, or a cache that is read again.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "store/inner.h"

/* The SQL function boot_ms(): the clock of lease.until_ms. */
static void change_read_clock(sqlite3_context *ctx, int n, sqlite3_value **args)
{
    sqlite3_result_int64(ctx, store_read_clock(CLOCK_BOOTTIME));
}

int change_attach(struct store *s, struct error *err)
{
    int rc = sqlite3_create_function(s->db.h, "is_gone", 2, SQLITE_UTF8 | SQLITE_DIRECTONLY, s,
                                     owner_is_gone, NULL, NULL);
    rc = rc ? rc
            : sqlite3_create_function(s->db.h, "boot_ms", 0, SQLITE_UTF8 | SQLITE_DIRECTONLY, s,
                                      change_read_clock, NULL, NULL);
    return rc == SQLITE_OK ? 0 : db_fail(&s->db, rc, err);
}

/* ---- changes --------------------------------------------------------------------------------- */

enum { CHANGES_KEPT = 8192, CHANGES_GRAIN = 256 };

int change_add(struct store *s, const char *kind, const char *name, struct error *err)
{
    int r = db_run(&s->db, NULL, err, "INSERT INTO change(kind, name, writer) VALUES (?1, ?2, ?3)",
                   "ttt", kind, name, s->owner);
    int64_t seq = r ? 0 : sqlite3_last_insert_rowid(s->db.h);
    return r || seq % CHANGES_GRAIN
               ? r
               : db_run(&s->db, NULL, err, "DELETE FROM change WHERE seq <= ?1", "i",
                        seq - CHANGES_KEPT);
}

int store_changes_begin(struct store *s, int64_t *seq, struct error *err)
{
    return db_int(&s->db, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'change'",
                  seq, err);
}

int store_changes(struct store *s, int64_t *after, struct store_change *out, uint32_t max,
                  uint32_t *n, struct error *err)
{
    int64_t last = 0, first = 0;
    DB_STMT_AUTO *st = NULL;
    *n = 0;
    int r = store_changes_begin(s, &last, err);
    r = r ? r : db_int(&s->db, "SELECT coalesce(min(seq), 0) FROM change", &first, err);
    if (r || last == *after) {
        return r;
    }
    if (last < *after || first > *after + 1 || first == 0) {
        *after = last;
        return STORE_MISSED;
    }
    r = db_query(&s->db, &st, err,
                 "SELECT seq, kind, name, writer FROM change WHERE seq > ?1 ORDER BY seq", "i",
                 *after);
    while (r == 0 && *n < max && (r = db_step(&s->db, st, err)) == DB_ROW) {
        const char *kind = (const char *)sqlite3_column_text(st, 1),
                   *name = (const char *)sqlite3_column_text(st, 2),
                   *writer = (const char *)sqlite3_column_text(st, 3);
        *after = sqlite3_column_int64(st, 0);
        r = 0;
        if (kind && name && writer && strcmp(writer, s->owner) != 0) {
            struct store_change *c = &out[(*n)++];
            snprintf(c->kind, sizeof(c->kind), "%s", kind);
            snprintf(c->name, sizeof(c->name), "%s", name);
        }
    }
    return r < 0 ? r : 0;
}

int store_changed_since(struct store *s, const char *key, int64_t seq, struct error *err)
{
    int r =
        db_has(&s->db, err,
               "SELECT 1 FROM change WHERE seq > ?1 AND kind IN ('best', 'evicted') AND name = ?2",
               "it", seq, key);
    return r == DB_ROW ? STORE_THERE : r;
}

int store_best_of(struct store *s, const char *key, struct best *out, struct error *err)
{
    int r = rows_first(s, TABLE_BEST, out, err, NULL,
                       "WHERE key = ?1 AND generation = (SELECT max(generation) FROM best"
                       " WHERE key = ?1)",
                       "t", key);
    return r == 0 && strcmp(out->key, key) != 0 ? store_index_damaged(s, err) : r;
}

/* ---- wanted ---------------------------------------------------------------------------------- */

int store_want(struct store *s, const struct store_wanted *w, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    r = db_query(&s->db, &st, err,
                 "INSERT OR IGNORE INTO wanted VALUES (?1, ?2, ?3, ?4, ?5, ?6, unixepoch())",
                 "tttti", w->key, s->owner, s->boot, w->class, w->uid);
    if (r == 0 && sqlite3_bind_blob64(st, 6, w->search, w->n, SQLITE_TRANSIENT) != SQLITE_OK) {
        r = db_fail(&s->db, SQLITE_NOMEM, err);
    }
    r = r ? r : db_step(&s->db, st, err);
    r = r ? r : change_add(s, "wanted", w->class, err);
    return write_end(s, r, err);
}

int store_unwant(struct store *s, const char *key, struct error *err)
{
    static const char *const sql[2] = {"DELETE FROM wanted WHERE key = ?1 AND owner = ?2"};
    return write_delete(s, sql, "tt", key, NULL, NULL, err);
}

/* The rank of a search: its time, and its row within the second. */
#define WANTED_RANK "((since_s << 24) | (w.rowid & 16777215))"

int store_next_wanted(struct store *s, const char *class, int64_t *rank, int64_t *uid,
                      struct wire_buf *search, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    int r = db_first(&s->db, &st, err,
                     "SELECT uid, search, " WANTED_RANK " FROM wanted AS w WHERE class = ?1 AND"
                     " owner <> ?2 AND NOT is_gone(owner, boot) AND " WANTED_RANK " > ?4"
                     " AND NOT EXISTS (SELECT 1 FROM best WHERE best.key = w.key AND"
                     " best.created_s >= w.since_s) AND NOT EXISTS (SELECT 1 FROM lease AS l"
                     " WHERE l.key = w.key AND l.until_ms > ?3 AND l.state <> 'granted'"
                     " AND NOT is_gone(l.owner, l.boot)) ORDER BY 3 LIMIT 1",
                     "ttii", class, s->owner, store_read_clock(CLOCK_BOOTTIME), *rank);
    if (r != DB_ROW) {
        return r ? r : STORE_MISS;
    }
    *uid = sqlite3_column_int64(st, 0);
    *rank = sqlite3_column_int64(st, 2);
    wire_put_raw(search, sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1));
    return search->failed ? error_set(err, ERROR_NO_MEMORY, "no memory for a job") : 0;
}
