/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a precompile_plan (precompile.h) is filled: what its files share. From the ground up: plan.c,
 * its variants; search.c, those of a search; problems.c, which searches.
 */
#ifndef GEMMD_RUNNER_PRECOMPILE_PLAN_H
#define GEMMD_RUNNER_PRECOMPILE_PLAN_H

#include "proto/request.h"
#include "runner/precompile/precompile.h"

/* plan.c: a problem with the device's own kernels for it; variants of the last problem. */
int precompile_add_problem(struct precompile_plan *p, const struct precompile_problem *w,
                           struct error *err);
int precompile_add_point(struct precompile_plan *p, const struct space_point *at, uint32_t rank,
                         struct error *err);
int precompile_add_config(struct precompile_plan *p, const struct record *config, uint32_t rank,
                          struct error *err);
/* When all are in it. */
void precompile_put_in_order(struct precompile_plan *p);

/* search.c: the variants of a search in its own order, through these. ERROR_NO_CONFIG: no
 * target of the device takes the problem, or not the one that is asked for, or nothing is left of
 * the space. */
int precompile_add_search(struct precompile_plan *p, const struct precompile_setup *s,
                          const struct request *r, struct error *err);

#endif
