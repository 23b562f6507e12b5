/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads all current bests. Two sources tell the newest row of a key: the rows, and the index over
 * (key, generation). A key is served only where both agree. So the row before the newest never
 * comes back when the newest row, or its index entry, is damaged: a person may have replaced that
 * config.
 *
 * Both sources are read first, by keys and generations only, which is quick. Then any row may be
 * returned, page by page or by key. A newest row with a wrong checksum or key explains a
 * disagreement and makes the key a miss. Any other disagreement means a damaged file. Rows are read
 * in file order, newest first: quicker than a lookup through the index for each key.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/hash.h"
#include "store/inner.h"

struct newest { /* newest generation of a key by the index */
    char key[HASH_HEX];
    bool met; /* the table's newest row of the key has this generation */
    int64_t generation;
};

struct store_load {
    struct store *s;
    struct newest *keys; /* owned; ascending by key */
    size_t n, room;
    int64_t before; /* generation of the row that was read last */
    struct best *b; /* owned */
};

/* ---- the index ------------------------------------------------------------------------------- */

static int add_entry(struct store_load *l, const char *key, int64_t generation, struct error *err)
{
    /* An index entry whose key is malformed is left out. */
    if (key && !hash_is_hex(key)) {
        return 0; /* load_compare_rows reports the bad row; or the file is damaged */
    }
    int order = key && l->n ? strcmp(l->keys[l->n - 1].key, key) : -1;
    if (!key || order > 0) {
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

static int read_index(struct store_load *l, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    int r = db_query(
        &l->s->db, &st, err,
        "SELECT key, generation FROM best INDEXED BY best_key ORDER BY key, generation", "");
    while (r == 0 && (r = db_step(&l->s->db, st, err)) == DB_ROW) {
        r = add_entry(l, (const char *)sqlite3_column_text(st, 0), sqlite3_column_int64(st, 1),
                      err);
    }
    return r;
}

static int load_compare_keys(const void *key, const void *entry)
{
    return strcmp(key, ((const struct newest *)entry)->key);
}

static struct newest *load_find_key(const struct store_load *l, const char *key)
{
    return key && l->n ? bsearch(key, l->keys, l->n, sizeof(*l->keys), load_compare_keys) : NULL;
}

/* ---- the rows -------------------------------------------------------------------------------- */

/* Reads the row of a generation without an index: 0, STORE_MISS (missing, or reported as bad),
 * fault. */
static int load_read_row(struct store_load *l, int64_t generation, struct best *out,
                         struct error *err)
{
    return rows_first(l->s, TABLE_BEST, out, err, "best NOT INDEXED", "WHERE generation = ?1", "i",
                      generation);
}

/* Judges a row that contradicts the index: the row is bad, or the file is damaged. */
static int explain_row(struct store_load *l, int64_t generation, struct error *err)
{
    int r = load_read_row(l, generation, l->b, err);
    return r == 0 ? store_index_damaged(l->s, err) : r == STORE_MISS ? 0 : r;
}

static int load_compare_rows(struct store_load *l, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    int r = db_query(&l->s->db, &st, err, "SELECT key, generation FROM best NOT INDEXED", "");
    while (r == 0 && (r = db_step(&l->s->db, st, err)) == DB_ROW) {
        struct newest *k = load_find_key(l, (const char *)sqlite3_column_text(st, 0));
        int64_t generation = sqlite3_column_int64(st, 1);
        r = 0;
        if (k && generation == k->generation) {
            k->met = true;
        } else if (!k || generation > k->generation) {
            r = explain_row(l, generation, err);
        }
    }
    return r;
}

/* Judges index entries without a matching row: the row is bad (and reported), or the file is
 * damaged. */
static int explain_rest(struct store_load *l, struct error *err)
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
        r = r < 0 ? r : load_read_row(l, l->keys[i].generation, l->b, err);
        if (r == 0 || (r == STORE_MISS && !there)) {
            /* the entry leads to the row of another key, or to no row */
            return store_index_damaged(l->s, err);
        }
        r = r == STORE_MISS ? 0 : r;
    }
    return r;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Reads in a transaction: another process may be writing the file. */
static int load_read_newest(struct store_load *l, struct error *err)
{
    struct error ignored;
    int r = db_exec(&l->s->db, "BEGIN", err);
    if (r == 0) {
        r = read_index(l, err);
        r = r ? r : load_compare_rows(l, err);
        r = r ? r : explain_rest(l, err);
        /* The transaction wrote only the list of bad rows, so a failed COMMIT is no fault. */
        if (db_exec(&l->s->db, "COMMIT", &ignored)) {
            db_exec(&l->s->db, "ROLLBACK", &ignored);
        }
    }
    return r;
}

int store_load_begin(struct store *s, struct store_load **out, struct error *err)
{
    struct store_load *l = calloc(1, sizeof(*l));
    *out = NULL;
    if (!l || !(l->b = malloc(sizeof(*l->b)))) {
        free(l);
        return error_set(err, ERROR_NO_MEMORY, "no memory to read %s", s->path);
    }
    l->s = s;
    l->before = INT64_MAX;
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
    if (l) {
        free(l->keys);
        free(l->b);
        free(l);
    }
    return NULL;
}

/* 0: `out` is the newest row of its key; STORE_MISS: the row is history, or bad (and reported). */
static int load_check_row(struct store_load *l, const struct rows *rows, int key_column,
                          struct best *out, struct error *err)
{
    const struct newest *k =
        load_find_key(l, (const char *)sqlite3_column_text(rows->st, key_column));
    if (!k || !k->met || k->generation != l->before) {
        return STORE_MISS;
    }
    int r = row_read(&l->s->db, rows->st, rows->t, out, &l->s->scratch, err);
    if (r == ROW_BAD) {
        r = rows_bad(l->s, rows->t, l->before, err);
        return r < 0 ? r : STORE_MISS;
    }
    return r;
}

int store_load_page(struct store_load *l, struct best *out, uint32_t max, uint32_t *n,
                    struct error *err)
{
    ROWS_AUTO rows = {0};
    int key_column = (int)row_find_field(&tables[TABLE_BEST], "key");
    *n = 0;
    int r =
        rows_begin(&rows, l->s, TABLE_BEST, err, NULL,
                   "NOT INDEXED WHERE generation < ?1 ORDER BY generation DESC", "i", l->before);
    while (r == 0 && *n < max && (r = db_step(&l->s->db, rows.st, err)) == DB_ROW) {
        l->before = sqlite3_column_int64(rows.st, (int)rows.t->schema->n + 1);
        r = load_check_row(l, &rows, key_column, &out[*n], err);
        *n += r == 0;
        r = r < 0 ? r : 0;
    }
    return r < 0 ? r : 0;
}

int store_load_find(struct store_load *l, const char *key, struct best *out, struct error *err)
{
    const struct newest *k = load_find_key(l, key);
    if (!k || !k->met) {
        return STORE_MISS;
    }
    int r = load_read_row(l, k->generation, out, err);
    return r == 0 && strcmp(out->key, key) != 0 ? STORE_MISS : r;
}

int store_each_best(struct store *s, int (*row)(void *ctx, const struct best *b), void *ctx,
                    struct error *err)
{
    struct store_load *l;
    struct best *b = malloc(sizeof(*b));
    uint32_t n;
    int r = b ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory to read %s", s->path);
    r = r ? r : store_load_begin(s, &l, err);
    if (r == 0) {
        while ((r = store_load_page(l, b, 1, &n, err)) == 0 && n > 0 && !row(ctx, b)) {
        }
        store_load_end(l);
    }
    free(b);
    return r;
}
