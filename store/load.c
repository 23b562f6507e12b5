/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All current bests. Which row of a key is its newest is told by two witnesses: the rows themselves,
 * and the index over (key, generation). A key is served only where both say the same. So when the
 * newest row, or its place in the index, is damaged or lost, the one before it does not come back:
 * it may be a config that a person has replaced for a reason. The newest come first, so that a key of
 * which the index has lost the newest row is found out before an older one is given.
 *
 * A newest row with a wrong checksum explains why the two disagree: it is a miss from now on. What
 * nothing explains is a damaged file. To walk the rows in the order in which they lie is quicker, too,
 * than going from the index to each.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/hash.h"
#include "store/inner.h"

struct newest { /* what the index says of a key */
    char key[HASH_HEX];
    bool met; /* the row is there and good, or the reason why not is known */
    int64_t generation;
};

struct load {
    struct store *s;
    struct newest *keys; /* owned; ascending by key */
    size_t n, room;
    struct best *b; /* owned */
};

int store_index_damaged(struct store *s, struct error *err)
{
    s->db.damaged = true;
    return error_set(err, ERROR_STORE,
                     "database %s is damaged: its index of keys does not fit its rows", s->path);
}

/* ---- the index ------------------------------------------------------------------------------- */

static int add_entry(struct load *l, const char *key, int64_t generation, struct error *err)
{
    int order = key && l->n ? strcmp(l->keys[l->n - 1].key, key) : -1;
    if (!key || strlen(key) != HASH_HEX - 1 || order > 0) {
        return store_index_damaged(l->s, err);
    }
    if (order < 0 && l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 256;
        struct newest *grown = realloc(l->keys, room * sizeof(*grown));
        if (!grown) {
            return error_set(err, ERROR_NO_MEMORY, "no memory to read %s", l->s->path);
        }
        l->keys = grown;
        l->room = room;
    }
    l->n += order < 0;
    struct newest *k = &l->keys[l->n - 1];
    if (order == 0 && generation <= k->generation) {
        return store_index_damaged(l->s, err);
    }
    memcpy(k->key, key, HASH_HEX);
    k->generation = generation;
    k->met = false;
    return 0;
}

static int read_index(struct load *l, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    int r = db_query(&l->s->db, &st, err,
                     "SELECT key, generation FROM best INDEXED BY best_key ORDER BY key, generation",
                     "");
    while (r == 0 && (r = db_step(&l->s->db, st, err)) == DB_ROW) {
        r = add_entry(l, (const char *)sqlite3_column_text(st, 0), sqlite3_column_int64(st, 1),
                      err);
    }
    return r;
}

/* ---- the rows -------------------------------------------------------------------------------- */

static int compare(const void *key, const void *entry)
{
    return strcmp(key, ((const struct newest *)entry)->key);
}

static struct newest *find(const struct load *l, const char *key)
{
    return key && l->n ? bsearch(key, l->keys, l->n, sizeof(*l->keys), compare) : NULL;
}

static int column_of(const struct schema *s, const char *name)
{
    int i = 0;
    while (strcmp(s->fields[i].name, name) != 0) {
        i++;
    }
    return i;
}

/* 1: l->b is the newest of its key, by both witnesses. 0: the row is nothing to serve. */
static int judge(struct load *l, const struct rows *rows, int key_column, struct error *err)
{
    int64_t generation = sqlite3_column_int64(rows->st, (int)rows->t->schema->n + 1);
    struct newest *k = find(l, (const char *)sqlite3_column_text(rows->st, key_column));
    if (k && generation < k->generation) {
        return 0; /* history; if the newer one is not there, explain_rest asks why */
    }
    int r = row_read(&l->s->db, rows->st, rows->t, l->b, &l->s->scratch, err);
    if (r == ROW_BAD) {
        return rows_bad(l->s, rows->t, generation, err);
    }
    if (r < 0) {
        return r;
    }
    if (!k || generation > k->generation) {
        return store_index_damaged(l->s, err); /* the index lacks a row that is good */
    }
    k->met = true;
    return 1;
}

static int walk_rows(struct load *l, int (*row)(void *ctx, const struct best *b), void *ctx,
                     bool *stopped, struct error *err)
{
    ROWS_AUTO rows = {0};
    int key_column = column_of(tables[TABLE_BEST].schema, "key");
    int r = rows_begin(&rows, l->s, TABLE_BEST, err, NULL, "NOT INDEXED ORDER BY generation DESC", "");
    while (r == 0 && (r = db_step(&l->s->db, rows.st, err)) == DB_ROW) {
        r = judge(l, &rows, key_column, err);
        if (r == 1 && row(ctx, l->b)) {
            *stopped = true;
            return 0;
        }
        r = r < 0 ? r : 0;
    }
    return r;
}

/* The index names rows that were not met: they are bad, which is told, or the file is damaged. */
static int explain_rest(struct load *l, struct error *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < l->n; i++) {
        if (l->keys[i].met) {
            continue;
        }
        DB_STMT_AUTO *st = NULL;
        r = db_query(&l->s->db, &st, err, "SELECT 1 FROM best NOT INDEXED WHERE generation = ?1",
                     "i", l->keys[i].generation);
        r = r ? r : db_step(&l->s->db, st, err);
        bool there = r == DB_ROW;
        r = r < 0 ? r
                  : rows_first(l->s, TABLE_BEST, l->b, err, "best NOT INDEXED",
                               "WHERE generation = ?1", "i", l->keys[i].generation);
        if (r == 0 || (r == STORE_MISS && !there)) {
            return store_index_damaged(l->s, err); /* it is another key's, or gone */
        }
        r = r == STORE_MISS ? 0 : r;
    }
    return r;
}

int store_each_best(struct store *s, int (*row)(void *ctx, const struct best *b), void *ctx,
                    struct error *err)
{
    struct load l = {.s = s, .b = malloc(sizeof(*l.b))};
    bool stopped = false;
    int r = l.b ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory to read %s", s->path);
    r = r ? r : read_index(&l, err);
    r = r ? r : walk_rows(&l, row, ctx, &stopped, err);
    r = r || stopped ? r : explain_rest(&l, err);
    free(l.keys);
    free(l.b);
    return r;
}
