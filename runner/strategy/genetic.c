/* SPDX-License-Identifier: Apache-2.0 */
/*
 * genetic: half of the first generation are the model's favourites, half are random. Later, every
 * child has two parents, each the better of three measured configs. The child takes each parameter
 * from a random parent, and sometimes changes a parameter. A child that is no candidate or was
 * measured is bred again; after too many failures a random candidate is taken. A generation is bred
 * when the last generation has been observed, so the seed decides the generation.
 *
 * The strategy does not know the meaning of parameters. Strategies that do are compared with it.
 */
#include <math.h>
#include <stdlib.h>

#include "runner/strategy/grid.h"
#include "runner/strategy/strategy.h"

enum { GENERATION = 12, TOURNAMENT = 3, TRIES = 64 };
static const double MUTATION = 0.08; /* probability that a parameter changes */

struct genetic {
    struct strategy base;
    struct proposals books;
    struct grid grid;
    bool flat;       /* true for a list without parameters: only random candidates are proposed */
    double *score;   /* owned, by candidate */
    uint32_t *known; /* owned */
    uint32_t n_known, next;
    uint64_t state; /* of the random number generator */
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
    return !queued && !proposals_taken(&g->books, c);
}

/* The first new candidate after a random place; GRID_NONE: no new candidate. */
static uint32_t by_chance(struct genetic *g)
{
    uint32_t from = genetic_draw_below(g, g->books.n);
    for (uint32_t i = 0; i < g->books.n; i++) {
        uint32_t c = (from + i) % g->books.n;
        if (genetic_is_new(g, c)) {
            return c;
        }
    }
    return GRID_NONE;
}

static uint32_t genetic_pick_favourite(struct genetic *g)
{
    for (; g->next < g->books.n; g->next++) {
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
    const struct space *s = g->grid.space;
    const struct space_point *a = grid_at(&g->grid, genetic_pick_parent(g)),
                             *b = grid_at(&g->grid, genetic_pick_parent(g));
    struct space_point child = *a;
    for (uint32_t i = 0; i < s->n_params; i++) {
        child.at[i] = random_unit(&g->state) < 0.5 ? a->at[i] : b->at[i];
        if (random_unit(&g->state) < MUTATION) {
            child.at[i] = (uint8_t)genetic_draw_below(g, s->params[i].n);
        }
    }
    return grid_find(&g->grid, &child);
}

static uint32_t genetic_next_child(struct genetic *g)
{
    for (int i = 0; !g->flat && g->n_known > 1 && i < TRIES; i++) {
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

static void genetic_close(struct strategy *base)
{
    struct genetic *g = (struct genetic *)base;
    if (g) {
        proposals_deinit(&g->books);
        grid_deinit(&g->grid);
        free(g->score);
        free(g->known);
        free(g);
    }
}

static int genetic_open(const struct strategy_setup *s, struct strategy **out, struct error *err)
{
    struct genetic *g = calloc(1, sizeof(*g));
    if (!g) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", s->n);
    }
    g->base.ops = &genetic_strategy;
    g->flat = !s->space;
    g->state = s->seed;
    g->score = calloc(s->n + 1, sizeof(*g->score));
    g->known = calloc(s->n + 1, sizeof(*g->known));
    int r = g->score && g->known
                ? proposals_init(&g->books, s, s->budget, err)
                : error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", s->n);
    r = r || g->flat ? r : grid_init(&g->grid, s->space, s->point, s->n, err);
    if (r) {
        genetic_close(&g->base);
        return r;
    }
    *out = &g->base;
    return 0;
}

static int genetic_propose(struct strategy *base, uint32_t *candidate)
{
    struct genetic *g = (struct genetic *)base;
    while (g->at < g->n_queue && proposals_taken(&g->books, g->queue[g->at])) {
        g->at++;
    }
    if (g->at == g->n_queue) {
        if (g->books.out > 0) {
            return STRATEGY_WAIT;
        }
        next_generation(g);
    }
    int r = g->n_queue ? proposals_allow(&g->books) : STRATEGY_DONE;
    if (r == 0) {
        *candidate = g->queue[g->at++];
        proposals_take(&g->books, *candidate);
    }
    return r;
}

static void genetic_observe(struct strategy *base, uint32_t candidate, const struct observation *o)
{
    struct genetic *g = (struct genetic *)base;
    proposals_observe(&g->books, candidate, o);
    if (o->ok && g->score[candidate] == 0) {
        g->score[candidate] = o->score;
        g->known[g->n_known++] = candidate;
    }
}

const struct strategy_ops genetic_strategy = {"genetic", genetic_open, genetic_close,
                                              genetic_propose, genetic_observe};
