/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portfolio of what the store knows: for each group of shapes a small set of configs that
 * leaves none of them more than a bound behind its best (portfolio_members.c). A group is what
 * configs can be shared in: device class, op, mode, types, and the stamp of the trials, since times
 * of other code say nothing about today's. Evidence are good trials, each relative to its run's
 * reference kernel; of a key and config the newest counts.
 *
 * Listed like a table, one row for each shape, in groups (docs/store.md, "portfolio"). It is made
 * anew when the database has changed since, and kept for the next page.
 */
#ifndef GEMMD_STORE_PORTFOLIO_H
#define GEMMD_STORE_PORTFOLIO_H

#include "store/inner.h"

/* ---- portfolio_members.c -------------------------------------------------------------------- */

/*
 * A portfolio: few configs, so that each shape has one among them that takes at most (1 + bound) as
 * long as the best known for it. Finding the smallest such set is set cover, which is hard; this is
 * the greedy way (the config that covers most of what is left, again and again), which is at most
 * 1 + ln(shapes) times larger, and then whatever the others make superfluous is dropped. The
 * outcome depends on nothing but the numbers: ties go to the smaller sum of regrets, then to the
 * lower index.
 */

/* What a config takes for a shape, in any unit that is one for that shape. Above 0. */
struct portfolio_pair {
    uint32_t shape, config;
    double time;
};

struct portfolio_choice {
    uint32_t config; /* the member that is best for the shape */
    uint32_t place;  /* of that member, by how many shapes it covered when it was chosen; from 0 */
    double regret;   /* its time / the best time - 1; at most the bound */
    double time;     /* as the pair has it */
};

/* choices: one for each shape 0..n_shapes-1, each of which has a pair; no (shape, config) stands
 * twice. *members: how many configs are in the set. ERROR_NO_MEMORY. */
int portfolio_choose_members(const struct portfolio_pair *pairs, size_t n, uint32_t n_shapes,
                             uint32_t n_configs, double bound, struct portfolio_choice *choices,
                             uint32_t *members, struct error *err);

/* ---- portfolio.c ---------------------------------------------------------------------------- */

/* Makes the temporary view `portfolio` anew where the database has changed since, or the filter's
 * `bound` (percent, default 5) is another one. */
int portfolio_refresh(struct store *s, const struct record *filter, struct error *err);

#endif
