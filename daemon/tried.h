/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of which users have recorded trials, and which have no answer: the cache does not know them,
 * and yet the database keeps their rows for good. So they are counted here, towards --max-keys,
 * from the first trial on until they have an answer or are evicted. A table of ids: open addressing
 * with linear probing, never more than half full. Of this life of the daemon alone: those before
 * are no more than there was room for then.
 */
#ifndef GEMMD_DAEMON_TRIED_H
#define GEMMD_DAEMON_TRIED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

struct tried_id {
    uint64_t front, back; /* of the 32 digits; both 0: free */
};

struct tried {
    struct tried_id *slots; /* owned */
    size_t n, capacity;     /* a power of two, or 0 */
};

void tried_deinit(struct tried *x);
bool tried_has(const struct tried *x, const char *id);
int tried_add(struct tried *x, const char *id, struct error *err); /* ERROR_NO_MEMORY */
void tried_remove(struct tried *x, const char *id);                /* it need not be there */

#endif
