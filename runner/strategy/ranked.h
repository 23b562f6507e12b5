/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strategy `ranked`, inside: ranked.c is its life and what it observes, ranked_steps.c
 * what it proposes.
 */
#ifndef GEMMD_RUNNER_STRATEGY_RANKED_H
#define GEMMD_RUNNER_STRATEGY_RANKED_H

#include "runner/strategy/strategy.h"
#include "runner/strategy/surrogate.h"

enum { RANKED_STEP_MOST = 128 }; /* proposals of a step; the tail has so many */

enum stage { SEEDS, NEXT, RING, TAIL };

struct ranked_search {
    struct strategy base;
    struct proposals books;
    struct grid grid;
    struct surrogate surrogate;
    bool flat; /* candidates are just a list: there is nothing but the tail */
    const double *predicted;
    double *score; /* owned, by candidate: NaN: not known */
    double best;   /* the least score; INFINITY: there is none */
    bool *used;    /* owned, by variant: it has been proposed, or observed */
    bool *arrived; /* owned, by variant: one of it has been observed, or is not waited for */
    uint32_t n_used, n_arrived, n_failed, n_known;
    uint32_t compilers;
    bool begun;               /* the first step has been taken */
    bool idle;                /* nothing can be proposed until something is observed */
    const double *effort;     /* by candidate; NULL: 1 */
    const bool *present;      /* by candidate: its variant was compiled before; NULL: none was */
    double spent, given_back; /* effort: of used variants; of failed ones */
    double come;              /* effort: of those that have arrived */
    uint32_t *representative; /* owned, by variant: the candidate that is predicted fastest */
    double *prior;            /* owned, by variant: the logarithm of that prediction */
    bool *leads;              /* owned, by variant: it is predicted fastest of its tile */
    uint32_t variants;        /* at most; 0: as many as the budget */
    uint32_t n_seeds;
    enum stage stage;
    uint32_t next; /* of the plan's order, for the tail */
    uint32_t n_queue, at;
    uint32_t queue[RANKED_STEP_MOST];
};

/* ---- ranked_steps.c -------------------------------------------------------------------------- */

uint32_t ranked_variant(const struct ranked_search *s, uint32_t c);
/* Of compiling a candidate's variant, in times of the space's mean. */
double ranked_effort(const struct ranked_search *s, uint32_t c);
/* A candidate is proposed, or was measured whoever proposed it. */
void ranked_use(struct ranked_search *s, uint32_t c);
/* A candidate's variant is not on its way any more. */
void ranked_arrive(struct ranked_search *s, uint32_t c);
/* Time for a decision. */
bool ranked_most_have_come(const struct ranked_search *s);
/* No new variant will be proposed, unless some fail. */
bool ranked_all_are_begun(const struct ranked_search *s);
/* Fills the queue with what is next; false: nothing is. */
bool ranked_decide(struct ranked_search *s);

#endif
