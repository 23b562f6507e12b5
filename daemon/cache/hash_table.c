/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "daemon/cache/hash_table.h"

enum { CAPACITY_MIN = 256 };

/* Returns the slot of `object`, or with NULL the first free slot, from the home slot of `hash`
 * on. */
static size_t hash_table_slot_of(const struct hash_table *t, uint64_t hash, const void *object)
{
    size_t i = hash_table_home(t, hash);
    while (t->slots[i] != object) {
        i = (i + 1) & (t->capacity - 1);
    }
    return i;
}

static void hash_table_place(struct hash_table *t, void *object)
{
    t->slots[hash_table_slot_of(t, hash_table_hash_of(t, object), NULL)] = object;
}

int hash_table_reserve(struct hash_table *t, size_t n, struct error *err)
{
    struct hash_table grown = *t;
    while (n * 3 > grown.capacity * 2) {
        grown.capacity = grown.capacity ? grown.capacity * 2 : CAPACITY_MIN;
    }
    if (grown.capacity == t->capacity) {
        return 0;
    }
    grown.slots = calloc(grown.capacity, sizeof(*grown.slots));
    if (!grown.slots) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu keys", n);
    }
    for (size_t i = 0; i < t->capacity; i++) {
        if (t->slots[i]) {
            hash_table_place(&grown, t->slots[i]);
        }
    }
    free(t->slots);
    *t = grown;
    return 0;
}

void hash_table_put(struct hash_table *t, void *object)
{
    hash_table_place(t, object);
    t->n++;
}

/* Frees the object's slot. A search stops at a free slot, so each later object that the search
 * would no longer reach moves forward. */
void hash_table_remove(struct hash_table *t, const void *object)
{
    size_t mask = t->capacity - 1, i = hash_table_slot_of(t, hash_table_hash_of(t, object), object);
    for (size_t j = (i + 1) & mask; t->slots[j]; j = (j + 1) & mask) {
        size_t home = hash_table_home(t, hash_table_hash_of(t, t->slots[j]));
        if (((j - home) & mask) >= ((j - i) & mask)) {
            t->slots[i] = t->slots[j];
            i = j;
        }
    }
    t->slots[i] = NULL;
    t->n--;
}

void hash_table_deinit(struct hash_table *t)
{
    free(t->slots);
    *t = (struct hash_table){.hash_at = t->hash_at};
}
