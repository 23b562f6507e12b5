/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the strategy `ranked`: ranked.c opens, closes and observes; ranked_steps.c decides
 * the proposals. */
#ifndef GEMMD_RUNNER_STRATEGY_RANKED_H
#define GEMMD_RUNNER_STRATEGY_RANKED_H

#include "runner/strategy/strategy.h"
#include "runner/strategy/surrogate.h"

enum { RANKED_STEP_MOST = 128 }; /* most proposals of a step; a step of the tail has this many */

enum stage { SEEDS, NEXT, RING, TAIL };

struct ranked_variant {
    bool used;               /* proposed or observed */
    bool arrived;            /* a config was observed, or the compile is not awaited */
    bool leads;              /* predicted the fastest of its tile */
    uint32_t representative; /* the candidate that is predicted fastest */
    double prior;            /* the logarithm of that prediction */
};

struct ranked_search {
    struct strategy base;
    const struct grid *grid;
    struct surrogate surrogate;
    const double *predicted;
    double *score; /* owned, by candidate; NaN: unknown */
    double best;   /* the lowest score; INFINITY: no score yet */
    uint32_t n_used, n_arrived, n_failed, n_known;
    uint32_t compilers;
    bool begun;           /* the first step has been taken */
    bool idle;            /* no proposal before the next observation */
    const double *effort; /* by candidate; NULL: 1 */
    const bool *present;  /* by candidate: compiled before the search; NULL: no variant was */
    /* compile effort of used variants; effort of failed variants, which is given back */
    double spent, given_back;
    double come;               /* compile effort of the arrived variants */
    struct ranked_variant *of; /* owned, by variant */
    /* most compile effort to use, in variants of mean effort; 0: as many as the budget */
    uint32_t variants;
    uint32_t n_seeds;
    enum stage stage;
    uint32_t next; /* tail: next candidate in the plan's order */
    uint32_t n_queue, at;
    uint32_t queue[RANKED_STEP_MOST];
};

/* ---- ranked_steps.c -------------------------------------------------------------------------- */

/* Compile effort of a candidate's variant; the mean of the space is 1. */
double ranked_effort(const struct ranked_search *s, uint32_t c);
/* Marks a variant as used: its candidate was proposed or measured. */
void ranked_use(struct ranked_search *s, uint32_t c);
/* Marks a candidate's variant as arrived: no compile is awaited. */
void ranked_arrive(struct ranked_search *s, uint32_t c);
/* True when it is time for the next decision. */
bool ranked_most_have_come(const struct ranked_search *s);
/* True when no new variant will be proposed, unless some variants fail. */
bool ranked_all_are_begun(const struct ranked_search *s);
/* Fills the queue with the next proposals; false: no proposal is left. */
bool ranked_decide(struct ranked_search *s);

#endif
