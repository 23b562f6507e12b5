/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of an order went. The main thread is always in exactly one phase, so the phases
 * add up to the whole time. The runner sends the timeline with the result, and gemmd keeps the
 * timeline as an event. */
#ifndef GEMMD_RUNNER_BASE_TIMELINE_H
#define GEMMD_RUNNER_BASE_TIMELINE_H

#include <stddef.h>

enum phase {             /* phases in the order in which timeline_format() prints them */
             PHASE_OPEN, /* driver, compiler, device properties */
             PHASE_PLAN, /* building and ranking the space */
             /* making the context, the operands and the reference's result, without the waits
              * of PHASE_HELPERS */
             PHASE_PREPARE,
             PHASE_HELPERS, /* waiting for compiles of the device's own kernels */
             PHASE_COMPILE, /* waiting with nothing to measure until a compiler is done */
             PHASE_LOAD,    /* loading a candidate's module into the context */
             PHASE_TIME,    /* warm-ups and timed launches */
             PHASE_VERIFY,
             PHASE_FINAL, /* all steps of the finals */
             PHASE_PAUSE, /* waiting until the GPU of a training job pauses */
             PHASE_OTHER,
             PHASES
};

struct timeline {
    double began_ms, since_ms; /* monotonic clock: at timeline_begin(), at the phase's begin */
    enum phase phase;
    double ms[PHASES];
};

void timeline_begin(struct timeline *t);
/* Returns the previous phase, so that the caller can return to it. */
enum phase timeline_enter(struct timeline *t, enum phase phase);
/* Like timeline_enter, but stays in PHASE_FINAL during the finals. */
enum phase timeline_step(struct timeline *t, enum phase phase);
double timeline_ms(const struct timeline *t); /* since timeline_begin() */
/* Writes "open 131, plan 12, prepare 190 ...", in milliseconds, without phases under half a
 * millisecond. */
void timeline_format(const struct timeline *t, char *out, size_t size);

#endif
