/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memo: recent hits, by the exact bytes of the question (a query's method and params). Clients
 * repeat questions in the same bytes, as do all ranks of a job. The bytes alone decide which entry
 * of the cache answers, so the answer holds until the entry goes, and gemmd decodes nothing. Never
 * put a question if its answer depends on time or on a connection's state.
 *
 * The memo compares all bytes, not only their hash. When an entry is removed from the cache, its
 * questions are removed too, so a change of one key does not affect other keys. The memo is
 * bounded: for each entry it keeps the newest MEMO_PER_ENTRY questions. Beyond MEMO_BYTES_MAX the
 * memo is emptied.
 */
#ifndef GEMMD_DAEMON_CACHE_MEMO_H
#define GEMMD_DAEMON_CACHE_MEMO_H

#include <stddef.h>
#include <stdint.h>

enum {
    MEMO_QUESTION_MAX = 512, /* bytes; longer questions are decoded each time */
    MEMO_PER_ENTRY = 4,
    MEMO_BYTES_MAX = 32 * 1024 * 1024,
};

struct cache_entry;
struct memo_record;

struct memo_slot {
    uint64_t hash;
    struct memo_record *record;      /* owned; NULL: free */
    const struct cache_entry *entry; /* record->entry, for an early prefetch */
};

struct memo {
    struct memo_slot *slots; /* owned; made with the first hit; linear probing, at most half full */
    size_t n, capacity;      /* number of records; number of slots: a power of two, or 0 */
    size_t bytes;            /* bytes of all records */
};

void memo_deinit(struct memo *m); /* call after all entries are freed */
/* Returns the offset at which a request's question begins, behind the id: [0, id | "method",
 * params]. 0: no request, or an unusual form. */
size_t memo_split(const uint8_t *data, size_t n, uint32_t *id);
/* Returns the entry that answers the question; NULL: the memo does not have the question. */
const struct cache_entry *memo_find(const struct memo *m, const uint8_t *question, size_t n);

/* memo_find in three steps, for many questions. The memo is mostly not in the processor's cache:
 * while gemmd answers a question, memo_prefetch fetches the cache lines for a later question.
 * memo_prefetch may be left out. */
uint64_t memo_hash(const struct memo *m, const uint8_t *question, size_t n);
void memo_prefetch(const struct memo *m, uint64_t hash);
const struct cache_entry *memo_find_hashed(const struct memo *m, uint64_t hash,
                                           const uint8_t *question, size_t n);
/* Remembers that the entry answers the question. Without memory nothing is kept. */
void memo_put(struct memo *m, const uint8_t *question, size_t n, struct cache_entry *e);
void memo_forget(struct memo *m, struct cache_entry *e); /* call before the entry is freed */

#endif
