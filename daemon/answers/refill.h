/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a damaged database has lost, by a rebuild or by a row whose checksum is wrong, and the cache
 * still holds is written again by its keeper: it was told as saved. Of each answer a row is made,
 * which the ledger writes under its old number if that is not there; the trial that measured it,
 * and who asked for it, are not known any more. Rows of other classes of devices are not in this
 * cache.
 */
#ifndef GEMMD_DAEMON_ANSWERS_REFILL_H
#define GEMMD_DAEMON_ANSWERS_REFILL_H

#include "daemon/answers/daemon.h"

struct refill {
    struct daemon *daemon; /* borrowed */
    bool due;              /* rows may be lost since the cache was gone through last */
    bool running;
    size_t at;       /* slot of the cache that comes next */
    unsigned moves;  /* of the cache, when this pass began: entries may stand behind `at` since */
    unsigned flying; /* rows on their way to the ledger */
    size_t n;        /* written so far */
    size_t n_before; /* ... when this pass began: the last one writes nothing */
};

void refill_init(struct refill *x, struct daemon *d);
/* The file has lost rows, of which our memory had all. */
void refill_due(struct refill *x);
/* It is due, or under way. */
bool refill_is_needed(const struct refill *x);
/* Begins when it is due, or goes on: after the cache has been loaded, and every now and then. */
void refill_begin(struct refill *x);
/* Before the ledger is stopped: hands it all that is left at once. */
void refill_finish(struct refill *x);

#endif
