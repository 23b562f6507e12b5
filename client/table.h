/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that a handle has already received. A hit makes no syscall, no allocation, and takes no
 * lock. Two queries of the same problem get the same answer as long as the handle lives, whatever
 * gemmd learns meanwhile, because ranks must not diverge. A caller that tunes, or passes
 * GEMMD_NO_TABLE, gets a newer answer.
 *
 * Bounded: after TABLE_MAX entries a new entry replaces the oldest.
 *
 * Threads. A writer holds the lock and makes `sequence` odd meanwhile. A reader without the lock
 * compares `sequence` before and after. When `sequence` was odd or has changed, or when nothing was
 * found, the reader looks again with the lock. Memory lives as long as the table, and every index
 * and length that a reader may see stays within the memory. After a fork the child finds a
 * consistent table, because handle.c holds the lock during the fork.
 */
#ifndef GEMMD_CLIENT_TABLE_H
#define GEMMD_CLIENT_TABLE_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/gemmd.h"

enum { TABLE_MAX = 4096, QUESTION_WORDS = 12 };

/*
 * A problem as the table compares it: the caller's numbers and texts with defaults filled in, but
 * not interpreted. Two spellings of the same problem ("M=1 N=2", "N=2 M=1") are two questions. Each
 * number is a word; of each text, the first 8 bytes are a word. The last two words are a hash of
 * the rest of all texts.
 */
struct question {
    uint64_t words[QUESTION_WORDS];
    uint64_t hash;
};

/* p may have the struct size of any earlier release. */
void question_of(const struct gemmd_problem *p, struct question *q);

struct table_memory;

struct table {
    pthread_mutex_t lock; /* protects changes */
    atomic_uint sequence;
    struct table_memory *_Atomic memory; /* owned; NULL: no answer yet */
    uint32_t puts;                       /* number of entries filled so far */
};

void table_init(struct table *t);
void table_deinit(struct table *t);

/* True: *out is filled in, at most out->size bytes. */
bool table_get(struct table *t, const struct question *q, struct gemmd_answer *out);
/* Inserts or replaces an entry. Without memory, stores nothing. */
void table_put(struct table *t, const struct question *q, const struct gemmd_answer *a);

#endif
