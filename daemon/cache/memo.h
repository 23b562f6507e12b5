/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memo: questions that were hits, by their very bytes. Clients ask the same question in the
 * same bytes again and again, every rank of a job the same ones; which entry of the cache answers
 * follows from the bytes and that entry alone, so the same bytes have the same answer until the
 * entry goes, and nothing needs to be decoded. A question whose answer depends on anything else
 * (time, a connection's state) is not to be put here.
 *
 * Bytes are compared, not only their hash. An entry knows its questions and takes them with it, so
 * a change of one key costs the others nothing. Bounded: a few questions for each entry, the oldest
 * makes room; and in all MEMO_BYTES_MAX, beyond which the memo begins anew.
 */
#ifndef GEMMD_DAEMON_CACHE_MEMO_H
#define GEMMD_DAEMON_CACHE_MEMO_H

#include <stddef.h>
#include <stdint.h>

enum {
    MEMO_QUESTION_MAX = 512, /* bytes; longer ones are decoded each time */
    MEMO_PER_ENTRY = 4,
    MEMO_BYTES_MAX = 32 * 1024 * 1024,
};

struct cache_entry;
struct memo_record;

struct memo_slot {
    uint64_t hash;
    struct memo_record *record;      /* owned; NULL: free */
    const struct cache_entry *entry; /* record->entry, to be fetched at the same time */
};

struct memo {
    struct memo_slot *slots; /* owned; linear probing, at most half full; made with the first hit */
    size_t n, capacity;      /* a power of two, or 0 */
    size_t bytes;            /* of the records */
};

void memo_deinit(struct memo *m); /* after all entries are gone */
/* Where a request's id ends: [0, id | "method", params]. 0: no such request, or an unusual form. */
size_t memo_split(const uint8_t *data, size_t n, uint32_t *id);
/* NULL: not known. */
const struct cache_entry *memo_find(const struct memo *m, const uint8_t *question, size_t n);

/* The same in three steps, for many questions: nothing of the memo is in the processor's cache,
 * mostly, and what one question needs can be on its way while others are answered. memo_prefetch is
 * a hint. */
uint64_t memo_hash(const struct memo *m, const uint8_t *question, size_t n);
void memo_prefetch(const struct memo *m, uint64_t hash);
const struct cache_entry *memo_find_hashed(const struct memo *m, uint64_t hash,
                                           const uint8_t *question, size_t n);
/* Without memory nothing is kept. */
void memo_put(struct memo *m, const uint8_t *question, size_t n, struct cache_entry *e);
void memo_forget(struct memo *m, struct cache_entry *e); /* it is about to go */

#endif
