/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search strategy: proposes which config to measure next, and observes what came of it. It knows
 * candidates by number, in the order of the plan (0 is predicted fastest; points alike do not all
 * come first), and as points of the space. It needs no device, is deterministic given its seed and
 * what it observes, and takes what earlier runs observed for its own, so a search that was cut off
 * goes on where it was.
 *
 *   ranked      the model's best variants, then what these teach to hope for (ranked.c)
 *   genetic     generations bred from the best so far (genetic.c)
 *   exhaustive  the order of the plan; budget 0 means all
 *   random      a seeded shuffle of the space, whatever the plan made of it, up to the budget
 *   given       the order of the list, all of it
 *
 * Several proposals may be out at once (they are being compiled); observations come in any order.
 */
#ifndef GEMMD_RUNNER_STRATEGY_STRATEGY_H
#define GEMMD_RUNNER_STRATEGY_STRATEGY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

enum {
    STRATEGY_WAIT = 1, /* nothing until an observation comes */
    STRATEGY_DONE = 2, /* nothing any more */
};

struct space;
struct strategy;

struct strategy_setup {
    uint32_t n;                 /* candidates */
    const double *predicted_us; /* borrowed until close; in the order of the candidates */
    const struct space *space;  /* borrowed until close; NULL: they are just a list */
    const uint32_t *point;      /* the same: of each candidate */
    /* Borrowed until close: how long each one's variant takes to compile, in times of the space's
     * mean. NULL: all alike. */
    const double *effort;
    /* The same: its variant is compiled already. NULL: none is known to be. */
    const bool *present;
    uint32_t budget; /* configs to measure at most: a proposal that fails is given back, once
                        each; 0: all (exhaustive); given: the whole list */
    /* Variants of mean effort to compile, and then to stop; 0: the budget is to be used up. */
    uint32_t variants;
    uint32_t compilers; /* that work side by side; 0: one */
    uint64_t seed;
    /* Borrowed for open: measured whatever it proposes (hints, the reference), so it never does.
     * What is not below n is no candidate. */
    const uint32_t *coming;
    uint32_t n_coming;
    /* The same: its own proposals of an earlier order, on their way: they will be observed, or
     * spared, as if it had just made them. */
    const uint32_t *begun;
    uint32_t n_begun;
};

struct observation {
    bool ok;      /* it has a time, also when it was stopped early because it was slow */
    double score; /* when ok: lower is better; comparable in one search */
};

struct strategy_ops {
    const char *name;
    int (*open)(const struct strategy_setup *s, struct strategy **out, struct error *err);
    void (*close)(struct strategy *s);
    /* 0 and *candidate, STRATEGY_WAIT, or STRATEGY_DONE. Never the same candidate twice. */
    int (*propose)(struct strategy *s, uint32_t *candidate);
    void (*observe)(struct strategy *s, uint32_t candidate, const struct observation *o);
    /* A proposal that is still being compiled, when there is nothing else to do. True: it is not
     * worth waiting for, and will never be observed. NULL: all are. */
    bool (*spare)(struct strategy *s, uint32_t candidate);
};

struct strategy { /* embedded first */
    const struct strategy_ops *ops;
};

const struct strategy_ops *strategy_find(const char *name); /* NULL: unknown */
/* "ranked, exhaustive, ... or given", for sentences. */
const char *strategy_names(void);

extern const struct strategy_ops ranked_strategy, genetic_strategy;

/*
 * The books that every strategy keeps: which candidates are spoken for, how many proposals are out,
 * how many more there may be. A proposal that failed (did not compile, was wrong) was not a
 * measurement, so it is given back; at most as many as the limit, so that a space where nothing
 * works ends too.
 *
 * A candidate that is coming anyway (a hint, the reference), or was observed without having been
 * proposed (an earlier run), is taken: it costs nothing here.
 */

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
