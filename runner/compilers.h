/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compilers that a search waits for, and the clock of both.
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
    /* When the build of a candidate will be done. Called before the pool gets the variant. NULL:
     * unknown. */
    double (*due_ms)(struct job *j, const struct candidate *c);
    bool (*is_built)(const struct job *j, const struct candidate *c);
    /* Sleeps until a build of `queue` is done, a message comes, or most_ms have passed. Gives up a
     * build that has run for too long. Returns 0, or ERROR_CANCELLED. */
    int (*wait)(struct job *j, struct candidate *const queue[], uint32_t n, int64_t most_ms,
                struct error *err);
    double (*left_ms)(const struct job *j,
                      const struct candidate *c); /* until built; NaN: unknown */
    /* How long a compile has run; 0: not begun. INFINITY: the cache does not have the variant. */
    double (*ran_ms)(const struct job *j, const struct candidate *c);
    /* Compile time, past and to come, of a build that no search waits for any more. */
    double (*cost_ms)(const struct job *j, const struct candidate *c);
};

extern const struct compilers_ops compilers_host, compilers_recorded;
const struct compilers_ops *compilers_choose(const char *device);
uint32_t compilers_count(const struct runner *r);

/* ---- compilers_recorded.c -------------------------------------------------------------------- */

/* Compilers of a recorded device, on the device's virtual clock: LANES compilers, each busy with a
 * variant for the recorded time. The due time of a build is known when the build is wanted. So a
 * search over a recording receives builds in the same order every time, and reports the time that
 * the recorded host would have taken. */
enum { LANES = 16 }; /* as many as the recorded hosts have */

struct lane_build {
    char hash[HASH_HEX];
    double due_ms;
};

struct lanes {
    double waited_ms;      /* total wait for builds while the device was idle */
    double free_ms[LANES]; /* when each lane is idle again */
    uint32_t n, room;
    struct lane_build *builds; /* owned: builds wanted so far */
};

/* Time since the device was opened; device: NULL before that. */
double lanes_now(const struct lanes *l, struct device *device);
/* When the build of a variant that takes `ms` is done, on the first idle lane. Returns the same
 * time for the same variant again. */
double lanes_want(struct lanes *l, const char *hash, double ms, double now_ms);
void lanes_wait(struct lanes *l, double until_ms, double now_ms);

#endif
