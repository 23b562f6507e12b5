/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The known key that is most like an unknown one, for people who ask why it is a miss: the one that
 * differs in the fewest fields, whatever they are, and of these the nearest in size. Its answer may
 * be of no use for the problem (another type, other permutes): cache_near finds those that are.
 *
 * A cache of at most CLOSEST_SLOTS slots is looked through. Of a larger one the search looks at the
 * newest CLOSEST_LOOKS keys of each of the bucket's lists (enum cache_list), where every key is
 * that differs in one field or in sizes alone, and at as many slots beside the key's own.
 */
#ifndef GEMMD_DAEMON_CACHE_CLOSEST_H
#define GEMMD_DAEMON_CACHE_CLOSEST_H

#include "daemon/cache/cache.h"

enum { CLOSEST_SLOTS = 2048, CLOSEST_LOOKS = 512 };

/* Among the keys that have an answer, never `k` itself; NULL: there is none of this op. Borrowed
 * until the next change of the cache. */
const struct cache_entry *closest_find(const struct cache *c, const struct key *k,
                                       const struct problem *bucket);

#endif
