/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search strategy proposes which config to measure next and observes the result. The strategy
 * knows candidates by number, in the order of the plan, and as points of the space. Candidate 0 is
 * predicted fastest; similar points do not all come first. A strategy needs no device. Its
 * proposals depend only on its seed and its observations. Observations of earlier runs count like
 * its own, so an interrupted search goes on at the same place.
 *
 *   ranked      the model's best variants, then those that measurements favour (ranked.c)
 *   genetic     generations bred from the best so far (genetic.c)
 *   exhaustive  the order of the plan; budget 0 means all
 *   random      a seeded shuffle of the space, independent of the plan's order
 *   given       the order of the list, all of the list
 *
 * Several proposals may be out (proposed and not yet observed) at once, for example while their
 * variants compile. Observations come in any order.
 */
#ifndef GEMMD_RUNNER_STRATEGY_STRATEGY_H
#define GEMMD_RUNNER_STRATEGY_STRATEGY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

enum {
    STRATEGY_WAIT = 1, /* no proposal until the next observation */
    STRATEGY_DONE = 2, /* no more proposals */
};

struct space;
struct strategy;

struct strategy_setup {
    uint32_t n;                 /* candidates */
    const double *predicted_us; /* borrowed until close; in the order of the candidates */
    const struct space *space;  /* borrowed until close; NULL: a list without parameters */
    const uint32_t *point;      /* borrowed until close: the point of each candidate */
    /* Borrowed until close: compile effort of each candidate's variant; the mean of the space is 1.
     * NULL: equal efforts. */
    const double *effort;
    /* Borrowed until close: the candidate's variant is compiled already. NULL: no variant is. */
    const bool *present;
    uint32_t budget; /* configs to measure at most; each failed proposal is given back once. 0: all
                      * (exhaustive); given: the whole list */
    /* Stop after compiles of this total effort; 0: use up the budget. */
    uint32_t variants;
    uint32_t compilers; /* number of compilers that work in parallel; 0: one */
    uint64_t seed;
    /* Borrowed for open: candidates that are measured anyway (hints, the reference); the strategy
     * never proposes them. Numbers from n up are ignored. */
    const uint32_t *coming;
    uint32_t n_coming;
    /* Borrowed for open: proposals of an earlier order that are still out. They will be observed or
     * spared like new proposals. */
    const uint32_t *begun;
    uint32_t n_begun;
};

struct observation {
    /* the config has a time, also when its trial was stopped early because it was slow */
    bool ok;
    double score; /* the score of an ok trial: lower is better; comparable within one search */
};

struct strategy_ops {
    const char *name;
    int (*open)(const struct strategy_setup *s, struct strategy **out, struct error *err);
    void (*close)(struct strategy *s);
    /* Returns 0 and *candidate, STRATEGY_WAIT, or STRATEGY_DONE. Proposes no candidate twice. */
    int (*propose)(struct strategy *s, uint32_t *candidate);
    void (*observe)(struct strategy *s, uint32_t candidate, const struct observation *o);
    /* Called for a proposal that is still being compiled when the search has nothing else to do.
     * True: the proposal is not worth the wait, and will never be observed. NULL: every proposal
     * is awaited. */
    bool (*spare)(struct strategy *s, uint32_t candidate);
};

struct strategy { /* first member of every strategy */
    const struct strategy_ops *ops;
};

const struct strategy_ops *strategy_find(const char *name); /* NULL: unknown */
/* "ranked, exhaustive, ... or given", for error messages. */
const char *strategy_names(void);

extern const struct strategy_ops ranked_strategy, genetic_strategy;

/*
 * Bookkeeping for every strategy: which candidates are taken, how many proposals are out, how many
 * more are allowed. A failed proposal (its compile failed, its result was wrong) is no measurement,
 * so its budget is given back. At most `limit` failures are given back, so that a space where
 * nothing works ends too.
 *
 * A candidate that is measured anyway (a hint, the reference) or was observed without a proposal
 * (an earlier run) is taken and costs no budget here.
 */

struct proposals {
    uint32_t n;
    uint32_t limit;   /* proposals that may be out or have worked */
    uint32_t refunds; /* failures that may still be given back */
    uint32_t spent;
    uint32_t out;   /* proposed and not yet observed */
    uint8_t *state; /* owned; by candidate */
};

int proposals_init(struct proposals *p, const struct strategy_setup *s, uint32_t limit,
                   struct error *err);
void proposals_deinit(struct proposals *p);

bool proposals_taken(const struct proposals *p, uint32_t candidate);
bool proposals_is_out(const struct proposals *p, uint32_t candidate);
/* 0: another proposal is allowed. STRATEGY_WAIT: only after a failure of a proposal that is out.
 * STRATEGY_DONE. */
int proposals_allow(const struct proposals *p);
void proposals_take(struct proposals *p, uint32_t candidate);  /* must be allowed and not taken */
void proposals_spare(struct proposals *p, uint32_t candidate); /* stop waiting for the candidate */
void proposals_observe(struct proposals *p, uint32_t candidate, const struct observation *o);

#endif
