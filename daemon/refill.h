/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rebuild of a damaged database has lost and the cache still holds is written again: it was
 * told as saved. All that the file has now is heard, as at the start; of what is left, a row is
 * made of each answer. It gets a new generation; the trial that measured it, and who asked for it,
 * are not known any more. Rows of other classes of devices are not in this cache.
 */
#ifndef GEMMD_DAEMON_REFILL_H
#define GEMMD_DAEMON_REFILL_H

#include "daemon/daemon.h"

struct refill {
    struct daemon *daemon; /* borrowed */
    bool due;              /* the file was rebuilt, and has not been looked at since */
    bool running;
    bool held;       /* the file is read for another purpose */
    size_t at;       /* slot of the cache that comes next */
    bool found;      /* any since slot 0: entries may have moved meanwhile, behind `at` */
    unsigned flying; /* rows on their way to the ledger */
    size_t n;        /* rows written */
};

void refill_init(struct refill *x, struct daemon *d);
/* The file was rebuilt, while it was open. */
void refill_rebuilt(struct refill *x);
/* While the ledger's pages are another one's, who would miss what is heard here, nothing is: what was begun begins again. */
void refill_hold(struct refill *x, bool held);
/* Begins, if that is due and not under way. After the cache has been loaded. */
void refill_begin(struct refill *x);

#endif
