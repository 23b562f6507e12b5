/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranked: the model's favourites, corrected by measurements. A candidate's hope is the logarithm of
 * its time, predicted optimistically from the measurements so far (surrogate.h). The stages:
 *
 *   - seeds: the best variant of each tile (block sizes, schedule, copied or gathered) that the
 *     model finds good, with two settings. The model errs most about tiles. Compilers without a
 *     seed get further variants, those with the lowest hopes. An eighth of the compile effort is
 *     kept for later steps, but in a search of as few variants as its target wants, which the
 *     compilers begin at once.
 *
 *   - next: a few configs with the lowest hopes: other settings of compiled variants, and new
 *     variants, first those that differ from the best in one parameter. The stage ends when the
 *     compile effort is used up and no setting of a compiled variant has a hope below the best.
 *
 *   - ring: of the best three variants, all settings that differ from their best in one parameter,
 *     repeated until no setting is better. Then of the best variant all settings that differ in two
 *     parameters, since settings depend on one another. So the winner was compared with its
 *     neighbours.
 *
 *   - tail: only when the query sets `budget`: the rest of the budget, in the order of the plan.
 *
 * The whole compile effort is always used. A search that stopped when no config seemed better would
 * stop at a random point, with a randomly good winner.
 *
 * Compiling takes nearly all of the time, and some variants take five times as long as others. So a
 * step waits only for the variants that compile quickly, and starts no slow variant. When all
 * variants have begun, the search does not wait for a variant from which next to nothing can be
 * gained. When none of them waits for a compiler any more, the search waits only where more can be
 * gained. A variant that the cache has goes before a variant with a slightly lower hope: samples
 * scatter, and a repeated search would otherwise need other compiles each time. Decisions depend on
 * scores, never on a clock: the same order of builds gives the same search.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/strategy/ranked.h"

enum { SEEDS_MOST = 5 };
/* An expected gain below this fraction of the best time is not worth a wait: while variants wait
 * for a compiler, and when all late ones are being compiled. With less for these, recorded searches
 * take longer and find nothing better; with 0.01 they end with slower configs. */
static const double GAIN = 0.0005, GAIN_OF_LAST = 0.006;

static void ranked_end(struct strategy *base)
{
    struct ranked_search *s = (struct ranked_search *)base;
    surrogate_deinit(&s->surrogate);
    free(s->score);
    free(s->of);
}

static void find_representatives(struct ranked_search *s)
{
    for (uint32_t v = 0; v < s->grid->n_variants; v++) {
        s->of[v].representative = GRID_NONE;
    }
    for (uint32_t c = 0; c < s->base.n; c++) {
        uint32_t *r = &s->of[s->grid->variant[c]].representative;
        *r = *r == GRID_NONE || s->predicted[c] < s->predicted[*r] ? c : *r;
    }
    for (uint32_t v = 0; v < s->grid->n_variants; v++) {
        s->of[v].prior = log(s->predicted[s->of[v].representative]);
    }
}

/* A kernel that loads a copy by TMA and a kernel that gathers are different tiles: a bad result of
 * one says little about the other. */
static bool is_of_tile(const char *name)
{
    return strncmp(name, "BLOCK_SIZE_", 11) == 0 || strcmp(name, "schedule") == 0 ||
           strcmp(name, "permute_copy") == 0;
}

static bool same_tile(const struct ranked_search *s, const bool of_tile[], uint32_t v, uint32_t w)
{
    const struct space_point *x = grid_at(s->grid, s->of[v].representative),
                             *y = grid_at(s->grid, s->of[w].representative);
    for (uint32_t i = 0; i < s->grid->n_compile; i++) {
        if (of_tile[i] && x->at[i] != y->at[i]) {
            return false;
        }
    }
    return true;
}

static void find_leaders(struct ranked_search *s)
{
    bool of_tile[PARAMS_MAX];
    for (uint32_t i = 0; i < s->grid->n_compile; i++) {
        of_tile[i] = is_of_tile(s->grid->space->params[i].name);
    }
    for (uint32_t v = 0; v < s->grid->n_variants; v++) {
        s->of[v].leads = true;
        for (uint32_t w = 0; w < s->grid->n_variants && s->of[v].leads; w++) {
            bool before =
                s->of[w].prior < s->of[v].prior || (s->of[w].prior == s->of[v].prior && w < v);
            s->of[v].leads = !(before && same_tile(s, of_tile, v, w));
        }
    }
}

static int ranked_allocate(struct ranked_search *s, const struct strategy_setup *setup,
                           struct error *err)
{
    s->score = malloc((setup->n + 1) * sizeof(*s->score));
    s->of = calloc(s->grid->n_variants + 1, sizeof(*s->of));
    if (!s->score || !s->of) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", setup->n);
    }
    for (uint32_t i = 0; i < setup->n; i++) {
        s->score[i] = NAN;
    }
    int r = surrogate_init(&s->surrogate, s->grid, setup->predicted_us, err);
    if (r == 0) {
        find_representatives(s);
        find_leaders(s);
    }
    return r;
}

static uint32_t count_seeds(const struct strategy_setup *setup)
{
    uint32_t n = (3 * (setup->variants ? setup->variants : setup->budget) + 4) / 5;
    return n < SEEDS_MOST ? n : SEEDS_MOST;
}

static int ranked_begin(struct strategy *base, const struct strategy_setup *setup,
                        struct error *err)
{
    struct ranked_search *s = (struct ranked_search *)base;
    s->grid = setup->grid;
    s->predicted = setup->predicted_us;
    s->effort = setup->effort;
    s->present = setup->present;
    s->best = INFINITY;
    s->variants = setup->variants;
    s->variants_least = setup->variants_least ? setup->variants_least : VARIANTS_LEAST;
    s->n_seeds = count_seeds(setup);
    s->compilers = setup->compilers > 0 ? setup->compilers : 1;
    int r = ranked_allocate(s, setup, err);
    for (uint32_t i = 0; r == 0 && i < setup->n_coming; i++) {
        if (setup->coming[i] < setup->n) {
            ranked_use(s, setup->coming[i]);
        }
    }
    for (uint32_t i = 0; r == 0 && i < setup->n_begun; i++) {
        ranked_use(s, setup->begun[i]);
    }
    return r;
}

/* True when a proposal whose variant has arrived is not yet observed. */
static bool is_measuring(const struct ranked_search *s)
{
    for (uint32_t c = 0; s->base.out > 0 && c < s->base.n; c++) {
        if (strategy_is_out(&s->base, c) && s->of[s->grid->variant[c]].arrived) {
            return true;
        }
    }
    return false;
}

static int ranked_propose(struct strategy *base, uint32_t *candidate)
{
    struct ranked_search *s = (struct ranked_search *)base;
    for (;;) {
        for (; s->at < s->n_queue; s->at++) {
            uint32_t c = s->queue[s->at];
            if (strategy_has_taken(&s->base, c)) {
                continue;
            }
            int r = strategy_take(base, c, candidate);
            if (r == 0) {
                ranked_use(s, c);
            }
            return r;
        }
        if (s->stage != TAIL && is_measuring(s)) {
            return STRATEGY_WAIT;
        }
        if (!ranked_decide(s)) {
            s->idle = true;
            return s->stage != TAIL && s->base.out > 0 ? STRATEGY_WAIT : STRATEGY_DONE;
        }
    }
}

static void ranked_learn(struct strategy *base, uint32_t candidate, const struct observation *o)
{
    struct ranked_search *s = (struct ranked_search *)base;
    ranked_use(s, candidate);
    ranked_arrive(s, candidate);
    s->idle = false;
    s->n_failed += !o->ok;
    s->given_back += o->ok ? 0 : ranked_effort(s, candidate);
    if (o->ok && isnan(s->score[candidate])) {
        s->score[candidate] = o->score;
        s->n_known++;
        s->best = fmin(s->best, o->score);
        surrogate_learn(&s->surrogate, candidate, o->score);
    }
}

static bool is_variant_out(const struct ranked_search *s, uint32_t v)
{
    for (uint32_t c = 0; c < s->base.n; c++) {
        if (s->grid->variant[c] == v && strategy_is_out(&s->base, c)) {
            return true;
        }
    }
    return false;
}

/* Ends the wait for a candidate's compile when its expected gain is too small. Does so only when
 * most variants have arrived or all have begun, and the search has nothing to measure. */
static bool ranked_spare(struct strategy *base, uint32_t candidate)
{
    struct ranked_search *s = (struct ranked_search *)base;
    const bool now = ranked_most_have_come(s) || ranked_all_are_begun(s);
    const double worth = !now ? -INFINITY : ranked_none_waits(s) ? GAIN_OF_LAST : GAIN;
    if (!s->idle || !isfinite(s->best) || !strategy_is_out(&s->base, candidate) ||
        surrogate_gain(&s->surrogate, candidate, surrogate_value(&s->surrogate, s->best)) > worth) {
        return false;
    }
    strategy_give_up(base, candidate);
    if (!is_variant_out(s, s->grid->variant[candidate])) {
        ranked_arrive(s, candidate);
    }
    s->idle = false;
    return true;
}

const struct strategy_ops ranked_strategy = {.name = "ranked",
                                             .size = sizeof(struct ranked_search),
                                             .begin = ranked_begin,
                                             .end = ranked_end,
                                             .propose = ranked_propose,
                                             .learn = ranked_learn,
                                             .spare = ranked_spare};
