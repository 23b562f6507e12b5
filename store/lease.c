/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: the keys that a daemon tunes, and the daemons themselves (rows of `lease`). While
 * gemmd-fleet is attached (fleet.c), a search for a key's answer first asks the fleet for the key:
 *
 *   no row -> asked -> granted -> held       the fleet gave the key to this host
 *                   -> elsewhere -> no row   another host tunes the key; its row comes
 *
 * Rows of the states asked, elsewhere and granted belong to gemmd-fleet. So they end at once when
 * gemmd-fleet has ended, and at `until_ms` when it hangs. Then a daemon takes the key without an
 * answer.
 */
#include <stdio.h>
#include <string.h>

#include "store/inner.h"

/* Writes the row of a key that this owner holds from now on. A key that the fleet has granted keeps
 * its fence, and so does a renewed lease. */
static int lease_put_held(struct store *s, const struct store_share *w, int64_t now,
                          struct error *err)
{
    return db_run(&s->db, NULL, err,
                  "INSERT INTO lease(key, owner, boot, until_ms, taken_s, class, stamp)"
                  " VALUES (?1, ?2, ?3, ?4, unixepoch(), ?5, ?6) ON CONFLICT(key) DO UPDATE SET"
                  " fence = iif(state = 'granted' OR owner = excluded.owner, fence, 0),"
                  " class = iif(excluded.class = '', class, excluded.class),"
                  " stamp = iif(excluded.stamp = '', stamp, excluded.stamp),"
                  " state = 'held', asker = '', owner = excluded.owner, boot = excluded.boot,"
                  " until_ms = excluded.until_ms, taken_s = excluded.taken_s",
                  "tttitt", w->key, s->owner, s->boot, now + w->ttl_ms, w->class ? w->class : "",
                  w->stamp ? w->stamp : "");
}

/* Makes the key's row a question to gemmd-fleet, whose owner becomes the row's. */
static int lease_put_asked(struct store *s, const struct store_share *w, int64_t now,
                           struct error *err)
{
    int r = db_run(&s->db, NULL, err,
                   "INSERT OR REPLACE INTO lease(key, owner, boot, until_ms, taken_s, state, class,"
                   " stamp, asker) SELECT ?1, owner, boot, ?2, unixepoch(), 'asked', ?3, ?4, ?5"
                   " FROM lease WHERE key = '" STORE_FLEET_KEY "'",
                   "titt"
                   "t",
                   w->key, now + w->fleet_ms, w->class, w->stamp, s->owner);
    return r ? r : change_add(s, "asked", w->key, err);
}

/* STORE_THERE: gemmd-fleet is attached, and answers. Else 0. A question that it left unanswered
 * until the question's end shows that it hangs: then no daemon asks, and waits, again. */
static int lease_find_fleet(struct store *s, int64_t now, struct error *err)
{
    int r = db_has(&s->db, err,
                   "SELECT 1 FROM lease AS f WHERE key = '" STORE_FLEET_KEY "' AND until_ms > ?1"
                   " AND NOT is_gone(owner, boot) AND NOT EXISTS (SELECT 1 FROM lease AS a WHERE"
                   " a.state = 'asked' AND a.owner = f.owner AND a.until_ms <= ?1)",
                   "i", now);
    return r == DB_ROW ? STORE_THERE : r;
}

/* Decides about the row of the key as it is now: 0 or STORE_ALONE (this owner may hold the key),
 * STORE_HELD, STORE_ASKED (the fleet must be asked first), or a fault. */
static int lease_judge(struct store *s, const struct store_share *w, int64_t now, struct error *err)
{
    const bool shared = w->class && w->class[0] && w->fleet_ms > 0;
    DB_STMT_AUTO *st = NULL;
    int r = db_first(&s->db, &st, err,
                     "SELECT state, until_ms > ?2 AND NOT is_gone(owner, boot), owner = ?3"
                     " FROM lease WHERE key = ?1",
                     "tit", w->key, now, s->owner);
    if (r < 0) {
        return r;
    }
    const char *state = r == DB_ROW ? (const char *)sqlite3_column_text(st, 0) : "held";
    const bool lives = r == DB_ROW && sqlite3_column_int(st, 1),
               ours = r == DB_ROW && sqlite3_column_int(st, 2),
               held = !state || strcmp(state, "held") == 0;
    if (held && lives) {
        return ours ? 0 : STORE_HELD;
    }
    if (held || !shared) {
        r = shared && !ours ? lease_find_fleet(s, now, err) : 0;
        return r == STORE_THERE ? STORE_ASKED : r;
    }
    const bool granted = strcmp(state, "granted") == 0;
    return granted ? 0 : lives ? STORE_HELD : STORE_ALONE;
}

static int lease_take(struct store *s, const struct store_share *w, int64_t now, struct error *err)
{
    const int judged = lease_judge(s, w, now, err);
    int r = judged == STORE_ASKED ? lease_put_asked(s, w, now, err) : 0;
    if ((judged == 0 || judged == STORE_ALONE) && !w->only_ask) {
        r = lease_put_held(s, w, now, err);
    }
    return r ? r : judged;
}

int store_lease_shared(struct store *s, const struct store_share *w, struct error *err)
{
    const int64_t now = store_read_clock(CLOCK_BOOTTIME);
    if (s->db.depth == 0) { /* reading needs no commit lock */
        const int r = lease_judge(s, w, now, err);
        if (r < 0 || r == STORE_HELD || (w->only_ask && r != STORE_ASKED)) {
            return r;
        }
    }
    int r = write_begin(s, err);
    return r ? r : write_end(s, lease_take(s, w, now, err), err);
}

int store_lease(struct store *s, const char *key, int64_t ttl_ms, struct error *err)
{
    const struct store_share w = {.key = key, .ttl_ms = ttl_ms};
    return store_lease_shared(s, &w, err);
}

int store_unlease(struct store *s, const char *key, struct error *err)
{
    static const char *const sql[2] = {
        "DELETE FROM lease WHERE key = ?1 AND (owner = ?2 OR asker = ?2)"};
    return write_delete(s, sql, "tt", key, "lease", NULL, err);
}

int store_drop_gone(struct store *s, struct error *err)
{
    static const char *const sql[] = {"DELETE FROM lease WHERE is_gone(owner, boot)",
                                      "DELETE FROM wanted WHERE is_gone(owner, boot)"};
    return write_delete(s, sql, "", "", NULL, NULL, err);
}

int store_leave(struct store *s, struct error *err)
{
    static const char *const sql[] = {"DELETE FROM lease WHERE owner = ?2 OR asker = ?2",
                                      "DELETE FROM wanted WHERE owner = ?2"};
    return write_delete(s, sql, "tt", "", "lease", NULL, err);
}

/* ---- daemons --------------------------------------------------------------------------------- */

/* A daemon of the file owns a lease named "daemon <owner>", which is no key. */
static void lease_name_daemon(const struct store *s, char name[STORE_OWNER_MAX + 8])
{
    snprintf(name, STORE_OWNER_MAX + 8, "daemon %s", s->owner);
}

int store_join(struct store *s, struct error *err)
{
    char name[STORE_OWNER_MAX + 8];
    lease_name_daemon(s, name);
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    r = store_lease(s, name, INT64_MAX / 2, err);
    r = r ? r : change_add(s, "daemon", s->owner, err);
    return write_end(s, r, err);
}

int store_daemons(struct store *s, int64_t *n, struct error *err)
{
    return db_int(&s->db,
                  "SELECT count(*) FROM lease WHERE key >= 'daemon ' AND key < 'daemon!' AND NOT"
                  " is_gone(owner, boot)",
                  n, err);
}

int store_announce(struct store *s, const char *class, const char *stamps, struct error *err)
{
    char name[STORE_OWNER_MAX + 8];
    int64_t n = 0;
    lease_name_daemon(s, name);
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    r = db_run(&s->db, &n, err,
               "UPDATE lease SET class = ?2, stamp = ?3 WHERE key = ?1 AND (class <> ?2 OR"
               " stamp <> ?3)",
               "ttt", name, class, stamps);
    r = r || n == 0 ? r : change_add(s, "stamps", class, err);
    return write_end(s, r, err);
}
