/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table: open addressing with linear probing and backward-shift deletion, at most two thirds
 * full. entry.c makes entries and reads them back.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/cache.h"

int cache_init(struct cache *c, const char *device_class, struct error *err)
{
    *c = (struct cache){0};
    for (int i = 0; i < CACHE_LISTS; i++) {
        c->lists[i].which = (enum cache_list)i;
    }
    return entries_init(&c->entries, device_class, err);
}

static void forget_partials(struct cache *c, const struct cache_entry *e)
{
    char id[HASH_HEX];
    cache_entry_id(e, id);
    partials_forget(&c->partials, id);
}

static void cache_drop_entry(struct cache *c, struct cache_entry *e)
{
    if (e->brought) {
        holdings_remove(&c->brought, e->uid);
    }
    memo_forget(&c->memo, e);
    entry_free(&c->entries, e);
}

void cache_deinit(struct cache *c)
{
    for (size_t i = 0; i < c->capacity; i++) {
        if (c->slots[i]) {
            cache_drop_entry(c, c->slots[i]);
        }
    }
    memo_deinit(&c->memo);
    partials_deinit(&c->partials);
    holdings_deinit(&c->brought);
    ids_deinit(&c->ids);
    for (int i = 0; i < CACHE_LISTS; i++) {
        groups_deinit(&c->lists[i]);
    }
    free(c->slots);
    entries_free_all(&c->entries);
    *c = (struct cache){0};
}

/* ---- the table ------------------------------------------------------------------------------- */

/* The slot of a key, or the free slot where it would go. The table is never full. */
static size_t cache_probe_slot(const struct cache *c, const struct key *k)
{
    size_t mask = c->capacity - 1;
    size_t key_len = k->len - c->entries.class_len;
    size_t i = k->hash & mask;
    for (const struct cache_entry *e; (e = c->slots[i]); i = (i + 1) & mask) {
        if (e->hash == k->hash && e->key_len == key_len &&
            memcmp(entry_key(e), k->bytes, key_len) == 0) {
            break;
        }
    }
    return i;
}

static int cache_grow_table(struct cache *c, struct error *err)
{
    size_t capacity = c->capacity ? c->capacity * 2 : 256;
    struct cache_entry **slots = calloc(capacity, sizeof(struct cache_entry *));
    if (!slots) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu keys", capacity);
    }
    int status = ids_grow(&c->ids, capacity, err);
    for (int i = 0; i < CACHE_LISTS && status == 0; i++) {
        status = groups_grow(&c->lists[i], capacity, err);
    }
    if (status) {
        free(slots);
        return status;
    }
    for (size_t i = 0; i < c->capacity; i++) {
        struct cache_entry *e = c->slots[i];
        if (e) {
            size_t at = e->hash & (capacity - 1);
            while (slots[at]) {
                at = (at + 1) & (capacity - 1);
            }
            slots[at] = e;
        }
    }
    free(c->slots);
    c->slots = slots;
    c->capacity = capacity;
    c->moves++;
    return 0;
}

/* Only what serves is in the lists: no number of hints hides it. */
static void cache_list_entry(struct cache *c, struct cache_entry *e)
{
    for (int i = 0; i < CACHE_LISTS && e->rank >= CACHE_SERVES; i++) {
        groups_put(&c->lists[i], e);
    }
}

static void cache_unlist_entry(struct cache *c, const struct cache_entry *e)
{
    for (int i = 0; i < CACHE_LISTS && e->rank >= CACHE_SERVES; i++) {
        groups_remove(&c->lists[i], e);
    }
}

void cache_rerank(struct cache *c, struct cache_entry *e, enum cache_rank rank)
{
    cache_unlist_entry(c, e);
    e->rank = (uint8_t)rank;
    cache_list_entry(c, e);
}

struct cache_entry *cache_find(const struct cache *c, const struct key *k)
{
    return c->capacity ? c->slots[cache_probe_slot(c, k)] : NULL;
}

int cache_put(struct cache *c, const struct key *k, const struct problem *bucket,
              const struct answer *a, enum cache_rank rank, double atol, double rtol, uint32_t uid,
              struct error *err)
{
    if (c->n * 3 >= c->capacity * 2) {
        int status = cache_grow_table(c, err);
        if (status) {
            return status;
        }
    }
    struct cache_entry *e = entry_make(&c->entries, k, bucket, a, err);
    if (!e) {
        return ERROR_NO_MEMORY;
    }
    e->rank = (uint8_t)rank;
    e->met = true;
    e->manual = strcmp(a->source, "manual") == 0;
    e->brought = strcmp(a->source, "imported") == 0;
    e->uid = uid;
    if (e->brought && !holdings_add(&c->brought, uid)) {
        entry_free(&c->entries, e);
        return error_set(err, ERROR_NO_MEMORY, "no memory to count one more key");
    }
    e->atol = (float)atol;
    e->rtol = (float)rtol;
    size_t i = cache_probe_slot(c, k);
    if (strcmp(a->source, "partial") != 0 || (c->slots[i] && c->slots[i]->manual)) {
        forget_partials(c, e);
    }
    if (c->slots[i]) {
        ids_replace(&c->ids, c->slots[i], e);
        cache_unlist_entry(c, c->slots[i]);
        cache_drop_entry(c, c->slots[i]);
    } else {
        ids_put(&c->ids, e);
        c->n++;
    }
    c->slots[i] = e;
    cache_list_entry(c, e);
    return 0;
}

/* Closes the gap at i: whatever stands behind it and may not be reached over a free slot moves. */
static void cache_remove_at(struct cache *c, size_t i)
{
    size_t mask = c->capacity - 1;
    ids_remove(&c->ids, c->slots[i]);
    cache_unlist_entry(c, c->slots[i]);
    forget_partials(c, c->slots[i]);
    cache_drop_entry(c, c->slots[i]);
    c->n--;
    for (size_t j = (i + 1) & mask; c->slots[j]; j = (j + 1) & mask) {
        size_t home = c->slots[j]->hash & mask;
        if (((j - home) & mask) >= ((j - i) & mask)) {
            c->slots[i] = c->slots[j];
            i = j;
        }
    }
    c->slots[i] = NULL;
    c->moves++;
}

bool cache_remove(struct cache *c, const struct key *k)
{
    if (!cache_find(c, k)) {
        return false;
    }
    cache_remove_at(c, cache_probe_slot(c, k));
    return true;
}

/* ---- reading back ---------------------------------------------------------------------------- */

int cache_answer(struct cache *c, const struct cache_entry *e, struct answer *a, struct error *err)
{
    return entry_answer(&c->entries, e, a, err);
}

int cache_problem(struct cache *c, const struct cache_entry *e, const char *device_class,
                  struct problem *out, struct error *err)
{
    return entry_problem(&c->entries, e, device_class, out, err);
}

/* ---- by id ----------------------------------------------------------------------------------- */

struct cache_entry *cache_find_id(const struct cache *c, const char *prefix, bool *many)
{
    return ids_find(&c->ids, prefix, many);
}

bool cache_remove_id(struct cache *c, const char *id)
{
    bool many;
    struct cache_entry *e = strlen(id) == HASH_HEX - 1 ? cache_find_id(c, id, &many) : NULL;
    if (!e) {
        return false;
    }
    size_t mask = c->capacity - 1;
    size_t i = e->hash & mask;
    while (c->slots[i] != e) {
        i = (i + 1) & mask;
    }
    cache_remove_at(c, i);
    return true;
}

/* ---- what is in the database still ----------------------------------------------------------- */

void cache_unmeet(struct cache *c)
{
    for (size_t i = 0; i < c->capacity; i++) {
        if (c->slots[i]) {
            c->slots[i]->met = false;
        }
    }
}

bool cache_meet(struct cache *c, const char *id, int64_t generation)
{
    bool many;
    struct cache_entry *e = cache_find_id(c, id, &many);
    if (!e || e->generation < generation) {
        return false;
    }
    e->met = true;
    return e->saved || e->generation > generation;
}

bool cache_sweep(struct cache *c, size_t *at, char id[HASH_HEX])
{
    for (; *at < c->capacity; ++*at) {
        const struct cache_entry *e = c->slots[*at];
        if (e && e->saved && !e->met) {
            cache_entry_id(e, id);
            cache_remove_at(c, *at); /* another may stand there now */
            return true;
        }
    }
    return false;
}

/* ---- near ------------------------------------------------------------------------------------ */

enum { NEAR_MAX = 16 };

struct nearest_few {
    size_t n, max;
    double distances[NEAR_MAX];
    struct cache_entry **out;
};

static void cache_offer_nearest(struct nearest_few *x, struct cache_entry *e, double d)
{
    size_t at = x->n;
    while (at > 0 && (x->distances[at - 1] > d ||
                      (x->distances[at - 1] == d && x->out[at - 1]->hash > e->hash))) {
        at--; /* equal distances: the same order on every run */
    }
    if (at == x->max) {
        return;
    }
    x->n += x->n < x->max;
    for (size_t j = x->n - 1; j > at; j--) {
        x->distances[j] = x->distances[j - 1];
        x->out[j] = x->out[j - 1];
    }
    x->distances[at] = d;
    x->out[at] = e;
}

size_t cache_near(const struct cache *c, const struct key *k, const struct problem *bucket,
                  size_t max, struct cache_entry *out[])
{
    struct nearest_few x = {.max = max < NEAR_MAX ? max : NEAR_MAX, .out = out};
    uint64_t of[CACHE_LISTS];
    float dims[CACHE_DIMS];
    entry_lists(bucket, of, dims);
    for (enum cache_list which = LIST_GROUP; which <= LIST_SHAPE; which++) {
        const struct groups *g = &c->lists[which];
        struct cache_entry *e = groups_first(g, of[which]);
        for (int i = 0; e && i < LOOKS_MAX; i++, e = groups_next(g, e)) {
            bool later = which == LIST_GROUP && e->in[LIST_SHAPE].of == of[LIST_SHAPE];
            if (!later && e->hash != k->hash) {
                cache_offer_nearest(&x, e, entry_distance(e->dims, dims));
            }
        }
    }
    return x.n;
}
