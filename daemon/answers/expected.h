/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a config of another row is expected to take at a problem, next to the analytic default.
 *
 * The model alone tells two configs of one problem apart; it errs by some per cent for each config.
 * A row adds evidence: at its own problem the config and that problem's default were both measured.
 *
 *   expected = model's ratio here * correction(measured ratio there / model's ratio there)
 *
 * A config that was slower there than the model says is taken to be that much slower here, too. One
 * that was faster is credited with less the farther away that problem is: with all of the logarithm
 * at the same problem, with half of it at twice the rows (docs/performance.md, "Lower tiers").
 */
#ifndef GEMMD_DAEMON_ANSWERS_EXPECTED_H
#define GEMMD_DAEMON_ANSWERS_EXPECTED_H

#include "daemon/daemon.h"

struct expected_at {
    const struct family_target *target;
    const struct problem *problem;
    double standard_us; /* what the model predicts for the default */
};

/* A measurement of the config. */
struct expected_evidence {
    const struct problem *problem;
    double ratio;    /* its time over the reference kernel's; NaN: not measured */
    double distance; /* of the problem: entry_distance() */
};

/* Time of the config over that of the default; NaN: the model cannot tell. `enough`: a ratio that
 * no evidence can bring down to this is returned as the model has it. Uses scratch->config. */
double expected_ratio(struct daemon *d, const struct expected_at *at, const struct record *config,
                      const struct expected_evidence *e, double enough);

#endif
