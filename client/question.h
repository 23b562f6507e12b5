/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A problem as the table of answers sees it: the caller's own words, defaults filled in, without
 * asking what they mean. Two spellings of one problem are two questions. Made on every gemmd_get, so
 * there is nothing in it but loads and multiplications.
 */
#ifndef GEMMD_CLIENT_QUESTION_H
#define GEMMD_CLIENT_QUESTION_H

#include "client/gemmd.h"

enum { QUESTION_WORDS = 6, QUESTION_TEXTS = 4 };

struct question {
    uint64_t words[QUESTION_WORDS];    /* m, n, k, experts, topk, flags */
    const char *texts[QUESTION_TEXTS]; /* borrowed: mode, dtypes, routing; or the problem's text */
    const int64_t *rows;               /* borrowed: rows_per_expert */
    size_t n_rows;
};

/* p is of any release up to this one. */
struct question question_of(const struct gemmd_problem *p);
uint64_t question_hash(const struct question *q);

#endif
