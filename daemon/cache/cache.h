/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot cache: the answer of each key of this device's class. One probe by the key's canonical
 * bytes finds the entry with its reply bytes, ready to be copied out. A hit needs no SQLite and no
 * allocation. On a miss the cache also finds the nearest bucket that has an answer.
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

/* Counts the keys of each user. The counts are an array, since few users hold many keys. */

struct holding {
    uint32_t uid;
    size_t n; /* number of the user's keys, never 0 */
};

struct holdings {
    struct holding *all; /* owned */
    size_t n;
};

void holdings_deinit(struct holdings *x);
/* counts one more key of the user; false: no memory */
bool holdings_add(struct holdings *x, uint32_t uid);
void holdings_remove(struct holdings *x, uint32_t uid);
size_t holdings_of(const struct holdings *x, uint32_t uid);

/* ---- partials.c ------------------------------------------------------------------------------ */

/*
 * Results of restricted searches (`restrict`, `target`). The winner of such a search does not
 * answer its key, but answers the same search when it is asked for again. Lookup compares the
 * search's packed bytes (job_pack), not only their hash.
 *
 * The results are kept in memory only. Their number is bounded: the oldest result makes room. After
 * a restart of gemmd such a search runs again, with the trials of before. A key's results are
 * forgotten when the key is removed, and when its row changes other than by a restricted search.
 */

enum {
    PARTIALS_MAX = 256,
    /* bytes of a search and its answer; a longer search runs again each time */
    PARTIAL_BYTES_MAX = 8192,
};

struct partial;

struct partials {
    uint64_t hashes[PARTIALS_MAX];       /* hashes of the searches */
    struct partial *slots[PARTIALS_MAX]; /* owned; NULL: free */
    unsigned next; /* the slot for the next result: free, or the oldest result's */
};

void partials_deinit(struct partials *x);
/* Keeps the answer of a search, in place of an older answer of the same search. Without memory
 * nothing is kept. */
void partials_put(struct partials *x, const char key[HASH_HEX], const struct wire_buf *search,
                  const struct wire_buf *answer);
/* Appends the search's answer to `out`. False: no answer is kept, and nothing is appended. */
bool partials_reply(const struct partials *x, const struct wire_buf *search, struct wire_buf *out);
void partials_forget(struct partials *x, const char key[HASH_HEX]);

/* ---- cache.c --------------------------------------------------------------------------------- */

struct cache {
    struct hash_table keys; /* the entries by their ids */
    /* per kind (enum cache_list): the newest entry of each list */
    struct hash_table lists[CACHE_LISTS];
    struct memo memo;         /* queries of earlier hits, by their bytes */
    struct partials partials; /* results of restricted searches */
    struct holdings brought;  /* counts of entries that users brought (`put`, `import`), by user */
    struct entries entries;   /* the fields that entries share */
};

int cache_init(struct cache *c, const char *device_class, struct error *err);
void cache_deinit(struct cache *c);

/* Finds the entry of a key, or NULL. Borrowed until the next cache_put or removal. */
struct cache_entry *cache_find(const struct cache *c, const struct key *k);
/* Finds the entry whose key's id begins with `prefix` (hex). NULL: no entry, or several, and then
 * *many is true; `many` may be NULL. */
struct cache_entry *cache_find_id(const struct cache *c, const char *prefix, bool *many);
/* Inserts the key's entry, or replaces it. `bucket` is the key's problem, `atol` and `rtol` the
 * tolerances of its verification, `uid` the row's user. ERROR_NO_MEMORY. */
int cache_put(struct cache *c, const struct key *k, const struct problem *bucket,
              const struct answer *a, enum cache_rank rank, double atol, double rtol, uint32_t uid,
              struct error *err);
void cache_rerank(struct cache *c, struct cache_entry *e, enum cache_rank rank);
bool cache_remove_id(struct cache *c, const char *id);

/* A reload of the database tells which rows the file has lost. First call cache_unmeet. Then call
 * cache_meet for each row of the file: false means that the cache lacks the row, or has an older or
 * an unsaved row, so the caller puts the row. At the end call cache_sweep with *at = 0 until false:
 * each call removes a saved entry that was neither met nor put. */
void cache_unmeet(struct cache *c);
bool cache_meet(struct cache *c, const char *id, int64_t generation);
bool cache_sweep(struct cache *c, size_t *at, char id[HASH_HEX]);

/* Decodes an entry's answer. ERROR_INTERNAL: the bytes are damaged. */
int cache_answer(struct cache *c, const struct cache_entry *e, struct answer *a, struct error *err);
/* Decodes the bucket's problem. */
int cache_problem(struct cache *c, const struct cache_entry *e, struct problem *out,
                  struct error *err);

/* Returns the newest serving entry of the list of kind `which` with hash `of` (struct cache_link);
 * cache_next returns the next older entry. NULL: no entry. */
static inline struct cache_entry *cache_first(const struct cache *c, enum cache_list which,
                                              uint64_t of)
{
    return hash_table_find(&c->lists[which], of, NULL, NULL);
}
static inline struct cache_entry *cache_next(const struct cache_entry *e, enum cache_list which)
{
    return e->in[which].after;
}

/* A search for near buckets looks at most at this many entries of a list. */
enum { LOOKS_MAX = 2048 };

/* Finds the buckets with an exact answer that are most like `bucket`, nearest first, at most max,
 * never the key itself. They differ only in integer fields and in texts with a place (op->place).
 * Returns the count. In a list of more than LOOKS_MAX entries it looks only at the newest: those of
 * LIST_GROUP, and those of LIST_SHAPE, which differ only in the rows. */
size_t cache_near(const struct cache *c, const struct key *k, const struct problem *bucket,
                  size_t max, struct cache_entry *out[]);

/* ---- closest.c ------------------------------------------------------------------------------- */

/*
 * To explain a miss, finds the key with an answer that is most like the missing key: the key with
 * the fewest different fields, and among equals the nearest in size. Its answer may be useless for
 * the problem (another type, other permutes); cache_near finds useful answers.
 *
 * A cache of at most CLOSEST_SLOTS slots is searched completely. In a larger cache the search looks
 * at the newest CLOSEST_LOOKS keys of each of the bucket's lists (enum cache_list), and at as many
 * slots beside the key's own. Each key that differs from the missing key in one field only, or in
 * sizes only, is in one of these lists.
 */

enum { CLOSEST_SLOTS = 2048, CLOSEST_LOOKS = 512 };

/* Searches the keys with an answer, never `k` itself; NULL: no key of this op. Borrowed until the
 * next change of the cache. */
const struct cache_entry *closest_find(const struct cache *c, const struct key *k,
                                       const struct problem *bucket);

/* ---- tried.c --------------------------------------------------------------------------------- */

/*
 * Keys with recorded trials and without an answer. The cache does not have these keys, but the
 * database keeps their rows for good. They count towards --max-keys here, from the first trial on
 * until they have an answer or are evicted. A key also counts while its first trials are still
 * being written, since otherwise many requests at once could exceed the limit. The count is 0 when
 * the daemon starts.
 */

struct tried_key {
    struct id id;
    uint32_t uid;   /* user of the first request for the key */
    unsigned asked; /* requests whose trials are still being written */
    bool kept;      /* the database has trials of the key */
};

struct tried {
    struct hash_table keys; /* struct tried_key, owned, by id.front, its first bytes */
    struct holdings held;   /* counts of these keys by user */
};

void tried_deinit(struct tried *x);
bool tried_has(const struct tried *x, const char *id);
bool tried_is_of(const struct tried *x, const char *id, uint32_t uid);
/* Counts the key of a request before its trials are written. ERROR_NO_MEMORY. */
int tried_ask(struct tried *x, const char *id, uint32_t uid, struct error *err);
/* Call once after each tried_ask, when its trials are written. `kept`: a trial of the key was
 * written, and the key has no answer. Else the key no longer counts for this request. */
void tried_answered(struct tried *x, const char *id, bool kept);
/* Call when a key has got an answer, or its trials were removed; the key need not be counted here.
 * Requests that are between tried_ask and tried_answered still count. */
void tried_remove(struct tried *x, const char *id);

#endif
