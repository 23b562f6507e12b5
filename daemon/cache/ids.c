/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ids (cache.h). Entries are told apart by their addresses: two keys might have one
 * id. */
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/cache.h"

enum { ID_BYTES = sizeof(((struct cache_entry *)0)->id) };

void ids_deinit(struct ids *x)
{
    free(x->slots);
    *x = (struct ids){0};
}

/* As many bits of the id's beginning as the capacity has. */
static size_t ids_home_slot(const struct ids *x, const uint8_t id[ID_BYTES])
{
    uint64_t front = 0;
    for (int i = 0; i < 8; i++) {
        front = front << 8 | id[i];
    }
    return (size_t)(front >> (__builtin_clzll(x->capacity) + 1));
}

static size_t ids_slot_of(const struct ids *x, const struct cache_entry *e)
{
    size_t mask = x->capacity - 1;
    size_t i = ids_home_slot(x, e->id);
    while (x->slots[i] != e) {
        i = (i + 1) & mask;
    }
    return i;
}

void ids_put(struct ids *x, struct cache_entry *e)
{
    size_t mask = x->capacity - 1;
    size_t i = ids_home_slot(x, e->id);
    while (x->slots[i]) {
        i = (i + 1) & mask;
    }
    x->slots[i] = e;
}

int ids_grow(struct ids *x, size_t capacity, struct error *err)
{
    struct ids grown = {.slots = calloc(capacity, sizeof(*grown.slots)), .capacity = capacity};
    if (!grown.slots) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu keys", capacity);
    }
    for (size_t i = 0; i < x->capacity; i++) {
        if (x->slots[i]) {
            ids_put(&grown, x->slots[i]);
        }
    }
    free(x->slots);
    *x = grown;
    return 0;
}

void ids_replace(struct ids *x, const struct cache_entry *old, struct cache_entry *e)
{
    x->slots[ids_slot_of(x, old)] = e;
}

/* Whatever stands behind the gap and may not be reached over a free slot moves. */
void ids_remove(struct ids *x, const struct cache_entry *e)
{
    size_t mask = x->capacity - 1;
    size_t i = ids_slot_of(x, e);
    for (size_t j = (i + 1) & mask; x->slots[j]; j = (j + 1) & mask) {
        if (((j - ids_home_slot(x, x->slots[j]->id)) & mask) >= ((j - i) & mask)) {
            x->slots[i] = x->slots[j];
            i = j;
        }
    }
    x->slots[i] = NULL;
}

/* The least and the greatest id with that beginning. False: no id begins so. */
static bool read_prefix(const char *prefix, uint8_t least[ID_BYTES], uint8_t most[ID_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    size_t n = strlen(prefix);
    if (n > 2 * (size_t)ID_BYTES || strspn(prefix, digits) != n) {
        return false;
    }
    memset(least, 0, ID_BYTES);
    memset(most, 0xff, ID_BYTES);
    for (size_t i = 0; i < n; i++) {
        unsigned digit = (unsigned)(strchr(digits, prefix[i]) - digits);
        unsigned shift = i % 2 ? 0 : 4;
        least[i / 2] = (uint8_t)(least[i / 2] | digit << shift);
        most[i / 2] = (uint8_t)(most[i / 2] & ~((0xfu ^ digit) << shift));
    }
    return true;
}

struct cache_entry *ids_find(const struct ids *x, const char *prefix, bool *many)
{
    uint8_t least[ID_BYTES], most[ID_BYTES];
    struct cache_entry *found = NULL;
    *many = false;
    if (!x->capacity || !read_prefix(prefix, least, most)) {
        return NULL;
    }
    size_t mask = x->capacity - 1;
    size_t first = ids_home_slot(x, least), last = ids_home_slot(x, most);
    for (size_t i = first; i < first + x->capacity; i++) {
        struct cache_entry *e = x->slots[i & mask];
        if (!e && i >= last) {
            break;
        }
        if (!e || memcmp(e->id, least, ID_BYTES) < 0 || memcmp(e->id, most, ID_BYTES) > 0) {
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
