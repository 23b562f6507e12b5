/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/base/conditions.h"

#include <stdio.h>
#include <string.h>

enum { DOUBT_MAX = 160, BUSY_PERCENT = 10, FREE_PERCENT = 5 };

static bool conditions_read_health(struct device *d, struct device_health *h)
{
    *h = (struct device_health){.busy_percent = -1, .processes = -1};
    if (d->ops->health) {
        d->ops->health(d, h);
    }
    return d->ops->health != NULL;
}

/* Warns about load on the GPU or a lack of memory, not about processes that only have a context on
 * the GPU: a training job that waits for gemmd's answer disturbs no measurement. */
void conditions_before(struct device *d, char doubt[DOUBT_MAX])
{
    struct device_health h;
    doubt[0] = '\0';
    if (!conditions_read_health(d, &h)) {
        return;
    }
    if (h.busy_percent > BUSY_PERCENT) {
        snprintf(doubt, DOUBT_MAX,
                 "other processes (%lld) kept the GPU busy for %lld %% of the time when measuring "
                 "began",
                 (long long)h.processes, (long long)h.busy_percent);
    } else if (h.total_mib > 0 && h.free_mib * 100 < h.total_mib * FREE_PERCENT) {
        snprintf(doubt, DOUBT_MAX, "only %lld of %lld MiB of the GPU's memory were free",
                 (long long)h.free_mib, (long long)h.total_mib);
    }
}

bool conditions_in_use(struct device *d, char says[DOUBT_MAX])
{
    struct device_health h;
    says[0] = '\0';
    if (!conditions_read_health(d, &h)) {
        return false;
    }
    if (h.processes > 0) {
        snprintf(says, DOUBT_MAX, "other processes (%lld) have a context on the GPU",
                 (long long)h.processes);
    } else if (h.busy_percent > BUSY_PERCENT) {
        snprintf(says, DOUBT_MAX, "the GPU was busy for %lld %% of the time",
                 (long long)h.busy_percent);
    }
    return says[0] != '\0';
}

void conditions_note(struct device *d, struct trial *t)
{
    struct device_health h;
    if (conditions_read_health(d, &h)) {
        t->sm_mhz = h.sm_mhz;
        t->temperature_c = h.temperature_c;
        t->power_w = h.power_w;
        snprintf(t->throttle, sizeof(t->throttle), "%s", h.throttle);
    }
}

/* A trial is doubtful when the GPU lowered its clocks because of heat. It is not when the GPU
 * lowered them at its power limit: a large GPU normally runs at that limit, for all candidates
 * alike. */
void conditions_after(const struct trial *t, char doubt[DOUBT_MAX])
{
    if (!doubt[0] && (strstr(t->throttle, "thermal") || strstr(t->throttle, "hardware"))) {
        snprintf(doubt, DOUBT_MAX, "the GPU was throttled (%s) at %lld C and %lld MHz", t->throttle,
                 (long long)t->temperature_c, (long long)t->sm_mhz);
    }
}

uint64_t conditions_seed(const struct device *d, const struct request *q)
{
    const struct family *f = family_of_problem(&q->problem);
    const uint64_t asked = (uint64_t)q->query.seed;
    if (d && d->ops->rows_seed) {
        return d->ops->rows_seed(d, asked);
    }
    return f && f->wary_seed ? f->wary_seed(&q->problem, asked) : asked;
}

uint64_t conditions_drawn_seed(const struct device *d, const struct request *q, uint64_t seed)
{
    return d->ops->rows_seed ? (uint64_t)q->query.seed : seed;
}
