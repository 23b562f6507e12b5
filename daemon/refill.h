/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rebuild of a damaged database has lost and the cache still holds is written again: it was
 * told as saved. Of each answer a row is made, which the ledger writes under its old number if that
 * is not there; the trial that measured it, and who asked for it, are not known any more. Rows of
 * other classes of devices are not in this cache.
 */
#ifndef GEMMD_DAEMON_REFILL_H
#define GEMMD_DAEMON_REFILL_H

#include "daemon/daemon.h"

struct refill {
    struct daemon *daemon; /* borrowed */
    bool due;              /* the file was rebuilt since the cache was gone through last */
    bool running;
    size_t at;       /* slot of the cache that comes next */
    unsigned flying; /* rows on their way to the ledger */
    size_t n;        /* rows written; */
    size_t n_before; /* before this pass */
};

void refill_init(struct refill *x, struct daemon *d);
/* The file was rebuilt. */
void refill_rebuilt(struct refill *x);
/* So it was, and it may still lack what the cache has. */
bool refill_is_needed(const struct refill *x);
/* Begins, if that is due, not under way, and ours to do (the keeper's). After the cache has been
 * loaded. */
void refill_begin(struct refill *x);

#endif
