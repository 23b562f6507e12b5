/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of the hot cache: made, read back, freed. Internal to cache*.c. */
#ifndef GEMMD_DAEMON_CACHE_ENTRY_H
#define GEMMD_DAEMON_CACHE_ENTRY_H

#include "daemon/cache.h"

static inline const uint8_t *entry_key(const struct cache_entry *e)
{
    return e->bytes + e->own_len;
}

struct cache_entry *entry_new(struct cache *c, const struct key *k, const struct problem *bucket,
                              const struct answer *a, struct error *err);
void entry_free(struct cache *c, struct cache_entry *e);
/* What must be equal for `near`, as a hash; and where it stands otherwise. */
uint64_t entry_group(const struct problem *bucket, float dims[CACHE_DIMS]);

#endif
