/* SPDX-License-Identifier: Apache-2.0 */
/* Leases that gemmd-fleet decides, and its state (fleet.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/inner.h"
#include "store/fleet.h"

enum {
    /* An unanswered question stays so long after its end, so that its daemon comes back to it, and
     * asks no second time. */
    FLEET_UNANSWERED_MS = 10 * 1000,
};

/* ---- leases ---------------------------------------------------------------------------------- */

/* Sets *attached when this process is gemmd-fleet already. */
static int fleet_find_self(struct store *s, int64_t now, bool *attached, struct error *err)
{
    int r = db_has(&s->db, err,
                   "SELECT 1 FROM lease WHERE key = '" STORE_FLEET_KEY
                   "' AND owner = ?1 AND until_ms > ?2",
                   "ti", s->owner, now);
    *attached = r == DB_ROW;
    return r < 0 ? r : 0;
}

static int fleet_join_file(struct store *s, int64_t ttl_ms, struct error *err)
{
    const int64_t now = store_read_clock(CLOCK_BOOTTIME);
    int64_t deleted = 0;
    bool attached = false;
    int r = fleet_find_self(s, now, &attached, err);
    r = r ? r : store_lease(s, STORE_FLEET_KEY, ttl_ms, err);
    r = r ? r
          : db_run(&s->db, &deleted, err,
                   "DELETE FROM lease WHERE state <> 'held' AND (until_ms < ?1 OR"
                   " is_gone(owner, boot) OR is_gone(asker, boot))",
                   "i", now - FLEET_UNANSWERED_MS);
    r = r || !deleted ? r : change_add(s, "lease", "", err);
    return r || attached ? r : change_add(s, "fleet", "", err);
}

int store_fleet_join(struct store *s, int64_t ttl_ms, struct error *err)
{
    int r = write_begin(s, err);
    return r ? r : write_end(s, fleet_join_file(s, ttl_ms, err), err);
}

int store_fleet_leave(struct store *s, struct error *err)
{
    static const char *const sql[2] = {"DELETE FROM lease WHERE owner = ?2"};
    int r = write_begin(s, err);
    if (r == 0) {
        r = write_delete(s, sql, "tt", "", "lease", NULL, err);
        r = r ? r : change_add(s, "fleet", "", err);
        r = write_end(s, r, err);
    }
    return r;
}

int store_fleet_asked(struct store *s, struct store_lease_row *out, uint32_t max, uint32_t *n,
                      struct error *err)
{
    const int64_t now = store_read_clock(CLOCK_BOOTTIME);
    DB_STMT_AUTO *st = NULL;
    *n = 0;
    int r = db_query(&s->db, &st, err,
                     "SELECT key, class, stamp, state, fence, until_ms - ?1,"
                     " is_gone(iif(state = 'held', owner, asker), boot) FROM lease"
                     " WHERE state <> 'held' OR fence > 0 ORDER BY state = 'elsewhere',"
                     " state = 'asked', key",
                     "i", now);
    while (r == 0 && (r = db_step(&s->db, st, err)) == DB_ROW) {
        r = 0;
        if (*n < max) {
            struct store_lease_row *l = &out[*n];
            *l = (struct store_lease_row){.fence = sqlite3_column_int64(st, 4),
                                          .left_ms = sqlite3_column_int64(st, 5),
                                          .gone = sqlite3_column_int(st, 6)};
            DB_COPY(l->key, st, 0);
            DB_COPY(l->class, st, 1);
            DB_COPY(l->stamp, st, 2);
            DB_COPY(l->state, st, 3);
        }
        ++*n;
    }
    return r;
}

static int fleet_answer_key(struct store *s, struct store_lease_row *l, int64_t until,
                            struct error *err)
{
    int64_t now_granted = 0, n = 0;
    int r = 0;
    if (!l->state[0]) {
        r = db_run(&s->db, &n, err, "DELETE FROM lease WHERE key = ?1 AND state <> 'held'", "t",
                   l->key);
    } else {
        r = db_run(&s->db, &now_granted, err,
                   "UPDATE lease SET state = ?2 WHERE key = ?1 AND state <> 'held' AND"
                   " state <> ?2 AND ?2 = 'granted'",
                   "tt", l->key, l->state);
        r = r ? r
              : db_run(&s->db, &n, err,
                       "UPDATE lease SET state = ?2, fence = ?3, until_ms = ?4, owner = ?5,"
                       " boot = ?6 WHERE key = ?1 AND state <> 'held'",
                       "ttiitt", l->key, l->state, l->fence, until, s->owner, s->boot);
    }
    l->missed = r == 0 && n == 0;
    const bool told = n > 0 && (!l->state[0] || now_granted > 0);
    return r || !told ? r : change_add(s, "lease", l->key, err);
}

int store_fleet_answer(struct store *s, struct store_lease_row *rows, uint32_t n, int64_t ttl_ms,
                       struct error *err)
{
    const int64_t until = store_read_clock(CLOCK_BOOTTIME) + ttl_ms;
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        r = fleet_answer_key(s, &rows[i], until, err);
    }
    return write_end(s, r, err);
}

/* Splits the lines of a daemon's stamps. */
static uint32_t fleet_split_stamps(const char *class, const char *lines,
                                   struct store_fleet_stamp *out, uint32_t max, uint32_t n)
{
    while (*lines) {
        const size_t length = strcspn(lines, "\n");
        if (n < max) {
            snprintf(out[n].class, sizeof(out[n].class), "%s", class);
            snprintf(out[n].stamp, sizeof(out[n].stamp), "%.*s", (int)length, lines);
        }
        n++;
        lines += length + (lines[length] == '\n');
    }
    return n;
}

int store_fleet_stamps(struct store *s, struct store_fleet_stamp *out, uint32_t max, uint32_t *n,
                       struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    *n = 0;
    int r = db_query(&s->db, &st, err,
                     "SELECT DISTINCT class, stamp FROM lease WHERE key >= 'daemon ' AND"
                     " key < 'daemon!' AND class <> '' AND NOT is_gone(owner, boot)",
                     "");
    while (r == 0 && (r = db_step(&s->db, st, err)) == DB_ROW) {
        const char *class = (const char *)sqlite3_column_text(st, 0),
                   *lines = (const char *)sqlite3_column_text(st, 1);
        *n = class && lines ? fleet_split_stamps(class, lines, out, max, *n) : *n;
        r = 0;
    }
    return r;
}

/* ---- gemmd-fleet's state --------------------------------------------------------------------- */

static int fleet_write_status(struct store *s, const struct store_fleet *f, struct error *err)
{
    struct store_fleet before;
    char cursor[24];
    int r = store_fleet_read(s, &before, err);
    const bool changed =
        r == STORE_MISS || before.cursor != f->cursor || strcmp(before.state, f->state) != 0;
    r = r < 0 ? r
              : db_run(&s->db, NULL, err,
                       "INSERT OR REPLACE INTO fleet(id, server, state, since_s, text, epoch,"
                       " cursor, host, counters) VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                       "ttittiit", f->server, f->state, f->since_s, f->text, f->epoch, f->cursor,
                       f->host, f->counters);
    snprintf(cursor, sizeof(cursor), "%" PRId64, f->cursor);
    return r || !changed ? r : change_add(s, "fleet", cursor, err);
}

int store_fleet_status(struct store *s, const struct store_fleet *f, struct error *err)
{
    int r = write_begin(s, err);
    return r ? r : write_end(s, fleet_write_status(s, f, err), err);
}

int store_fleet_read(struct store *s, struct store_fleet *out, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    *out = (struct store_fleet){.cursor = 0};
    int r = db_first(&s->db, &st, err,
                     "SELECT server, state, since_s, text, epoch, cursor, host, counters FROM"
                     " fleet",
                     "");
    if (r != DB_ROW) {
        return r ? r : STORE_MISS;
    }
    DB_COPY(out->server, st, 0);
    DB_COPY(out->state, st, 1);
    out->since_s = sqlite3_column_int64(st, 2);
    DB_COPY(out->text, st, 3);
    DB_COPY(out->epoch, st, 4);
    out->cursor = sqlite3_column_int64(st, 5);
    out->host = sqlite3_column_int64(st, 6);
    DB_COPY(out->counters, st, 7);
    return 0;
}
