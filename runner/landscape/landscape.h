/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-runner --landscape: measures the whole space of one problem on a device and writes it down
 * as a file that the replay device plays (kernels/devices/replay/replay.h has the format). It needs
 * no daemon; modules are those of the cache, so that problems with the same kernels share them.
 *
 *   landscape.c         the mode: opening, the parts in their order, closing
 *   plan.c    which points, in which order
 *   steps.c   compiling, timing, the reference's turn: what the next two do with the device
 *   walk.c    every point, by a launch or a few
 *   finals.c  the best of them again, by many, in alternating blocks
 *   write.c   lines of the file
 *
 * Order and choice do not depend on what is measured: variants go by a hash of their compile-time
 * config, so that those recorded before the time is up are a fair sample of the space, and the same
 * ones for every problem that has them. A space may also be cut to some run-time settings.
 *
 * The reference kernel (the analytic default's) is measured every half second between the others:
 * what clocks and temperature did meanwhile is in the file.
 */
#ifndef GEMMD_RUNNER_LANDSCAPE_LANDSCAPE_H
#define GEMMD_RUNNER_LANDSCAPE_LANDSCAPE_H

#include <stdbool.h>
#include <stdint.h>

struct landscape_order { /* borrowed */
    const char *device;  /* spec */
    const char *path;    /* of the file; a half-made one has ".part" behind it */
    const char *problem, *target, *note, *cache_dir; /* the last three: NULL: the usual */
    int64_t threads;  /* 0: one per core, but two of many stay free */
    int64_t variants; /* at least so many, when the time is up; 0: LANDSCAPE_VARIANTS */
    int64_t settings; /* of a variant, at most; 0: all */
    int64_t seconds;  /* after which no more variants are begun; -1: all are recorded */
    int64_t finals;   /* points measured again at a time */
    bool quiet, json;
};

/* Returns the exit code: 0 recorded, 1 an error, said on stderr. */
int landscape_run(const struct landscape_order *o);

#endif
