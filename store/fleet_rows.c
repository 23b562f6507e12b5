/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the fleet, and their numbers there (fleet.h). */
#include <stdio.h>
#include <string.h>

#include "store/fleet.h"
#include "store/inner.h"

enum { FLEET_CANDIDATES_PER_KEY = 64 }; /* candidates that a key keeps */

static bool fleet_is_from(const struct best *b, const char *source)
{
    return strcmp(b->source, source) == 0;
}

int store_fleet_outranks(struct store *s, const struct best *now, const struct best *b,
                         struct error *err)
{
    if (fleet_is_from(now, "manual")) {
        return 1;
    }
    if (!fleet_is_from(now, "tuned") && !fleet_is_from(now, "trusted") &&
        !(fleet_is_from(now, "fleet") && now->trial)) {
        return 0;
    }
    if (strcmp(now->stamp, b->stamp) == 0) {
        return 1;
    }
    int r = db_has(&s->db, err,
                   "SELECT 1 FROM lease WHERE key >= 'daemon ' AND key < 'daemon!' AND"
                   " class = ?1 AND NOT is_gone(owner, boot)"
                   " GROUP BY class HAVING sum(instr(stamp || char(10), ?2 || char(10))) = 0",
                   "tt", now->class, now->stamp);
    return r < 0 ? r : r != DB_ROW;
}

static int fleet_put_row(struct store *s, struct best *b, struct error *err)
{
    rows_number(s, TABLE_BEST, b);
    return rows_put(s, TABLE_BEST, ROW_FAIL, b, err);
}

int store_fleet_renumber(struct store *s, struct best *b, struct error *err)
{
    const int64_t before = b->generation;
    int r = fleet_put_row(s, b, err);
    r = r ? r
          : db_run(&s->db, NULL, err, "UPDATE fleet_row SET generation = ?2 WHERE generation = ?1",
                   "ii", before, b->generation);
    return r ? r : change_add(s, "best", b->key, err);
}

/* Writes b with a new generation. When the key's newest row outranks b, writes that row once more,
 * above b: each key's newest row is its answer, and b answers the fleet's number only. */
static int fleet_write_row(struct store *s, struct best *b, struct error *err)
{
    struct best now;
    int r = store_best_of(s, b->key, &now, err);
    int keeps = r == 0 ? store_fleet_outranks(s, &now, b, err) : 0;
    r = r < 0 ? r : keeps < 0 ? keeps : 0;
    r = r ? r : fleet_put_row(s, b, err);
    r = r || !keeps ? r : store_fleet_renumber(s, &now, err);
    return r ? r : change_add(s, "best", b->key, err);
}

static int fleet_trim_key(struct store *s, const char *key, struct error *err)
{
    return db_run(&s->db, NULL, err,
                  "DELETE FROM best WHERE key = ?1 AND source = 'fleet' AND trial IS NULL AND"
                  " generation <= (SELECT generation FROM best WHERE key = ?1 AND source = 'fleet'"
                  " AND trial IS NULL ORDER BY generation DESC LIMIT 1 OFFSET ?2)",
                  "ti", key, (int64_t)FLEET_CANDIDATES_PER_KEY);
}

/* Adds a row of `fleet_row`. STORE_THERE: its number is known. */
static int fleet_add_number(struct store *s, int64_t seq, const char *key, int64_t generation,
                            const char *origin, const char *state, const char *reason,
                            struct error *err)
{
    int64_t n = 0;
    int r = db_run(&s->db, &n, err,
                   "INSERT OR IGNORE INTO fleet_row(seq, key, generation, origin, state, reason)"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                   "ititt"
                   "t",
                   seq, key, generation, origin, state, reason);
    return r ? r : n ? 0 : STORE_THERE;
}

static int fleet_offer_row(struct store *s, struct best *b, int64_t seq, const char *origin,
                           struct error *err)
{
    static const char *const sql[2] = {"DELETE FROM lease WHERE key = ?1 AND state <> 'held'"};
    int r = fleet_add_number(s, seq, b->key, 0, origin, "new", "", err);
    r = r ? r : fleet_write_row(s, b, err);
    r = r ? r
          : db_run(&s->db, NULL, err, "UPDATE fleet_row SET generation = ?2 WHERE seq = ?1", "ii",
                   seq, b->generation);
    r = r ? r : fleet_trim_key(s, b->key, err);
    return r ? r : write_delete(s, sql, "t", b->key, "lease", NULL, err);
}

int store_fleet_offer(struct store *s, struct best *b, int64_t seq, const char *origin,
                      struct error *err)
{
    snprintf(b->source, sizeof(b->source), "fleet");
    snprintf(b->doubt, sizeof(b->doubt), "of the fleet, not measured here but on %.64s", origin);
    b->trial = b->generation = 0;
    b->module[0] = '\0'; /* the image is at the host that measured the row */
    int r = write_begin(s, err);
    r = r ? r : write_end(s, fleet_offer_row(s, b, seq, origin, err), err);
    b->generation = r ? 0 : b->generation;
    return r;
}

int store_fleet_own(struct store *s, const char *key, int64_t generation, int64_t seq,
                    struct error *err)
{
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    /* evidence has no number of its own that a query can name */
    r = seq ? db_run(&s->db, NULL, err, "DELETE FROM fleet_row WHERE seq = ?1 OR seq = -?2", "ii",
                     seq, generation)
            : 0;
    r = r ? r
          : fleet_add_number(s, seq ? seq : -generation, key, generation, "",
                             seq ? "own" : "evidence", "", err);
    r = write_end(s, r, err);
    return r == STORE_THERE ? 0 : r;
}

/* Ends a row of the fleet: it stays known under its number, and its candidate, or confirmed row, is
 * deleted. An older row that answers the key again is written once more: daemons take newer rows
 * only. */
static int fleet_end_row(struct store *s, int64_t seq, const char *state, const char *reason,
                         struct error *err)
{
    struct store_fleet_row row;
    struct best now;
    DB_STMT_AUTO *st = NULL;
    int r = db_first(&s->db, &st, err, "SELECT key, generation FROM fleet_row WHERE seq = ?1", "i",
                     seq);
    if (r != DB_ROW) {
        return r ? r : STORE_MISS;
    }
    DB_COPY(row.key, st, 0);
    row.generation = sqlite3_column_int64(st, 1);
    r = db_run(&s->db, NULL, err,
               "UPDATE fleet_row SET state = iif(state = 'refused', state, ?2), reason = ?3,"
               " reported = iif(state = 'refused', reported, 0) WHERE seq = ?1",
               "itt", seq, state, reason);
    r = r ? r
          : db_run(&s->db, NULL, err, "DELETE FROM best WHERE generation = ?1 AND source = 'fleet'",
                   "i", row.generation);
    /* older copies of rows that were written once more (store_fleet_renumber) answer no longer */
    r = r ? r
          : db_run(&s->db, NULL, err,
                   "DELETE FROM best WHERE key = ?1 AND source = 'fleet' AND generation NOT IN"
                   " (SELECT generation FROM fleet_row WHERE key = ?1 AND state IN ('new',"
                   " 'confirmed'))",
                   "t", row.key);
    r = r ? r : store_best_of(s, row.key, &now, err);
    if (r == 0 && now.generation < row.generation) {
        return store_fleet_renumber(s, &now, err);
    }
    return r < 0 ? r : change_add(s, "best", row.key, err);
}

int store_fleet_withdraw(struct store *s, int64_t seq, const char *reason, struct error *err)
{
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    r = fleet_end_row(s, seq, "withdrawn", reason, err);
    if (r == STORE_MISS) {
        r = fleet_add_number(s, seq, "", 0, "", "withdrawn", reason, err);
    }
    return write_end(s, r, err);
}

/* Finds the candidate of this generation: 0 with its number, or STORE_MISS. */
static int fleet_find_candidate(struct store *s, const char *key, int64_t generation, int64_t *seq,
                                struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    int r = db_first(&s->db, &st, err,
                     "SELECT seq FROM fleet_row WHERE generation = ?1 AND key = ?2 AND"
                     " state = 'new'",
                     "it", generation, key);
    *seq = r == DB_ROW ? sqlite3_column_int64(st, 0) : 0;
    return r < 0 ? r : r == DB_ROW ? 0 : STORE_MISS;
}

static int fleet_refuse_row(struct store *s, const char *key, int64_t generation,
                            const char *reason, struct error *err)
{
    int64_t seq;
    int r = fleet_find_candidate(s, key, generation, &seq, err);
    r = r ? r : fleet_end_row(s, seq, "refused", reason, err);
    return r ? r : change_add(s, "refused", key, err);
}

int store_fleet_refuse(struct store *s, const char *key, int64_t generation, const char *reason,
                       struct error *err)
{
    int r = write_begin(s, err);
    return r ? r : write_end(s, fleet_refuse_row(s, key, generation, reason, err), err);
}

static int fleet_confirm_row(struct store *s, struct best *b, struct error *err)
{
    const int64_t candidate = b->generation;
    int64_t seq;
    int r = fleet_find_candidate(s, b->key, b->generation, &seq, err);
    r = r ? r : write_find_trial(s, b, err);
    if (r == STORE_MISS || (r == 0 && !b->trial)) {
        return error_set(err, ERROR_CONFLICT,
                         r == STORE_MISS ? "the fleet's row of key %.12s was withdrawn or evicted "
                                           "while it was confirmed"
                                         : "the trial that confirms the fleet's row of key %.12s "
                                           "was not saved",
                         b->key);
    }
    r = r ? r : fleet_write_row(s, b, err);
    r = r ? r
          : db_run(&s->db, NULL, err,
                   "UPDATE fleet_row SET state = 'confirmed', generation = ?2 WHERE seq = ?1", "ii",
                   seq, b->generation);
    r = r ? r : db_run(&s->db, NULL, err, "DELETE FROM best WHERE generation = ?1", "i", candidate);
    return r ? r : store_best_of(s, b->key, b, err);
}

int store_fleet_confirm(struct store *s, struct best *b, struct error *err)
{
    const int64_t candidate = b->generation;
    int r = write_begin(s, err);
    r = r ? r : write_end(s, fleet_confirm_row(s, b, err), err);
    b->generation = r < 0 ? candidate : b->generation;
    return r;
}

static void fleet_copy_number(struct store_fleet_row *out, sqlite3_stmt *st)
{
    *out = (struct store_fleet_row){.seq = sqlite3_column_int64(st, 0),
                                    .generation = sqlite3_column_int64(st, 1)};
    DB_COPY(out->key, st, 2);
    DB_COPY(out->origin, st, 3);
    DB_COPY(out->state, st, 4);
    DB_COPY(out->reason, st, 5);
}

int store_fleet_refused(struct store *s, struct store_fleet_row *out, uint32_t max, uint32_t *n,
                        struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    *n = 0;
    int r = db_query(&s->db, &st, err,
                     "SELECT seq, generation, key, origin, state, reason FROM fleet_row"
                     " WHERE state = 'refused' AND reported = 0 ORDER BY seq LIMIT ?1",
                     "i", (int64_t)max);
    while (r == 0 && (r = db_step(&s->db, st, err)) == DB_ROW) {
        fleet_copy_number(&out[(*n)++], st);
        r = 0;
    }
    return r;
}

int store_fleet_reported(struct store *s, int64_t seq, struct error *err)
{
    int r = write_begin(s, err);
    return r ? r
             : write_end(s,
                         db_run(&s->db, NULL, err,
                                "UPDATE fleet_row SET reported = 1 WHERE seq = ?1", "i", seq),
                         err);
}

int store_fleet_unpublished(struct store *s, int64_t after, struct best *out, uint32_t max,
                            uint32_t *n, struct error *err)
{
    return rows_page(s, TABLE_BEST, out, max, n, err, "current_best",
                     "WHERE generation > ?1 AND source = 'tuned' AND family <> '' AND doubt = ''"
                     " AND NOT EXISTS (SELECT 1 FROM fleet_row AS f"
                     " WHERE f.generation = current_best.generation) ORDER BY generation",
                     after);
}

int store_fleet_find(struct store *s, const char *key, int64_t seq, struct best *out,
                     struct store_fleet_row *row, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    *row = (struct store_fleet_row){.seq = 0};
    int r = db_first(&s->db, &st, err,
                     "SELECT seq, generation, key, origin, state, reason FROM fleet_row"
                     " WHERE key = ?1 AND seq BETWEEN 1 AND ?2 ORDER BY seq DESC LIMIT 1",
                     "ti", key, seq);
    if (r != DB_ROW) {
        return r ? r : STORE_MISS;
    }
    fleet_copy_number(row, st);
    return rows_first(s, TABLE_BEST, out, err, NULL, "WHERE generation = ?1 AND key = ?2", "it",
                      row->generation, key);
}
