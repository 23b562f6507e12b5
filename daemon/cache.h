/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot cache: what is known of each key of this device's class, found by the key's canonical
 * bytes in one probe, with the reply's bytes ready to be copied out. No SQLite, no allocation on a
 * hit. Also all that is needed to find the nearest known bucket on a miss.
 *
 * It is compact, since it is what an idle daemon holds: ten thousand keys in a few MiB. An entry is
 * one allocation of the key's bytes (without the device class that ends each of them) and of the
 * packed fields of its answer that are its own; fields that most entries share (family, source,
 * stamp ...) are interned.
 *
 * An entry either *serves* (it is the exact answer for the key), or is a hint: a restricted search's
 * winner, an imported row that has not been measured here, a row of another stamp.
 */
#ifndef GEMMD_DAEMON_CACHE_H
#define GEMMD_DAEMON_CACHE_H

#include "daemon/memo.h"
#include "proto/message.h"
#include "proto/problem.h"
#include "proto/wire.h"

enum { CACHE_DIMS = 8 };

enum cache_rank { /* which of two rows of one key is kept */
    CACHE_HINT = 0,
    CACHE_SERVES = 1,
    CACHE_PINNED = 2,
};

struct shared; /* an interned piece of answers */

struct cache_entry {
    uint64_t hash;         /* of the key */
    uint64_t group;        /* of what must be equal for `near` */
    int64_t generation;
    struct shared *shared; /* counted */
    struct memo_record *asked; /* the questions that it answered lately (memo.h) */
    uint8_t id[16];        /* the key's id, binary */
    float atol, rtol;      /* verified with */
    float dims[CACHE_DIMS];/* log2 of the integer fields, and op->place of texts, in order */
    uint32_t key_len, own_len;
    uint8_t rank;          /* enum cache_rank */
    bool manual;           /* a person's pin; below CACHE_PINNED: of another stamp, not verified now */
    bool saved;
    uint8_t bytes[];       /* own, which is all that a repeated question reads; then the key */
};

struct cache {
    struct cache_entry **slots; /* owned; linear probing */
    size_t n, capacity;         /* a power of two, or 0 */
    struct memo memo;           /* the same question again */
    size_t unsaved;             /* entries not durable yet */
    size_t class_len;           /* packed bytes of the device class at a key's end */
    struct shared *shared;      /* owned list */
    struct wire_doc *doc;       /* owned: for reading entries back */
    struct wire_buf scratch;    /* owned */
};

int cache_init(struct cache *c, const char *device_class, struct error *err);
void cache_deinit(struct cache *c);

/* NULL: not there. Borrowed until the next put or remove. */
struct cache_entry *cache_find(const struct cache *c, const struct key *k);
/* By the beginning of an id (hex). NULL: none, or (with *many) more than one. */
struct cache_entry *cache_find_id(const struct cache *c, const char *prefix, bool *many);
/* Inserts or replaces. `bucket` is the key's problem. ERROR_NO_MEMORY. */
int cache_put(struct cache *c, const struct key *k, const struct problem *bucket,
              const struct answer *a, enum cache_rank rank, double atol, double rtol,
              struct error *err);
bool cache_remove(struct cache *c, const struct key *k);
bool cache_remove_id(struct cache *c, const char *id);

/* The answer as one MessagePack map, from the bytes kept. */
void cache_reply(const struct cache_entry *e, struct wire_buf *out);
/* The same, decoded. ERROR_INTERNAL when the bytes are not ours any more. */
int cache_answer(struct cache *c, const struct cache_entry *e, struct answer *a, struct error *err);
void cache_entry_id(const struct cache_entry *e, char out[HASH_HEX]);
/* Whether it was verified with tolerances at least this tight. */
bool cache_verified(const struct cache_entry *e, double atol, double rtol);
/* The bucket's problem. */
int cache_problem(struct cache *c, const struct cache_entry *e, const char *device_class,
                  struct problem *out, struct error *err);

/* The buckets with an exact answer that are most like `bucket`, nearest first: equal in everything
 * but integer fields and texts that have a place (op->place), at most max, never the key itself. Returns how many. */
size_t cache_near(const struct cache *c, const struct key *k, const struct problem *bucket,
                  size_t max, struct cache_entry *out[]);
/* Everything is durable now: flips `saved` where it was false. */
int cache_all_saved(struct cache *c, struct error *err);

#endif
