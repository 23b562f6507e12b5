/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy set cover (cover.h). Each round looks at all pairs: portfolios have few members. */
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/cover.h"

enum { NOT_CHOSEN = UINT32_MAX };

struct cover {
    const struct cover_pair *pairs; /* borrowed */
    size_t n;
    uint32_t n_shapes, n_configs;
    double bound;
    /* all owned */
    double *best;      /* of each shape */
    uint32_t *covered; /* by how many members, of each shape */
    uint32_t *gain;    /* of each config: what it would cover */
    double *regrets;   /* of each config: their sum over that */
    uint32_t *place;   /* of each config among the members, or NOT_CHOSEN */
    uint32_t members;
};

static void cover_release(struct cover *c)
{
    free(c->best);
    free(c->covered);
    free(c->gain);
    free(c->regrets);
    free(c->place);
}

static int cover_prepare(struct cover *c, struct error *err)
{
    c->best = malloc((c->n_shapes + 1) * sizeof(*c->best));
    c->covered = calloc(c->n_shapes + 1, sizeof(*c->covered));
    c->gain = calloc(c->n_configs + 1, sizeof(*c->gain));
    c->regrets = calloc(c->n_configs + 1, sizeof(*c->regrets));
    c->place = malloc((c->n_configs + 1) * sizeof(*c->place));
    if (!c->best || !c->covered || !c->gain || !c->regrets || !c->place) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a portfolio of %u shapes",
                         c->n_shapes);
    }
    for (uint32_t i = 0; i < c->n_shapes; i++) {
        c->best[i] = INFINITY;
    }
    for (uint32_t i = 0; i < c->n_configs; i++) {
        c->place[i] = NOT_CHOSEN;
    }
    for (size_t i = 0; i < c->n; i++) {
        const struct cover_pair *p = &c->pairs[i];
        assert(p->shape < c->n_shapes && p->config < c->n_configs);
        c->best[p->shape] = fmin(c->best[p->shape], p->time);
    }
    return 0;
}

static double regret_of(const struct cover *c, const struct cover_pair *p)
{
    return p->time / c->best[p->shape] - 1;
}

static bool cover_has_pair(const struct cover *c, const struct cover_pair *p)
{
    return regret_of(c, p) <= c->bound;
}

/* The config that covers most of what is not covered yet; NOT_CHOSEN: all is. */
static uint32_t next_member(struct cover *c)
{
    uint32_t found = NOT_CHOSEN;
    for (uint32_t i = 0; i < c->n_configs; i++) {
        c->gain[i] = 0;
        c->regrets[i] = 0;
    }
    for (size_t i = 0; i < c->n; i++) {
        const struct cover_pair *p = &c->pairs[i];
        if (!c->covered[p->shape] && cover_has_pair(c, p)) {
            c->gain[p->config]++;
            c->regrets[p->config] += regret_of(c, p);
        }
    }
    for (uint32_t i = 0; i < c->n_configs; i++) {
        bool better = found == NOT_CHOSEN || c->gain[i] > c->gain[found] ||
                      (c->gain[i] == c->gain[found] && c->regrets[i] < c->regrets[found]);
        found = c->gain[i] > 0 && better ? i : found;
    }
    return found;
}

/* Adds a config's shapes to what is covered (by 1), or takes them out (by -1). */
static void cover_count_config(struct cover *c, uint32_t config, int by)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct cover_pair *p = &c->pairs[i];
        if (p->config == config && cover_has_pair(c, p)) {
            c->covered[p->shape] += (uint32_t)by;
        }
    }
}

static void cover_choose_configs(struct cover *c)
{
    for (uint32_t next; (next = next_member(c)) != NOT_CHOSEN;) {
        c->place[next] = c->members++;
        cover_count_config(c, next, 1);
    }
}

static bool cover_is_needed(const struct cover *c, uint32_t config)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct cover_pair *p = &c->pairs[i];
        if (p->config == config && cover_has_pair(c, p) && c->covered[p->shape] == 1) {
            return true;
        }
    }
    return false;
}

/* The last ones first: they were chosen for few shapes. Those behind move up. */
static void drop_superfluous(struct cover *c)
{
    for (uint32_t place = c->members; place-- > 0;) {
        uint32_t config = 0;
        while (c->place[config] != place) {
            config++;
        }
        if (cover_is_needed(c, config)) {
            continue;
        }
        cover_count_config(c, config, -1);
        c->place[config] = NOT_CHOSEN;
        c->members--;
        for (uint32_t i = 0; i < c->n_configs; i++) {
            c->place[i] -= c->place[i] != NOT_CHOSEN && c->place[i] > place;
        }
    }
}

static void cover_assign_shapes(const struct cover *c, struct cover_choice *choices)
{
    for (uint32_t i = 0; i < c->n_shapes; i++) {
        choices[i] = (struct cover_choice){.config = NOT_CHOSEN, .regret = INFINITY};
    }
    for (size_t i = 0; i < c->n; i++) {
        const struct cover_pair *p = &c->pairs[i];
        struct cover_choice *choice = &choices[p->shape];
        double regret = regret_of(c, p);
        bool better = regret < choice->regret ||
                      (regret == choice->regret && c->place[p->config] < choice->place);
        if (c->place[p->config] != NOT_CHOSEN && better) {
            *choice = (struct cover_choice){p->config, c->place[p->config], regret, p->time};
        }
    }
}

int cover_make(const struct cover_pair *pairs, size_t n, uint32_t n_shapes, uint32_t n_configs,
               double bound, struct cover_choice *choices, uint32_t *members, struct error *err)
{
    struct cover c = {
        .pairs = pairs, .n = n, .n_shapes = n_shapes, .n_configs = n_configs, .bound = bound};
    int r = cover_prepare(&c, err);
    if (r == 0) {
        cover_choose_configs(&c);
        drop_superfluous(&c);
        cover_assign_shapes(&c, choices);
        *members = c.members;
    }
    cover_release(&c);
    return r;
}
