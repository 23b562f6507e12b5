/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search: a queue of candidates on their way through the compilers. The search fills the queue
 * in the order reference, former best, hints, strategy, and measures any candidate that is ready.
 * The reference is compiled first. A candidate that is ready before the reference is measured at
 * once, and its trial is sent when the reference's time is known. The device decides how the queue
 * is emptied:
 *
 *   cuda    any ready candidate: the host's cores compile while the device measures.
 *   replay  the same, by the clock of a recorded host (runner/compilers.h): a seed fixes the run.
 *   cpu     when every build in the queue is done: a compiler would slow a kernel down.
 *
 * `budget` limits the measured configs of the key; reference, former best, hints and measurements
 * of earlier runs count. A failed config gives its place back (strategy/strategy.c). 0 means
 * BUDGET_DEFAULT, or no limit for the strategy exhaustive; the strategy given has no budget. When
 * the reference may not win, at least one config that may win is measured. The former best is
 * measured also with a budget of 1. A part of a large budget is kept for variations of the best at
 * the end.
 *
 * budget_ms limits the time on the device, wall_ms the life of the job, both over all orders of the
 * job. When a limit has passed and some config works, no new candidate begins; the finals still
 * run.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/conditions.h"
#include "runner/job_inner.h"

enum {
    /* configs of the budget for each variation of the best at the end: a budget below 8 has none */
    ENOUGH = 8,
};

struct search {
    struct job *job;                          /* borrowed */
    uint32_t look, n;                         /* most candidates in the queue; candidates in it */
    struct candidate *queue[RUNNER_LOOK_MAX]; /* owned; the first was proposed first */
    bool batches;                             /* on cpu: fill the queue, compile all, measure all */
    bool filling; /* on cpu: no candidate of the current batch has been measured yet */
    bool asked_reference, exhausted, varied;
    uint32_t kept_for_end; /* number of configs of the budget kept for variations of the best */
    /* Plan ids that come before the strategy's proposals: n_begun candidates that were in the queue
     * when the search was set aside, then the former best, hints, variations. */
    uint32_t n_ids, n_begun, next;
    uint32_t *ids; /* owned; search_open_strategy() puts the reference's id behind the last */
};

/* ---- the next candidate ---------------------------------------------------------------------- */

/* Adds a config to `ids`, unless it has an outcome, is in `ids`, or is the reference. */
static void search_add_id(struct search *s, uint32_t id)
{
    const struct job *j = s->job;
    bool is_new = id != PLAN_NONE && !j->outcomes[id].known && id != j->reference;
    for (uint32_t i = 0; i < s->n_ids && is_new; i++) {
        is_new = s->ids[i] != id;
    }
    if (is_new) {
        s->ids[s->n_ids++] = id;
    }
}

/* Adds the former best to `ids`, and the order's hints (configs that may be good, of other keys or
 * of an earlier stamp) that the plan and the restrictions allow. */
static int add_hints(struct search *s, uint32_t room, struct error *err)
{
    struct job *j = s->job;
    const struct tune_order *o = j->order;
    search_add_id(s, j->former);
    for (uint32_t i = 0; i < o->n_hints && s->n_ids - s->n_begun < room; i++) {
        const struct record *config = &o->hints[i];
        struct rejection why;
        uint32_t id;
        if (plan_check(&j->plan, config, &why) || !allowed_config(&j->order->request, config)) {
            continue;
        }
        int r = plan_add(&j->plan, config, &id, err);
        if (r) {
            return r;
        }
        search_add_id(s, id);
    }
    return 0;
}

static bool may_be_measured(const struct job *j, const struct record *config)
{
    const struct device *d = j->runner->device;
    struct rejection why;
    return plan_check(&j->plan, config, &why) == 0 && allowed_config(&j->order->request, config) &&
           (!d->ops->knows || d->ops->knows(d, &j->order->request.problem, config));
}

/* Variations of a search's best config: run-time settings of the family that no space has. In the
 * space, each setting would multiply the number of points, for a per cent or two on few problems.
 * For a single config they cost some milliseconds and no compile. Returns the number of variations
 * that this device can measure and the query allows. */
static uint32_t search_find_variations(const struct job *j, const struct record *config,
                                       struct record out[VARIATIONS_MAX])
{
    const struct family_target *t = j->target;
    uint32_t n = 0;
    if (!t->variation || j->given) {
        return 0;
    }
    for (uint32_t i = 0;
         n < VARIATIONS_MAX && t->variation(&j->order->request.problem, config, i, &out[n]); i++) {
        n += may_be_measured(j, &out[n]);
    }
    return n;
}

/* Adds variations of the best config, when the strategy has no more proposals. */
static int add_variations(struct search *s, struct error *err)
{
    struct job *j = s->job;
    struct record best, of_it[VARIATIONS_MAX];
    uint32_t id = job_best_but(j, NULL, 0), n = 0;
    s->varied = true;
    if (id != PLAN_NONE) {
        plan_config(&j->plan, id, &best);
        n = search_find_variations(j, &best, of_it);
    }
    for (uint32_t i = 0; i < n && i < s->kept_for_end; i++) {
        int r = plan_add(&j->plan, &of_it[i], &id, err);
        if (r) {
            return r;
        }
        search_add_id(s, id);
    }
    return 0;
}

/* Adds the candidates that were in the queue when the search was set aside. */
static int search_add_begun(struct search *s, const struct aside *kept, uint32_t room,
                            struct error *err)
{
    struct plan *p = &s->job->plan;
    for (uint32_t i = 0; kept && i < kept->n && s->n_ids < room; i++) {
        uint32_t id;
        int r = plan_add(p, &kept->kept[i].config, &id, err);
        if (r) {
            return r;
        }
        if (id < p->n_ranked) {
            search_add_id(s, id);
        }
    }
    s->n_begun = s->n_ids;
    return 0;
}

static int search_gather_ids(struct search *s, uint32_t room, struct error *err)
{
    const struct tune_order *o = s->job->order;
    const struct aside *kept = aside_find(s->job->runner, o->job);
    const uint32_t n = (kept ? kept->n : 0) + o->n_hints + VARIATIONS_MAX + 2;
    s->ids = malloc(n * sizeof(*s->ids));
    if (!s->ids) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u hints", n);
    }
    int r = search_add_begun(s, kept, room, err);
    return r ? r : add_hints(s, room, err);
}

static bool search_next_id(struct search *s, uint32_t *id)
{
    struct strategy *strategy = s->job->strategy;
    if (!s->asked_reference) {
        s->asked_reference = true;
        *id = s->job->reference;
        if (*id != PLAN_NONE) {
            return true;
        }
    }
    if (s->next < s->n_ids) {
        *id = s->ids[s->next++];
        return true;
    }
    return strategy && strategy->ops->propose(strategy, id) == 0;
}

/* ---- observing ------------------------------------------------------------------------------- */

/* Tells the strategy the outcome of a config, also of a config that was stopped early. With trials
 * of an earlier run, scores are ratios to the reference. Otherwise scores are times, since the
 * reference may be measured late. */
static void search_observe_outcome(struct job *j, uint32_t id)
{
    const struct outcome *o = &j->outcomes[id];
    struct observation seen = {.ok = o->measured,
                               .score = j->reference_again ? job_score(j, o) : o->time_us};
    if (j->strategy && id < j->plan.n_ranked) {
        strategy_observe(j->strategy, id, &seen);
    }
}

/* The least time in us of a config in this run: measured in this run, or computed as an earlier
 * run's ratio x the reference's time in this run. NaN: no config works yet. */
static double best_known(const struct job *j)
{
    double best = j->best_us;
    for (uint32_t i = 0; i < j->n_outcomes; i++) {
        const struct outcome *o = &j->outcomes[i];
        double us = o->ratio * j->reference_us;
        if (o->known && !o->here && !o->out_of_race && !(best <= us)) {
            best = us;
        }
    }
    return best;
}

/* The time in us that a candidate must not exceed by much (measure.c); 0: no early stop. */
static double best_to_beat(const struct job *j, const struct candidate *c)
{
    double best = j->given || c->reference || c->id == j->former ? NAN : best_known(j);
    return isnan(best) ? 0 : best;
}

/* Measures a candidate and tells the strategy. `refused`: why job_candidate() failed, which becomes
 * a failed trial; NULL: the candidate has a build. */
static int search_measure(struct search *s, struct candidate *c, const struct error *refused,
                          struct error *err)
{
    struct job *j = s->job;
    struct trial *t = malloc(sizeof(*t));
    const bool again = c->reference && j->reference_again && !refused;
    int r = 0;
    if (!t) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a trial");
    }
    if (refused) {
        trial_begin(t, j, c, "measure");
        trial_fail(t, refused);
    } else {
        job_module(j, c);
        r = measure_candidate(j, c, again ? "reference" : "measure", best_to_beat(j, c), t, err);
    }
    if (r != ERROR_CANCELLED) {
        job_record(j, c, t);
        search_observe_outcome(j, c->id);
    }
    free(t);
    return r;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static int search_fill_queue(struct search *s, struct error *err)
{
    struct job *j = s->job;
    s->filling = s->filling || s->n == 0;
    while (s->n < s->look && !s->exhausted && (s->filling || !s->batches)) {
        uint32_t id;
        if (!search_next_id(s, &id)) {
            break;
        }
        struct candidate *c = malloc(sizeof(*c));
        if (!c) {
            return error_set(err, ERROR_NO_MEMORY, "no memory for a candidate");
        }
        struct error why = ERROR_NULL;
        int r = job_candidate(j, id, c, &why);
        c->reference = id == j->reference;
        if (r == 0) {
            s->queue[s->n++] = c;
            continue;
        }
        r = search_measure(s, c, &why, err);
        free(c);
        if (r) {
            return r;
        }
    }
    return 0;
}

/* True when no candidate may be measured before the reference: trials of earlier runs compare with
 * this run only by the reference's time. Batches measure nothing before the last compile anyway. */
static bool first_only(const struct search *s)
{
    const struct job *j = s->job;
    return s->n > 0 && s->queue[0]->reference && (j->reference_again || j->given || s->batches);
}

/* The place in the queue of the next candidate to measure; s->n: no candidate is ready. */
static uint32_t search_pick_candidate(const struct search *s)
{
    uint32_t ready = s->n, pending = 0;
    for (uint32_t i = s->n; i-- > 0;) {
        bool built = s->job->runner->compilers->is_built(s->job, s->queue[i]);
        ready = built ? i : ready;
        pending += !built;
    }
    if ((s->batches && pending > 0) || (first_only(s) && ready != 0)) {
        return s->n;
    }
    return ready;
}

static struct candidate *search_take_candidate(struct search *s, uint32_t at)
{
    struct candidate *c = s->queue[at];
    s->n--;
    memmove(&s->queue[at], &s->queue[at + 1], (s->n - at) * sizeof(s->queue[0]));
    return c;
}

static bool is_time_up(const struct job *j)
{
    const struct query *q = &j->order->request.query;
    return (q->budget_ms > 0 && j->device_ms >= (double)q->budget_ms) ||
           (q->wall_ms > 0 && runner_now_ms(j->runner) - j->began_ms >= (double)q->wall_ms);
}

/* True when the search may end: a config works, and the reference has a time. */
static bool has_answer(const struct job *j)
{
    return !isnan(best_known(j)) && isfinite(j->reference_us);
}

/* The longest wait for compilers in ms, up to `most`: a search with an answer does not wait beyond
 * its wall_ms. */
static int64_t wait_most(const struct job *j, int64_t most)
{
    const int64_t wall_ms = j->order->request.query.wall_ms;
    if (wall_ms <= 0 || !has_answer(j)) {
        return most;
    }
    const double left = (double)wall_ms - (runner_now_ms(j->runner) - j->began_ms);
    return left > 1 ? (int64_t)fmin(left, (double)most) : 1;
}

/* Removes candidates from the queue whose compile the strategy does not want to wait for. False: no
 * candidate was removed. */
static bool spare_some(struct search *s)
{
    struct strategy *strategy = s->job->strategy;
    uint32_t before = s->n;
    if (!strategy || !strategy->ops->spare || s->exhausted) {
        return false;
    }
    for (uint32_t i = s->n; i-- > 0;) {
        uint32_t id = s->queue[i]->id;
        if (!s->queue[i]->reference && id < s->job->plan.n_ranked &&
            strategy->ops->spare(strategy, id)) {
            struct candidate *c = search_take_candidate(s, i);
            job_drop(s->job, c);
            free(c);
        }
    }
    return s->n < before;
}

static void search_set_aside(struct search *s)
{
    aside_keep(s->job, s->queue, s->n);
    s->job->set_aside = true;
}

static int search_step(struct search *s, struct error *err)
{
    struct job *j = s->job;
    if (job_turn_is_over(j)) {
        search_set_aside(s);
        return 0;
    }
    uint32_t at = search_pick_candidate(s);
    if (at == s->n && !first_only(s) && !s->batches && spare_some(s)) {
        return job_poll(j, err);
    }
    if (at == s->n && has_answer(j) && is_time_up(j)) {
        s->exhausted = true;
        return 0;
    }
    if (at == s->n) {
        bool waits = first_only(s) || s->batches;
        int64_t most = waits ? ASIDE_NEVER : job_patience(j, s->queue, s->n);
        if (most == 0) {
            search_set_aside(s);
            return 0;
        }
        return j->runner->compilers->wait(j, s->queue, first_only(s) ? 1 : s->n, wait_most(j, most),
                                          err);
    }
    s->filling = false;
    struct candidate *c = search_take_candidate(s, at);
    int r = 0;
    while (r == 0 && c->build->state == BUILD_PENDING) {
        /* replay: the recorded compile is over, the real one may still run */
        r = j->runner->compilers->wait(j, &c, 1, ASIDE_NEVER, err);
    }
    r = r ? r : search_measure(s, c, NULL, err);
    job_release(j, c);
    free(c);
    if (is_time_up(j) && has_answer(j)) {
        s->exhausted = true;
    }
    return r ? r : job_poll(j, err);
}

/* ---- the whole search ------------------------------------------------------------------------ */

/* False when the query's restriction excludes the reference. The search then measures the reference
 * only to compute ratios. */
static bool reference_may_win(const struct job *j)
{
    struct record config;
    if (j->reference == PLAN_NONE) {
        return false;
    }
    plan_config(&j->plan, j->reference, &config);
    return allowed_config(&j->order->request, &config);
}

/* How many configs of the budget may still be measured, besides the reference; PLAN_ALL: all. */
static uint32_t budget_left(const struct job *j)
{
    int64_t left = plan_budget(&j->plan), measured = j->done - j->failed;
    if (left == PLAN_ALL) {
        return PLAN_ALL;
    }
    left -= j->reference != PLAN_NONE && !j->reference_again;
    left -= measured;
    if (left <= 0 && measured == 0 && !reference_may_win(j)) {
        return 1; /* with 0 no config could win */
    }
    return left > 0 ? (uint32_t)left : 0;
}

/* How many configs of the budget to keep for variations of the best at the end: as many as the
 * reference has variations (the best has about as many), at most an eighth of the budget. */
static uint32_t keep_for_end(const struct job *j, uint32_t left)
{
    struct record config, unused[VARIATIONS_MAX];
    if (j->reference == PLAN_NONE) {
        return 0;
    }
    plan_config(&j->plan, j->reference, &config);
    const uint32_t n = search_find_variations(j, &config, unused);
    return n < left / ENOUGH ? n : left / ENOUGH;
}

/* Opens the strategy with the budget that the configs in `ids` and the reference leave. The
 * strategy must not propose these configs again. Then tells the strategy all earlier outcomes. */
static int search_open_strategy(struct search *s, uint32_t budget, struct error *err)
{
    struct job *j = s->job;
    s->ids[s->n_ids] = j->reference; /* the strategy ignores PLAN_NONE: no reference */
    const struct strategy_setup setup = {.budget = budget,
                                         .coming = s->ids + s->n_begun,
                                         .n_coming = s->n_ids - s->n_begun + 1,
                                         .begun = s->ids,
                                         .n_begun = s->n_begun};
    int r = plan_open_strategy(&j->plan, &setup, &j->strategy, err);
    for (uint32_t i = 0; r == 0 && i < j->plan.n_ranked; i++) {
        if (j->outcomes[i].known) {
            search_observe_outcome(j, i);
        }
    }
    return r;
}

static void search_end(struct search *s)
{
    while (s->n > 0) {
        struct candidate *c = search_take_candidate(s, s->n - 1);
        job_release(s->job, c);
        free(c);
    }
    free(s->ids);
}

/* Records the speed of the independent reference. In took_ms, prepare() filled the operands and
 * computed the check rows with that reference. Before the first candidate no other speed on this
 * device is known, and measure.c derives its first time limit from it. */
static void note_reference(struct job *j, double took_ms)
{
    const struct workload *w = &j->workload;
    const double did = (double)w->n_checks * (double)w->check_length * (double)w->check_terms;
    j->reference_rate = took_ms > 0 ? did / (took_ms * 1e3) : 0;
}

/* Prepares the problem on the device while the first compiles run: both take about as long. */
static int search_prepare_problem(struct job *j, struct error *err)
{
    struct device *d = j->runner->device;
    const struct request *q = &j->order->request;
    struct timeline *t = &j->runner->timeline;
    int r = pauses_wait_to_prepare(j, err);
    if (r) {
        return r;
    }
    enum phase before = timeline_enter(t, PHASE_PREPARE);
    runner_announce(j->runner, "prepare", NULL, runner_limit(j->runner, PREPARE_LIMIT_MS));
    if (!j->runner->pauses.bound) { /* a job that pauses has kept the GPU busy until now */
        conditions_before(d, j->doubt);
    }
    if (j->runner->unlocked[0]) {
        memcpy(j->doubt, j->runner->unlocked, sizeof(j->doubt));
    }
    double began = d->ops->clock_ms(d), waited = t->ms[PHASE_HELPERS];
    r = d->ops->prepare(d, j->family, &q->problem, conditions_drawn_seed(d, q, j->seed),
                        &j->prepared, err);
    waited = t->ms[PHASE_HELPERS] - waited;
    const double took_ms = fmax(d->ops->clock_ms(d) - began - waited, 0);
    j->device_ms += took_ms;
    j->turn_began_ms = runner_now_ms(j->runner);
    note_reference(j, took_ms);
    timeline_enter(t, before);
    return r;
}

int job_search(struct job *j, struct error *err)
{
    struct search s = {.job = j,
                       .look = runner_look(j->runner),
                       .batches = j->runner->compilers->real &&
                                  strcmp(j->runner->device->info.kind, "cpu") == 0};
    uint32_t left = budget_left(j);
    s.kept_for_end = keep_for_end(j, left);
    int r = search_gather_ids(&s, left, err);
    const uint32_t taken = s.n_ids - s.n_begun + s.kept_for_end;
    uint32_t proposals = left == PLAN_ALL ? left : left > taken ? left - taken : 0;
    if (r == 0 && proposals > 0) {
        r = search_open_strategy(&s, proposals, err);
    }
    j->total = j->done + (left < j->plan.n_ranked ? left : j->plan.n_ranked) +
               (j->reference != PLAN_NONE && !j->reference_again);
    notice_progress(j, "compile", NULL);
    r = r ? r : search_fill_queue(&s, err);
    compile_pool_drop_unheld(j->runner->pool);
    aside_drop(j->runner, j->order->job);
    r = r ? r : search_prepare_problem(j, err);
    while (r == 0 && !j->set_aside) {
        r = search_fill_queue(&s, err);
        if (r == 0 && s.n == 0 && !s.exhausted && !s.varied) {
            r = add_variations(&s, err);
            r = r ? r : search_fill_queue(&s, err);
        }
        if (r || s.n == 0 || s.exhausted) {
            break;
        }
        r = search_step(&s, err);
    }
    job_without_reference(j);
    search_end(&s);
    return r;
}
