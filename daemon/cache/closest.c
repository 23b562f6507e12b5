/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over the cache, comparing bytes (proto/key_compare.c): some hundred nanoseconds a
 * key. */
#include <math.h>
#include <string.h>

#include "daemon/cache/closest.h"

struct nearness {
    int fields;
    double sizes;  /* sum of |log2| over the integer fields */
    uint64_t hash; /* of equals always the same one */
};

static double size_distance(const float a[CACHE_DIMS], const float b[CACHE_DIMS])
{
    double sum = 0;
    for (int i = 0; i < CACHE_DIMS; i++) {
        sum += fabs((double)a[i] - (double)b[i]);
    }
    return sum;
}

static bool is_closer(const struct nearness *a, const struct nearness *b)
{
    if (a->fields != b->fields) {
        return a->fields < b->fields;
    }
    return a->sizes != b->sizes ? a->sizes < b->sizes : a->hash < b->hash;
}

const struct cache_entry *closest_find(const struct cache *c, const struct key *k,
                                       const struct problem *bucket)
{
    float dims[CACHE_DIMS];
    struct nearness best = {0};
    const struct cache_entry *found = NULL;
    entry_group(bucket, dims);
    for (size_t i = 0; i < c->capacity; i++) {
        const struct cache_entry *e = c->slots[i];
        if (!e || e->rank < CACHE_SERVES || e->hash == k->hash) {
            continue;
        }
        struct nearness its = {key_differences(k->bytes, k->len, entry_key(e), e->key_len),
                               size_distance(dims, e->dims), e->hash};
        if (its.fields >= 0 && (!found || is_closer(&its, &best))) {
            best = its;
            found = e;
        }
    }
    return found;
}
