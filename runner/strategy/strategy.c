/* SPDX-License-Identifier: Apache-2.0 */
/* The table of strategies, and the strategies that walk a fixed order of the candidates and ignore
 * observations. */
#include <stdlib.h>
#include <string.h>

#include "kernels/family.h"
#include "runner/strategy/grid.h"
#include "runner/strategy/strategy.h"

struct walk {
    struct strategy base;
    struct proposals books;
    uint32_t next;   /* position in the order */
    uint32_t *order; /* owned; NULL: 0, 1, 2 ... */
};

static void walk_close(struct strategy *s)
{
    struct walk *w = (struct walk *)s;
    if (w) {
        proposals_deinit(&w->books);
        free(w->order);
        free(w);
    }
}

static int strategy_open_walk(const struct strategy_ops *ops, const struct strategy_setup *setup,
                              uint32_t limit, struct walk **out, struct error *err)
{
    struct walk *w = calloc(1, sizeof(*w));
    if (!w) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", setup->n);
    }
    w->base.ops = ops;
    int r = proposals_init(&w->books, setup, limit, err);
    if (r) {
        free(w);
        return r;
    }
    *out = w;
    return 0;
}

static int walk_propose(struct strategy *s, uint32_t *candidate)
{
    struct walk *w = (struct walk *)s;
    for (; w->next < w->books.n; w->next++) {
        uint32_t c = w->order ? w->order[w->next] : w->next;
        if (proposals_taken(&w->books, c)) {
            continue;
        }
        int r = proposals_allow(&w->books);
        if (r) {
            return r;
        }
        proposals_take(&w->books, c);
        *candidate = c;
        return 0;
    }
    return STRATEGY_DONE;
}

static void walk_observe(struct strategy *s, uint32_t candidate, const struct observation *o)
{
    proposals_observe(&((struct walk *)s)->books, candidate, o);
}

static int exhaustive_open(const struct strategy_setup *s, struct strategy **out, struct error *err)
{
    uint32_t limit = s->budget ? s->budget : s->n;
    return strategy_open_walk(strategy_find("exhaustive"), s, limit, (struct walk **)out, err);
}

static int given_open(const struct strategy_setup *s, struct strategy **out, struct error *err)
{
    return strategy_open_walk(strategy_find("given"), s, s->n, (struct walk **)out, err);
}

/* Writes the candidates in the order of the space, not of the plan: findings about a device
 * change ranks, but the same seed must give the same configs. */
static int order_of_space(const struct strategy_setup *s, uint32_t order[], struct error *err)
{
    struct grid g;
    for (uint32_t i = 0; i < s->n; i++) {
        order[i] = i;
    }
    if (!s->space) {
        return 0;
    }
    int r = grid_init(&g, s->space, s->point, s->n, err);
    if (r) {
        return r;
    }
    memcpy(order, g.sorted, s->n * sizeof(*order));
    grid_deinit(&g);
    return 0;
}

static void strategy_shuffle(uint32_t order[], uint32_t n, uint64_t seed)
{
    for (uint32_t i = n; i > 1; i--) { /* Fisher-Yates */
        const uint32_t j = (uint32_t)(random_unit(&seed) * i), last = order[i - 1];
        order[i - 1] = order[j];
        order[j] = last;
    }
}

static int random_open(const struct strategy_setup *s, struct strategy **out, struct error *err)
{
    struct walk *w = NULL;
    int r = strategy_open_walk(strategy_find("random"), s, s->budget, &w, err);
    if (r) {
        return r;
    }
    w->order = malloc((s->n ? s->n : 1) * sizeof(*w->order));
    if (!w->order) {
        r = error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", s->n);
    }
    r = r ? r : order_of_space(s, w->order, err);
    if (r) {
        walk_close(&w->base);
        return r;
    }
    strategy_shuffle(w->order, s->n, s->seed);
    *out = &w->base;
    return 0;
}

static const struct strategy_ops exhaustive_strategy = {"exhaustive", exhaustive_open, walk_close,
                                                        walk_propose, walk_observe},
                                 random_strategy = {"random", random_open, walk_close, walk_propose,
                                                    walk_observe},
                                 given_strategy = {"given", given_open, walk_close, walk_propose,
                                                   walk_observe};

static const struct strategy_ops *const all[] = {
    &ranked_strategy, &exhaustive_strategy, &random_strategy, &genetic_strategy, &given_strategy,
};

const struct strategy_ops *strategy_find(const char *name)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i]->name, name) == 0) {
            return all[i];
        }
    }
    return NULL;
}

const char *strategy_names(void)
{
    return "ranked, exhaustive, random, genetic or given";
}
