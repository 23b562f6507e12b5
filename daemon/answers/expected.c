/* SPDX-License-Identifier: Apache-2.0 */
/* The model's ratio, corrected by measurements (tiers.h). */
#include <math.h>

#include "daemon/answers/tiers.h"

static const double LEAST = 0.5; /* lower bound of the correction */

/* Returns the correction; 1 without a measurement. */
static double expected_correct_model(struct daemon *d, const struct family_target *t,
                                     const struct record *config, const struct expected_evidence *e)
{
    double standard;
    if (!(e->ratio > 0) ||
        defaults_choose(&d->defaults, t, e->problem, &d->scratch->config, &standard, NULL) < 0) {
        return 1;
    }
    double missed = e->ratio * standard / t->predict(e->problem, config, &d->device, NULL);
    if (!(missed > 0) || !isfinite(missed)) {
        return 1;
    }
    return missed > 1 ? missed : pow(fmax(missed, LEAST), 1 / (1 + e->distance));
}

double expected_ratio(struct daemon *d, const struct expected_at *at, const struct record *config,
                      const struct expected_evidence *e, double enough)
{
    double ratio = at->target->predict(at->problem, config, &d->device, NULL) / at->standard_us;
    bool in_reach = ratio * pow(LEAST, 1 / (1 + e->distance)) <= enough;
    return in_reach ? ratio * expected_correct_model(d, at->target, config, e) : ratio;
}
