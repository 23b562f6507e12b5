/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the database has lost, by damage, and the cache still holds is written again: it was told as
 * saved. Of each answer a row is made, which the ledger writes under its old number if that is not
 * there; the trial that measured it, and who asked for it, are not known any more. Rows of other
 * classes of devices are not in this cache.
 */
#ifndef GEMMD_DAEMON_ANSWERS_RESTORE_H
#define GEMMD_DAEMON_ANSWERS_RESTORE_H

#include "daemon/daemon.h"

struct restore {
    struct daemon *daemon; /* borrowed */
    bool running;
    size_t at;       /* slot of the cache that comes next */
    unsigned moves;  /* of the cache, when this pass began: entries may stand behind `at` since */
    unsigned flying; /* rows on their way to the ledger */
    size_t n;        /* written so far */
    size_t n_before; /* ... when this pass began: the last one writes nothing */
};

void restore_init(struct restore *x, struct daemon *d);
void restore_begin(struct restore *x);  /* the file may have lost rows */
void restore_finish(struct restore *x); /* before the ledger is stopped: all that is left */

#endif
