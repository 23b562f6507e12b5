/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tiers below exact. Each candidate is checked against the true problem before it is an answer:
 * a config that another bucket likes may not even be valid here, and what the request does not
 * allow (its target, `restrict`, `configs`) answers it in no tier.
 *
 * A row's config answers only where model and measurements expect it to be no slower than the
 * default (expected.c). The first that is answers; the default's note names the nearest that is
 * not. Two rows are not judged: one that was measured by today's code for this key, and a person's
 * pin.
 *
 *   near      this key's own row that is not an answer any more or yet (another stamp, imported,
 *             verified less tightly than is asked); else the best of the nearest bucket that was
 *             verified as tightly as is asked. What a user has put answers that user alone
 *   portfolio the member of the portfolio (portfolio.h) that is best for the nearest known shape of
 *             this op, mode and types, whose permutes and fusions may be others
 *   default   the analytic choice
 */
#ifndef GEMMD_DAEMON_ANSWERS_TIERS_H
#define GEMMD_DAEMON_ANSWERS_TIERS_H

#include "daemon/daemon.h"
#include "daemon/answers/portfolio.h"

struct tiers {
    struct daemon *daemon; /* borrowed */
    struct portfolio portfolio;
};

/* `request`: its true problem, and what it allows. `uid`: who asks. `why` is for people: why there
 * is no exact answer now. `origin`, unless NULL: the id of the key whose row the answer comes from;
 * "": from no row. `bucket` NULL: the last tier only, which depends on nothing that was measured.
 * ERROR_NOT_FOUND: an op that gemmd only keeps; ERROR_NO_CONFIG: nothing is valid, or no kernels
 * for this device. */
int tiers_answer(struct tiers *t, const struct request *request, int64_t uid,
                 const struct problem *bucket, const struct key *k, const char *why,
                 struct answer *out, char origin[HASH_HEX], struct error *err);
/* Configs worth trying first for a key: its own old ones, that of a class that is alike, the
 * neighbours', members of the portfolio. Returns how many were written to out; each is valid for
 * the bucket, and of the target that does it. */
size_t tiers_hints(struct tiers *t, const struct problem *bucket, const struct key *k,
                   const char *target, size_t max, struct record *out);
/* Why a key's own row, `a`, is none of these for the target (NULL or "": the device's choice);
 * NULL: it is one, and a tuning tries it first. */
const char *tiers_no_hint(struct daemon *d, const struct problem *bucket, const char *target,
                          const struct answer *a);

/* ---- expected.c ------------------------------------------------------------------------------ */

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
