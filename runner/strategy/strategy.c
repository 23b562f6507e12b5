/* SPDX-License-Identifier: Apache-2.0 */
/* The table of strategies, their common base, and the strategies that walk a fixed order of the
 * candidates and ignore observations. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/family.h"
#include "runner/strategy/strategy.h"

enum { TAKEN = 1, OUT = 2 };

/* ---- walks ----------------------------------------------------------------------------------- */

struct walk {
    struct strategy base;
    uint32_t next;   /* position in the order */
    uint32_t *order; /* owned; NULL: 0, 1, 2 ... */
};

static void walk_end(struct strategy *s)
{
    free(((struct walk *)s)->order);
}

static int walk_propose(struct strategy *s, uint32_t *candidate)
{
    struct walk *w = (struct walk *)s;
    for (; w->next < s->n; w->next++) {
        uint32_t c = w->order ? w->order[w->next] : w->next;
        if (!strategy_has_taken(s, c)) {
            return strategy_take(s, c, candidate);
        }
    }
    return STRATEGY_DONE;
}

/* Shuffles the order of the space, not of the plan. A better model changes the plan's order, but
 * the same seed must give the same configs. */
static int walk_shuffle(struct strategy *s, const struct strategy_setup *setup, struct error *err)
{
    struct walk *w = (struct walk *)s;
    const struct grid *g = setup->grid;
    uint64_t seed = setup->seed;
    w->order = malloc((s->n + 1) * sizeof(*w->order));
    if (!w->order) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", s->n);
    }
    for (uint32_t point = 0, n = 0; point < g->space->n; point++) {
        w->order[n] = g->rank[point];
        n += g->rank[point] != GRID_NONE;
    }
    for (uint32_t i = s->n; i > 1; i--) { /* Fisher-Yates */
        const uint32_t j = (uint32_t)(random_unit(&seed) * i), last = w->order[i - 1];
        w->order[i - 1] = w->order[j];
        w->order[j] = last;
    }
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define WALK .size = sizeof(struct walk), .end = walk_end, .propose = walk_propose
static const struct strategy_ops exhaustive_strategy = {.name = "exhaustive", WALK},
                                 random_strategy = {.name = "random", .begin = walk_shuffle, WALK},
                                 given_strategy = {.name = "given", WALK};

static const struct strategy_ops *const all[] = {
    &ranked_strategy, &exhaustive_strategy, &random_strategy, &genetic_strategy, &given_strategy,
};

static const struct strategy_ops *strategy_find(const char *name)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i]->name, name) == 0) {
            return all[i];
        }
    }
    return name[0] ? NULL : &ranked_strategy;
}

/* ---- the base -------------------------------------------------------------------------------- */

static void strategy_begin(struct strategy *s, const struct strategy_setup *setup)
{
    s->limit = s->refunds = setup->budget ? setup->budget : setup->n;
    for (uint32_t i = 0; i < setup->n_coming; i++) {
        if (setup->coming[i] < s->n) {
            s->state[setup->coming[i]] = TAKEN;
        }
    }
    for (uint32_t i = 0, c; i < setup->n_begun; i++) {
        if (!strategy_has_taken(s, setup->begun[i])) {
            strategy_take(s, setup->begun[i], &c);
        }
    }
}

int strategy_open(const char *name, const struct strategy_setup *setup, struct strategy **out,
                  struct error *err)
{
    const struct strategy_ops *ops = strategy_find(name);
    if (!ops) {
        return error_set(
            err, ERROR_INVALID,
            "unknown strategy \"%s\": use ranked, exhaustive, random, genetic or given", name);
    }
    struct strategy *s = calloc(1, ops->size);
    uint8_t *state = calloc(setup->n + 1, sizeof(*state));
    if (!s || !state) {
        free(s);
        free(state);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", setup->n);
    }
    s->ops = ops;
    s->n = setup->n;
    s->state = state;
    strategy_begin(s, setup);
    int r = ops->begin ? ops->begin(s, setup, err) : 0;
    if (r) {
        strategy_close(s);
        return r;
    }
    *out = s;
    return 0;
}

void strategy_close(struct strategy *s)
{
    if (s) {
        s->ops->end(s);
        free(s->state);
        free(s);
    }
}

bool strategy_has_taken(const struct strategy *s, uint32_t candidate)
{
    return s->state[candidate] & TAKEN;
}

bool strategy_is_out(const struct strategy *s, uint32_t candidate)
{
    return s->state[candidate] & OUT;
}

int strategy_take(struct strategy *s, uint32_t candidate, uint32_t *out)
{
    assert(candidate < s->n && !strategy_has_taken(s, candidate));
    if (s->spent == s->limit) {
        return s->out > 0 && s->refunds > 0 ? STRATEGY_WAIT : STRATEGY_DONE;
    }
    s->state[candidate] = TAKEN | OUT;
    s->spent++;
    s->out++;
    *out = candidate;
    return 0;
}

void strategy_give_up(struct strategy *s, uint32_t candidate)
{
    s->state[candidate] = TAKEN;
    s->out--;
}

void strategy_observe(struct strategy *s, uint32_t candidate, const struct observation *o)
{
    assert(candidate < s->n);
    const bool ours = strategy_is_out(s, candidate), refund = ours && !o->ok && s->refunds > 0;
    s->state[candidate] = TAKEN;
    s->out -= ours;
    s->refunds -= refund;
    s->spent -= refund;
    if (s->ops->learn) {
        s->ops->learn(s, candidate, o);
    }
}
