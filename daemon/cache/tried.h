/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys with recorded trials and without an answer. The cache does not have these keys, but the
 * database keeps their rows for good. They count towards --max-keys here, from the first trial on
 * until they have an answer or are evicted. A key also counts while its first trials are still
 * being written, or many requests at once would exceed the limit. The count is 0 when the daemon
 * starts.
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
    uint32_t uid;   /* user of the first request */
    unsigned asked; /* unanswered requests */
    bool kept;      /* the database has trials of the key */
};

struct tried {
    struct hash_table keys; /* struct tried_key, owned, by id.front, its first bytes */
    struct holdings held;   /* keys by user */
};

void tried_deinit(struct tried *x);
bool tried_has(const struct tried *x, const char *id);
bool tried_is_of(const struct tried *x, const char *id, uint32_t uid);
/* ERROR_NO_MEMORY */
int tried_ask(struct tried *x, const char *id, uint32_t uid, struct error *err);
/* Ends a tried_ask. `kept`: a trial of the key was written, and the key has no answer. */
void tried_answered(struct tried *x, const char *id, bool kept);
/* The key has an answer, or its trials are gone. Unknown keys are accepted. Unanswered requests
 * still count. */
void tried_remove(struct tried *x, const char *id);

#endif
