/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/base/timeline.h"

#include <stdio.h>

#include "kernels/device.h"

void timeline_begin(struct timeline *t)
{
    double now = device_clock_ms(NULL);
    *t = (struct timeline){.began_ms = now, .since_ms = now, .phase = PHASE_OTHER};
}

enum phase timeline_enter(struct timeline *t, enum phase phase)
{
    enum phase before = t->phase;
    double now = device_clock_ms(NULL);
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
    return device_clock_ms(NULL) - t->began_ms;
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
                                              [PHASE_PAUSE] = "wait for pauses",
                                              [PHASE_OTHER] = "other"};
    size_t at = 0;
    out[0] = '\0';
    for (enum phase p = 0; p < PHASES && at < size; p++) {
        double ms = t->ms[p] + (p == t->phase ? device_clock_ms(NULL) - t->since_ms : 0);
        if (ms >= 0.5 && at < size) {
            at += (size_t)snprintf(out + at, size - at, "%s%s %.0f", at ? ", " : "", names[p], ms);
        }
    }
}
