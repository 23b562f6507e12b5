/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers already received, in this process. A hit makes no syscall, no allocation, and takes no
 * lock. What is in here never changes under a job: two asks for the same problem give the same
 * answer for as long as the process lives, whatever gemmd learns meanwhile (ranks must not
 * diverge), unless the caller tunes or passes GEMMD_NO_TABLE.
 *
 * Bounded: beyond TABLE_MAX the oldest makes room.
 *
 * Threads. Whoever changes the table holds the lock and makes `sequence` odd meanwhile; a reader
 * without the lock looks at it before and after, and when it was odd or has changed, or nothing was
 * found, looks again with the lock. So what it reads may be changing under it: entries are arrays
 * of atomic words, and their memory is used again but not freed before the table is. After a fork
 * the child finds the table whole, since handle.c holds the lock over it.
 */
#ifndef GEMMD_CLIENT_TABLE_H
#define GEMMD_CLIENT_TABLE_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/gemmd.h"

/* ---- question.c ----------------------------------------------------------------------------- */

/*
 * A problem as the table of answers sees it: the caller's own words, defaults filled in, without
 * asking what they mean. Two spellings of one problem are two questions. Made on every gemmd_get,
 * so there is nothing in it but loads and multiplications.
 *
 * Of each text the first bytes are a word like the numbers; modes and dtypes have no more. What has
 * (a text form, a routing, rows of experts) is marked in the flags, and compared apart.
 */

enum { QUESTION_FLAGS = 5, QUESTION_NUMBERS, QUESTION_TEXTS = 4 };
enum { QUESTION_WORDS = QUESTION_NUMBERS + QUESTION_TEXTS };
enum { QUESTION_HAS_MORE = 1 << 6 }; /* in the flags: there are `rest` or `rows` */

struct question {
    uint64_t words[QUESTION_WORDS];   /* m, n, k, experts, topk, flags; mode, dtypes, routing */
    const char *rest[QUESTION_TEXTS]; /* borrowed: of each text what its word does not hold */
    const int64_t *rows;              /* borrowed: rows_per_expert */
    size_t n_rows;
    uint64_t hash;
};

/* p is of any release up to this one. */
void question_of(const struct gemmd_problem *p, struct question *q);

/* ---- table.c -------------------------------------------------------------------------------- */

enum { TABLE_MAX = 4096, TABLE_SLOTS = 4 * TABLE_MAX, TABLE_SIZES = 3 };

struct table_entry;

struct table_slot {
    _Atomic uint64_t hash;
    struct table_entry *_Atomic entry; /* NULL: free */
};

struct table {
    pthread_mutex_t lock; /* of changes */
    atomic_uint sequence;
    struct table_slot *_Atomic slots; /* owned, TABLE_SLOTS, linear probing; NULL: no answer yet */
    uint32_t n;
    struct table_entry *oldest, *newest;    /* all that are in it, owned */
    struct table_entry *spare[TABLE_SIZES]; /* owned: entries that were, by size */
};

void table_init(struct table *t);
void table_deinit(struct table *t);

/* True: *out is filled in, at most out->size bytes of it. */
bool table_get(struct table *t, const struct question *q, struct gemmd_answer *out);
/* The same, of the caller's problem; for most problems the question is made on the way. */
bool table_ask(struct table *t, const struct gemmd_problem *p, struct gemmd_answer *out);
/* Puts, or replaces. No memory, or a question of kilobytes: nothing is kept. */
void table_put(struct table *t, const struct question *q, const struct gemmd_answer *a);

#endif
