/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compilers that a search waits for, and the clock that they and the search go by.
 *
 *   compilers_host.c      this host's, in real time
 *   compilers_recorded.c  a recorded host's, in the virtual time of a replay device (below):
 *                         variants are compiled here too, but are due when they were there
 */
#ifndef GEMMD_RUNNER_COMPILERS_H
#define GEMMD_RUNNER_COMPILERS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"

struct candidate;
struct job;
struct runner;

struct compilers_ops {
    bool compile_openings; /* a search's first variants, while the device is opened */
    double (*now_ms)(const struct runner *r);
    double (*wall_ms)(const struct job *j); /* of all orders of a tuning so far */
    uint32_t (*count)(const struct runner *r);
    /* Whether they take from the device what it measures with. */
    bool (*disturb_device)(const struct runner *r);
    /* When a variant that is about to be wanted will be there; 0: not known. */
    double (*due_ms)(struct job *j, const struct candidate *c);
    bool (*is_built)(const struct job *j, const struct candidate *c);
    /* Sleeps until some build is done or something comes on the socket; gives up a build that has
     * run for too long; or until most_ms have gone by. The candidates that wait are `queue`. 0, or
     * ERROR_CANCELLED. */
    int (*wait)(struct job *j, struct candidate *const queue[], uint32_t n, int64_t most_ms,
                struct error *err);
    double (*left_ms)(const struct job *j, const struct candidate *c); /* NaN: not known */
    /* For how long a compile has run; 0: it has not begun. INFINITY: it will not be found in the
     * cache. */
    double (*ran_ms)(const struct job *j, const struct candidate *c);
    /* Of a compile that nobody waits for any more: what it has cost and will cost. */
    double (*cost_ms)(const struct job *j, const struct candidate *c);
};

extern const struct compilers_ops compilers_host, compilers_recorded;
/* Those of a device's spec. */
const struct compilers_ops *compilers_choose(const char *device);

/* ---- compilers_recorded.c -------------------------------------------------------------------- */

/*
 * Compilers of a recorded device. Its clock is virtual, and so is theirs: so many of them, each
 * busy with a variant for as long as that took when it was recorded. When a build is due is known
 * as soon as it is wanted, so a search over a recording takes what comes in the same order every
 * time, and says how long it would have taken.
 */
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
