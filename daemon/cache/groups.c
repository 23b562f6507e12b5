/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of entries, and the table of them (cache.h). */
#include <stdlib.h>

#include "daemon/cache/cache.h"

void groups_deinit(struct groups *x)
{
    free(x->slots);
    *x = (struct groups){0};
}

static size_t groups_home_slot(const struct groups *x, uint64_t of)
{
    return of & (x->capacity - 1); /* it is a hash */
}

/* The slot of a list, or the free slot where it would go. The table is never full. */
static size_t groups_slot_of(const struct groups *x, uint64_t of)
{
    size_t i = groups_home_slot(x, of);
    while (x->slots[i] && x->slots[i]->in[x->which].of != of) {
        i = (i + 1) & (x->capacity - 1);
    }
    return i;
}

int groups_grow(struct groups *x, size_t capacity, struct error *err)
{
    struct groups grown = {
        .which = x->which, .slots = calloc(capacity, sizeof(*grown.slots)), .capacity = capacity};
    if (!grown.slots) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu keys", capacity);
    }
    for (size_t i = 0; i < x->capacity; i++) {
        if (x->slots[i]) {
            grown.slots[groups_slot_of(&grown, x->slots[i]->in[x->which].of)] = x->slots[i];
        }
    }
    free(x->slots);
    *x = grown;
    return 0;
}

void groups_put(struct groups *x, struct cache_entry *e)
{
    struct cache_link *link = &e->in[x->which];
    struct cache_entry **first = &x->slots[groups_slot_of(x, link->of)];
    link->before = NULL;
    link->after = *first;
    if (*first) {
        (*first)->in[x->which].before = e;
    }
    *first = e;
}

/* Whatever stands behind the gap and may not be reached over a free slot moves. */
static void close_gap(struct groups *x, size_t i)
{
    size_t mask = x->capacity - 1;
    for (size_t j = (i + 1) & mask; x->slots[j]; j = (j + 1) & mask) {
        if (((j - groups_home_slot(x, x->slots[j]->in[x->which].of)) & mask) >= ((j - i) & mask)) {
            x->slots[i] = x->slots[j];
            i = j;
        }
    }
    x->slots[i] = NULL;
}

void groups_remove(struct groups *x, const struct cache_entry *e)
{
    const struct cache_link *link = &e->in[x->which];
    if (link->after) {
        link->after->in[x->which].before = link->before;
    }
    if (link->before) {
        link->before->in[x->which].after = link->after;
    } else if (link->after) {
        x->slots[groups_slot_of(x, link->of)] = link->after;
    } else {
        close_gap(x, groups_slot_of(x, link->of));
    }
}

struct cache_entry *groups_first(const struct groups *x, uint64_t of)
{
    return x->capacity ? x->slots[groups_slot_of(x, of)] : NULL;
}
