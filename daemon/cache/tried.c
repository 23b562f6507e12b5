/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys without an answer (tried.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/tried.h"
#include "proto/hash.h"

enum { CAPACITY_MIN = 64 };

void tried_deinit(struct tried *x)
{
    free(x->slots);
    holdings_deinit(&x->held);
    *x = (struct tried){0};
}

static struct tried_key tried_read_id(const char *id)
{
    char front[HASH_HEX / 2 + 1] = {0};
    memcpy(front, id, HASH_HEX / 2);
    return (struct tried_key){.front = strtoull(front, NULL, 16),
                              .back = strtoull(id + HASH_HEX / 2, NULL, 16)};
}

static bool is_free(const struct tried_key *slot)
{
    return slot->front == 0 && slot->back == 0;
}

static size_t tried_home_slot(const struct tried *x, const struct tried_key *id)
{
    return (size_t)id->front & (x->capacity - 1);
}

/* Where it is, or would be. */
static size_t tried_slot_of(const struct tried *x, const struct tried_key *id)
{
    size_t i = tried_home_slot(x, id);
    while (!is_free(&x->slots[i]) &&
           (x->slots[i].front != id->front || x->slots[i].back != id->back)) {
        i = (i + 1) & (x->capacity - 1);
    }
    return i;
}

/* NULL: it is not there. */
static struct tried_key *tried_find_key(const struct tried *x, const char *id)
{
    struct tried_key key = tried_read_id(id);
    struct tried_key *slot = x->n > 0 ? &x->slots[tried_slot_of(x, &key)] : NULL;
    return slot && !is_free(slot) ? slot : NULL;
}

bool tried_has(const struct tried *x, const char *id)
{
    return tried_find_key(x, id) != NULL;
}

bool tried_is_of(const struct tried *x, const char *id, uint32_t uid)
{
    const struct tried_key *slot = tried_find_key(x, id);
    return slot && slot->uid == uid;
}

static int tried_grow_table(struct tried *x, struct error *err)
{
    struct tried grown = {.capacity = x->capacity ? 2 * x->capacity : CAPACITY_MIN};
    grown.slots = calloc(grown.capacity, sizeof(*grown.slots));
    if (!grown.slots) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu keys", x->n + 1);
    }
    for (size_t i = 0; i < x->capacity; i++) {
        if (!is_free(&x->slots[i])) {
            grown.slots[tried_slot_of(&grown, &x->slots[i])] = x->slots[i];
        }
    }
    free(x->slots);
    x->slots = grown.slots;
    x->capacity = grown.capacity;
    return 0;
}

int tried_ask(struct tried *x, const char *id, uint32_t uid, struct error *err)
{
    struct tried_key *slot = tried_find_key(x, id), key = tried_read_id(id);
    if (!slot) {
        int status = 2 * (x->n + 1) > x->capacity ? tried_grow_table(x, err) : 0;
        if (status < 0) {
            return status;
        }
        if (!holdings_add(&x->held, uid)) {
            return error_set(err, ERROR_NO_MEMORY, "no memory to count one more key");
        }
        slot = &x->slots[tried_slot_of(x, &key)];
        *slot = key;
        slot->uid = uid;
        x->n++;
    }
    slot->asked++;
    return 0;
}

/* Whatever stands behind the gap and may not be reached over a free slot moves. */
static void tried_take_out(struct tried *x, struct tried_key *slot)
{
    size_t mask = x->capacity - 1, i = (size_t)(slot - x->slots);
    holdings_remove(&x->held, slot->uid);
    for (size_t j = (i + 1) & mask; !is_free(&x->slots[j]); j = (j + 1) & mask) {
        if (((j - tried_home_slot(x, &x->slots[j])) & mask) >= ((j - i) & mask)) {
            x->slots[i] = x->slots[j];
            i = j;
        }
    }
    x->slots[i] = (struct tried_key){0};
    x->n--;
}

void tried_answered(struct tried *x, const char *id, bool kept)
{
    struct tried_key *slot = tried_find_key(x, id);
    if (!slot) {
        return;
    }
    slot->asked--;
    slot->kept |= kept;
    if (slot->asked == 0 && !slot->kept) {
        tried_take_out(x, slot);
    }
}

void tried_remove(struct tried *x, const char *id)
{
    struct tried_key *slot = tried_find_key(x, id);
    if (slot && slot->asked == 0) {
        tried_take_out(x, slot);
    } else if (slot) {
        slot->kept = false;
    }
}
