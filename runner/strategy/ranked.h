/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the strategy `ranked`: ranked.c opens, closes and observes; ranked_steps.c decides
 * the proposals. A variant is used once a candidate of it is proposed or observed, and has arrived
 * once it needs no further wait for its compile. */
#ifndef GEMMD_RUNNER_STRATEGY_RANKED_H
#define GEMMD_RUNNER_STRATEGY_RANKED_H

#include "runner/strategy/strategy.h"
#include "runner/strategy/surrogate.h"

enum { RANKED_STEP_MOST = 128 }; /* most proposals of a step; a step of stage TAIL has so many */

enum stage { SEEDS, NEXT, RING, TAIL };

struct ranked_variant {
    bool used;               /* proposed or observed */
    bool arrived;            /* a config was observed, or the search no longer waits for it */
    bool leads;              /* predicted the fastest variant of its tile (ranked.c) */
    uint32_t representative; /* the variant's candidate that is predicted fastest */
    double prior;            /* the logarithm of that candidate's predicted time */
};

struct ranked_search {
    struct strategy base;
    const struct grid *grid;
    struct surrogate surrogate;
    const double *predicted;
    double *score; /* owned, by candidate; NaN: unknown */
    double best;   /* the lowest score; INFINITY: no score yet */
    /* numbers of variants used and arrived; of candidates whose trial failed, and with a score */
    uint32_t n_used, n_arrived, n_failed, n_known;
    uint32_t compilers;   /* number of compilers that work in parallel */
    bool begun;           /* the first step has been taken */
    bool idle;            /* no proposal before the next observation */
    const double *effort; /* by candidate; NULL: 1 */
    const bool *present;  /* by candidate: compiled before the search; NULL: no variant was */
    /* compile effort of used variants; effort of failed candidates' variants, which further
     * variants may use */
    double spent, given_back;
    double come;               /* compile effort of the arrived variants */
    struct ranked_variant *of; /* owned, by variant */
    /* most compile effort to use, in variants of mean effort; 0: as many as the budget */
    uint32_t variants, variants_least;
    uint32_t n_seeds;
    enum stage stage;
    uint32_t next; /* stage TAIL: next candidate in the plan's order */
    uint32_t n_queue, at;
    uint32_t queue[RANKED_STEP_MOST];
};

/* ---- ranked_steps.c -------------------------------------------------------------------------- */

/* Predicted compile time of a candidate's variant; the unit is the mean of the space. */
double ranked_effort(const struct ranked_search *s, uint32_t c);
/* Marks a candidate's variant as used. */
void ranked_use(struct ranked_search *s, uint32_t c);
/* Marks a candidate's variant as arrived. */
void ranked_arrive(struct ranked_search *s, uint32_t c);
/* True when the next step need not wait: at most a fifth of the compilers are busy, and only with
 * slow compiles. */
bool ranked_most_have_come(const struct ranked_search *s);
bool ranked_none_waits(const struct ranked_search *s);
/* True when the compile effort is used up: no new variant will be proposed, unless a variant
 * fails. */
bool ranked_all_are_begun(const struct ranked_search *s);
/* Fills the queue with the next proposals; false: no proposal is left. */
bool ranked_decide(struct ranked_search *s);

#endif
