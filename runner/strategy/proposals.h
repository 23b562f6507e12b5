/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The books that every strategy keeps: which candidates are spoken for, how many proposals are out,
 * how many more there may be. A proposal that failed (did not compile, was wrong) was not a
 * measurement, so it is given back; at most as many as the limit, so that a space where nothing
 * works ends too.
 *
 * A candidate that is coming anyway (a hint, the reference), or was observed without having been
 * proposed (an earlier run), is taken: it costs nothing here.
 */
#ifndef GEMMD_RUNNER_STRATEGY_PROPOSALS_H
#define GEMMD_RUNNER_STRATEGY_PROPOSALS_H

#include "runner/strategy/strategy.h"

struct proposals {
    uint32_t n;
    uint32_t limit;   /* that may be out or have worked */
    uint32_t refunds; /* failed ones that may still be given back */
    uint32_t spent;
    uint32_t out;   /* proposed and not yet observed */
    uint8_t *state; /* owned; by candidate */
};

int proposals_init(struct proposals *p, const struct strategy_setup *s, uint32_t limit,
                   struct error *err);
void proposals_deinit(struct proposals *p);

bool proposals_taken(const struct proposals *p, uint32_t candidate);
bool proposals_is_out(const struct proposals *p, uint32_t candidate);
/* Whether another one may be proposed: 0; STRATEGY_WAIT: when one that is out fails;
 * STRATEGY_DONE. */
int proposals_allow(const struct proposals *p);
void proposals_take(struct proposals *p, uint32_t candidate);  /* allowed, and not taken */
void proposals_spare(struct proposals *p, uint32_t candidate); /* it is not waited for any more */
void proposals_observe(struct proposals *p, uint32_t candidate, const struct observation *o);

#endif
