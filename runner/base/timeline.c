/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/base/timeline.h"

#include <stdio.h>
#include <time.h>

double timeline_clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void timeline_begin(struct timeline *t)
{
    double now = timeline_clock_ms();
    *t = (struct timeline){.began_ms = now, .since_ms = now, .phase = PHASE_OTHER};
}

enum phase timeline_enter(struct timeline *t, enum phase phase)
{
    enum phase before = t->phase;
    double now = timeline_clock_ms();
    t->ms[before] += now - t->since_ms;
    t->since_ms = now;
    t->phase = phase;
    return before;
}

enum phase timeline_step(struct timeline *t, enum phase phase)
{
    return timeline_enter(t, t->phase == PHASE_FINAL ? PHASE_FINAL : phase);
}

double timeline_ms(const struct timeline *t)
{
    return timeline_clock_ms() - t->began_ms;
}

void timeline_format(const struct timeline *t, char *out, size_t size)
{
    static const char *const names[PHASES] = {[PHASE_OPEN] = "open",
                                              [PHASE_PLAN] = "plan",
                                              [PHASE_PREPARE] = "prepare",
                                              [PHASE_HELPERS] = "helpers",
                                              [PHASE_COMPILE] = "wait for compilers",
                                              [PHASE_LOAD] = "load",
                                              [PHASE_VERIFY] = "verify",
                                              [PHASE_TIME] = "time",
                                              [PHASE_FINAL] = "finals",
                                              [PHASE_OTHER] = "other"};
    size_t at = 0;
    out[0] = '\0';
    for (enum phase p = 0; p < PHASES && at < size; p++) {
        double ms = t->ms[p] + (p == t->phase ? timeline_clock_ms() - t->since_ms : 0);
        if (ms >= 0.5 && at < size) {
            at += (size_t)snprintf(out + at, size - at, "%s%s %.0f", at ? ", " : "", names[p], ms);
        }
    }
}
