/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-runner --landscape: measures the whole space of a problem on a device and writes a file
 * that the replay device plays (kernels/devices/replay/replay.h has the format). This mode needs no
 * daemon, and shares modules with other problems through the cache directory.
 *
 *   landscape.c  the mode: opening, the parts in their order, closing.
 *   plan.c       the points and their order.
 *   steps.c      compiling, timing, measuring the reference: steps of walk.c and finals.c.
 *   walk.c       every point, by a launch or a few.
 *   finals.c     the best points again, by many launches, in alternating blocks.
 *   write.c      lines of the file.
 *
 * Order and choice do not depend on measurements. Variants go by a hash of their compile-time
 * config. So the variants that are recorded before the time is up are a fair sample of the space,
 * and the same for every problem that has them. A space may also be cut to some run-time settings.
 *
 * The reference kernel (the analytic default's) is measured every half second, so that the file
 * shows the influence of clocks and temperature.
 */
#ifndef GEMMD_RUNNER_LANDSCAPE_LANDSCAPE_H
#define GEMMD_RUNNER_LANDSCAPE_LANDSCAPE_H

#include <stdbool.h>
#include <stdint.h>

struct landscape_order { /* borrowed */
    const char *device;  /* device spec */
    const char *path;    /* of the file; an unfinished file has ".part" appended */
    const char *problem, *target, *note, *cache_dir; /* the last three: NULL: the usual */
    int64_t threads;  /* 0: one per core, but many cores leave two free */
    int64_t variants; /* at least so many, when the time is up; 0: LANDSCAPE_VARIANTS */
    int64_t settings; /* of a variant, at most; 0: all */
    int64_t seconds;  /* after which no variant is begun; -1: all are recorded */
    int64_t finals;   /* points measured again in a lot */
    bool quiet, json;
};

/* Returns the exit code: 0 recorded; 1 an error, printed on stderr. */
int landscape_run(const struct landscape_order *o);

#endif
