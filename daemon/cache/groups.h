/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache's entries by their groups, of which `near` looks through one: a list through the
 * entries themselves, and a table of the lists, open addressing with linear probing, as the cache
 * itself has it.
 *
 * The cache owns the entries, says when it grows, and has never more groups than entries.
 */
#ifndef GEMMD_DAEMON_CACHE_GROUPS_H
#define GEMMD_DAEMON_CACHE_GROUPS_H

#include "daemon/cache/entry.h"

struct groups {
    struct cache_entry **slots; /* owned; the first of each list. The entries are borrowed */
    size_t capacity;            /* a power of two, or 0 */
};

void groups_deinit(struct groups *x);
/* Room for so many slots. ERROR_NO_MEMORY: it is as it was. */
int groups_grow(struct groups *x, size_t capacity, struct error *err);
void groups_put(struct groups *x, struct cache_entry *e); /* there must be a free slot */
/* Another entry of the same key takes its place. */
void groups_replace(struct groups *x, const struct cache_entry *old, struct cache_entry *e);
void groups_remove(struct groups *x, const struct cache_entry *e);
/* The first of a group, in no order; `group_after` is the next. NULL: none. */
struct cache_entry *groups_first(const struct groups *x, uint64_t group);

#endif
