/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot cache: what is known of each key of this device's class, found by the key's canonical
 * bytes in one probe, with the reply's bytes ready to be copied out. No SQLite, no allocation on a
 * hit. Also all that is needed to find the nearest known bucket on a miss.
 */
#ifndef GEMMD_DAEMON_CACHE_CACHE_H
#define GEMMD_DAEMON_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/cache/entry.h"
#include "daemon/cache/memo.h"
#include "daemon/cache/hash_table.h"
#include "proto/hash.h"
#include "proto/wire.h"

/* ---- holdings.c ------------------------------------------------------------------------------ */

/* How many keys each user has kept here: few users hold many keys, so users are a list. */

struct holding {
    uint32_t uid;
    size_t n; /* 0: free */
};

struct holdings {
    struct holding *all; /* owned */
    size_t n;
};

void holdings_deinit(struct holdings *x);
bool holdings_add(struct holdings *x, uint32_t uid); /* one key more; false: no memory */
void holdings_remove(struct holdings *x, uint32_t uid);
size_t holdings_of(const struct holdings *x, uint32_t uid);

/* ---- partials.c ------------------------------------------------------------------------------ */

/*
 * What restricted searches came to (`restrict`, `target`): such a winner is not its key's answer,
 * but it is the answer to the same search, which need not be made again. Found by the search's
 * packed bytes (job_pack), which are compared, not only their hash.
 *
 * In memory only, and bounded: the oldest makes room. After a restart such a search begins with
 * what was measured. A key's searches are forgotten when the key goes, and when something else than
 * a restricted search has made its row: what is measured now may not be what was measured then.
 */

enum {
    PARTIALS_MAX = 256,
    PARTIAL_BYTES_MAX = 8192, /* of a search and its answer; longer ones are made again */
};

struct partial;

struct partials {
    uint64_t hashes[PARTIALS_MAX];       /* of the searches */
    struct partial *slots[PARTIALS_MAX]; /* owned; NULL: free */
    unsigned next;                       /* the oldest, or free */
};

void partials_deinit(struct partials *x);
/* Takes the place of what the same search came to before. Without memory nothing is kept. */
void partials_put(struct partials *x, const char key[HASH_HEX], const struct wire_buf *search,
                  const struct wire_buf *answer);
/* Appends the answer to `out`. false: not known, nothing is appended. */
bool partials_reply(const struct partials *x, const struct wire_buf *search, struct wire_buf *out);
void partials_forget(struct partials *x, const char key[HASH_HEX]);

/* ---- cache.c --------------------------------------------------------------------------------- */

struct cache {
    struct hash_table keys;               /* the entries by their ids */
    struct hash_table lists[CACHE_LISTS]; /* the newest of each list (enum cache_list) */
    struct memo memo;                     /* the same question again */
    struct partials partials;             /* what restricted searches of the keys came to */
    struct holdings brought;              /* entries that users have put, by user */
    struct entries entries;               /* what they are made of */
};

int cache_init(struct cache *c, const char *device_class, struct error *err);
void cache_deinit(struct cache *c);

/* NULL: not there. Borrowed until the next put or remove. */
struct cache_entry *cache_find(const struct cache *c, const struct key *k);
/* By the beginning of an id (hex), with a look at the keys that begin so. NULL: none, or (with
 * *many) more than one. */
struct cache_entry *cache_find_id(const struct cache *c, const char *prefix, bool *many);
/* Inserts or replaces. `bucket` is the key's problem, `uid` the row's user. ERROR_NO_MEMORY. */
int cache_put(struct cache *c, const struct key *k, const struct problem *bucket,
              const struct answer *a, enum cache_rank rank, double atol, double rtol, uint32_t uid,
              struct error *err);
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

/* Of the serving entries that have `of` in common, the newest; cache_next is the one before.
 * NULL: none. */
static inline struct cache_entry *cache_first(const struct cache *c, enum cache_list which,
                                              uint64_t of)
{
    return hash_table_find(&c->lists[which], of, NULL, NULL);
}
static inline struct cache_entry *cache_next(const struct cache_entry *e, enum cache_list which)
{
    return e->in[which].after;
}

/* Entries of one list that one question looks at, at most. */
enum { LOOKS_MAX = 2048 };

/* The buckets with an exact answer that are most like `bucket`, nearest first: equal in everything
 * but integer fields and texts that have a place (op->place), at most max, never the key itself.
 * Returns how many. Of more than LOOKS_MAX such buckets it looks at the newest, and at the newest
 * of those that differ in nothing but the rows. */
size_t cache_near(const struct cache *c, const struct key *k, const struct problem *bucket,
                  size_t max, struct cache_entry *out[]);

/* ---- closest.c ------------------------------------------------------------------------------- */

/*
 * The known key that is most like an unknown one, for people who ask why it is a miss: the one that
 * differs in the fewest fields, whatever they are, and of these the nearest in size. Its answer may
 * be of no use for the problem (another type, other permutes): cache_near finds those that are.
 *
 * A cache of at most CLOSEST_SLOTS slots is looked through. Of a larger one the search looks at the
 * newest CLOSEST_LOOKS keys of each of the bucket's lists (enum cache_list), where every key is
 * that differs in one field or in sizes alone, and at as many slots beside the key's own.
 */

enum { CLOSEST_SLOTS = 2048, CLOSEST_LOOKS = 512 };

/* Among the keys that have an answer, never `k` itself; NULL: there is none of this op. Borrowed
 * until the next change of the cache. */
const struct cache_entry *closest_find(const struct cache *c, const struct key *k,
                                       const struct problem *bucket);

#endif
