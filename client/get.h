/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that gemmd_get and gemmd_get_many share: when the table answers, and when the model
 * answers. */
#ifndef GEMMD_CLIENT_GET_H
#define GEMMD_CLIENT_GET_H

#include "client/ask.h"
#include "client/handle.h"

/* Answers from the table. `query` has the size of this library's struct; NULL: the defaults. */
bool get_look_up(struct gemmd *g, const struct gemmd_problem *problem,
                 const struct gemmd_query *query, struct gemmd_answer *out);
/* Puts a final answer into the table; false: not final. `problem`: the caller's, already
 * checked. */
bool get_keep(struct gemmd *g, const struct gemmd_query *query, const struct gemmd_problem *problem,
              const struct gemmd_answer *answer);

/* Returns 0 when the daemon may be used, or ERROR_UNREACHABLE with the reason why not. */
int get_may_ask(const struct gemmd *g, const struct gemmd_query *q, struct error *err);
/* Replaces the fault *err by the model's answer, when the caller allows that, and the fault is of
 * the daemon, its device or the way to it (`unreached`), not a mistake of the caller or a finding
 * about the configs of the query. Returns 0 or the fault. The handle need not be entered. */
int get_or_default(struct gemmd *g, const struct ask *a, bool unreached, struct gemmd_answer *out,
                   struct error *err);

/* The deadline to send to the daemon: a little shorter than the caller's, so that the answer
 * arrives in time. deadline_ms: the caller's value; 0: no deadline. */
int64_t get_told_ms(int deadline_ms, int64_t deadline);

#endif
