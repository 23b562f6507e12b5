/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers already received, in this process. A hit makes no syscall and no allocation. What is in
 * here never changes under a job: two asks for the same problem give the same answer for as long as
 * the process lives, whatever gemmd learns meanwhile (ranks must not diverge), unless the caller
 * tunes or passes GEMMD_NO_TABLE.
 *
 * Bounded: sets of a few ways, the oldest of a set makes room. Keys are the caller's own bytes
 * (client/ask.h), kept whole and compared. Thread-safe with a lock of its own, so that hits go on
 * while another thread waits for a tuning.
 */
#ifndef GEMMD_CLIENT_TABLE_H
#define GEMMD_CLIENT_TABLE_H

#include <pthread.h>

#include "client/gemmd.h"

enum { TABLE_SETS = 1024, TABLE_WAYS = 4 };

struct table_entry;

struct table_set {
    uint64_t hash[TABLE_WAYS]; /* beside each other, so that a miss looks at one cache line */
    struct table_entry *entry[TABLE_WAYS]; /* owned */
    uint32_t next;                         /* the way that is replaced next */
};

struct table {
    pthread_mutex_t lock;
    struct table_set *sets; /* owned; NULL until the first answer */
};

void table_init(struct table *t);
void table_deinit(struct table *t);

/* True: *out is filled in, at most out->size bytes of it. */
bool table_get(struct table *t, const void *key, size_t n, struct gemmd_answer *out);
/* Puts, or replaces. No memory: nothing is kept. */
void table_put(struct table *t, const void *key, size_t n, const struct gemmd_answer *a);

#endif
