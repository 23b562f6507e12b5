/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers already received, in this process. A hit makes no syscall, no allocation, and takes no
 * lock. What is in here never changes under a job: two asks for the same problem give the same
 * answer for as long as the process lives, whatever gemmd learns meanwhile (ranks must not
 * diverge), unless the caller tunes or passes GEMMD_NO_TABLE.
 *
 * Bounded: beyond TABLE_MAX the oldest makes room.
 *
 * Threads. A writer holds the lock and makes `sequence` odd meanwhile. A reader without the lock
 * compares `sequence` before and after. When it was odd or has changed, or nothing was found, the
 * reader looks again with the lock. Memory is not freed before the table is, and every index and
 * length that a reader may see stays within it. After a fork the child finds the table whole, since
 * handle.c holds the lock over it.
 */
#ifndef GEMMD_CLIENT_TABLE_H
#define GEMMD_CLIENT_TABLE_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/gemmd.h"

enum { TABLE_MAX = 4096, QUESTION_WORDS = 12 };

/*
 * A problem as the table sees it: the caller's own words, defaults filled in, without asking what
 * they mean. Two spellings of one problem are two questions. Of each text the first bytes are a
 * word like the numbers; the last two words are a hash of what else there is.
 */
struct question {
    uint64_t words[QUESTION_WORDS];
    uint64_t hash;
};

/* p is of any release up to this one. */
void question_of(const struct gemmd_problem *p, struct question *q);

struct table_memory;

struct table {
    pthread_mutex_t lock; /* of changes */
    atomic_uint sequence;
    struct table_memory *_Atomic memory; /* owned; NULL: no answer yet */
    uint32_t puts;                       /* entries that were filled so far */
};

void table_init(struct table *t);
void table_deinit(struct table *t);

/* True: *out is filled in, at most out->size bytes of it. */
bool table_get(struct table *t, const struct question *q, struct gemmd_answer *out);
/* Puts, or replaces. Keeps nothing when there is no memory. */
void table_put(struct table *t, const struct question *q, const struct gemmd_answer *a);

#endif
