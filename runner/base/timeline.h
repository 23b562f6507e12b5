/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the time of an order went: the main thread is in one phase at a time, so phases add up to
 * the whole. It is said with the result, and gemmd keeps it as an event.
 */
#ifndef GEMMD_RUNNER_BASE_TIMELINE_H
#define GEMMD_RUNNER_BASE_TIMELINE_H

#include <stddef.h>

enum phase {                /* in the order in which they are said */
             PHASE_OPEN,    /* driver and compiler; what the device is */
             PHASE_PLAN,    /* the space, ranked */
             PHASE_PREPARE, /* context, operands, the reference's result; but not: */
             PHASE_HELPERS, /* waiting for the device's own kernels to be compiled */
             PHASE_COMPILE, /* nothing to measure until a compiler is done */
             PHASE_LOAD,    /* a candidate's module into the context */
             PHASE_TIME,    /* probes and samples */
             PHASE_VERIFY,
             PHASE_FINAL, /* the same of finalists */
             PHASE_OTHER,
             PHASES
};

struct timeline {
    double began_ms, since_ms; /* monotonic */
    enum phase phase;
    double ms[PHASES];
};

double timeline_clock_ms(void); /* monotonic */
void timeline_begin(struct timeline *t);
/* Returns the phase that ends, for who wants to go back to it. */
enum phase timeline_enter(struct timeline *t, enum phase phase);
/* The same for a step that is part of the finals, when they are on. */
enum phase timeline_step(struct timeline *t, enum phase phase);
double timeline_ms(const struct timeline *t); /* since begin */
/* "open 131, plan 12, prepare 190 ...": milliseconds; what took less than half of one is left
 * out. */
void timeline_format(const struct timeline *t, char *out, size_t size);

#endif
