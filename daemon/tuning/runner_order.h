/* SPDX-License-Identifier: Apache-2.0 */
/* What the runner is told to do: the order, and the finished trials in it. */
#ifndef GEMMD_DAEMON_TUNING_RUNNER_ORDER_H
#define GEMMD_DAEMON_TUNING_RUNNER_ORDER_H

#include "daemon/answers/tiers.h"
#include "daemon/tuning/job.h"

enum {
    FAVOURITES_MAX = 8, /* deaths of the runner with nothing that worked: then it looks elsewhere */
};

/* A finished trial, that is not repeated. */
void tuning_remember(struct job *j, const struct trial *t);
/* Thousands of old trials: they would rather be measured again than not at all. False: there are
 * none to forget, so that the order does not get smaller by it. */
bool tuning_forget(struct job *j);
/* The params of the runner's `tune`. ERROR_NO_MEMORY; ERROR_INVALID: too many configs are given. */
int tuning_order(struct tiers *t, struct job *j, struct wire_buf *out, struct error *err);

#endif
