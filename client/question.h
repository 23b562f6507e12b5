/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A problem as the table of answers sees it: the caller's own words, defaults filled in, without
 * asking what they mean. Two spellings of one problem are two questions. Made on every gemmd_get,
 * so there is nothing in it but loads and multiplications.
 *
 * Of each text the first bytes are a word like the numbers; modes and dtypes have no more. What has
 * (a text form, a routing, rows of experts) is marked in the flags, and compared apart.
 */
#ifndef GEMMD_CLIENT_QUESTION_H
#define GEMMD_CLIENT_QUESTION_H

#include "client/gemmd.h"

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

#endif
