/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranked: what the model likes, corrected by what measuring it teaches.
 *
 *   seeds   of each tile (block sizes and schedule) that the model finds good, its best variant,
 *           with two settings: the model is wrong about tiles, and about few things else so much.
 *           Compilers that are left get what would teach most beside these, so that many are not
 * idle while a few work; but a part of what may be compiled is kept for what is learnt next    a
 * few configs that may well be the best, by what the others taught (surrogate.h): other settings of
 * variants that are compiled, and some new variants. And so on, until as many variants as may be
 * have been compiled, and no setting of theirs promises more ring    of the best three variants all
 * settings that differ from their best in one parameter, until that is their best: what wins does
 * so by having been compared, not by luck tail    with a budget that was asked for: the order of
 * the plan, until it is used up
 *
 * All variants that may be compiled are: a search that stopped when nothing seemed better would end
 * sooner or later by the luck of its samples, and so would its winner be better or worse.
 *
 * Compiling takes nearly all of the time, and some variants take five times as long as others. So
 * new variants are decided on when all but a few have come that take long; what is begun then does
 * not take long itself; and at the end nobody waits for one that does not promise to win. It is
 * decided from scores alone, never from a clock: where kernels come in the same order, a search
 * goes the same way.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runner/proposals.h"
#include "daemon/runner/surrogate.h"

enum {
    SEEDS_MOST = 8,
    NEXT_MOST = 6,      /* new variants of a step; more where there are many compilers */
    BATCH = 8,          /* proposals of a step; the same */
    LATE_PART = 5,      /* of the compilers: so many may be at work when it is decided */
    CENTRES = 3,        /* variants that have a ring */
    CONFIGS_OF_TWO = 6, /* measured at most for every two variants: time on the device */
    STEP_MOST = 128     /* proposals of the tail at a time */
};

static const double WORTH = 0.02, /* logarithm above the best: hope that a new variant is worth */
    GAIN = 0.002,                 /* the same below the best, of settings of a compiled one */
    SEED_WORTH = 0.08,            /* logarithm above the best prediction: a seed's */
    NEAR = 1.04,                  /* times the best score: a centre's */
    FIRST_PART = 0.75,            /* of what may be compiled: the first step's at most */
    LONG = 1.5; /* effort: what takes longer is not waited for by decisions, nor begun by them */

enum stage { SEEDS, NEXT, RING, TAIL };

struct ranked_search {
    struct strategy base;
    struct proposals books;
    struct grid grid;
    struct surrogate surrogate;
    bool flat; /* candidates are just a list: there is nothing but the tail */
    const double *predicted;
    double *score; /* owned, by candidate: NaN: not known */
    double best;   /* the least score; INFINITY: there is none */
    bool *used;    /* owned, by variant: it has been proposed, or observed */
    bool *
        arrived; /* owned, by variant: something of it has been observed, or it is not waited for */
    uint32_t n_used, n_arrived, n_failed, n_known;
    uint32_t compilers;
    bool begun;               /* the first step has been taken */
    bool idle;                /* nothing can be proposed until something is observed */
    const double *effort;     /* by candidate; NULL: 1 */
    double spent, given_back; /* effort: of used variants; of failed ones */
    double come;              /* effort: of those that have arrived */
    uint32_t *representative; /* owned, by variant: the candidate that is predicted fastest */
    double *prior;            /* owned, by variant: the logarithm of that prediction */
    bool *leads;              /* owned, by variant: it is predicted fastest of its tile */
    uint32_t variants;        /* at most; 0: as many as the budget */
    uint32_t n_seeds;
    enum stage stage;
    uint32_t next; /* of the plan's order, for the tail */
    uint32_t n_queue, at;
    uint32_t queue[STEP_MOST];
};

/* ---- steps ----------------------------------------------------------------------------------- */

static bool is_queued(const struct ranked_search *s, uint32_t c)
{
    for (uint32_t i = 0; i < s->n_queue; i++) {
        if (s->queue[i] == c) {
            return true;
        }
    }
    return false;
}

static bool is_variant_queued(const struct ranked_search *s, uint32_t v)
{
    for (uint32_t i = 0; i < s->n_queue; i++) {
        if (s->grid.variant[s->queue[i]] == v) {
            return true;
        }
    }
    return false;
}

static void enqueue(struct ranked_search *s, uint32_t c)
{
    if (s->n_queue < STEP_MOST && !is_queued(s, c) && !proposals_taken(&s->books, c)) {
        s->queue[s->n_queue++] = c;
    }
}

static double effort_of(const struct ranked_search *s, uint32_t c)
{
    return s->effort ? s->effort[c] : 1;
}

static uint32_t variant_of(const struct ranked_search *s, uint32_t c)
{
    return s->flat ? c : s->grid.variant[c];
}

static void use(struct ranked_search *s, uint32_t c)
{
    uint32_t v = variant_of(s, c);
    s->n_used += !s->used[v];
    s->spent += s->used[v] ? 0 : effort_of(s, c);
    s->used[v] = true;
}

static void arrive(struct ranked_search *s, uint32_t c)
{
    uint32_t v = variant_of(s, c);
    s->n_arrived += !s->arrived[v];
    s->come += s->arrived[v] ? 0 : effort_of(s, c);
    s->arrived[v] = true;
}

/* Variants that a compiler has, or will have. */
static uint32_t count_late(const struct ranked_search *s)
{
    return s->n_used - s->n_arrived;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Time for a decision: few are on their way, and these take so long that it would be long in
 * coming. */
static bool most_have_come(const struct ranked_search *s)
{
    bool come = count_late(s) <= s->compilers / LATE_PART;
    for (uint32_t c = 0; come && s->books.out > 0 && c < s->books.n; c++) {
        come = !proposals_is_out(&s->books, c) || s->arrived[variant_of(s, c)] ||
               effort_of(s, c) > LONG;
    }
    return come;
}

/* Of compiling, in variants of mean effort; failed ones are made up for, once. */
static double effort_left(const struct ranked_search *s)
{
    double most = s->variants + fmin(s->given_back, s->variants);
    return s->variants == 0 ? INFINITY : most - s->spent;
}

/* Configs that may still be measured. */
static uint32_t configs_left(const struct ranked_search *s)
{
    uint32_t most = CONFIGS_OF_TWO * s->variants / 2;
    return s->variants == 0 ? UINT32_MAX : most - least(most, s->n_known + s->books.out);
}

/* What a step has left to propose, and what it asks of it. */
struct wish {
    uint32_t fresh;          /* new variants that it may still have */
    uint32_t settings;       /* other configs */
    double effort;           /* to compile them */
    double longest;          /* to compile one of them */
    double of_new, of_known; /* hopes below these */
};

/* The candidate to be hoped most of; GRID_NONE: of none so much. */
static uint32_t most_hopeful(const struct ranked_search *s, const struct wish *w)
{
    uint32_t best = GRID_NONE;
    double least = INFINITY;
    for (uint32_t i = 0; i < s->surrogate.n; i++) {
        uint32_t c = s->surrogate.member[i], v = s->grid.variant[c];
        double hope = surrogate_hope(&s->surrogate, c);
        if (hope >= least || proposals_taken(&s->books, c) || is_queued(s, c)) {
            continue;
        }
        bool is_known = s->used[v] || is_variant_queued(s, v);
        double effort = effort_of(s, c);
        bool fits = w->fresh > 0 && effort <= w->longest &&
                    effort <= 2 * w->effort; /* half of it: rounded */
        if (is_known ? w->settings > 0 && hope < w->of_known : fits && hope < w->of_new) {
            best = c;
            least = hope;
        }
    }
    return best;
}

static void propose_one(struct ranked_search *s, struct wish *w, uint32_t c)
{
    uint32_t v = s->grid.variant[c];
    if (!s->used[v] && !is_variant_queued(s, v)) {
        w->fresh--;
        w->effort -= effort_of(s, c);
    } else {
        w->settings -= w->settings > 0;
    }
    enqueue(s, c);
    surrogate_expect(&s->surrogate, c);
}

static void propose_hopeful(struct ranked_search *s, struct wish *w)
{
    uint32_t c, batch = s->compilers > BATCH ? s->compilers : BATCH;
    uint32_t most = least(batch, configs_left(s));
    while (s->n_queue < most && (c = most_hopeful(s, w)) != GRID_NONE) {
        propose_one(s, w, c);
    }
}

/* What is on its way teaches nothing yet, but nothing like it need be proposed. */
static void expect_proposals(struct ranked_search *s)
{
    for (uint32_t i = 0; s->books.out > 0 && i < s->surrogate.n; i++) {
        if (proposals_is_out(&s->books, s->surrogate.member[i])) {
            surrogate_expect(&s->surrogate, s->surrogate.member[i]);
        }
    }
}

/* While better variants may be on their way, what is spent on settings keeps step with what has
 * come. */
static uint32_t settings_left(const struct ranked_search *s)
{
    double most = CONFIGS_OF_TWO * s->come / 2;
    double done = s->n_known + s->books.out;
    return s->variants == 0 || count_late(s) == 0 ? UINT32_MAX : (uint32_t)fmax(most - done, 0);
}

/* With many compilers, who waits for one new variant waits for no longer when others are compiled
 * beside it: the steps are few. */
static void step_next(struct ranked_search *s)
{
    const double effort = effort_left(s);
    const bool many = s->compilers > NEXT_MOST;
    const uint32_t fresh = many ? s->compilers - count_late(s) : NEXT_MOST;
    double best = isfinite(s->best) ? surrogate_value(&s->surrogate, s->best) : INFINITY;
    struct wish w = {.fresh = fresh,
                     .settings = settings_left(s),
                     .effort = effort,
                     .longest = s->variants > 0 ? LONG : INFINITY,
                     .of_new = best + WORTH,
                     .of_known = best - GAIN};
    expect_proposals(s);
    if (configs_left(s) <= effort) {
        w.of_known = -INFINITY; /* what is left is for new variants */
    }
    propose_hopeful(s, &w);
    if (s->variants > 0 && (s->n_queue == 0 || (many && w.fresh < fresh))) {
        w.of_new = INFINITY;
        w.of_known = -INFINITY;
        propose_hopeful(s, &w);
    }
    surrogate_forget(&s->surrogate);
}

/* The best points of the best variants, the best first, that are not far behind. */
static uint32_t find_centres(const struct ranked_search *s, uint32_t out[CENTRES])
{
    uint32_t n = 0;
    for (; n < CENTRES; n++) {
        uint32_t best = GRID_NONE;
        for (uint32_t c = 0; c < s->books.n; c++) {
            bool had = isnan(s->score[c]);
            for (uint32_t i = 0; i < n && !had; i++) {
                had = s->grid.variant[out[i]] == s->grid.variant[c];
            }
            if (!had && (best == GRID_NONE || s->score[c] < s->score[best])) {
                best = c;
            }
        }
        if (best == GRID_NONE || s->score[best] > NEAR * s->best) {
            break;
        }
        out[n] = best;
    }
    return n;
}

/* Settings that differ from a centre's in one parameter. */
static void add_neighbours(struct ranked_search *s, uint32_t centre)
{
    const struct space *space = s->grid.space;
    for (uint32_t p = s->grid.n_compile; p < space->n_params; p++) {
        struct space_point at = *grid_at(&s->grid, centre);
        for (uint32_t i = 0; i < space->params[p].n; i++) {
            at.at[p] = (uint8_t)i;
            uint32_t c = grid_find(&s->grid, &at);
            if (c != GRID_NONE) {
                enqueue(s, c);
            }
        }
    }
}

static void step_ring(struct ranked_search *s)
{
    uint32_t centres[CENTRES], n = find_centres(s, centres);
    for (uint32_t i = 0; i < n; i++) {
        add_neighbours(s, centres[i]);
    }
    s->n_queue = least(s->n_queue, configs_left(s));
}

/* The best variant of a tile that nobody has looked at, and that the model finds good enough. */
static uint32_t next_tile(const struct ranked_search *s)
{
    uint32_t best = s->grid.n_variants;
    double lowest = INFINITY, lead = INFINITY;
    for (uint32_t v = 0; v < s->grid.n_variants; v++) {
        lead = fmin(lead, s->prior[v]);
        if (s->leads[v] && !s->used[v] && !is_variant_queued(s, v) && s->prior[v] < lowest) {
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
    double left = effort_left(s);
    for (uint32_t i = 0; i < want; i++) {
        uint32_t v = next_tile(s), before = s->n_queue;
        if (v < s->grid.n_variants && effort_of(s, s->representative[v]) <= left) {
            enqueue(s, s->representative[v]);
            left -= effort_of(s, s->representative[v]);
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

/* Beside the seeds, for compilers that would be idle: what is to be hoped most of, with two
 * settings, when nothing has been measured yet. */
static void step_beside(struct ranked_search *s)
{
    uint32_t c, other;
    struct wish w = {.fresh = s->compilers,
                     .effort = fmin(FIRST_PART * s->variants, s->compilers) - s->spent,
                     .longest = INFINITY,
                     .of_new = INFINITY,
                     .of_known = -INFINITY};
    for (uint32_t i = 0; i < s->n_queue; i++) {
        surrogate_expect(&s->surrogate, s->queue[i]);
        w.effort -= i > 0 && s->grid.variant[s->queue[i]] == s->grid.variant[s->queue[i - 1]]
                        ? 0
                        : effort_of(s, s->queue[i]);
    }
    while (w.effort > 0 && (c = most_hopeful(s, &w)) != GRID_NONE) {
        propose_one(s, &w, c);
        if ((other = opposite(s, c)) != GRID_NONE) {
            propose_one(s, &w, other);
        }
    }
    surrogate_forget(&s->surrogate);
}

static void step_tail(struct ranked_search *s)
{
    for (; s->next < s->books.n && s->n_queue < STEP_MOST; s->next++) {
        enqueue(s, s->next);
    }
}

static void step_seeds(struct ranked_search *s)
{
    uint32_t done = s->n_used - least(s->n_failed, s->n_used);
    if (done < s->n_seeds) {
        step_tiles(s, s->n_seeds - done);
    }
    if (!s->begun) {
        step_beside(s);
    }
    s->begun = true;
}

/* One step of the current stage, and which stage follows. */
static void take_step(struct ranked_search *s)
{
    if (s->stage == SEEDS && (!s->begun || most_have_come(s))) {
        step_seeds(s);
        s->stage = s->n_queue > 0 ? SEEDS : NEXT;
    }
    if (s->stage == NEXT && most_have_come(s)) {
        step_next(s);
    }
    if (s->stage == NEXT && s->n_queue == 0 && s->books.out == 0) {
        s->stage = RING;
    }
    if (s->stage == RING) {
        step_ring(s);
        s->stage = s->n_queue > 0 ? RING : TAIL;
    }
}

/* Fills the queue with what is next; false: nothing is. */
static bool decide(struct ranked_search *s)
{
    s->n_queue = s->at = 0;
    if (s->stage != TAIL) {
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
        free(s->used);
        free(s->arrived);
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
    s->used = calloc(setup->n + 1, sizeof(*s->used));
    s->arrived = calloc(setup->n + 1, sizeof(*s->arrived));
    s->representative = calloc(setup->n + 1, sizeof(*s->representative));
    s->prior = calloc(setup->n + 1, sizeof(*s->prior));
    s->leads = calloc(setup->n + 1, sizeof(*s->leads));
    if (!s->score || !s->used || !s->arrived || !s->representative || !s->prior || !s->leads) {
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
    r = r ? r : surrogate_init(&s->surrogate, &s->grid, setup->predicted_us, err);
    if (r == 0) {
        find_representatives(s);
        find_leaders(s);
    }
    return r;
}

static uint32_t count_seeds(const struct strategy_setup *setup)
{
    return least(SEEDS_MOST, (3 * (setup->variants ? setup->variants : setup->budget) + 4) / 5);
}

static int ranked_open(const struct strategy_setup *setup, struct strategy **out, struct error *err)
{
    struct ranked_search *s = calloc(1, sizeof(*s));
    if (!s) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", setup->n);
    }
    s->base.ops = &ranked_strategy;
    s->flat = !setup->space;
    s->predicted = setup->predicted_us;
    s->effort = setup->effort;
    s->best = INFINITY;
    s->variants = setup->variants;
    s->n_seeds = count_seeds(setup);
    s->compilers = setup->compilers > 0 ? setup->compilers : 1;
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

/* Something is on its way that needs no compiler. */
static bool is_measuring(const struct ranked_search *s)
{
    for (uint32_t c = 0; s->books.out > 0 && c < s->books.n; c++) {
        if (proposals_is_out(&s->books, c) && s->arrived[variant_of(s, c)]) {
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
        if (s->stage != TAIL && is_measuring(s)) {
            return STRATEGY_WAIT;
        }
        if (!decide(s)) {
            s->idle = true;
            return s->stage != TAIL && s->books.out > 0 ? STRATEGY_WAIT : STRATEGY_DONE;
        }
    }
}

static void ranked_observe(struct strategy *base, uint32_t candidate, const struct observation *o)
{
    struct ranked_search *s = (struct ranked_search *)base;
    proposals_observe(&s->books, candidate, o);
    use(s, candidate);
    arrive(s, candidate);
    s->idle = false;
    s->n_failed += !o->ok;
    s->given_back += o->ok ? 0 : effort_of(s, candidate);
    if (o->ok && isnan(s->score[candidate])) {
        s->score[candidate] = o->score;
        s->n_known++;
        s->best = fmin(s->best, o->score);
        if (!s->flat) {
            surrogate_learn(&s->surrogate, candidate, o->score);
        }
    }
}

static bool is_variant_out(const struct ranked_search *s, uint32_t v)
{
    for (uint32_t c = 0; c < s->books.n; c++) {
        if (s->grid.variant[c] == v && proposals_is_out(&s->books, c)) {
            return true;
        }
    }
    return false;
}

/* Once most have come and nothing new may be compiled: it must promise to win. */
static bool ranked_spare(struct strategy *base, uint32_t candidate)
{
    struct ranked_search *s = (struct ranked_search *)base;
    if (s->flat || !s->idle || !most_have_come(s) || !isfinite(s->best) ||
        !proposals_is_out(&s->books, candidate) ||
        surrogate_least(&s->surrogate, candidate) < surrogate_value(&s->surrogate, s->best)) {
        return false;
    }
    proposals_spare(&s->books, candidate);
    if (!is_variant_out(s, s->grid.variant[candidate])) {
        arrive(s, candidate);
    }
    s->idle = false;
    return true;
}

const struct strategy_ops ranked_strategy = {"ranked",       ranked_open,    ranked_close,
                                             ranked_propose, ranked_observe, ranked_spare};
