/* SPDX-License-Identifier: Apache-2.0 */
/*
 * genetic: a generation is 12 configs. In the first, half are the model's favourites, half are
 * random. Later, every config (child) has two parents, each the best of three measured configs
 * drawn at random. The child takes each parameter from a random parent, and sometimes changes a
 * parameter. A child that is no candidate or was measured is bred again; after 64 failures a random
 * candidate is taken. A generation is bred when the last generation has been observed, so that seed
 * and scores alone decide it.
 *
 * The strategy does not know the meaning of parameters. It is the baseline for strategies that do.
 */
#include <stdlib.h>

#include "runner/strategy/strategy.h"

enum { GENERATION = 12, TOURNAMENT = 3, TRIES = 64 };
static const double MUTATION = 0.08; /* probability that a parameter changes */

struct genetic {
    struct strategy base;
    const struct grid *grid;
    double *score;          /* owned, by candidate; 0: not measured */
    uint32_t *known;        /* owned: the measured candidates */
    uint32_t n_known, next; /* next: of the model's favourites */
    uint64_t state;         /* of the random number generator */
    bool begun;
    uint32_t n_queue, at;
    uint32_t queue[GENERATION];
};

static uint32_t genetic_draw_below(struct genetic *g, uint32_t n)
{
    return (uint32_t)(random_unit(&g->state) * n);
}

static bool genetic_is_new(const struct genetic *g, uint32_t c)
{
    bool queued = false;
    for (uint32_t i = 0; i < g->n_queue; i++) {
        queued |= g->queue[i] == c;
    }
    return !queued && !strategy_has_taken(&g->base, c);
}

/* The first candidate after a random place that is neither taken nor queued; GRID_NONE: no such
 * candidate. */
static uint32_t by_chance(struct genetic *g)
{
    uint32_t from = genetic_draw_below(g, g->base.n);
    for (uint32_t i = 0; i < g->base.n; i++) {
        uint32_t c = (from + i) % g->base.n;
        if (genetic_is_new(g, c)) {
            return c;
        }
    }
    return GRID_NONE;
}

static uint32_t genetic_pick_favourite(struct genetic *g)
{
    for (; g->next < g->base.n; g->next++) {
        if (genetic_is_new(g, g->next)) {
            return g->next;
        }
    }
    return GRID_NONE;
}

static uint32_t genetic_pick_parent(struct genetic *g)
{
    uint32_t best = g->known[genetic_draw_below(g, g->n_known)];
    for (int i = 1; i < TOURNAMENT; i++) {
        uint32_t c = g->known[genetic_draw_below(g, g->n_known)];
        best = g->score[c] < g->score[best] ? c : best;
    }
    return best;
}

static uint32_t genetic_breed_child(struct genetic *g)
{
    const struct space *s = g->grid->space;
    const struct space_point *a = grid_at(g->grid, genetic_pick_parent(g)),
                             *b = grid_at(g->grid, genetic_pick_parent(g));
    struct space_point child = *a;
    for (uint32_t i = 0; i < s->n_params; i++) {
        child.at[i] = random_unit(&g->state) < 0.5 ? a->at[i] : b->at[i];
        if (random_unit(&g->state) < MUTATION) {
            child.at[i] = (uint8_t)genetic_draw_below(g, s->params[i].n);
        }
    }
    return grid_find(g->grid, &child);
}

static uint32_t genetic_next_child(struct genetic *g)
{
    for (int i = 0; g->n_known > 1 && i < TRIES; i++) {
        uint32_t c = genetic_breed_child(g);
        if (c != GRID_NONE && genetic_is_new(g, c)) {
            return c;
        }
    }
    return by_chance(g);
}

static void next_generation(struct genetic *g)
{
    g->n_queue = g->at = 0;
    for (int i = 0; i < GENERATION; i++) {
        uint32_t c = g->begun ? genetic_next_child(g)
                     : i % 2  ? by_chance(g)
                              : genetic_pick_favourite(g);
        if (c == GRID_NONE) {
            break;
        }
        g->queue[g->n_queue++] = c;
    }
    g->begun = true;
}

static void genetic_end(struct strategy *base)
{
    struct genetic *g = (struct genetic *)base;
    free(g->score);
    free(g->known);
}

static int genetic_begin(struct strategy *base, const struct strategy_setup *s, struct error *err)
{
    struct genetic *g = (struct genetic *)base;
    g->grid = s->grid;
    g->state = s->seed;
    g->score = calloc(s->n + 1, sizeof(*g->score));
    g->known = calloc(s->n + 1, sizeof(*g->known));
    return g->score && g->known
               ? 0
               : error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", s->n);
}

static int genetic_propose(struct strategy *base, uint32_t *candidate)
{
    struct genetic *g = (struct genetic *)base;
    while (g->at < g->n_queue && strategy_has_taken(&g->base, g->queue[g->at])) {
        g->at++;
    }
    if (g->at == g->n_queue) {
        if (g->base.out > 0) {
            return STRATEGY_WAIT;
        }
        next_generation(g);
    }
    return g->n_queue ? strategy_take(base, g->queue[g->at], candidate) : STRATEGY_DONE;
}

static void genetic_learn(struct strategy *base, uint32_t candidate, const struct observation *o)
{
    struct genetic *g = (struct genetic *)base;
    if (o->ok && g->score[candidate] == 0) {
        g->score[candidate] = o->score;
        g->known[g->n_known++] = candidate;
    }
}

const struct strategy_ops genetic_strategy = {.name = "genetic",
                                              .size = sizeof(struct genetic),
                                              .begin = genetic_begin,
                                              .end = genetic_end,
                                              .propose = genetic_propose,
                                              .learn = genetic_learn};
