/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer without a daemon: the analytic default of the family, for the device that would be
 * used. Never measured, and marked so (tier "default", source "model", local). It is of the target
 * that is asked for, and one that `restrict` and `configs` allow; where none is found the note says
 * so.
 */
#ifndef GEMMD_CLIENT_MODEL_H
#define GEMMD_CLIENT_MODEL_H

#include "client/ask.h"
#include "proto/device.h"

/* `why`: what is said in the note. The caller's errors come back as they are; ERROR_UNKNOWN_OP for
 * ops that no family of this library solves. */
int model_answer(const struct ask *a, const struct device_info *info, const char *why,
                 struct gemmd_answer *out, struct error *err);

#endif
