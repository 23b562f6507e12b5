/* SPDX-License-Identifier: Apache-2.0 */
/* What problems.c knows of the options in problem_options.c; their commands need only ctl.h. */
#ifndef GEMMD_CLIENT_CTL_PROBLEMS_H
#define GEMMD_CLIENT_CTL_PROBLEMS_H

#include "client/ctl/ctl.h"

/* The options that take lists, by their place in problems.lists. The first varies slowest. */
enum { MODE, DTYPE, OUT_DTYPE, EXPERTS, TOPK, TOKENS, M, N, K };
extern const struct dimension {
    const char *option, *field;
    bool number;
} problems_dimensions[PROBLEM_LISTS];

/* Whether what was given goes together; of words, that they stand alone. 0, or USAGE after the
 * sentence. */
int problems_check(const struct problems *p);
int problems_check_words(const struct problems *p);

#endif
