/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the key most like a given key (cache.h). The search compares the keys' bytes (proto/key.c),
 * which takes some hundred nanoseconds a key. */
#include "daemon/cache/cache.h"

struct nearness {
    int fields;
    double sizes;  /* entry_distance: 1 is a factor of two in an integer field */
    uint64_t hash; /* decides among equals, so that every run chooses the same key */
};

static bool is_closer(const struct nearness *a, const struct nearness *b)
{
    if (a->fields != b->fields) {
        return a->fields < b->fields;
    }
    return a->sizes != b->sizes ? a->sizes < b->sizes : a->hash < b->hash;
}

struct search {
    const struct key *k;
    float dims[CACHE_DIMS];
    struct nearness best;
    const struct cache_entry *found;
};

static void closest_look_at(struct search *x, const struct cache_entry *e)
{
    if (!e || e->rank < CACHE_SERVES || e->id.front == x->k->hash) {
        return;
    }
    struct nearness its = {key_differences(x->k->bytes, x->k->len, entry_key(e), e->key_len),
                           entry_distance(x->dims, e->dims), e->id.front};
    if (its.fields >= 0 && (!x->found || is_closer(&its, &x->best))) {
        x->best = its;
        x->found = e;
    }
}

const struct cache_entry *closest_find(const struct cache *c, const struct key *k,
                                       const struct problem *bucket)
{
    struct search x = {.k = k};
    uint64_t of[CACHE_LISTS];
    bool all = c->keys.capacity <= CLOSEST_SLOTS;
    entry_lists(bucket, of, x.dims);
    for (size_t i = 0; i < (all ? c->keys.capacity : CLOSEST_LOOKS); i++) {
        closest_look_at(&x, c->keys.slots[(k->hash + i) & (c->keys.capacity - 1)]);
    }
    for (enum cache_list which = 0; which < CACHE_LISTS && !all; which++) {
        const struct cache_entry *e = cache_first(c, which, of[which]);
        for (int i = 0; e && i < CLOSEST_LOOKS; i++, e = cache_next(e, which)) {
            closest_look_at(&x, e);
        }
    }
    return x.found;
}
