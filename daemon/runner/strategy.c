/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strategies that exist: each walks an order of the candidates once and takes no lesson from
 * what it observes, but for one: a proposal that failed (did not compile, was wrong) was not a
 * measurement, so it is given back. At most `budget` of them, so that a space where nothing works
 * ends too.
 *
 *   ranked      the order of the plan: by the analytic model, mixed; up to the budget
 *   exhaustive  the same order; budget 0 means all
 *   random      a seeded shuffle, up to the budget
 *   given       the order of the list, all of it
 *
 * A candidate that is coming anyway (a hint, the reference), or was observed without having been
 * proposed (an earlier run), is taken: it is passed over, and costs nothing here.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runner/strategy.h"
#include "kernels/family.h"

enum { TAKEN = 1, OUT = 2 };

struct walk {
    struct strategy base;
    uint32_t n, next; /* next: position in the order */
    uint32_t *order;  /* owned; NULL: 0, 1, 2 ... */
    uint32_t limit;   /* proposals that may be out or have worked */
    uint32_t refunds; /* failed proposals that may still be given back */
    uint32_t spent;
    uint32_t out;   /* proposed and not yet observed */
    uint8_t *state; /* owned; TAKEN, OUT of each candidate */
};

static void walk_close(struct strategy *s)
{
    struct walk *w = (struct walk *)s;
    if (w) {
        free(w->order);
        free(w->state);
        free(w);
    }
}

static int walk_open(const struct strategy_ops *ops, const struct strategy_setup *setup,
                     uint32_t limit, struct walk **out, struct error *err)
{
    struct walk *w = calloc(1, sizeof(*w));
    uint8_t *state = calloc(setup->n ? setup->n : 1, 1);
    if (!w || !state) {
        free(w);
        free(state);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", setup->n);
    }
    for (uint32_t i = 0; i < setup->n_coming; i++) {
        if (setup->coming[i] < setup->n) {
            state[setup->coming[i]] = TAKEN;
        }
    }
    *w = (struct walk){
        .base.ops = ops, .n = setup->n, .limit = limit, .refunds = limit, .state = state};
    *out = w;
    return 0;
}

static int walk_propose(struct strategy *s, uint32_t *candidate)
{
    struct walk *w = (struct walk *)s;
    while (w->next < w->n) {
        uint32_t c = w->order ? w->order[w->next] : w->next;
        if (w->state[c] & TAKEN) {
            w->next++;
            continue;
        }
        if (w->spent >= w->limit) {
            return w->out > 0 && w->refunds > 0 ? STRATEGY_WAIT : STRATEGY_DONE;
        }
        w->state[c] = TAKEN | OUT;
        w->next++;
        w->spent++;
        w->out++;
        *candidate = c;
        return 0;
    }
    return STRATEGY_DONE;
}

static void walk_observe(struct strategy *s, uint32_t candidate, const struct observation *o)
{
    struct walk *w = (struct walk *)s;
    assert(candidate < w->n);
    bool ours = w->state[candidate] & OUT;
    w->state[candidate] = TAKEN;
    if (!ours) {
        return;
    }
    w->out--;
    if (!o->ok && w->refunds > 0) {
        w->refunds--;
        w->spent--;
    }
}

static int ranked_open(const struct strategy_setup *s, struct strategy **out, struct error *err)
{
    return walk_open(strategy_find("ranked"), s, s->budget, (struct walk **)out, err);
}

static int exhaustive_open(const struct strategy_setup *s, struct strategy **out, struct error *err)
{
    uint32_t limit = s->budget ? s->budget : s->n;
    return walk_open(strategy_find("exhaustive"), s, limit, (struct walk **)out, err);
}

static int given_open(const struct strategy_setup *s, struct strategy **out, struct error *err)
{
    return walk_open(strategy_find("given"), s, s->n, (struct walk **)out, err);
}

static int random_open(const struct strategy_setup *s, struct strategy **out, struct error *err)
{
    struct walk *w = NULL;
    int r = walk_open(strategy_find("random"), s, s->budget, &w, err);
    if (r) {
        return r;
    }
    w->order = malloc((s->n ? s->n : 1) * sizeof(*w->order));
    if (!w->order) {
        walk_close(&w->base);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", s->n);
    }
    uint64_t seed = s->seed;
    for (uint32_t i = 0; i < s->n; i++) { /* Fisher-Yates, inside out */
        uint32_t j = (uint32_t)(random_unit(&seed) * (i + 1.0));
        w->order[i] = w->order[j];
        w->order[j] = i;
    }
    *out = &w->base;
    return 0;
}

static const struct strategy_ops all[] = {
    {"ranked", ranked_open, walk_close, walk_propose, walk_observe},
    {"exhaustive", exhaustive_open, walk_close, walk_propose, walk_observe},
    {"random", random_open, walk_close, walk_propose, walk_observe},
    {"given", given_open, walk_close, walk_propose, walk_observe},
};

const struct strategy_ops *strategy_find(const char *name)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i].name, name) == 0) {
            return &all[i];
        }
    }
    return NULL;
}
