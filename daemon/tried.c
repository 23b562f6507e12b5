/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys without an answer (tried.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/tried.h"
#include "proto/hash.h"

enum { CAPACITY_MIN = 64 };

void tried_deinit(struct tried *x)
{
    free(x->slots);
    *x = (struct tried){0};
}

static struct tried_id read_id(const char *id)
{
    char front[HASH_HEX / 2 + 1] = {0};
    memcpy(front, id, HASH_HEX / 2);
    return (struct tried_id){strtoull(front, NULL, 16), strtoull(id + HASH_HEX / 2, NULL, 16)};
}

static bool is_free(const struct tried_id *slot)
{
    return slot->front == 0 && slot->back == 0;
}

static size_t home(const struct tried *x, const struct tried_id *id)
{
    return (size_t)id->front & (x->capacity - 1);
}

/* Where it is, or would be. */
static size_t slot_of(const struct tried *x, const struct tried_id *id)
{
    size_t i = home(x, id);
    while (!is_free(&x->slots[i]) &&
           (x->slots[i].front != id->front || x->slots[i].back != id->back)) {
        i = (i + 1) & (x->capacity - 1);
    }
    return i;
}

bool tried_has(const struct tried *x, const char *id)
{
    struct tried_id key = read_id(id);
    return x->n > 0 && !is_free(&x->slots[slot_of(x, &key)]);
}

static int grow(struct tried *x, struct error *err)
{
    struct tried grown = {.capacity = x->capacity ? 2 * x->capacity : CAPACITY_MIN};
    grown.slots = calloc(grown.capacity, sizeof(*grown.slots));
    if (!grown.slots) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu keys", x->n + 1);
    }
    for (size_t i = 0; i < x->capacity; i++) {
        if (!is_free(&x->slots[i])) {
            grown.slots[slot_of(&grown, &x->slots[i])] = x->slots[i];
        }
    }
    free(x->slots);
    x->slots = grown.slots;
    x->capacity = grown.capacity;
    return 0;
}

int tried_add(struct tried *x, const char *id, struct error *err)
{
    struct tried_id key = read_id(id);
    int status = 2 * (x->n + 1) > x->capacity ? grow(x, err) : 0;
    if (status < 0) {
        return status;
    }
    size_t i = slot_of(x, &key);
    x->n += is_free(&x->slots[i]);
    x->slots[i] = key;
    return 0;
}

/* Whatever stands behind the gap and may not be reached over a free slot moves. */
void tried_remove(struct tried *x, const char *id)
{
    if (!tried_has(x, id)) {
        return;
    }
    struct tried_id key = read_id(id);
    size_t mask = x->capacity - 1, i = slot_of(x, &key);
    for (size_t j = (i + 1) & mask; !is_free(&x->slots[j]); j = (j + 1) & mask) {
        if (((j - home(x, &x->slots[j])) & mask) >= ((j - i) & mask)) {
            x->slots[i] = x->slots[j];
            i = j;
        }
    }
    x->slots[i] = (struct tried_id){0};
    x->n--;
}
