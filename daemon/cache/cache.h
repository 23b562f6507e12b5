/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot cache: what is known of each key of this device's class, found by the key's canonical
 * bytes in one probe, with the reply's bytes ready to be copied out. No SQLite, no allocation on a
 * hit. Also all that is needed to find the nearest known bucket on a miss.
 */
#ifndef GEMMD_DAEMON_CACHE_CACHE_H
#define GEMMD_DAEMON_CACHE_CACHE_H

#include "daemon/cache/entry.h"
#include "daemon/cache/groups.h"
#include "daemon/cache/holdings.h"
#include "daemon/cache/ids.h"
#include "daemon/cache/memo.h"
#include "daemon/cache/partials.h"

struct cache {
    struct cache_entry **slots;       /* owned; linear probing */
    size_t n, capacity;               /* a power of two, or 0 */
    struct ids ids;                   /* the same entries by their ids */
    struct groups lists[CACHE_LISTS]; /* ... and those that serve by what they have in common */
    struct memo memo;                 /* the same question again */
    struct partials partials;         /* what restricted searches of the keys came to */
    struct holdings brought;          /* entries that users have put, by user */
    unsigned moves;                   /* how often entries have changed their slots */
    struct entries entries;           /* what they are made of */
};

int cache_init(struct cache *c, const char *device_class, struct error *err);
void cache_deinit(struct cache *c);

/* NULL: not there. Borrowed until the next put or remove. */
struct cache_entry *cache_find(const struct cache *c, const struct key *k);
/* By the beginning of an id (hex). NULL: none, or (with *many) more than one. */
struct cache_entry *cache_find_id(const struct cache *c, const char *prefix, bool *many);
/* Inserts or replaces. `bucket` is the key's problem, `uid` the row's user. ERROR_NO_MEMORY. */
int cache_put(struct cache *c, const struct key *k, const struct problem *bucket,
              const struct answer *a, enum cache_rank rank, double atol, double rtol, uint32_t uid,
              struct error *err);
bool cache_remove(struct cache *c, const struct key *k);
void cache_rerank(struct cache *c, struct cache_entry *e, enum cache_rank rank);
bool cache_remove_id(struct cache *c, const char *id);

/* The database is read anew, to find out what is no longer in it: cache_unmeet, then each row of it
 * is met (false: it is not known here, or not as saved, or an older one is; put it) or put, then
 * the sweep removes what was saved and was not met. One at a time, *at from 0 on; false: there are
 * no more. */
void cache_unmeet(struct cache *c);
bool cache_meet(struct cache *c, const char *id, int64_t generation);
bool cache_sweep(struct cache *c, size_t *at, char id[HASH_HEX]);

/* An entry's answer, decoded. ERROR_INTERNAL when the bytes are not ours any more. */
int cache_answer(struct cache *c, const struct cache_entry *e, struct answer *a, struct error *err);
/* The bucket's problem. */
int cache_problem(struct cache *c, const struct cache_entry *e, const char *device_class,
                  struct problem *out, struct error *err);

/* Entries of one list that one question looks at, at most. */
enum { LOOKS_MAX = 2048 };

/* The buckets with an exact answer that are most like `bucket`, nearest first: equal in everything
 * but integer fields and texts that have a place (op->place), at most max, never the key itself.
 * Returns how many. Of more than LOOKS_MAX such buckets it looks at the newest, and at the newest
 * of those that differ in nothing but the rows. */
size_t cache_near(const struct cache *c, const struct key *k, const struct problem *bucket,
                  size_t max, struct cache_entry *out[]);

#endif
