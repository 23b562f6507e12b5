/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generations: what a key answers a connection that is pinned to one (hello's `generation`). A job
 * that pins a generation gets the same answer to a question for its whole life, at every rank, at
 * every daemon of the database, whatever is tuned, pinned or promoted meanwhile. The answer is a
 * query of the database, whose bests are only ever appended:
 *
 *   the newest row up to the generation that serves, if it was verified tightly enough for the
 * query; else, for who waits for a tuning however long it takes, the oldest row after the
 * generation that serves and was; else the analytic default, since every other tier depends on what
 * is known by now.
 *
 * Where the newest row up to the generation is of a kernel that went into quarantine at the key,
 * there is none. A row that is only in memory has no generation yet, and answers nobody here. A key
 * whose newest row is not newer than the generation answers as ever. Of others the ledger is asked,
 * and a bounded cache remembers what it said, for all connections.
 */
#ifndef GEMMD_DAEMON_METHODS_GENERATIONS_H
#define GEMMD_DAEMON_METHODS_GENERATIONS_H

#include "daemon/base/list.h"
#include "daemon/cache/cache.h"
#include "daemon/methods/call.h"
#include "proto/request.h"

enum { GENERATIONS_BYTES_MAX = 8 * 1024 * 1024 };

struct moment {       /* what a key answers in a generation to queries of these tolerances */
    struct list link; /* generations->used */
    struct id id;     /* the key's */
    double atol, rtol;
    int64_t generation;
    int64_t newest;         /* row that was looked at */
    int64_t found;          /* the row that answers; 0: there is none */
    struct wire_buf packed; /* owned: that row, as an answer */
};

struct generations {
    struct hash_table moments; /* owned */
    struct list used;          /* the same; the one used longest ago makes room */
    size_t bytes;
    struct list parked; /* requests that wait for rows */
};

void generations_init(struct generations *x);
void generations_deinit(struct generations *x);

enum generation_says {
    GENERATION_AS_EVER, /* the generation changes nothing for the key */
    GENERATION_ANSWERS, /* by (*out)->packed; borrowed until the loop goes on */
    GENERATION_NOTHING, /* there was no answer then */
    GENERATION_UNKNOWN, /* the ledger is to be asked: generations_park */
};

/* Why a key that has an answer by now is answered by a default. */
extern const char generation_since[];

/* What a key with this entry (NULL: none) answers a query in the generation `pinned` (-1: none). */
enum generation_says generations_find(struct generations *x, int64_t pinned,
                                      const struct cache_entry *e, const struct query *q,
                                      const struct moment **out);
/* custom_key, to read, of scratch->request as a whole, in a generation (-1: none). Of a custom op
 * that is the user's own key if that had an answer then, else the shared one if that had; else the
 * one that was answered first. */
int generations_key(struct generations *x, int64_t pinned, struct daemon *d, int64_t uid,
                    struct error *err);
/* The key's old rows are gone, or are judged anew. */
void generations_forget(struct generations *x, const char *key);
/* METHOD_LATER: the request is begun anew when the rows of these keys were read for its query
 * (scratch->request.query). When they could not be, it fails, and the next one reads again.
 * ERROR_NO_MEMORY, ERROR_BUSY. */
int generations_park(struct generations *x, struct call *c, char (*keys)[HASH_HEX], size_t n,
                     struct error *err);

#endif
