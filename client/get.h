/* SPDX-License-Identifier: Apache-2.0 */
/* What gemmd_get and gemmd_get_many share: when the table answers, when the model does. */
#ifndef GEMMD_CLIENT_GET_H
#define GEMMD_CLIENT_GET_H

#include "client/ask.h"
#include "client/handle.h"
#include "proto/device.h"

bool get_from_table(struct gemmd *g, const struct ask *a, struct gemmd_answer *out);
/* Puts what is final into the table; false: it is not. problem is the caller's, once read. */
bool get_keep(struct gemmd *g, const struct gemmd_query *query, const struct gemmd_problem *problem,
              const struct gemmd_answer *answer);

/* Whether this call may be answered without a daemon, and whether this fault is a reason to: it is
 * the daemon's or its device's, or of the way to it (`unreached`), neither the caller's nor the
 * daemon's verdict on the very configs that the query allows. */
bool get_may_fall_back(const struct gemmd *g, const struct gemmd_query *q);
/* Whether the daemon is to be asked at all: 0, or ERROR_UNREACHABLE with the reason. */
int get_may_ask(const struct gemmd *g, const struct gemmd_query *q, struct error *err);
bool get_is_reason(int code, bool unreached, const struct gemmd_query *q);
/* The model's answer instead of the fault `why`; when there is none, `why` itself comes back. The
 * handle need not be entered. */
int get_fall_back(struct gemmd *g, const struct ask *a, const struct error *why,
                  struct gemmd_answer *out, struct error *err);

/* What the daemon is told of a deadline: a little less, so that its answer is in time. deadline_ms:
 * as the caller gave it; 0: none. */
int64_t get_told_ms(int deadline_ms, int64_t deadline);

/* ---- model.c -------------------------------------------------------------------------------- */

/*
 * The answer without a daemon: the analytic default of the family, for the device that would be
 * used. Never measured, and marked so (tier "default", source "model", local). It is of the target
 * that is asked for, and one that `restrict` and `configs` allow; where none is found the note says
 * so.
 */

/* `why`: what is said in the note. The caller's errors come back as they are; ERROR_UNKNOWN_OP for
 * ops that no family of this library solves. */
int model_answer(const struct ask *a, const struct device_info *info, const char *why,
                 struct gemmd_answer *out, struct error *err);

#endif
