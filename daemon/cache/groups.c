/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of entries, and the table of them (groups.h). */
#include <stdlib.h>

#include "daemon/cache/groups.h"

void groups_deinit(struct groups *x)
{
    free(x->slots);
    *x = (struct groups){0};
}

static size_t home(const struct groups *x, uint64_t group)
{
    return group & (x->capacity - 1); /* it is a hash */
}

/* The slot of a group, or the free slot where it would go. The table is never full. */
static size_t slot_of(const struct groups *x, uint64_t group)
{
    size_t i = home(x, group);
    while (x->slots[i] && x->slots[i]->group != group) {
        i = (i + 1) & (x->capacity - 1);
    }
    return i;
}

int groups_grow(struct groups *x, size_t capacity, struct error *err)
{
    struct groups grown = {.slots = calloc(capacity, sizeof(*grown.slots)), .capacity = capacity};
    if (!grown.slots) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu keys", capacity);
    }
    for (size_t i = 0; i < x->capacity; i++) {
        if (x->slots[i]) {
            grown.slots[slot_of(&grown, x->slots[i]->group)] = x->slots[i];
        }
    }
    free(x->slots);
    *x = grown;
    return 0;
}

void groups_put(struct groups *x, struct cache_entry *e)
{
    struct cache_entry **first = &x->slots[slot_of(x, e->group)];
    e->group_before = NULL;
    e->group_after = *first;
    if (*first) {
        (*first)->group_before = e;
    }
    *first = e;
}

/* What points to `old`, its slot or its neighbours, points to e. */
static void point(struct groups *x, const struct cache_entry *old, struct cache_entry *e)
{
    if (old->group_before) {
        old->group_before->group_after = e;
    } else {
        x->slots[slot_of(x, old->group)] = e;
    }
}

void groups_replace(struct groups *x, const struct cache_entry *old, struct cache_entry *e)
{
    e->group_before = old->group_before;
    e->group_after = old->group_after;
    if (e->group_after) {
        e->group_after->group_before = e;
    }
    point(x, old, e);
}

/* Whatever stands behind the gap and may not be reached over a free slot moves. */
static void close_gap(struct groups *x, size_t i)
{
    size_t mask = x->capacity - 1;
    for (size_t j = (i + 1) & mask; x->slots[j]; j = (j + 1) & mask) {
        if (((j - home(x, x->slots[j]->group)) & mask) >= ((j - i) & mask)) {
            x->slots[i] = x->slots[j];
            i = j;
        }
    }
    x->slots[i] = NULL;
}

void groups_remove(struct groups *x, const struct cache_entry *e)
{
    if (!e->group_before && !e->group_after) {
        close_gap(x, slot_of(x, e->group));
        return;
    }
    if (e->group_after) {
        e->group_after->group_before = e->group_before;
    }
    point(x, e, e->group_after);
}

struct cache_entry *groups_first(const struct groups *x, uint64_t group)
{
    return x->capacity ? x->slots[slot_of(x, group)] : NULL;
}
