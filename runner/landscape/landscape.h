/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-runner --landscape: measures the whole space of a problem on a device and writes a file
 * that the replay device plays (kernels/devices/replay/replay.h has the format). This mode needs no
 * daemon, and shares modules with other problems through the cache directory.
 *
 *   landscape.c  the mode: opening, the parts in their order, closing.
 *   plan.c       the points and their order.
 *   steps.c      compiling, timing, measuring the reference: steps of walk.c and finals.c.
 *   walk.c       measures every point, by one launch or a few.
 *   finals.c     measures the best points again, by many launches, in alternating blocks.
 *   write.c      lines of the file.
 *
 * Neither the order nor the choice of points depends on measurements. Variants are sorted by a hash
 * of their compile-time config. So the variants that are recorded before the time is up are a fair
 * sample of the space, and the same for every problem that has them. An order may also record only
 * some of each variant's run-time settings.
 *
 * The reference kernel (the analytic default's) is measured every half second, so that the file
 * shows the influence of clocks and temperature.
 */
#ifndef GEMMD_RUNNER_LANDSCAPE_LANDSCAPE_H
#define GEMMD_RUNNER_LANDSCAPE_LANDSCAPE_H

#include "runner/base/mode.h"

struct landscape_order { /* borrowed */
    const char *path;    /* path of the file to write; an unfinished file has ".part" appended */
    const char *problem, *note; /* note: may be NULL */
    int64_t variants; /* least variants to record, also beyond the time; 0: LANDSCAPE_VARIANTS */
    int64_t settings; /* most run-time settings to record of each variant; 0: all */
    int64_t finals;   /* number of points that each lot of finals.c measures again */
};

/* Without mode->threads, two of at least five cores compile nothing. mode->seconds -1: records all.
 * Returns the exit code: 0 recorded; 1 an error, printed on stderr. */
int landscape_run(const struct mode_order *mode, const struct landscape_order *o);

#endif
