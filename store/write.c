/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All writes. Each function is a transaction, or a part of the caller's group. The worst that a
 * repeated call does is to write a second row, so the ledger may repeat a call that failed.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/fleet.h"
#include "store/inner.h"

/* ---- runs, modules, devices, events ---------------------------------------------------------- */

/* Gives the object the table's next row number and writes it. The caller has begun a transaction.
 */
static int write_add_row(struct store *s, enum table_id table, void *object, struct error *err)
{
    rows_number(s, table, object);
    return rows_put(s, table, ROW_FAIL, object, err);
}

int store_add_run(struct store *s, struct run *r, struct error *err)
{
    int status = write_begin(s, err);
    return status ? status : write_end(s, write_add_row(s, TABLE_RUN, r, err), err);
}

int store_end_run(struct store *s, const struct run *r, struct error *err)
{
    struct run known;
    int status = write_begin(s, err);
    if (status) {
        return status;
    }
    status = rows_first(s, TABLE_RUN, &known, err, NULL, "WHERE id = ?1", "i", r->id);
    if (status == STORE_MISS) {
        status = error_set(err, ERROR_NOT_FOUND, "there is no run %lld to end", (long long)r->id);
    }
    if (status == 0) {
        known.ended_s = r->ended_s;
        memcpy(known.ending, r->ending, sizeof(known.ending));
        status = rows_put(s, TABLE_RUN, ROW_UPDATE, &known, err);
    }
    return write_end(s, status, err);
}

int store_add_module(struct store *s, const struct module *m, struct error *err)
{
    struct module row;
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    r = rows_first(s, TABLE_MODULE, &row, err, NULL, "WHERE id = ?1 AND variant = ?2", "tt", m->id,
                   m->variant);
    if (r == STORE_MISS) {
        row = *m;
    }
    row.used_s = m->used_s;
    return write_end(s, r < 0 ? r : rows_put(s, TABLE_MODULE, ROW_UPDATE, &row, err), err);
}

int store_put_device(struct store *s, const struct device_info *d, struct error *err)
{
    int r = write_begin(s, err);
    return r ? r : write_end(s, rows_put(s, TABLE_DEVICE, ROW_UPDATE, d, err), err);
}

int store_add_event(struct store *s, struct event *e, struct error *err)
{
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    r = write_add_row(s, TABLE_EVENT, e, err);
    if (r == 0 && e->id % 256 == 0) {
        /* Deletes old events, but not the newest of each kind: some kinds are written only once
         * (bucket_scheme). */
        r = db_run(&s->db, NULL, err,
                   "DELETE FROM event WHERE id <= ?1 AND id NOT IN (SELECT max(id) FROM event GROUP"
                   " BY kind)",
                   "i", e->id - STORE_EVENTS_MAX);
    }
    return write_end(s, r, err);
}

int store_add_quarantine(struct store *s, struct quarantine *q, struct error *err)
{
    struct quarantine known;
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    int64_t deaths = q->deaths > 0 ? q->deaths : 1;
    r = rows_first(s, TABLE_QUARANTINE, &known, err, NULL,
                   "WHERE class = ?1 AND driver = ?2 AND variant = ?3", "ttt", q->class, q->driver,
                   q->variant);
    q->deaths = deaths;
    if (r == 0) {
        /* `q` may be an older row that was kept in memory until now: then the file's text stays */
        *q = known.created_s > q->created_s && !fleet_is_reason(known.reason) ? known : *q;
        q->id = known.id;
        q->deaths = deaths + known.deaths;
    } else if (r == STORE_MISS) {
        rows_number(s, TABLE_QUARANTINE, q);
    }
    r = r < 0 ? r : rows_put(s, TABLE_QUARANTINE, ROW_UPDATE, q, err);
    r = r ? r : change_add(s, "quarantine", q->variant, err);
    r = write_end(s, r, err);
    if (r < 0) {
        q->deaths = deaths;
    }
    return r;
}

/* ---- answers to jobs ------------------------------------------------------------------------- */

/* Deletes the rows of `served` with the oldest last answer beyond the limits. */
static int write_retain_served(struct store *s, const struct served_row *row, struct error *err)
{
    int r = db_run(&s->db, NULL, err, "DELETE FROM served WHERE last_s < ?1", "i",
                   row->last_s - STORE_SERVED_DAYS * 24 * 3600);
    r = r ? r
          : db_run(&s->db, NULL, err,
                   "DELETE FROM served WHERE id IN (SELECT id FROM served WHERE uid = ?1"
                   " ORDER BY last_s DESC, id DESC LIMIT -1 OFFSET ?2)",
                   "ii", row->uid, (int64_t)STORE_SERVED_MAX / 4);
    return r ? r
             : db_run(&s->db, NULL, err,
                      "DELETE FROM served WHERE id IN (SELECT id FROM served"
                      " ORDER BY last_s DESC, id DESC LIMIT -1 OFFSET ?1)",
                      "i", (int64_t)STORE_SERVED_MAX);
}

/* Finds the row to which the answers of `row` are added: 0, or STORE_MISS. */
static int write_find_served(struct store *s, const struct served_row *row,
                             struct served_row *known, struct error *err)
{
    const char *json = row_json(&s->scratch, &row->config);
    char *config = json ? strdup(json) : NULL; /* reading a row needs the scratch */
    int r = config ? rows_first(s, TABLE_SERVED, known, err, NULL,
                                "WHERE uid = ?1 AND job = ?2 AND key = ?3 AND tier = ?4"
                                " AND config = ?5",
                                "itttt", row->uid, row->job, row->key, row->tier, config)
                   : db_fail(&s->db, SQLITE_NOMEM, err);
    free(config);
    return r;
}

static int write_add_served(struct store *s, struct served_row *row, struct error *err)
{
    struct served_row known;
    int r = write_find_served(s, row, &known, err);
    const bool is_new = r == STORE_MISS;
    if (is_new) {
        rows_number(s, TABLE_SERVED, row);
    } else if (r == 0) {
        row->id = known.id;
        row->answers += known.answers;
        row->first_s = known.first_s < row->first_s ? known.first_s : row->first_s;
        row->last_s = known.last_s > row->last_s ? known.last_s : row->last_s;
    }
    r = r < 0 ? r : rows_put(s, TABLE_SERVED, ROW_UPDATE, row, err);
    return r || !is_new || row->id % 64 ? r : write_retain_served(s, row, err);
}

int store_add_served(struct store *s, const struct wire_obj *rows, struct error *err)
{
    struct served_row row;
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    for (size_t i = 0; r == 0 && i < wire_count(rows); i++) {
        r = schema_decode(&served_row_schema, SCHEMA_LENIENT, wire_at(rows, i), &row, err);
        r = r ? r : write_add_served(s, &row, err);
    }
    return write_end(s, r, err);
}

/* ---- trials ---------------------------------------------------------------------------------- */

int write_known_parent(struct store *s, enum table_id table, void *object, struct error *err)
{
    const struct table *t = &tables[table];
    char sql[64];
    int64_t *id = t->parent ? row_int(t, t->parent, object) : NULL;
    if (!id || *id == 0) {
        return 0;
    }
    snprintf(sql, sizeof(sql), "SELECT 1 FROM %s WHERE id = ?1", t->parent);
    int r = db_has(&s->db, err, sql, "i", *id);
    *id = r == 0 ? 0 : *id;
    return r < 0 ? r : 0;
}

/* Keeps a key's trials below the limit (trials_per_key_max). Deletes a sixteenth of the limit at a
 * time, so that a key at the limit need not be searched for old trials with every new trial. */
static int write_retain_trials(struct store *s, const char *key, struct error *err)
{
    return db_run(&s->db, NULL, err,
                  "DELETE FROM trial WHERE id IN (SELECT id FROM trial AS t WHERE key = ?1 AND NOT"
                  " EXISTS (SELECT 1 FROM best WHERE best.trial = t.id) ORDER BY id LIMIT"
                  " (SELECT iif(count(*) > ?2, count(*) - ?2 + ?2 / 16, 0) FROM trial"
                  " WHERE key = ?1))",
                  "ti", key, s->trials_per_key_max);
}

int store_add_trial(struct store *s, struct trial *t, struct error *err)
{
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    int64_t run = t->run;
    r = write_known_parent(s, TABLE_TRIAL, t, err);
    r = r ? r : write_add_row(s, TABLE_TRIAL, t, err);
    r = r ? r : write_retain_trials(s, t->key, err);
    r = write_end(s, r, err);
    t->run = r < 0 ? run : t->run;
    return r;
}

int store_add_trial_once(struct store *s, struct trial *t, struct error *err)
{
    const char *config = row_json(&s->scratch, &t->config);
    if (!config) {
        return db_fail(&s->db, SQLITE_NOMEM, err);
    }
    int r = db_has(&s->db, err,
                   "SELECT 1 FROM trial WHERE key = ?1 AND config = ?2 AND stamp = ''"
                   " AND status NOT IN ('crashed', 'hung')",
                   "tt", t->key, config);
    return r == DB_ROW ? STORE_THERE : r < 0 ? r : store_add_trial(s, t, err);
}

/* ---- bests ----------------------------------------------------------------------------------- */

/* The trial's stamp is the best's, or begins with it and names tolerances (" atol="). */
int write_find_trial(struct store *s, struct best *b, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    if (best_is_brought(b)) {
        return write_known_parent(s, TABLE_BEST, b, err);
    }
    b->trial = 0; /* a number of an undone transaction may be another key's trial by now */
    const char *config = row_json(&s->scratch, &b->config);
    if (!config) {
        return db_fail(&s->db, SQLITE_NOMEM, err);
    }
    int r = db_first(&s->db, &st, err,
                     "SELECT id FROM trial WHERE key = ?1 AND config = ?2 AND status = 'ok' AND"
                     " (stamp = ?3 OR substr(stamp, 1, length(?3) + 6) = ?3 || ' atol=')"
                     " ORDER BY time_us = ?4 DESC, id DESC LIMIT 1",
                     "tttr", b->key, config, b->stamp, b->time_us);
    if (r == DB_ROW) {
        b->trial = sqlite3_column_int64(st, 0);
    }
    return r < 0 ? r : 0;
}

/* Writes a best that has its generation, and its row of `change`. The caller has begun a
 * transaction. */
static int write_publish_best(struct store *s, enum row_conflict conflict, struct best *b,
                              struct error *err)
{
    int64_t trial = b->trial;
    int r = write_find_trial(s, b, err);
    r = r ? r : rows_put(s, TABLE_BEST, conflict, b, err);
    r = r ? r : change_add(s, "best", b->key, err);
    b->trial = r < 0 ? trial : b->trial;
    return r;
}

int store_publish(struct store *s, struct best *b, struct error *err)
{
    int r = write_begin(s, err);
    if (r == 0) {
        rows_number(s, TABLE_BEST, b);
        r = write_end(s, write_publish_best(s, ROW_FAIL, b, err), err);
    }
    if (r < 0) {
        b->generation = 0;
    }
    return r;
}

/* Looks for the row with b's generation. 0: there is none, or it is bad. STORE_THERE: it is b's.
 * ERROR_CONFLICT: it is of another key. */
static int find_number(struct store *s, const struct best *b, struct error *err)
{
    struct best row;
    int r = rows_first(s, TABLE_BEST, &row, err, NULL, "WHERE generation = ?1", "i", b->generation);
    if (r != 0) {
        return r == STORE_MISS ? 0 : r;
    }
    if (strcmp(row.key, b->key) != 0) {
        return error_set(err, ERROR_CONFLICT,
                         "generation %" PRId64 " of key %.12s has been given to another row",
                         b->generation, b->key);
    }
    return STORE_THERE;
}

int store_publish_again(struct store *s, struct best *b, struct error *err)
{
    assert(b->generation > 0);
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    rows_given(s, b->generation);
    r = find_number(s, b, err);
    return write_end(s, r ? r : write_publish_best(s, ROW_UPDATE, b, err), err);
}

int write_delete(struct store *s, const char *const sql[2], const char *types, const char *name,
                 const char *kind, int64_t *n, struct error *err)
{
    int64_t rows = 0, gone = 0;
    int r = write_begin(s, err);
    if (r == 0) {
        for (int i = 0; r == 0 && i < 2 && sql[i]; i++) {
            r = db_run(&s->db, &gone, err, sql[i], types, name, s->owner);
            rows += gone;
        }
        r = r || !kind || !rows ? r : change_add(s, kind, name, err);
        r = write_end(s, r, err);
    }
    if (n) {
        *n = r < 0 ? 0 : rows;
    }
    return r;
}

int store_evict(struct store *s, const char *key, int64_t *n, struct error *err)
{
    static const char *const sql[] = {"DELETE FROM best WHERE key = ?1",
                                      "DELETE FROM trial WHERE key = ?1"};
    int r = write_begin(s, err);
    if (r == 0) {
        r = write_delete(s, sql, "t", key, NULL, n, err);
        /* the fleet's rows stay known by their numbers, so that they do not come again */
        r = r ? r
              : db_run(&s->db, NULL, err,
                       "UPDATE fleet_row SET state = 'evicted' WHERE key = ?1 AND state IN"
                       " ('new', 'confirmed', 'own')",
                       "t", key);
        /* also when no row was deleted: another daemon may have an unsaved best of the key */
        r = r ? r : change_add(s, "evicted", key, err);
        r = write_end(s, r, err);
    }
    if (r < 0 && n) {
        *n = 0;
    }
    return r;
}

int store_unquarantine(struct store *s, const char *variant, int64_t *n, struct error *err)
{
    static const char *const sql[2] = {"DELETE FROM quarantine WHERE variant = ?1"};
    return write_delete(s, sql, "t", variant, "quarantine", n, err);
}

static int write_unpin_key(struct store *s, const char *key, struct best *now, struct error *err)
{
    int r = rows_first(s, TABLE_BEST, now, err, "current_best", "WHERE key = ?1", "t", key);
    if (r == STORE_MISS || (r == 0 && strcmp(now->source, "manual") != 0)) {
        return error_set(err, ERROR_NOT_FOUND, "key %s is not pinned", key);
    }
    r = r ? r
          : rows_first(s, TABLE_BEST, now, err, NULL,
                       "WHERE key = ?1 AND source <> 'manual' ORDER BY source = 'tuned' DESC,"
                       " generation DESC",
                       "t", key);
    if (r == 0 && strcmp(now->key, key) != 0) {
        return store_index_damaged(s, err);
    }
    if (r == STORE_MISS) {
        r = db_run(&s->db, NULL, err, "DELETE FROM best WHERE key = ?1", "t", key);
        r = r ? r : change_add(s, "best", key, err);
        return r ? r : STORE_MISS;
    }
    if (r == 0 && strcmp(now->source, "fleet") == 0) {
        return store_fleet_renumber(s, now, err);
    }
    return r ? r : store_publish(s, now, err);
}

int store_unpin(struct store *s, const char *key, struct best *now, struct error *err)
{
    int r = write_begin(s, err);
    return r ? r : write_end(s, write_unpin_key(s, key, now, err), err);
}
