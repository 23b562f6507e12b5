/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that gemmd_get and gemmd_get_many share: when the table answers, and when the model
 * answers. */
#ifndef GEMMD_CLIENT_GET_H
#define GEMMD_CLIENT_GET_H

#include "client/ask.h"
#include "client/handle.h"
#include "proto/device.h"

bool get_from_table(struct gemmd *g, const struct ask *a, struct gemmd_answer *out);
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

/* ---- model.c -------------------------------------------------------------------------------- */

/*
 * The answer without a daemon: the analytic default of the family, for the device that would be
 * used. The answer is marked as not measured (tier "default", source "model", local). Its config
 * keeps to the query's target, `restrict` and `configs`; when no such config is found, the note
 * says so.
 */

/* `why`: the reason, for the note. Returns the caller's errors unchanged; ERROR_UNKNOWN_OP for ops
 * that no family of this library solves. */
int model_answer(const struct ask *a, const struct device_info *info, const char *why,
                 struct gemmd_answer *out, struct error *err);

#endif
