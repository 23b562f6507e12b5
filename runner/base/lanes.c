/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/lanes.h"

double lanes_now(const struct lanes *l, struct device *device)
{
    return l->waited_ms + (device ? device->ops->clock_ms(device) : 0);
}

static void lanes_remember_build(struct lanes *l, const char *hash, double due_ms)
{
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 64;
        struct lane_build *builds = realloc(l->builds, room * sizeof(*builds));
        if (!builds) {
            return; /* it will be compiled once more */
        }
        l->builds = builds;
        l->room = room;
    }
    snprintf(l->builds[l->n].hash, HASH_HEX, "%s", hash);
    l->builds[l->n++].due_ms = due_ms;
}

double lanes_want(struct lanes *l, const char *hash, double ms, double now_ms)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if (strcmp(l->builds[i].hash, hash) == 0) {
            return l->builds[i].due_ms;
        }
    }
    double *first = &l->free_ms[0];
    for (uint32_t i = 1; i < LANES; i++) {
        first = l->free_ms[i] < *first ? &l->free_ms[i] : first;
    }
    double due_ms = ms > 0 ? fmax(*first, now_ms) + ms : now_ms;
    *first = ms > 0 ? due_ms : *first;
    lanes_remember_build(l, hash, due_ms);
    return due_ms;
}

void lanes_wait(struct lanes *l, double until_ms, double now_ms)
{
    l->waited_ms += fmax(until_ms - now_ms, 0);
}
