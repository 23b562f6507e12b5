/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranked: what the model likes, then what measuring it teaches.
 *
 *   seeds   the first point of each variant in the order of the plan
 *   greedy  the best three variants with other run-time settings, one parameter after the other:
 *           nothing is compiled for that
 *   ring    variants near the best two, of which most is expected when the model's errors so far
 *           are taken off (grid.h), with the settings of their neighbour. While a ring finds
 *           something better by half a per cent, greedy and another ring follow
 *   tail    with a budget that was asked for: the order of the plan, until it is used up
 *
 * A step is decided when all of the last one has been observed, from the scores alone: so a search
 * that goes on after a crash decides as the first would have. The budget is shared: half for seeds,
 * the rest for what follows from them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runner/grid.h"
#include "daemon/runner/proposals.h"

enum {
    CENTRES = 3,
    RING_CENTRES = 2,
    RING_DISTANCE = 2,
    RING_MOST = 6, /* variants of a ring */
    RINGS_MOST = 4,
    SEEDS_LEAST = 4,
    STEP_MOST = 128, /* proposals of a step */
};
static const double SEED_SHARE = 0.6, /* of the variants that may be compiled */
    GAIN = 0.995, HOPEFUL = 1.08;     /* times the best score */

enum stage { SEEDS, GREEDY, RING, TAIL };

struct ranked_search {
    struct strategy base;
    struct proposals books;
    struct grid grid;
    bool flat; /* candidates are just a list: there is nothing but the tail */
    const double *predicted;
    double *score;    /* owned, by candidate: NaN: not known */
    uint32_t *known;  /* owned: those that have a score */
    uint32_t n_known;
    bool *used;       /* owned, by variant: it has been proposed, or observed */
    uint32_t n_used, variants; /* variants: at most; 0: as many as the budget */
    uint32_t n_seeds;
    enum stage stage;
    uint32_t param;    /* of greedy: the next one, from n_compile on */
    uint32_t rings;
    double before; /* the best score when the last ring began */
    uint32_t next; /* of the plan's order: seeds, tail */
    uint32_t n_queue, at;
    uint32_t queue[STEP_MOST];
};

/* ---- what is known --------------------------------------------------------------------------- */

static double best_score(const struct ranked_search *s)
{
    double best = INFINITY;
    for (uint32_t i = 0; i < s->n_known; i++) {
        best = fmin(best, s->score[s->known[i]]);
    }
    return best;
}

/* The best points of up to `want` variants, the best first. */
static uint32_t find_centres(const struct ranked_search *s, uint32_t want, uint32_t out[CENTRES])
{
    uint32_t n = 0;
    while (n < want) {
        uint32_t best = GRID_NONE;
        for (uint32_t i = 0; i < s->n_known; i++) {
            uint32_t c = s->known[i];
            bool had = false;
            for (uint32_t k = 0; k < n; k++) {
                had |= s->grid.variant[out[k]] == s->grid.variant[c];
            }
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

/* As many as are missing: failed ones are made up for, as long as they are given back. */
static bool step_seeds(struct ranked_search *s)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < s->grid.n_variants; i++) {
        done += s->used[i];
    }
    uint32_t failed = s->books.limit - s->books.refunds;
    uint32_t wanted = s->n_seeds + failed;
    for (; s->next < s->books.n && done + s->n_queue < wanted && s->n_queue < STEP_MOST;
         s->next++) {
        uint32_t v = s->grid.variant[s->next];
        bool queued = false;
        for (uint32_t i = 0; i < s->n_queue; i++) {
            queued |= s->grid.variant[s->queue[i]] == v;
        }
        if (!s->used[v] && !queued) {
            enqueue(s, s->next);
        }
    }
    return s->n_queue > 0;
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

static bool step_greedy(struct ranked_search *s)
{
    for (; s->param < s->grid.space->n_params && s->n_queue == 0; s->param++) {
        uint32_t centres[CENTRES], n = find_centres(s, CENTRES, centres);
        for (uint32_t i = 0; i < n; i++) {
            add_settings(s, centres[i], s->param);
        }
    }
    return s->n_queue > 0;
}

/* Whether a candidate is what a ring around a centre looks at: a variant nearby that is new, with
 * the centre's settings. */
static bool is_near(const struct ranked_search *s, uint32_t c, uint32_t centre)
{
    return !s->used[s->grid.variant[c]] && !proposals_taken(&s->books, c) &&
           grid_run_distance(&s->grid, c, centre) == 0 &&
           grid_compile_distance(&s->grid, c, centre) <= RING_DISTANCE;
}

struct hope {
    uint32_t candidate;
    double score;
};

/* Keeps the few best, one of a variant, in order. */
static uint32_t keep(const struct ranked_search *s, struct hope *all, uint32_t n, uint32_t most,
                     struct hope h)
{
    uint32_t at = n;
    for (uint32_t i = 0; i < n; i++) {
        if (s->grid.variant[all[i].candidate] == s->grid.variant[h.candidate]) {
            return n;
        }
    }
    while (at > 0 && h.score < all[at - 1].score) {
        at--;
    }
    if (at >= most) {
        return n;
    }
    n = n < most ? n + 1 : most;
    memmove(&all[at + 1], &all[at], (n - at - 1) * sizeof(*all));
    all[at] = h;
    return n;
}

static uint32_t ring_size(const struct ranked_search *s)
{
    uint32_t left = s->variants == 0              ? RING_MOST
                    : s->variants > s->n_used ? s->variants - s->n_used
                                                  : 0;
    return left < RING_MOST ? left : RING_MOST;
}

static bool step_ring(struct ranked_search *s)
{
    struct hope hopes[RING_MOST];
    uint32_t centres[CENTRES], n = 0, most = ring_size(s);
    uint32_t n_centres = find_centres(s, RING_CENTRES, centres);
    double limit = HOPEFUL * best_score(s);
    for (uint32_t i = 0; i < n_centres && most > 0; i++) {
        for (uint32_t c = 0; c < s->books.n; c++) {
            if (is_near(s, c, centres[i])) {
                double score =
                    grid_expect(&s->grid, s->predicted, s->score, s->known, s->n_known, c);
                n = score <= limit ? keep(s, hopes, n, most, (struct hope){c, score}) : n;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        enqueue(s, hopes[i].candidate);
    }
    return s->n_queue > 0;
}

static bool step_tail(struct ranked_search *s)
{
    for (; s->next < s->books.n && s->n_queue < STEP_MOST; s->next++) {
        enqueue(s, s->next);
    }
    return s->n_queue > 0;
}

/* After greedy: another ring, or the end. */
static void leave_greedy(struct ranked_search *s)
{
    double best = best_score(s);
    bool gained = s->rings == 0 || best < GAIN * s->before;
    s->before = best;
    s->stage = gained && s->rings < RINGS_MOST ? RING : TAIL;
    s->rings++;
    s->next = 0;
}

/* Fills the queue with what is next; false: nothing is. */
static bool decide(struct ranked_search *s)
{
    s->n_queue = s->at = 0;
    if (s->stage == SEEDS && !step_seeds(s)) {
        s->stage = GREEDY;
        s->param = s->grid.n_compile;
    }
    while (s->stage != TAIL && s->n_queue == 0) {
        if (s->stage == GREEDY && !step_greedy(s)) {
            leave_greedy(s);
        } else if (s->stage == RING) {
            step_ring(s);
            s->stage = GREEDY;
            s->param = s->grid.n_compile;
        }
    }
    bool all = s->flat || s->variants == 0;
    return s->n_queue > 0 || (s->stage == TAIL && all && step_tail(s));
}

/* ---- the strategy ---------------------------------------------------------------------------- */

static void ranked_close(struct strategy *base)
{
    struct ranked_search *s = (struct ranked_search *)base;
    if (s) {
        proposals_deinit(&s->books);
        grid_deinit(&s->grid);
        free(s->score);
        free(s->known);
        free(s->used);
        free(s);
    }
}

static int allocate(struct ranked_search *s, const struct strategy_setup *setup, struct error *err)
{
    s->score = malloc((setup->n + 1) * sizeof(*s->score));
    s->known = malloc((setup->n + 1) * sizeof(*s->known));
    s->used = calloc(setup->n + 1, sizeof(*s->used));
    if (!s->score || !s->known || !s->used) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", setup->n);
    }
    for (uint32_t i = 0; i < setup->n; i++) {
        s->score[i] = NAN;
    }
    int r = proposals_init(&s->books, setup, setup->budget, err);
    return r || s->flat ? r : grid_init(&s->grid, setup->space, setup->point, setup->n, err);
}

static uint32_t count_seeds(const struct strategy_setup *setup)
{
    uint32_t n = setup->variants ? (uint32_t)ceil(SEED_SHARE * setup->variants)
                                 : (setup->budget + 1) / 2;
    return n > SEEDS_LEAST ? n : SEEDS_LEAST;
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
            if (r) {
                return r;
            }
            proposals_take(&s->books, c);
            use(s, c);
            *candidate = c;
            return 0;
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
    if (o->ok && isnan(s->score[candidate])) {
        s->score[candidate] = o->score;
        s->known[s->n_known++] = candidate;
    }
}

const struct strategy_ops ranked_strategy = {"ranked", ranked_open, ranked_close, ranked_propose,
                                             ranked_observe};
