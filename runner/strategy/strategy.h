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
#include <stddef.h>
#include <stdint.h>

#include "kernels/space.h"

/* ---- grid.c ---------------------------------------------------------------------------------- */

/* Candidates of a strategy as points of a space: which candidates share a variant, in how many
 * parameters two candidates differ, and which candidate a point is. A point (struct space_point)
 * has the number of a value for each parameter. */

#define GRID_NONE UINT32_MAX
enum { VARIANTS_LEAST = 8 }; /* variants that a search compiles at least */

struct grid {
    const struct space *space; /* borrowed */
    const uint32_t *point;     /* borrowed: each candidate's place in space->points */
    uint32_t n;                /* number of candidates */
    uint32_t n_compile;        /* number of compile-time parameters; run-time parameters follow */
    uint32_t *rank; /* owned: candidate, by point; GRID_NONE: the point is no candidate */
    uint32_t
        *variant; /* owned: variant number, by candidate; numbered in the order of the points */
    uint32_t n_variants;
};

int grid_init(struct grid *g, const struct space *space, const uint32_t *point, uint32_t n,
              struct error *err);
void grid_deinit(struct grid *g);

const struct space_point *grid_at(const struct grid *g, uint32_t candidate);
/* Returns the candidate at a point; GRID_NONE: the point is no candidate. */
uint32_t grid_find(const struct grid *g, const struct space_point *at);
/* The number of parameters in which the variants of two candidates differ. */
uint32_t grid_compile_distance(const struct grid *g, uint32_t a, uint32_t b);
/* The number of run-time parameters in which two candidates differ. */
uint32_t grid_settings_distance(const struct grid *g, uint32_t a, uint32_t b);

/* ---- strategy.c ------------------------------------------------------------------------------ */

enum {
    STRATEGY_WAIT = 1, /* no proposal until the next observation */
    STRATEGY_DONE = 2, /* no more proposals */
};

struct strategy;

struct strategy_setup {
    uint32_t n;                 /* number of candidates */
    const double *predicted_us; /* borrowed until close; by candidate */
    const struct grid *grid;    /* borrowed until close; NULL: strategy "given", which has a list */
    /* Borrowed until close: predicted compile time of each candidate's variant; the unit is the
     * mean of the space. NULL: equal efforts. */
    const double *effort;
    /* Borrowed until close: by candidate, true when the cache directory has its variant. NULL: has
     * no variant. */
    const bool *present;
    /* configs to measure at most; each failed proposal is given back once. 0: all */
    uint32_t budget;
    /* Start no compile when the efforts (see `effort`) of all started compiles add up to this; 0:
     * use up the budget. */
    uint32_t variants;
    uint32_t variants_least; /* the least `variants` of any space; 0: VARIANTS_LEAST */
    uint32_t compilers;      /* number of compilers that work in parallel; 0: one */
    uint64_t seed;
    /* Borrowed for open: candidates that the search measures by itself (hints, the reference); the
     * strategy never proposes them. Numbers from n up (configs that are not ranked) are ignored. */
    const uint32_t *coming;
    uint32_t n_coming;
    /* Borrowed for open: proposals of an earlier order that are still out, since the search was set
     * aside. They will be observed or spared like new proposals. */
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
    size_t size; /* of the strategy's struct */
    /* Prepares a zeroed struct whose base is ready. NULL: nothing to do. After an error,
     * strategy_open calls `end`. */
    int (*begin)(struct strategy *s, const struct strategy_setup *setup, struct error *err);
    void (*end)(struct strategy *s); /* frees all but the base */
    /* Returns 0 and *candidate, STRATEGY_WAIT, or STRATEGY_DONE. Proposes no candidate twice. */
    int (*propose)(struct strategy *s, uint32_t *candidate);
    /* Learns from an observation, which the base has already counted. NULL: ignores observations.
     */
    void (*learn)(struct strategy *s, uint32_t candidate, const struct observation *o);
    /* Called for a proposal that is still being compiled when the search has nothing else to do.
     * True: the search shall drop the proposal and will never observe it. NULL: the search waits
     * for every proposal. */
    bool (*spare)(struct strategy *s, uint32_t candidate);
};

/*
 * The base, which is the first member of every strategy's struct, counts: which candidates are
 * taken, how many proposals are out, how many more are allowed. A failed proposal (its compile
 * failed, its result was wrong) is no measurement, so its budget is given back. At most `limit`
 * failures are given back, so that a space where nothing works ends too.
 *
 * A candidate that the search measures by itself (a hint, the reference), or that was observed
 * without a proposal (by an earlier run), is taken and costs no budget here.
 */
struct strategy {
    const struct strategy_ops *ops;
    uint32_t n;
    uint32_t limit;   /* proposals that may be out or have worked */
    uint32_t refunds; /* failures that may still be given back */
    uint32_t spent;   /* proposals that are out or have worked; up to `limit` */
    uint32_t out;     /* proposals that are not yet observed */
    uint8_t *state;   /* owned; of each candidate the flags TAKEN and OUT (strategy.c) */
};

/* Opens the strategy of this name; "": ranked. ERROR_INVALID: unknown. */
int strategy_open(const char *name, const struct strategy_setup *setup, struct strategy **out,
                  struct error *err);
void strategy_close(struct strategy *s); /* s may be NULL */
void strategy_observe(struct strategy *s, uint32_t candidate, const struct observation *o);

/* ---- for strategies -------------------------------------------------------------------------- */

extern const struct strategy_ops ranked_strategy, genetic_strategy;

bool strategy_has_taken(const struct strategy *s, uint32_t candidate);
bool strategy_is_out(const struct strategy *s, uint32_t candidate);
/* A candidate is *taken* once a strategy has proposed it, and *out* until its result is observed.
 * Proposes `candidate`, which must not be taken: sets *out to it and returns 0. STRATEGY_WAIT: the
 * budget is used up, unless a proposal that is out fails. STRATEGY_DONE: the budget is used up. */
int strategy_take(struct strategy *s, uint32_t candidate, uint32_t *out);
/* Ends a proposal that will not be observed: the candidate is no longer out, but stays taken. */
void strategy_give_up(struct strategy *s, uint32_t candidate);

#endif
