/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the strategy `ranked`; ranked.c explains them. */
#include <math.h>
#include <string.h>

#include "runner/strategy/ranked.h"

enum {
    NEXT_MOST = 6, /* new variants of a step; more with many compilers */
    BATCH = 8,     /* most proposals of a step; more with many compilers */
    LATE_PART = 5, /* a step may begin while at most 1 / LATE_PART of the compilers are busy */
    CENTRES = 3,   /* best variants whose neighbouring settings are measured */
    /* most configs measured for every two variants, to save time on the device */
    CONFIGS_OF_TWO = 6
};

/* a new variant's hope (log of its time, predicted optimistically: surrogate_hope) may be
 * this far above the logarithm of the best time */
static const double
    WORTH = 0.02,
    /* a setting of a compiled variant must have a hope this far below the log of the best time */
    GAIN = 0.002,
    /* of two new variants whose hopes differ by less, the variant that the cache has goes first */
    ALIKE = 0.02, CONFIGS_SHARE = 0.0112, /* share of all configs that is measured at most */
    /* the log of a seed's predicted time is at most this far above the least */
    SEED_WORTH = 0.08,
    NEAR = 1.04, /* a ring's variant has a score of at most this multiple of the best score */
    /* a hope is so many standard deviations below the mean: in the first step; in later steps */
    CURIOUS = 1, SURE = 0.5,
    FIRST_PART = 0.87, /* share of the compile effort that the first step may use */
    /* no step waits for a compile with more effort than this, and stage NEXT starts no such one */
    LONG = 1.12, OVER = 0.2, /* the last variant may exceed the rest of the effort by this much */
    LEAST = 0.25;            /* with less effort left than this no variant is started */

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
        if (s->grid->variant[s->queue[i]] == v) {
            return true;
        }
    }
    return false;
}

static void ranked_enqueue(struct ranked_search *s, uint32_t c)
{
    if (s->n_queue < RANKED_STEP_MOST && !is_queued(s, c) && !strategy_has_taken(&s->base, c)) {
        s->queue[s->n_queue++] = c;
    }
}

double ranked_effort(const struct ranked_search *s, uint32_t c)
{
    return s->effort ? s->effort[c] : 1;
}

void ranked_use(struct ranked_search *s, uint32_t c)
{
    uint32_t v = s->grid->variant[c];
    s->n_used += !s->of[v].used;
    s->spent += s->of[v].used ? 0 : ranked_effort(s, c);
    s->of[v].used = true;
}

void ranked_arrive(struct ranked_search *s, uint32_t c)
{
    uint32_t v = s->grid->variant[c];
    s->n_arrived += !s->of[v].arrived;
    s->come += s->of[v].arrived ? 0 : ranked_effort(s, c);
    s->of[v].arrived = true;
}

/* Variants that are being compiled or wait for a compiler. */
static uint32_t count_late(const struct ranked_search *s)
{
    return s->n_used - s->n_arrived;
}

/* True when no variant waits for a compiler: all late ones are being compiled. */
bool ranked_none_waits(const struct ranked_search *s)
{
    return count_late(s) <= s->compilers;
}

static uint32_t ranked_least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* True when only few variants are being compiled, and all of these are slow to compile. */
bool ranked_most_have_come(const struct ranked_search *s)
{
    bool come = count_late(s) <= s->compilers / LATE_PART;
    for (uint32_t c = 0; come && s->base.out > 0 && c < s->base.n; c++) {
        come = !strategy_is_out(&s->base, c) || s->of[s->grid->variant[c]].arrived ||
               ranked_effort(s, c) > LONG;
    }
    return come;
}

/* The remaining compile effort, in variants of mean effort. The effort of failed variants counts as
 * remaining, up to the original effort. */
static double effort_left(const struct ranked_search *s)
{
    double most = s->variants + fmin(s->given_back, s->variants);
    return s->variants == 0 ? INFINITY : most - s->spent;
}

bool ranked_all_are_begun(const struct ranked_search *s)
{
    return s->stage != SEEDS && effort_left(s) < LEAST;
}

/* How many configs may still be measured: three for each variant of the compile effort, or a share
 * of the space when that is less, but no less than three for each of variants_least. */
static uint32_t configs_left(const struct ranked_search *s)
{
    const double least = CONFIGS_OF_TWO * s->variants_least / 2;
    double share = fmax(CONFIGS_SHARE * s->base.n, least);
    uint32_t most = (uint32_t)fmin(CONFIGS_OF_TWO * s->variants / 2, share);
    return s->variants == 0 ? UINT32_MAX : most - ranked_least(most, s->n_known + s->base.out);
}

/* configs_left(), less the configs that stage RING needs for a single variant. Without these, the
 * winner's settings would not be compared with their neighbours. */
static uint32_t configs_before_ring(const struct ranked_search *s)
{
    const struct space *space = s->grid->space;
    uint32_t left = configs_left(s), ring = 0;
    for (uint32_t p = s->grid->n_compile; p < space->n_params; p++) {
        ring += space->params[p].n - 1;
    }
    return left == UINT32_MAX ? left : left - ranked_least(left, ring);
}

/* How many proposals a step may still make, and which. A known variant is used or queued; any other
 * is new. */
struct wish {
    uint32_t fresh;          /* configs of new variants still allowed */
    uint32_t settings;       /* configs of known variants still allowed */
    double effort;           /* compile effort still allowed */
    double longest;          /* largest compile effort that a new variant may have */
    double of_new, of_known; /* largest hope of a config of a new variant; of a known variant */
    /* a hope: the mean less so many standard deviations; many favour less known configs */
    double deviations;
    /* new variants must be neighbours of this candidate's variant; GRID_NONE: any variant */
    uint32_t beside;
    bool thrifty; /* of new variants with similar hopes, prefer those that the cache has */
};

static bool ranked_is_known(const struct ranked_search *s, uint32_t c)
{
    uint32_t v = s->grid->variant[c];
    return s->of[v].used || is_variant_queued(s, v);
}

static bool ranked_is_present(const struct ranked_search *s, uint32_t c)
{
    return s->present && s->present[c];
}

/* True when the wish allows the new variant of a candidate. The effort of a variant that the cache
 * has counts too: a search must depend on the cache as little as possible. */
static bool ranked_fits_wish(const struct ranked_search *s, const struct wish *w, uint32_t c)
{
    double effort = ranked_effort(s, c);
    bool near = w->beside == GRID_NONE || grid_compile_distance(s->grid, c, w->beside) == 1;
    bool affordable = effort <= w->longest && effort <= w->effort + OVER;
    return near && affordable && w->fresh > 0;
}

/* The candidate that fits the wish and has the lowest hope below *least; sets *least to that hope.
 * GRID_NONE: no candidate. present: only new variants that the cache has. */
static uint32_t find_hopeful(const struct ranked_search *s, const struct wish *w, bool present,
                             double *least)
{
    uint32_t best = GRID_NONE;
    for (uint32_t i = 0; i < s->surrogate.n; i++) {
        uint32_t c = s->surrogate.member[i];
        double hope = surrogate_hope(&s->surrogate, c, w->deviations);
        if (hope >= *least || (present && !ranked_is_present(s, c)) ||
            strategy_has_taken(&s->base, c) || is_queued(s, c)) {
            continue;
        }
        bool known = ranked_is_known(s, c);
        if (known ? !present && w->settings > 0 && hope < w->of_known
                  : ranked_fits_wish(s, w, c) && hope < w->of_new) {
            best = c;
            *least = hope;
        }
    }
    return best;
}

/* The candidate with the lowest hope. Instead of a compile, a thrifty wish prefers a variant with
 * nearly the same hope that the cache has. GRID_NONE: no candidate fits. */
static uint32_t most_hopeful(const struct ranked_search *s, const struct wish *w)
{
    double least = INFINITY;
    uint32_t best = find_hopeful(s, w, false, &least);
    if (best == GRID_NONE || !w->thrifty || !s->present || ranked_is_present(s, best) ||
        ranked_is_known(s, best)) {
        return best;
    }
    least += ALIKE;
    uint32_t other = find_hopeful(s, w, true, &least);
    return other == GRID_NONE ? best : other;
}

static void propose_one(struct ranked_search *s, struct wish *w, uint32_t c)
{
    uint32_t v = s->grid->variant[c];
    if (!s->of[v].used && !is_variant_queued(s, v)) {
        w->fresh--;
        w->effort -= ranked_effort(s, c);
    } else {
        w->settings -= w->settings > 0;
    }
    ranked_enqueue(s, c);
    surrogate_expect(&s->surrogate, c);
}

static void propose_hopeful(struct ranked_search *s, struct wish *w)
{
    uint32_t c, batch = s->compilers > BATCH ? s->compilers : BATCH;
    uint32_t most = ranked_least(batch, configs_left(s));
    while (s->n_queue < most && (c = most_hopeful(s, w)) != GRID_NONE) {
        propose_one(s, w, c);
    }
}

/* Tells the surrogate which proposals are still out, so that similar configs are not proposed. */
static void expect_proposals(struct ranked_search *s)
{
    for (uint32_t i = 0; s->base.out > 0 && i < s->surrogate.n; i++) {
        if (strategy_is_out(&s->base, s->surrogate.member[i])) {
            surrogate_expect(&s->surrogate, s->surrogate.member[i]);
        }
    }
}

/* How many further settings of known variants may be measured now. While variants compile: three
 * configs for each arrived variant, since better variants may come. */
static uint32_t settings_left(const struct ranked_search *s)
{
    double most = CONFIGS_OF_TWO * s->come / 2;
    double done = s->n_known + s->base.out;
    return s->variants == 0 || count_late(s) == 0 ? UINT32_MAX : (uint32_t)fmax(most - done, 0);
}

/* The measured candidate with the least score whose variant differs from those of the candidates in
 * `others`; GRID_NONE: no candidate. */
static uint32_t find_best(const struct ranked_search *s, const uint32_t others[], uint32_t n)
{
    uint32_t best = GRID_NONE;
    for (uint32_t c = 0; c < s->base.n; c++) {
        bool had = isnan(s->score[c]);
        for (uint32_t i = 0; i < n && !had; i++) {
            had = s->grid->variant[others[i]] == s->grid->variant[c];
        }
        if (!had && (best == GRID_NONE || s->score[c] < s->score[best])) {
            best = c;
        }
    }
    return best;
}

/* A step of stage NEXT. With many compilers, a step compiles several new variants in parallel, so
 * that the search has few steps. Variants that differ from the best in one parameter come first:
 * where the model errs by a few per cent about stages or schedulers, its other favourites are far
 * from the best and have the same error. */
static void step_next(struct ranked_search *s)
{
    const double effort = effort_left(s);
    const bool many = s->compilers > NEXT_MOST;
    const uint32_t fresh = many ? s->compilers - count_late(s) : NEXT_MOST;
    double best = isfinite(s->best) ? surrogate_value(&s->surrogate, s->best) : INFINITY;
    struct wish w = {.fresh = fresh,
                     .deviations = SURE,
                     .beside = s->variants > 0 ? find_best(s, NULL, 0) : GRID_NONE,
                     .settings = ranked_least(settings_left(s), configs_before_ring(s)),
                     .effort = effort,
                     .longest = s->variants > 0 ? LONG : INFINITY,
                     .of_new = best + WORTH,
                     .of_known = best - GAIN,
                     .thrifty = true};
    expect_proposals(s);
    if (configs_before_ring(s) <= effort) {
        w.of_known = -INFINITY; /* the remaining proposals are for new variants */
    }
    propose_hopeful(s, &w);
    if (s->variants > 0 && (s->n_queue == 0 || (many && w.fresh < fresh))) {
        w.of_new = INFINITY;
        w.of_known = -INFINITY;
        propose_hopeful(s, &w);
        w.beside = GRID_NONE;
        propose_hopeful(s, &w);
    }
    surrogate_forget(&s->surrogate);
}

/* The best candidates of the best three variants, if their scores are near the best score; the best
 * first. Stage RING measures settings around these centres. */
static uint32_t find_centres(const struct ranked_search *s, uint32_t out[CENTRES])
{
    uint32_t n = 0;
    for (; n < CENTRES; n++) {
        uint32_t best = find_best(s, out, n);
        if (best == GRID_NONE || s->score[best] > NEAR * s->best) {
            break;
        }
        out[n] = best;
    }
    return n;
}

/* Queues settings that differ from a centre's in `apart` parameters. */
static void add_neighbours(struct ranked_search *s, uint32_t centre, uint32_t apart)
{
    for (uint32_t c = 0; c < s->base.n; c++) {
        if (s->grid->variant[c] == s->grid->variant[centre] &&
            grid_settings_distance(s->grid, c, centre) == apart) {
            ranked_enqueue(s, c);
        }
    }
}

static void step_ring(struct ranked_search *s)
{
    uint32_t centres[CENTRES] = {0}, n = find_centres(s, centres);
    for (uint32_t i = 0; i < n; i++) {
        add_neighbours(s, centres[i], 1);
    }
    if (n > 0 && s->n_queue == 0) {
        add_neighbours(s, centres[0], 2);
    }
    s->n_queue = ranked_least(s->n_queue, configs_left(s));
}

/* The unused variant that leads its tile and has the least predicted time, if that is near the
 * least of all variants; n_variants: no tile is left. */
static uint32_t next_tile(const struct ranked_search *s)
{
    uint32_t best = s->grid->n_variants;
    double lowest = INFINITY, lead = INFINITY;
    for (uint32_t v = 0; v < s->grid->n_variants; v++) {
        lead = fmin(lead, s->of[v].prior);
        if (s->of[v].leads && !s->of[v].used && !is_variant_queued(s, v) &&
            s->of[v].prior < lowest) {
            best = v;
            lowest = s->of[v].prior;
        }
    }
    return lowest <= lead + SEED_WORTH ? best : s->grid->n_variants;
}

/* Of the candidate's variant, the candidate with opposite settings that is predicted fastest. All
 * run-time parameters differ; only expert_order may be the same. */
static uint32_t ranked_find_opposite(const struct ranked_search *s, uint32_t c)
{
    uint32_t best = GRID_NONE;
    for (uint32_t k = 0; k < s->base.n; k++) {
        bool other = s->grid->variant[k] == s->grid->variant[c];
        for (uint32_t i = s->grid->n_compile; other && i < s->grid->space->n_params; i++) {
            other = strcmp(s->grid->space->params[i].name, "expert_order") == 0 ||
                    grid_at(s->grid, k)->at[i] != grid_at(s->grid, c)->at[i];
        }
        if (other && (best == GRID_NONE || s->predicted[k] < s->predicted[best])) {
            best = k;
        }
    }
    return best;
}

/* Queues the best variants of up to `want` tiles, each with two settings: settings can cost a third
 * of the time, and the model may err about them. */
static void step_tiles(struct ranked_search *s, uint32_t want)
{
    double left = effort_left(s);
    for (uint32_t i = 0; i < want; i++) {
        uint32_t v = next_tile(s), before = s->n_queue;
        if (v < s->grid->n_variants && ranked_effort(s, s->of[v].representative) <= left) {
            ranked_enqueue(s, s->of[v].representative);
            left -= ranked_effort(s, s->of[v].representative);
        }
        if (s->n_queue == before) {
            break;
        }
        uint32_t c = ranked_find_opposite(s, s->of[v].representative);
        if (c != GRID_NONE) {
            ranked_enqueue(s, c);
        }
    }
}

/* The compile effort of the first step. A search of as few variants as its target wants
 * (family_target.variants_least) begins them all: a second step would take as long as the first,
 * and found no better configs. */
static double effort_of_seeds(const struct ranked_search *s)
{
    const bool few = s->variants_least > VARIANTS_LEAST && s->variants <= s->variants_least;
    const double part = few ? 1 : FIRST_PART;
    return fmin(part * s->variants, s->compilers);
}

/* Beside the seeds, gives idle compilers the variants with the lowest hopes, two settings each,
 * before any measurement. The choice does not depend on the cache. So a search that begins again
 * after its runner was killed begins alike, and compiling ahead compiles the right variants. */
static void step_beside(struct ranked_search *s)
{
    uint32_t c, other;
    struct wish w = {.fresh = s->compilers,
                     .deviations = CURIOUS,
                     .beside = GRID_NONE,
                     .effort = effort_of_seeds(s) - s->spent,
                     .longest = INFINITY,
                     .of_new = INFINITY,
                     .of_known = -INFINITY};
    for (uint32_t i = 0; i < s->n_queue; i++) {
        surrogate_expect(&s->surrogate, s->queue[i]);
        w.effort -= i > 0 && s->grid->variant[s->queue[i]] == s->grid->variant[s->queue[i - 1]]
                        ? 0
                        : ranked_effort(s, s->queue[i]);
    }
    while (w.effort > 0 && (c = most_hopeful(s, &w)) != GRID_NONE) {
        propose_one(s, &w, c);
        if ((other = ranked_find_opposite(s, c)) != GRID_NONE) {
            propose_one(s, &w, other);
        }
    }
    surrogate_forget(&s->surrogate);
}

static void step_tail(struct ranked_search *s)
{
    for (; s->next < s->base.n && s->n_queue < RANKED_STEP_MOST; s->next++) {
        ranked_enqueue(s, s->next);
    }
}

static void step_seeds(struct ranked_search *s)
{
    uint32_t done = s->n_used - ranked_least(s->n_failed, s->n_used);
    if (done < s->n_seeds) {
        step_tiles(s, s->n_seeds - done);
    }
    if (!s->begun) {
        step_beside(s);
    }
    s->begun = true;
}

/* Takes a step of the current stage, and chooses the next stage. */
static void take_step(struct ranked_search *s)
{
    if (s->stage == SEEDS && (!s->begun || ranked_most_have_come(s))) {
        step_seeds(s);
        s->stage = s->n_queue > 0 ? SEEDS : NEXT;
    }
    if (s->stage == NEXT && ranked_most_have_come(s)) {
        step_next(s);
    }
    if (s->stage == NEXT && s->n_queue == 0 && s->base.out == 0) {
        s->stage = RING;
    }
    if (s->stage == RING) {
        step_ring(s);
        s->stage = s->n_queue > 0 ? RING : TAIL;
    }
}

bool ranked_decide(struct ranked_search *s)
{
    s->n_queue = s->at = 0;
    if (s->stage != TAIL) {
        take_step(s);
    }
    if (s->stage == TAIL && s->n_queue == 0 && s->variants == 0) {
        step_tail(s);
    }
    return s->n_queue > 0;
}
