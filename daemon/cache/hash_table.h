/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of borrowed objects by a 64-bit hash in each object. Open addressing with linear probing,
 * at most two thirds full. The first bits of the hash give an object's slot, so that objects with
 * hashes of the same beginning are neighbours (cache_find_id).
 */
#ifndef GEMMD_DAEMON_CACHE_HASH_TABLE_H
#define GEMMD_DAEMON_CACHE_HASH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

struct hash_table {
    size_t hash_at;     /* offset of the 64-bit hash in each object */
    void **slots;       /* owned; the objects are borrowed */
    size_t n, capacity; /* number of objects; number of slots: a power of two, or 0 */
};

static inline uint64_t hash_table_hash_of(const struct hash_table *t, const void *object)
{
    return *(const uint64_t *)(const void *)((const char *)object + t->hash_at);
}

/* Returns the slot where a search for the hash begins: the hash's first log2(capacity) bits. */
static inline size_t hash_table_home(const struct hash_table *t, uint64_t hash)
{
    return (size_t)(hash >> (__builtin_clzll(t->capacity) + 1));
}

/* Returns the slot of the object with this hash for which is(object, key) is true (`is` NULL: any
 * object with this hash), or the free slot for such an object. The table must have a capacity. */
static inline void **hash_table_slot(const struct hash_table *t, uint64_t hash,
                                     bool (*is)(const void *object, const void *key),
                                     const void *key)
{
    size_t mask = t->capacity - 1, i = hash_table_home(t, hash);
    for (void *x; (x = t->slots[i]); i = (i + 1) & mask) {
        if (hash_table_hash_of(t, x) == hash && (!is || is(x, key))) {
            break;
        }
    }
    return &t->slots[i];
}

/* Finds the object as hash_table_slot does; NULL: no such object. */
static inline void *hash_table_find(const struct hash_table *t, uint64_t hash,
                                    bool (*is)(const void *object, const void *key),
                                    const void *key)
{
    return t->capacity ? *hash_table_slot(t, hash, is, key) : NULL;
}

/* Makes room for n objects in all. ERROR_NO_MEMORY: the table is unchanged. */
int hash_table_reserve(struct hash_table *t, size_t n, struct error *err);
void hash_table_put(struct hash_table *t, void *object); /* the table must have room */
/* Removes an object. Objects behind it may move to other slots. */
void hash_table_remove(struct hash_table *t, const void *object);
void hash_table_deinit(struct hash_table *t);

#endif
