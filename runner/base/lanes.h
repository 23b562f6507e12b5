/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compilers of a recorded device. Its clock is virtual, and so is theirs: so many of them, each
 * busy with a variant for as long as that took when it was recorded. When a build is due is known
 * as soon as it is wanted, so a search over a recording takes what comes in the same order every
 * time, and says how long it would have taken.
 */
#ifndef GEMMD_RUNNER_BASE_LANES_H
#define GEMMD_RUNNER_BASE_LANES_H

#include "kernels/device.h"

enum { LANES = 16 }; /* as many as the hosts have that were recorded */

struct lane_build {
    char hash[HASH_HEX];
    double due_ms;
};

struct lanes {
    double waited_ms;      /* while the device did nothing */
    double free_ms[LANES]; /* when each is idle again */
    uint32_t n, room;
    struct lane_build *builds; /* owned: those wanted so far */
};

/* Since the device was opened; device: NULL before that. */
double lanes_now(const struct lanes *l, struct device *device);
/* When the build of a variant is done that takes so long from when a compiler is idle; the same
 * answer for the same variant again. */
double lanes_want(struct lanes *l, const char *hash, double ms, double now_ms);
/* Nothing happens until then. */
void lanes_wait(struct lanes *l, double until_ms, double now_ms);

#endif
