/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compilers that a search waits for, and the clock that the search goes by.
 *
 *   compilers_host.c      compilers of this host, in real time
 *   compilers_recorded.c  compilers of a recorded host, in the virtual time of a replay device:
 *                         this host compiles too, but builds are due at the recorded times
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
    /* true for compilers of this host in real time, which share the cores with a cpu device */
    bool real;
    double (*now_ms)(const struct runner *r);
    /* milliseconds that all orders of the tuning have taken so far */
    double (*wall_ms)(const struct job *j);
    /* When the compile of a candidate will end, by now_ms. Called before the compile pool gets the
     * variant. NULL: unknown. */
    double (*due_ms)(struct job *j, const struct candidate *c);
    bool (*is_built)(const struct job *j, const struct candidate *c);
    /* Sleeps until a build of `queue` is done, a message from gemmd comes, or most_ms have passed.
     * Gives up a build that has run for 120 s. Returns 0, or ERROR_CANCELLED. */
    int (*wait)(struct job *j, struct candidate *const queue[], uint32_t n, int64_t most_ms,
                struct error *err);
    double (*left_ms)(const struct job *j,
                      const struct candidate *c); /* until built; NaN: unknown */
    /* How long the candidate's compile has run; 0: not begun. INFINITY (replay): the cache does not
     * have the variant, so that waiting for a lookup is of no use. */
    double (*ran_ms)(const struct job *j, const struct candidate *c);
    /* Compile time to charge for a build that the search gave up: on this host the time so far, in
     * replay the recorded time. */
    double (*cost_ms)(const struct job *j, const struct candidate *c);
};

extern const struct compilers_ops compilers_host, compilers_recorded;
const struct compilers_ops *compilers_choose(const char *device);
uint32_t compilers_count(const struct runner *r);

/* ---- compilers_recorded.c -------------------------------------------------------------------- */

/* Compilers of a recorded host, on the replay device's virtual clock: LANES compilers (lanes), each
 * busy with a variant for the recorded time. The due time of a build is known when the search asks
 * for the build. So a search over a recording receives builds in the same order every time, and
 * reports the time that the recorded host would have taken. */
enum { LANES = 16 }; /* as many as the recorded hosts have */

struct lane_build {
    char hash[HASH_HEX]; /* of the variant */
    double due_ms;       /* by lanes_now() */
};

struct lanes {
    double waited_ms;      /* total wait for builds while the device was idle */
    double free_ms[LANES]; /* when each lane has finished its last build */
    uint32_t n, room;
    struct lane_build *builds; /* owned: all builds that lanes_want() has been called for */
};

/* Virtual ms since the device was opened: time on the device and waits for builds. device: NULL
 * before it is open. */
double lanes_now(const struct lanes *l, struct device *device);
/* Gives the compile of a variant, which takes `ms`, to the lane that is idle first. Returns when
 * the compile ends. A later call for the same variant returns the same time. */
double lanes_want(struct lanes *l, const char *hash, double ms, double now_ms);
/* Advances the virtual clock to until_ms; does nothing when that is past. */
void lanes_wait(struct lanes *l, double until_ms, double now_ms);

#endif
