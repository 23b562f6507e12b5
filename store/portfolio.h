/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portfolio of the store: for each group of shapes, a small set of configs, so that no shape
 * takes longer than its best time plus a bound in percent (portfolio_members.c). A group shares
 * device class, op, mode, types, and the stamp (kernel version) of the trials: times of other
 * kernel versions are left out. The evidence is good trials, as time ratios to the reference kernel
 * of the run; only the newest trial of a key and config is used.
 *
 * The portfolio is listed like a table, with a row for each shape, in groups (docs/store.md,
 * "portfolio"). The portfolio is made anew after the database has changed, and kept for the next
 * page.
 */
#ifndef GEMMD_STORE_PORTFOLIO_H
#define GEMMD_STORE_PORTFOLIO_H

#include "store/inner.h"

/* ---- portfolio_members.c -------------------------------------------------------------------- */

/*
 * A portfolio is a small set of configs. Each shape has a member that takes at most (1 + bound)
 * times as long as the shape's best. Finding the smallest set is set cover, which is hard. The
 * greedy algorithm takes the config that covers most uncovered shapes, again and again. Its set is
 * at most 1 + ln(shapes) times larger. Then superfluous members are dropped. The result depends on
 * the numbers only: ties go to the smaller sum of regrets, then to the lower index.
 */

/* Time of a config for a shape, above 0, in any unit that is the same for all pairs of the
 * shape. */
struct portfolio_pair {
    uint32_t shape, config;
    double time;
};

struct portfolio_choice {
    uint32_t config; /* the member that is best for the shape */
    uint32_t place;  /* rank of the member in the order of choice; from 0 */
    double regret;   /* its time / the best time - 1; at most the bound */
    double time;     /* time of the pair */
};

/* Fills `choices`, an entry for each shape 0..n_shapes-1. Each shape has a pair, and no (shape,
 * config) occurs twice. *members: number of configs in the set. ERROR_NO_MEMORY. */
int portfolio_choose_members(const struct portfolio_pair *pairs, size_t n, uint32_t n_shapes,
                             uint32_t n_configs, double bound, struct portfolio_choice *choices,
                             uint32_t *members, struct error *err);

/* ---- portfolio.c ---------------------------------------------------------------------------- */

/* Makes the temporary view `portfolio` anew when the database has changed since the last call, or
 * the filter has another `bound` (percent, default 5). */
int portfolio_refresh(struct store *s, const struct record *filter, struct error *err);

#endif
