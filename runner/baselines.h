/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a vendor's library takes for the keys that were tuned, measured when nothing else is to be
 * done: no answer waits for it. Each is a trial of stage and status `baseline`, which is no
 * candidate.
 */
#ifndef GEMMD_RUNNER_BASELINES_H
#define GEMMD_RUNNER_BASELINES_H

#include "proto/request.h"

struct runner;
struct owed;

enum { BASELINES_MAX = 64 };

struct baselines {
    bool off; /* there is no library, or nobody wants them */
    uint32_t n;
    struct owed *owed[BASELINES_MAX]; /* owned, the oldest first */
};

/* Remembers a key that was just tuned. */
void baselines_owe(struct runner *r, const struct tune_order *o, const struct tune_result *result);
/* Measures the oldest. False: none is owed. */
bool baselines_pay(struct runner *r);

#endif
