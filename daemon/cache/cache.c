/* SPDX-License-Identifier: Apache-2.0 */
/* The entries and their lists. entry.c makes and decodes entries. */
#include <string.h>

#include "daemon/cache/cache.h"

int cache_init(struct cache *c, const char *device_class, struct error *err)
{
    *c = (struct cache){.keys = {.hash_at = offsetof(struct cache_entry, id.front)}};
    for (int i = 0; i < CACHE_LISTS; i++) {
        c->lists[i].hash_at = offsetof(struct cache_entry, in[i].of);
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
    for (size_t i = 0; i < c->keys.capacity; i++) {
        if (c->keys.slots[i]) {
            cache_drop_entry(c, c->keys.slots[i]);
        }
    }
    memo_deinit(&c->memo);
    partials_deinit(&c->partials);
    holdings_deinit(&c->brought);
    hash_table_deinit(&c->keys);
    for (int i = 0; i < CACHE_LISTS; i++) {
        hash_table_deinit(&c->lists[i]);
    }
    entries_free_all(&c->entries);
    *c = (struct cache){0};
}

/* ---- the entries ----------------------------------------------------------------------------- */

/* Compares a key's bytes without the device class at their end: all keys of the cache have the same
 * class. */
static bool cache_is_of_key(const void *entry, const void *key)
{
    const struct cache_entry *e = entry;
    const struct key *k = key;
    return e->key_len < k->len && memcmp(entry_key(e), k->bytes, e->key_len) == 0;
}

/* Reserves room for n entries in the table of keys and in the tables of lists: there are at most as
 * many lists as entries. */
static int cache_reserve(struct cache *c, size_t n, struct error *err)
{
    int status = hash_table_reserve(&c->keys, n, err);
    for (int i = 0; i < CACHE_LISTS && status == 0; i++) {
        status = hash_table_reserve(&c->lists[i], n, err);
    }
    return status;
}

/* Puts an entry into its lists. Only serving entries are in the lists, so that hints do not use up
 * the entries that `near` and `why` look at. */
static void cache_list_entry(struct cache *c, struct cache_entry *e)
{
    for (int i = 0; i < CACHE_LISTS && e->rank >= CACHE_SERVES; i++) {
        struct cache_link *link = &e->in[i];
        void **first = hash_table_slot(&c->lists[i], link->of, NULL, NULL);
        link->before = NULL;
        link->after = *first;
        if (link->after) {
            link->after->in[i].before = e;
            *first = e;
        } else {
            hash_table_put(&c->lists[i], e);
        }
    }
}

static void cache_unlist_entry(struct cache *c, const struct cache_entry *e)
{
    for (int i = 0; i < CACHE_LISTS && e->rank >= CACHE_SERVES; i++) {
        const struct cache_link *link = &e->in[i];
        if (link->after) {
            link->after->in[i].before = link->before;
        }
        if (link->before) {
            link->before->in[i].after = link->after;
        } else if (link->after) {
            *hash_table_slot(&c->lists[i], link->of, NULL, NULL) = link->after;
        } else {
            hash_table_remove(&c->lists[i], e);
        }
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
    return hash_table_find(&c->keys, k->hash, cache_is_of_key, k);
}

int cache_put(struct cache *c, const struct key *k, const struct problem *bucket,
              const struct answer *a, enum cache_rank rank, double atol, double rtol, uint32_t uid,
              struct error *err)
{
    int status = cache_reserve(c, c->keys.n + 1, err);
    if (status) {
        return status;
    }
    struct cache_entry *e = entry_make(&c->entries, k, bucket, a, err);
    if (!e) {
        return ERROR_NO_MEMORY;
    }
    e->rank = (uint8_t)rank;
    e->met = true;
    e->manual = strcmp(a->source, "manual") == 0;
    e->brought = strcmp(a->source, "imported") == 0;
    e->candidate = answer_is_candidate(a);
    e->uid = uid;
    if (e->brought && !holdings_add(&c->brought, uid)) {
        entry_free(&c->entries, e);
        return error_set(err, ERROR_NO_MEMORY, "no memory to count one more key");
    }
    e->atol = atol;
    e->rtol = rtol;
    void **slot = hash_table_slot(&c->keys, k->hash, cache_is_of_key, k);
    struct cache_entry *old = *slot;
    if (strcmp(a->source, "partial") != 0 || (old && old->manual)) {
        forget_partials(c, e);
    }
    if (old) {
        cache_unlist_entry(c, old);
        cache_drop_entry(c, old);
        *slot = e;
    } else {
        hash_table_put(&c->keys, e);
    }
    cache_list_entry(c, e);
    return 0;
}

static void cache_remove_entry(struct cache *c, struct cache_entry *e)
{
    hash_table_remove(&c->keys, e);
    cache_unlist_entry(c, e);
    forget_partials(c, e);
    cache_drop_entry(c, e);
}

/* ---- reading back ---------------------------------------------------------------------------- */

int cache_answer(struct cache *c, const struct cache_entry *e, struct answer *a, struct error *err)
{
    struct entries *x = &c->entries;
    const struct wire_obj *map;
    wire_buf_clear(&x->scratch);
    cache_reply(e, &x->scratch);
    if (x->scratch.failed) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to read an answer back");
    }
    int status = wire_decode(x->doc, x->scratch.data, x->scratch.len, &map, err);
    return status ? status : schema_decode(&answer_schema, SCHEMA_LENIENT, map, a, err);
}

int cache_problem(struct cache *c, const struct cache_entry *e, struct problem *out,
                  struct error *err)
{
    struct entries *x = &c->entries;
    char class_[sizeof(((struct device_info *)0)->class)];
    wire_buf_clear(&x->scratch);
    wire_put_raw(&x->scratch, entry_key(e), e->key_len);
    wire_put_raw(&x->scratch, x->class_.data, x->class_.len);
    if (x->scratch.failed) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to read a key back");
    }
    return key_decode(x->scratch.data, x->scratch.len, out, class_, err);
}

/* ---- by id ----------------------------------------------------------------------------------- */

/* True: a sorts before b. */
static bool cache_is_id_before(struct id a, struct id b)
{
    return a.front != b.front ? a.front < b.front : a.back < b.back;
}

/* The least and the greatest id with this prefix. False: no id can have the prefix. */
static bool read_prefix(const char *prefix, struct id *least, struct id *most)
{
    char text[HASH_HEX] = "";
    size_t n = strlen(prefix);
    if (n >= HASH_HEX || strspn(prefix, "0123456789abcdef") != n) {
        return false;
    }
    memset(text, '0', HASH_HEX - 1);
    *least = id_read(memcpy(text, prefix, n));
    memset(text + n, 'f', HASH_HEX - 1 - n);
    *most = id_read(text);
    return true;
}

struct cache_entry *cache_find_id(const struct cache *c, const char *prefix, bool *many)
{
    const struct hash_table *t = &c->keys;
    struct cache_entry *found = NULL;
    struct id least, most;
    bool several;
    many = many ? many : &several;
    *many = false;
    if (!t->capacity || !read_prefix(prefix, &least, &most)) {
        return NULL;
    }
    size_t first = hash_table_home(t, least.front), last = hash_table_home(t, most.front);
    for (size_t i = first; i < first + t->capacity; i++) {
        struct cache_entry *e = t->slots[i & (t->capacity - 1)];
        if (!e && i >= last) {
            break;
        }
        if (!e || cache_is_id_before(e->id, least) || cache_is_id_before(most, e->id)) {
            continue;
        }
        if (found) {
            *many = true;
            return NULL;
        }
        found = e;
    }
    return found;
}

bool cache_remove_id(struct cache *c, const char *id)
{
    struct cache_entry *e = strlen(id) == HASH_HEX - 1 ? cache_find_id(c, id, NULL) : NULL;
    if (e) {
        cache_remove_entry(c, e);
    }
    return e != NULL;
}

/* ---- reloads --------------------------------------------------------------------------------- */

void cache_unmeet(struct cache *c)
{
    for (size_t i = 0; i < c->keys.capacity; i++) {
        struct cache_entry *e = c->keys.slots[i];
        if (e) {
            e->met = false;
        }
    }
}

bool cache_meet(struct cache *c, const char *id, int64_t generation)
{
    struct cache_entry *e = cache_find_id(c, id, NULL);
    if (!e || e->generation < generation) {
        return false;
    }
    e->met = true;
    return e->saved || e->generation > generation;
}

bool cache_sweep(struct cache *c, size_t *at, char id[HASH_HEX])
{
    for (; *at < c->keys.capacity; ++*at) {
        struct cache_entry *e = c->keys.slots[*at];
        if (e && e->saved && !e->met) {
            cache_entry_id(e, id);
            /* *at stays: the removal may have moved another entry to this slot */
            cache_remove_entry(c, e);
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
                      (x->distances[at - 1] == d && x->out[at - 1]->id.front > e->id.front))) {
        /* at equal distances the greater id goes behind, so that every run gives the same order */
        at--;
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
        struct cache_entry *e = cache_first(c, which, of[which]);
        for (int i = 0; e && i < LOOKS_MAX; i++, e = cache_next(e, which)) {
            bool later = which == LIST_GROUP && e->in[LIST_SHAPE].of == of[LIST_SHAPE];
            if (!later && e->id.front != k->hash) {
                cache_offer_nearest(&x, e, entry_distance(e->dims, dims));
            }
        }
    }
    return x.n;
}
