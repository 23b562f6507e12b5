/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a portfolio (portfolio.h): greedy set cover. Each round reads all pairs;
 * portfolios have few members. */
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "store/portfolio.h"

enum { NOT_CHOSEN = UINT32_MAX };

struct members {
    const struct portfolio_pair *pairs; /* borrowed */
    size_t n;
    uint32_t n_shapes, n_configs;
    double bound;
    /* all owned */
    double *best;      /* for each shape: its least time */
    uint32_t *covered; /* members that cover the shape */
    uint32_t *gain;    /* for each config: the number of uncovered shapes that it would cover */
    double *regrets;   /* for each config: the sum of regrets over the shapes of `gain` */
    uint32_t *place;   /* for each config: its place among the members, or NOT_CHOSEN */
    uint32_t count;    /* number of members */
};

static void members_release(struct members *m)
{
    free(m->best);
    free(m->covered);
    free(m->gain);
    free(m->regrets);
    free(m->place);
}

static int members_prepare(struct members *m, struct error *err)
{
    m->best = malloc((m->n_shapes + 1) * sizeof(*m->best));
    m->covered = calloc(m->n_shapes + 1, sizeof(*m->covered));
    m->gain = calloc(m->n_configs + 1, sizeof(*m->gain));
    m->regrets = calloc(m->n_configs + 1, sizeof(*m->regrets));
    m->place = malloc((m->n_configs + 1) * sizeof(*m->place));
    if (!m->best || !m->covered || !m->gain || !m->regrets || !m->place) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a portfolio of %u shapes",
                         m->n_shapes);
    }
    for (uint32_t i = 0; i < m->n_shapes; i++) {
        m->best[i] = INFINITY;
    }
    for (uint32_t i = 0; i < m->n_configs; i++) {
        m->place[i] = NOT_CHOSEN;
    }
    for (size_t i = 0; i < m->n; i++) {
        const struct portfolio_pair *p = &m->pairs[i];
        assert(p->shape < m->n_shapes && p->config < m->n_configs);
        m->best[p->shape] = fmin(m->best[p->shape], p->time);
    }
    return 0;
}

static double regret_of(const struct members *m, const struct portfolio_pair *p)
{
    return p->time / m->best[p->shape] - 1;
}

static bool members_allow_pair(const struct members *m, const struct portfolio_pair *p)
{
    return regret_of(m, p) <= m->bound;
}

/* Returns the config that covers most uncovered shapes; NOT_CHOSEN: all shapes are covered. */
static uint32_t next_member(struct members *m)
{
    uint32_t found = NOT_CHOSEN;
    for (uint32_t i = 0; i < m->n_configs; i++) {
        m->gain[i] = 0;
        m->regrets[i] = 0;
    }
    for (size_t i = 0; i < m->n; i++) {
        const struct portfolio_pair *p = &m->pairs[i];
        if (!m->covered[p->shape] && members_allow_pair(m, p)) {
            m->gain[p->config]++;
            m->regrets[p->config] += regret_of(m, p);
        }
    }
    for (uint32_t i = 0; i < m->n_configs; i++) {
        bool better = found == NOT_CHOSEN || m->gain[i] > m->gain[found] ||
                      (m->gain[i] == m->gain[found] && m->regrets[i] < m->regrets[found]);
        found = m->gain[i] > 0 && better ? i : found;
    }
    return found;
}

/* Adds a config's shapes to the covered shapes (by 1), or removes them (by -1). */
static void members_count_config(struct members *m, uint32_t config, int by)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct portfolio_pair *p = &m->pairs[i];
        if (p->config == config && members_allow_pair(m, p)) {
            m->covered[p->shape] += (uint32_t)by;
        }
    }
}

static void members_choose_greedily(struct members *m)
{
    for (uint32_t next; (next = next_member(m)) != NOT_CHOSEN;) {
        m->place[next] = m->count++;
        members_count_config(m, next, 1);
    }
}

static bool members_need_config(const struct members *m, uint32_t config)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct portfolio_pair *p = &m->pairs[i];
        if (p->config == config && members_allow_pair(m, p) && m->covered[p->shape] == 1) {
            return true;
        }
    }
    return false;
}

/* Drops superfluous members, the last first: late members were chosen for few shapes. Later members
 * move up. */
static void drop_superfluous(struct members *m)
{
    for (uint32_t place = m->count; place-- > 0;) {
        uint32_t config = 0;
        while (m->place[config] != place) {
            config++;
        }
        if (members_need_config(m, config)) {
            continue;
        }
        members_count_config(m, config, -1);
        m->place[config] = NOT_CHOSEN;
        m->count--;
        for (uint32_t i = 0; i < m->n_configs; i++) {
            m->place[i] -= m->place[i] != NOT_CHOSEN && m->place[i] > place;
        }
    }
}

static void members_assign_shapes(const struct members *m, struct portfolio_choice *choices)
{
    for (uint32_t i = 0; i < m->n_shapes; i++) {
        choices[i] = (struct portfolio_choice){.config = NOT_CHOSEN, .regret = INFINITY};
    }
    for (size_t i = 0; i < m->n; i++) {
        const struct portfolio_pair *p = &m->pairs[i];
        struct portfolio_choice *choice = &choices[p->shape];
        double regret = regret_of(m, p);
        bool better = regret < choice->regret ||
                      (regret == choice->regret && m->place[p->config] < choice->place);
        if (m->place[p->config] != NOT_CHOSEN && better) {
            *choice = (struct portfolio_choice){p->config, m->place[p->config], regret, p->time};
        }
    }
}

int portfolio_choose_members(const struct portfolio_pair *pairs, size_t n, uint32_t n_shapes,
                             uint32_t n_configs, double bound, struct portfolio_choice *choices,
                             uint32_t *members, struct error *err)
{
    struct members m = {
        .pairs = pairs, .n = n, .n_shapes = n_shapes, .n_configs = n_configs, .bound = bound};
    int r = members_prepare(&m, err);
    if (r == 0) {
        members_choose_greedily(&m);
        drop_superfluous(&m);
        members_assign_shapes(&m, choices);
        *members = m.count;
    }
    members_release(&m);
    return r;
}
