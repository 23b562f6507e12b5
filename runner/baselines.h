/* SPDX-License-Identifier: Apache-2.0 */
/* Times of a vendor's library for tuned keys, measured when the runner is idle, so that no answer
 * waits for them. Each baseline is a trial of stage and status `baseline`, and no candidate. */
#ifndef GEMMD_RUNNER_BASELINES_H
#define GEMMD_RUNNER_BASELINES_H

#include "proto/request.h"

struct runner;
struct owed;

enum { BASELINES_MAX = 64 };

struct baselines {
    bool off; /* no library, or --no-baseline */
    uint32_t n;
    struct owed *owed[BASELINES_MAX]; /* owned, the oldest first */
};

/* Remembers a key that was just tuned. */
void baselines_owe(struct runner *r, const struct tune_order *o, const struct tune_result *result);
/* Measures the oldest remembered key. False: no key is left. */
bool baselines_pay(struct runner *r);

#endif
