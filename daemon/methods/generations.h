/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generations: answers for a connection pinned to a generation, by the rules of docs/protocol.md
 * ("Generations"). An answer follows from the database alone, whose bests are only appended, so all
 * daemons of the database agree. A key whose newest row is not newer than the generation is
 * answered from the hot cache, as without a pin. For other keys the daemon asks the ledger; all
 * connections share a bounded cache of the results.
 */
#ifndef GEMMD_DAEMON_METHODS_GENERATIONS_H
#define GEMMD_DAEMON_METHODS_GENERATIONS_H

#include "daemon/base/list.h"
#include "daemon/cache/cache.h"
#include "daemon/methods/call.h"
#include "proto/request.h"

enum { GENERATIONS_BYTES_MAX = 8 * 1024 * 1024 };

struct moment {       /* a key's answer in a generation to queries with these tolerances */
    struct list link; /* node in generations->used */
    struct id id;     /* id of the key */
    double atol, rtol;
    int64_t generation;
    int64_t newest;         /* newest generation of all rows that were read for the key */
    int64_t found;          /* generation of the row that answers; 0 when no row does */
    struct wire_buf packed; /* owned: the row as an answer */
    /* at a number of the fleet (fleet_pins.h), when no row answers: `packed` is the sentence of
     * this error, read at this loop time */
    int fault;
    uint64_t read_ms;
};

struct generations {
    struct hash_table moments; /* owned */
    struct list used;          /* the moments, least recently used first */
    size_t bytes;
    struct list parked; /* requests that wait until the rows of their keys are read */
    /* the same at numbers of the fleet, and greetings that name a number (fleet_pins.h) */
    struct list fleet_reads, fleet_hellos;
};

void generations_init(struct generations *x);
void generations_deinit(struct generations *x);

enum generation_says {
    GENERATION_AS_EVER, /* no pin, or the cached row is not newer than the pin: the cache answers */
    /* (*out)->packed is the answer, borrowed until the next turn of the event loop */
    GENERATION_ANSWERS,
    GENERATION_NOTHING, /* the generation has no answer */
    GENERATION_UNKNOWN, /* ask the ledger: generations_park */
};

/* Finds a key's answer in the generation `pinned` (-1: not pinned). `e`: its entry, or NULL. */
enum generation_says generations_find(struct generations *x, int64_t pinned,
                                      const struct cache_entry *e, const struct query *q,
                                      const struct moment **out);
/* custom_key with CUSTOM_READ for scratch->request, in the generation `pinned` (-1: not pinned).
 * For a custom op: the user's own key if it had an answer in the generation; else the key of all
 * users if that had an answer then; else the one of both that got its answer first. */
int generations_key(struct generations *x, int64_t pinned, struct daemon *d, int64_t uid,
                    struct error *err);
/* Drops the key's moments, since its rows were removed, or a quarantine has changed which rows
 * serve. */
void generations_forget(struct generations *x, const char *key);
/* Finds a key's answer in a generation, or at FLEET_PIN + a number of the fleet; NULL: not read. */
struct moment *generations_moment(struct generations *x, const char *key, int64_t generation,
                                  double atol, double rtol);
/* Keeps m in place of an older m of the same key, generation and tolerances. Owns m. */
int generations_keep(struct generations *x, struct moment *m, struct error *err);
/* Drops the key's moments at numbers of the fleet. */
void generations_forget_fleet(struct generations *x, const char *key);
/* Parks the request and begins it anew once the rows of these keys are read for
 * scratch->request.query. A failed read fails the request; the next request reads again. Returns
 * METHOD_LATER, ERROR_NO_MEMORY or ERROR_BUSY. */
int generations_park(struct generations *x, struct call *c, char (*keys)[HASH_HEX], size_t n,
                     struct error *err);

#endif
