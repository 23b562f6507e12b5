/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memo: requests that were hits, by their very bytes. A client asks the same question in the same
 * bytes again and again; the answer follows from the bytes and the state of the cache alone, so
 * while the cache has not changed, the same bytes have the same answer, and nothing needs to be decoded.
 *
 * Bytes are compared, not only their hash. A slot remembers the version of the cache; any change of the
 * cache makes all slots stale at once.
 */
#ifndef GEMMD_DAEMON_MEMO_H
#define GEMMD_DAEMON_MEMO_H

#include "daemon/cache.h"

enum { MEMO_SLOTS = 1024, MEMO_BYTES_MAX = 512 };

struct memo_slot {
    uint64_t hash, version;
    uint32_t len;
    uint8_t *bytes;                  /* owned */
    const struct cache_entry *entry; /* borrowed; alive while the version is the cache's */
};

struct memo {
    struct memo_slot *slots; /* owned; made with the first hit */
};

void memo_deinit(struct memo *m);
/* Where a request's id ends: [0, id | "method", params]. 0: no such request, or an unusual form. */
size_t memo_split(const uint8_t *data, size_t n, uint32_t *id);
/* `tail`: the method and params of a request. NULL: not known. */
const struct cache_entry *memo_find(const struct memo *m, const struct cache *c,
                                    const uint8_t *tail, size_t n);
void memo_put(struct memo *m, const struct cache *c, const uint8_t *tail, size_t n,
              const struct cache_entry *e);

#endif
