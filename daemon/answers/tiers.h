/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tiers below `exact`. Each candidate is checked against the query's unrounded problem, since
 * another bucket's config may be invalid for it. A config that the request excludes (by target,
 * `restrict` or `configs`) answers in no tier.
 *
 * A row's config answers only when model and measurements expect the config to be no slower than
 * the default (is_no_slower in tiers.c). The first such config answers. Otherwise the default
 * answers, and its note names the nearest rejected row. Two kinds of rows answer without this
 * comparison: this key's own row if measured with today's kernels, and pins.
 *
 *   near      this key's own row that cannot answer exactly (measured with other kernels, imported,
 *             or verified less tightly than asked); else the best row of the nearest bucket with a
 *             row verified as tightly as asked. A user's `put` answers only that user
 *   portfolio the portfolio's member (portfolio.h) that is best for the nearest known shape of this
 *             op, mode and types; permutes and fusions may differ
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

/*
 * Answers from the best lower tier.
 *
 *   bucket  NULL: only the default, which depends on no measurement
 *   uid     the caller
 *   why     for people: the reason why no exact answer is given
 *   origin  may be NULL; receives the id of the key of the row that answers, or "" for the default
 *
 * ERROR_NOT_FOUND: a custom op. ERROR_NO_CONFIG: no config is valid, or the device has no kernels.
 * ERROR_QUARANTINED: the default is in quarantine.
 */
int tiers_answer(struct tiers *t, const struct request *request, int64_t uid,
                 const struct problem *bucket, const struct key *k, const char *why,
                 struct answer *out, char origin[HASH_HEX], struct error *err);
/* Finds hints: configs of the target, valid for the bucket, that a search tries first. Sources: the
 * key's old configs, an alike class, neighbours, the portfolio. Returns the number written to out.
 */
size_t tiers_hints(struct tiers *t, const struct problem *bucket, const struct key *k,
                   const char *target, size_t max, struct record *out);
/* Returns the reason that keeps a key's own row `a` from being a hint for the target (NULL or "":
 * the device's choice); NULL when a tuning tries the row first. */
const char *tiers_no_hint(struct daemon *d, const struct problem *bucket, const char *target,
                          const struct answer *a);

#endif
