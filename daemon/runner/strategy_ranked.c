/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranked: what the model likes, corrected by what measuring it teaches.
 *
 *   seeds   of each tile (block sizes and schedule) that the model finds good, its best variant: the
 *           model is wrong about tiles, and about few things else so much
 *   greedy  the best two variants with other run-time settings, one parameter after the other:
 *           nothing is compiled for that
 *   next    a few variants that may well be the best, by what the others taught (surrogate.h): near
 *           the best ones, or where the model has been too harsh. Then greedy again, and so on, until
 *           no variant may be better, or as many as may be have been compiled
 *   tail    with a budget that was asked for: the order of the plan, until it is used up
 *
 * A step is decided when all of the last one has been observed, from the scores alone: so a search
 * that goes on after a crash decides as the first would have.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runner/proposals.h"
#include "daemon/runner/surrogate.h"

enum {
    CENTRES = 2,
    SEEDS_MOST = 8,
    NEXT_MOST = 4, /* variants of a step */
    STEP_MOST = 128 /* proposals of a step */
};

static const double WORTH = 0.04, /* above the best, logarithm: to be hoped so much is enough */
    SEED_WORTH = 0.06,            /* the same of predictions */
    SAME = 1.01;                  /* times a prediction */

enum stage { SEEDS, GREEDY, NEXT, TAIL };

struct ranked_search {
    struct strategy base;
    struct proposals books;
    struct grid grid;
    struct surrogate surrogate;
    bool flat; /* candidates are just a list: there is nothing but the tail */
    const double *predicted;
    double *score;   /* owned, by candidate: NaN: not known */
    uint32_t *known; /* owned: those that have a score */
    uint32_t n_known;
    bool *used; /* owned, by variant: it has been proposed, or observed */
    uint32_t n_used, n_failed;
    uint32_t *representative; /* owned, by variant: the candidate that is predicted fastest */
    double *prior;            /* owned, by variant: the logarithm of that prediction */
    bool *leads;              /* owned, by variant: it is predicted fastest of its tile */
    uint32_t variants;        /* at most; 0: as many as the budget */
    uint32_t n_seeds;
    enum stage stage;
    uint32_t param; /* of greedy: the next one, from n_compile on */
    uint32_t next;  /* of the plan's order, for the tail */
    uint32_t n_queue, at;
    uint32_t queue[STEP_MOST];
};

/* ---- what is known --------------------------------------------------------------------------- */

/* The best points of up to `want` variants, the best first. */
static uint32_t find_centres(const struct ranked_search *s, uint32_t want, uint32_t *out)
{
    uint32_t n = 0;
    while (n < want) {
        uint32_t best = GRID_NONE;
        for (uint32_t i = 0; i < s->n_known; i++) {
            uint32_t c = s->known[i];
            bool had = n > 0 && s->grid.variant[out[0]] == s->grid.variant[c];
            if (!had && (best == GRID_NONE || s->score[c] < s->score[best])) {
                best = c;
            }
        }
        if (best == GRID_NONE) {
            break;
        }
        out[n++] = best;
    }
    return n;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Scores have another unit than predictions: the logarithm of what is between them. */
static double unit_of(const struct ranked_search *s)
{
    double error[STEP_MOST];
    uint32_t n = s->n_known < STEP_MOST ? s->n_known : STEP_MOST;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = s->known[i];
        error[i] = log(s->score[c] / s->predicted[c]);
    }
    qsort(error, n, sizeof(*error), by_value);
    return n ? error[n / 2] : 0;
}

/* The best known point of each variant, as an error of the model's at its best point. */
static void learn_all(struct ranked_search *s, double unit)
{
    surrogate_begin(&s->surrogate, s->prior);
    for (uint32_t v = 0; v < s->grid.n_variants; v++) {
        uint32_t best = GRID_NONE;
        for (uint32_t i = 0; s->used[v] && i < s->n_known; i++) {
            uint32_t c = s->known[i];
            if (s->grid.variant[c] == v && (best == GRID_NONE || s->score[c] < s->score[best])) {
                best = c;
            }
        }
        if (best != GRID_NONE) {
            double error = log(s->score[best] / s->predicted[best]) - unit;
            surrogate_learn(&s->surrogate, v, s->prior[v] + error);
        }
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void enqueue(struct ranked_search *s, uint32_t c)
{
    for (uint32_t i = 0; i < s->n_queue; i++) {
        if (s->queue[i] == c) {
            return;
        }
    }
    if (s->n_queue < STEP_MOST && !proposals_taken(&s->books, c)) {
        s->queue[s->n_queue++] = c;
    }
}

static void use(struct ranked_search *s, uint32_t c)
{
    uint32_t v = s->flat ? c : s->grid.variant[c];
    s->n_used += !s->used[v];
    s->used[v] = true;
}

static void add_settings(struct ranked_search *s, uint32_t centre, uint32_t param)
{
    struct space_point at = *grid_at(&s->grid, centre);
    for (uint32_t i = 0; i < s->grid.space->params[param].n; i++) {
        at.at[param] = (uint8_t)i;
        uint32_t c = grid_find(&s->grid, &at);
        if (c != GRID_NONE) {
            enqueue(s, c);
        }
    }
}

static void step_greedy(struct ranked_search *s)
{
    for (; s->param < s->grid.space->n_params && s->n_queue == 0; s->param++) {
        uint32_t centres[CENTRES], n = find_centres(s, CENTRES, centres);
        for (uint32_t i = 0; i < n; i++) {
            add_settings(s, centres[i], s->param);
        }
    }
}

/* A variant's first point: with the settings of the best so far, where the model does not mind. */
static uint32_t first_point(const struct ranked_search *s, uint32_t variant)
{
    uint32_t first = s->representative[variant], centre;
    struct space_point at = *grid_at(&s->grid, first);
    if (find_centres(s, 1, &centre) == 0) {
        return first;
    }
    for (uint32_t i = s->grid.n_compile; i < s->grid.space->n_params; i++) {
        at.at[i] = grid_at(&s->grid, centre)->at[i];
    }
    uint32_t c = grid_find(&s->grid, &at);
    bool fine = c != GRID_NONE && s->predicted[c] <= SAME * s->predicted[first];
    return fine ? c : first;
}

/* The variant to be hoped most of, of those that nobody has looked at; or n_variants. */
static uint32_t most_hopeful(const struct ranked_search *s, const bool queued[], double below)
{
    uint32_t best = s->grid.n_variants;
    for (uint32_t v = 0; v < s->grid.n_variants; v++) {
        double hope = surrogate_hope(&s->surrogate, v);
        if (!s->used[v] && !queued[v] && hope < below) {
            best = v;
            below = hope;
        }
    }
    return best;
}

static void step_variants(struct ranked_search *s, uint32_t want)
{
    bool *queued = calloc(s->grid.n_variants + 1, sizeof(*queued));
    uint32_t centre;
    double unit = unit_of(s), limit = INFINITY;
    learn_all(s, unit);
    if (find_centres(s, 1, &centre) > 0) {
        limit = log(s->score[centre]) - unit + WORTH;
    }
    for (uint32_t i = 0; queued && i < want; i++) {
        uint32_t v = most_hopeful(s, queued, limit);
        if (v == s->grid.n_variants) {
            break;
        }
        queued[v] = true;
        enqueue(s, first_point(s, v));
        surrogate_learn(&s->surrogate, v, NAN);
    }
    free(queued);
}

/* The best variant of a tile that nobody has looked at, and that the model finds good enough. */
static uint32_t next_tile(const struct ranked_search *s)
{
    uint32_t best = s->grid.n_variants;
    double lowest = INFINITY, lead = INFINITY;
    for (uint32_t v = 0; v < s->grid.n_variants; v++) {
        lead = fmin(lead, s->prior[v]);
        bool queued = false;
        for (uint32_t i = 0; i < s->n_queue; i++) {
            queued |= s->grid.variant[s->queue[i]] == v;
        }
        if (s->leads[v] && !s->used[v] && !queued && s->prior[v] < lowest) {
            best = v;
            lowest = s->prior[v];
        }
    }
    return lowest <= lead + SEED_WORTH ? best : s->grid.n_variants;
}

/* Of a candidate's variant, the best predicted point whose settings are all other ones. */
static uint32_t opposite(const struct ranked_search *s, uint32_t c)
{
    uint32_t best = GRID_NONE;
    for (uint32_t k = 0; k < s->books.n; k++) {
        bool other = s->grid.variant[k] == s->grid.variant[c];
        for (uint32_t i = s->grid.n_compile; other && i < s->grid.space->n_params; i++) {
            other = grid_at(&s->grid, k)->at[i] != grid_at(&s->grid, c)->at[i];
        }
        if (other && (best == GRID_NONE || s->predicted[k] < s->predicted[best])) {
            best = k;
        }
    }
    return best;
}

/* Two points of each: settings can cost a third, and the model may be wrong about them, too. */
static void step_tiles(struct ranked_search *s, uint32_t want)
{
    for (uint32_t i = 0; i < want; i++) {
        uint32_t v = next_tile(s), before = s->n_queue;
        if (v < s->grid.n_variants) {
            enqueue(s, s->representative[v]);
        }
        if (s->n_queue == before) {
            break;
        }
        uint32_t c = opposite(s, s->representative[v]);
        if (c != GRID_NONE) {
            enqueue(s, c);
        }
    }
}

static void step_tail(struct ranked_search *s)
{
    for (; s->next < s->books.n && s->n_queue < STEP_MOST; s->next++) {
        enqueue(s, s->next);
    }
}

/* Variants that may still be compiled; failed ones are made up for, once. */
static uint32_t variants_left(const struct ranked_search *s)
{
    uint32_t failed = s->n_failed < s->variants ? s->n_failed : s->variants;
    uint32_t most = s->variants + failed;
    return s->variants == 0 ? UINT32_MAX : most > s->n_used ? most - s->n_used : 0;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* One step of the current stage, and which stage follows. */
static void take_step(struct ranked_search *s)
{
    uint32_t done = s->n_used - least(s->n_failed, s->n_used);
    switch (s->stage) {
    case SEEDS:
        if (done < s->n_seeds) {
            step_tiles(s, least(s->n_seeds - done, variants_left(s)));
        }
        break;
    case GREEDY:
        step_greedy(s);
        break;
    case NEXT:
        step_variants(s, least(NEXT_MOST, variants_left(s)));
        s->stage = s->n_queue > 0 ? NEXT : TAIL;
        break;
    case TAIL:
        return;
    }
    if (s->stage == NEXT || (s->stage == SEEDS && s->n_queue == 0)) {
        s->stage = GREEDY;
        s->param = s->grid.n_compile;
    } else if (s->stage == GREEDY && s->n_queue == 0) {
        s->stage = NEXT;
    }
}

/* Fills the queue with what is next; false: nothing is. */
static bool decide(struct ranked_search *s)
{
    s->n_queue = s->at = 0;
    while (s->stage != TAIL && s->n_queue == 0) {
        take_step(s);
    }
    if (s->stage == TAIL && s->n_queue == 0 && (s->flat || s->variants == 0)) {
        step_tail(s);
    }
    return s->n_queue > 0;
}

/* ---- the strategy ---------------------------------------------------------------------------- */

static void ranked_close(struct strategy *base)
{
    struct ranked_search *s = (struct ranked_search *)base;
    if (s) {
        proposals_deinit(&s->books);
        surrogate_deinit(&s->surrogate);
        grid_deinit(&s->grid);
        free(s->score);
        free(s->known);
        free(s->used);
        free(s->representative);
        free(s->prior);
        free(s->leads);
        free(s);
    }
}

static void find_representatives(struct ranked_search *s)
{
    for (uint32_t v = 0; v < s->grid.n_variants; v++) {
        s->representative[v] = GRID_NONE;
    }
    for (uint32_t c = 0; c < s->books.n; c++) {
        uint32_t *r = &s->representative[s->grid.variant[c]];
        *r = *r == GRID_NONE || s->predicted[c] < s->predicted[*r] ? c : *r;
    }
    for (uint32_t v = 0; v < s->grid.n_variants; v++) {
        s->prior[v] = log(s->predicted[s->representative[v]]);
    }
}

static bool is_of_tile(const char *name)
{
    return strncmp(name, "BLOCK_SIZE_", 11) == 0 || strcmp(name, "schedule") == 0;
}

static bool same_tile(const struct ranked_search *s, const bool of_tile[], uint32_t v, uint32_t w)
{
    const struct space_point *x = grid_at(&s->grid, s->representative[v]),
                             *y = grid_at(&s->grid, s->representative[w]);
    for (uint32_t i = 0; i < s->grid.n_compile; i++) {
        if (of_tile[i] && x->at[i] != y->at[i]) {
            return false;
        }
    }
    return true;
}

static void find_leaders(struct ranked_search *s)
{
    bool of_tile[PARAMS_MAX];
    for (uint32_t i = 0; i < s->grid.n_compile; i++) {
        of_tile[i] = is_of_tile(s->grid.space->params[i].name);
    }
    for (uint32_t v = 0; v < s->grid.n_variants; v++) {
        s->leads[v] = true;
        for (uint32_t w = 0; w < s->grid.n_variants && s->leads[v]; w++) {
            bool before = s->prior[w] < s->prior[v] || (s->prior[w] == s->prior[v] && w < v);
            s->leads[v] = !(before && same_tile(s, of_tile, v, w));
        }
    }
}

static int allocate(struct ranked_search *s, const struct strategy_setup *setup, struct error *err)
{
    s->score = malloc((setup->n + 1) * sizeof(*s->score));
    s->known = malloc((setup->n + 1) * sizeof(*s->known));
    s->used = calloc(setup->n + 1, sizeof(*s->used));
    s->representative = calloc(setup->n + 1, sizeof(*s->representative));
    s->prior = calloc(setup->n + 1, sizeof(*s->prior));
    s->leads = calloc(setup->n + 1, sizeof(*s->leads));
    if (!s->score || !s->known || !s->used || !s->representative || !s->prior ||
        !s->leads) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", setup->n);
    }
    for (uint32_t i = 0; i < setup->n; i++) {
        s->score[i] = NAN;
    }
    int r = proposals_init(&s->books, setup, setup->budget, err);
    if (r || s->flat) {
        return r;
    }
    r = grid_init(&s->grid, setup->space, setup->point, setup->n, err);
    r = r ? r : surrogate_init(&s->surrogate, &s->grid, s->representative, err);
    if (r == 0) {
        find_representatives(s);
        find_leaders(s);
    }
    return r;
}

static uint32_t count_seeds(const struct strategy_setup *setup)
{
    return least(SEEDS_MOST, ((setup->variants ? setup->variants : setup->budget) + 1) / 2);
}

static int ranked_open(const struct strategy_setup *setup, struct strategy **out,
                       struct error *err)
{
    struct ranked_search *s = calloc(1, sizeof(*s));
    if (!s) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", setup->n);
    }
    s->base.ops = &ranked_strategy;
    s->flat = !setup->space;
    s->predicted = setup->predicted_us;
    s->variants = setup->variants;
    s->n_seeds = count_seeds(setup);
    s->stage = s->flat ? TAIL : SEEDS;
    int r = allocate(s, setup, err);
    if (r) {
        ranked_close(&s->base);
        return r;
    }
    for (uint32_t i = 0; i < setup->n_coming; i++) {
        if (setup->coming[i] < setup->n) {
            use(s, setup->coming[i]);
        }
    }
    *out = &s->base;
    return 0;
}

static int ranked_propose(struct strategy *base, uint32_t *candidate)
{
    struct ranked_search *s = (struct ranked_search *)base;
    for (;;) {
        for (; s->at < s->n_queue; s->at++) {
            uint32_t c = s->queue[s->at];
            if (proposals_taken(&s->books, c)) {
                continue;
            }
            int r = proposals_allow(&s->books);
            if (r == 0) {
                proposals_take(&s->books, c);
                use(s, c);
                *candidate = c;
            }
            return r;
        }
        if (s->stage != TAIL && s->books.out > 0) {
            return STRATEGY_WAIT;
        }
        if (!decide(s)) {
            return STRATEGY_DONE;
        }
    }
}

static void ranked_observe(struct strategy *base, uint32_t candidate, const struct observation *o)
{
    struct ranked_search *s = (struct ranked_search *)base;
    proposals_observe(&s->books, candidate, o);
    use(s, candidate);
    s->n_failed += !o->ok;
    if (o->ok && isnan(s->score[candidate])) {
        s->score[candidate] = o->score;
        s->known[s->n_known++] = candidate;
    }
}

const struct strategy_ops ranked_strategy = {"ranked", ranked_open, ranked_close, ranked_propose,
                                             ranked_observe};
