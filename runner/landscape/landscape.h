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
 * Order and choice do not depend on measurements. Variants are sorted by a hash of their
 * compile-time config. So the variants that are recorded before the time is up are a fair sample of
 * the space, and the same for every problem that has them. A space may also be cut to some run-time
 * settings.
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
    int64_t variants; /* variants to record even when the time is up; 0: LANDSCAPE_VARIANTS */
    int64_t settings; /* most run-time settings recorded of each variant; 0: all */
    int64_t finals;   /* number of points that a lot of finals measures again */
};

/* Without mode->threads, leaves two cores free if there are 5. mode->seconds -1: records all.
 * Returns the exit code: 0 recorded; 1 an error, printed on stderr. */
int landscape_run(const struct mode_order *mode, const struct landscape_order *o);

#endif
