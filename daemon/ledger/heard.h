/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bests of which the keeper said that they are not saved (its disk is full, say): they have
 * numbers, and are in its memory alone. When it goes, whoever heard of them gives them to the next
 * one. Of what was brought only the newest row of a key is kept.
 */
#ifndef GEMMD_DAEMON_LEDGER_HEARD_H
#define GEMMD_DAEMON_LEDGER_HEARD_H

#include "daemon/base/list.h"
#include "daemon/ledger/ledger.h"

enum { HEARD_MAX = 16384 }; /* then the oldest are forgotten */

struct heard_row {
    struct list link;
    char key[HASH_HEX];
    int64_t generation;
    bool imported;
    struct wire_buf row; /* owned */
};

struct heard {
    struct list all; /* in the order of their numbers */
    unsigned n;
};

void heard_init(struct heard *h);
/* News of a best: kept, or not any more. */
void heard_best(struct heard *h, const struct best *b, bool saved);
void heard_evicted(struct heard *h, const char *key);
void heard_forget(struct heard *h, struct heard_row *r);
void heard_clear(struct heard *h); /* also at the end; all are saved */

#endif
