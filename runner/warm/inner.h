/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a warm_plan (warm.h) is filled: what its files share. From the ground up: plan.c, its
 * variants; search.c, those of a search; problems.c, which searches.
 */
#ifndef GEMMD_RUNNER_WARM_INNER_H
#define GEMMD_RUNNER_WARM_INNER_H

#include "proto/request.h"
#include "runner/warm/warm.h"

/* plan.c: a problem with the device's own kernels for it; variants of the last problem. */
int warm_add_problem(struct warm_plan *p, const struct warm_problem *w, struct error *err);
int warm_add_point(struct warm_plan *p, const struct space_point *at, uint32_t rank,
                   struct error *err);
int warm_add_config(struct warm_plan *p, const struct record *config, uint32_t rank,
                    struct error *err);
/* When all are in it. */
void warm_put_in_order(struct warm_plan *p);

/* search.c: the variants of a search in its own order, through these. ERROR_NO_CONFIG: no
 * target of the device takes the problem, or not the one that is asked for, or nothing is left of
 * the space. */
int warm_add_search(struct warm_plan *p, const struct warm_setup *s, const struct request *r,
                    struct error *err);

#endif
