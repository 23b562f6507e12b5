/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache's serving entries by what they have in common (enum cache_list), for `near` and `why`,
 * which look through a few lists and not through all entries: a list through the entries
 * themselves, the newest first, and a table of the lists, open addressing with linear probing, as
 * the cache itself has it.
 *
 * The cache owns the entries, says when it grows, and has never more lists of a kind than entries.
 */
#ifndef GEMMD_DAEMON_CACHE_GROUPS_H
#define GEMMD_DAEMON_CACHE_GROUPS_H

#include "daemon/cache/entry.h"

struct groups {
    enum cache_list which;
    struct cache_entry **slots; /* owned; the first of each list. The entries are borrowed */
    size_t capacity;            /* a power of two, or 0 */
};

void groups_deinit(struct groups *x);
/* Room for so many slots. ERROR_NO_MEMORY: it is as it was. */
int groups_grow(struct groups *x, size_t capacity, struct error *err);
void groups_put(struct groups *x, struct cache_entry *e); /* there must be a free slot */
void groups_remove(struct groups *x, const struct cache_entry *e);
/* The newest entry of a list; groups_next is the one before. NULL: none. */
struct cache_entry *groups_first(const struct groups *x, uint64_t of);
static inline struct cache_entry *groups_next(const struct groups *x, const struct cache_entry *e)
{
    return e->in[x->which].after;
}

#endif
