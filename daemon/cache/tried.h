/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of which users have recorded trials, and which have no answer: the cache does not know them,
 * and yet the database keeps their rows for good. So they are counted here, towards --max-keys,
 * from the first trial on until they have an answer or are evicted; and while requests to record
 * some are under way, since otherwise many at once would all find room. Of this life of the daemon
 * alone: those before are no more than there was room for then.
 */
#ifndef GEMMD_DAEMON_CACHE_TRIED_H
#define GEMMD_DAEMON_CACHE_TRIED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/cache/cache.h"
#include "proto/error.h"

struct tried_key {
    struct id id;
    uint32_t uid;   /* who asked first */
    unsigned asked; /* requests that are not answered yet */
    bool kept;      /* the database has trials of it */
};

struct tried {
    struct hash_table keys; /* struct tried_key, owned, by id.front, which is its beginning */
    struct holdings held;   /* how many each user has */
};

void tried_deinit(struct tried *x);
bool tried_has(const struct tried *x, const char *id);
bool tried_is_of(const struct tried *x, const char *id, uint32_t uid);
/* ERROR_NO_MEMORY */
int tried_ask(struct tried *x, const char *id, uint32_t uid, struct error *err);
/* For each tried_ask: whether any of its trials is kept, and the key has no answer. */
void tried_answered(struct tried *x, const char *id, bool kept);
/* It has an answer, or none of its trials is left; it need not be there. What is asked for still
 * counts until it is answered. */
void tried_remove(struct tried *x, const char *id);

#endif
