/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache's entries by their ids: open addressing with linear probing, as the cache itself has
 * it, but an entry's place is by the beginning of its id. So entries whose ids begin alike stand
 * together, and what somebody names by the first digits of an id is found like a whole one: a look
 * at some slots, not at every entry. Only of a beginning that is shorter than the table's own (4
 * digits for some ten thousands of keys) all slots of that beginning are looked at.
 *
 * The cache owns the entries, says when it grows, and keeps this no fuller than itself.
 */
#ifndef GEMMD_DAEMON_CACHE_IDS_H
#define GEMMD_DAEMON_CACHE_IDS_H

#include "daemon/cache/entry.h"

struct ids {
    struct cache_entry **slots; /* owned; the entries are borrowed */
    size_t capacity;            /* a power of two, or 0 */
};

void ids_deinit(struct ids *x);
/* Room for so many slots, 256 or more. ERROR_NO_MEMORY: it is as it was. */
int ids_grow(struct ids *x, size_t capacity, struct error *err);
void ids_put(struct ids *x, struct cache_entry *e); /* there must be a free slot */
/* Another entry of the same key takes its place. */
void ids_replace(struct ids *x, const struct cache_entry *old, struct cache_entry *e);
void ids_remove(struct ids *x, const struct cache_entry *e);
/* By the beginning of an id (hex). NULL: none, or (with *many) more than one. */
struct cache_entry *ids_find(const struct ids *x, const char *prefix, bool *many);

#endif
