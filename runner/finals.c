/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The finals measure the best few configs, within 3 % of the best, again in alternating blocks:
 * first A B C, then C B A, and so on. So a drift of clocks and temperature affects all finalists
 * alike. Each round gives every finalist a median. A finalist's score is the median over rounds of
 * its ratio to the first finalist in the same round.
 *
 * After rounds 1, 2 and 3 a finalist leaves that is 1.2, 0.7 or 0.5 % behind the best, unless the
 * noise of this run could explain the distance. Finalists within 0.3 % of the best count as equal:
 * a tie. Among these the config that the model predicts fastest wins, then the first in text order,
 * so that a repeated tuning gives the same answer. Four rounds are run; two or three when the
 * scatter of this run's launches puts the standard deviation of a score below a tie.
 *
 * The former best of the key takes part in all four rounds, however slow. gate.c decides if it
 * stays.
 *
 * A single finalist with enough samples of this run is not measured again, unless the key had a
 * best: the trial of stage final records the decision about the former best. A finalist that only
 * an earlier run measured is verified and measured here before it may win. When it fails, the
 * finals begin again without it. When it wins, but other configs were faster in this run (they were
 * stopped early because of its ratio in the earlier run), the finals begin again with these
 * configs. A winner with few samples is timed again.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/stats.h"
#include "runner/job_inner.h"

enum {
    FINALISTS_MAX = 6,
    SEATS_MAX = FINALISTS_MAX + 1, /* finalists and the former best */
    ROUNDS = 4,
    ROUNDS_MIN = 2,
    BLOCK_MIN = 2,
    BLOCK_MIN_ASKED = 3,
    BLOCK_MAX = SAMPLES_MAX / ROUNDS
};
static const double FINAL_BAND = 1.03;
static const double STAYS[ROUNDS] = {1.012, 1.007, 1.005,
                                     INFINITY}; /* by round: largest score / best score to stay */
static const double DOUBTS = 2; /* a distance of this many standard deviations may still be noise */
static const double BLOCK_US = 3e3, BLOCK_ASKED_US = 250e3, GAP_LAUNCHES = 2, VISIT = 0.25;

struct finalist {
    struct candidate c;
    struct measuring m; /* m.kernel NULL: the finalist is out of the finals */
    double medians[ROUNDS];
    double score; /* median over the rounds of its time / time of the first finalist still loaded */
    struct trial trial;
};

struct finals {
    struct job *job; /* borrowed */
    uint32_t n, rounds;
    uint32_t n_left; /* finalists whose kernel is loaded */
    double best;     /* least score of these */
    struct finalist f[SEATS_MAX];
};

/* ---- seats ----------------------------------------------------------------------------------- */

/* Adds the former best to the finalists, unless it failed in this search; also when the search had
 * no time left to measure it. */
static uint32_t seat_former(const struct job *j, uint32_t ids[SEATS_MAX], uint32_t n)
{
    uint32_t id = j->former;
    if (id == PLAN_NONE || (j->outcomes[id].known && j->outcomes[id].out_of_race)) {
        return n;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] == id) {
            return n;
        }
    }
    ids[n] = id;
    return n + 1;
}

static uint32_t finals_choose_seats(const struct job *j, uint32_t ids[SEATS_MAX])
{
    uint32_t n = 0;
    while (n < FINALISTS_MAX) {
        uint32_t id = job_best_but(j, ids, n);
        if (id == PLAN_NONE || (n > 0 && job_score(j, &j->outcomes[id]) >
                                             FINAL_BAND * job_score(j, &j->outcomes[ids[0]]))) {
            break;
        }
        ids[n++] = id;
    }
    return seat_former(j, ids, n);
}

/* ---- preparation ----------------------------------------------------------------------------- */

static void finals_unload_kernel(struct finals *s, struct finalist *f)
{
    if (f->m.kernel) {
        measure_unload(s->job, f->m.kernel);
        f->m.kernel = NULL;
        s->n_left--;
    }
}

/* Removes a finalist whose step ended with `status`, and records its trial, which has the reason.
 * Returns 0, or the error that ends the finals. */
static int finals_drop_finalist(struct finals *s, struct finalist *f, int status)
{
    if (status != ERROR_CANCELLED) {
        job_record(s->job, &f->c, &f->trial);
    }
    if (status != MEASURE_FAILED) {
        /* the device may be lost, and then must not be touched: the kernel is not unloaded */
        return status;
    }
    finals_unload_kernel(s, f);
    return 0;
}

static int wait_build(struct finals *s, struct finalist *f, struct error *err)
{
    struct candidate *queue[] = {&f->c};
    int r = 0;
    while (r == 0 && (!s->job->runner->compilers->is_built(s->job, &f->c) ||
                      f->c.build->state == BUILD_PENDING)) {
        r = s->job->runner->compilers->wait(s->job, queue, 1, ASIDE_NEVER, err);
    }
    return r;
}

static int finals_load_kernel(struct finals *s, struct finalist *f, struct error *err)
{
    struct job *j = s->job;
    int r = wait_build(s, f, err);
    if (r) {
        return r;
    }
    job_module(j, &f->c);
    trial_begin(&f->trial, j, &f->c, "final");
    if (f->c.build->state == BUILD_FAILED) {
        trial_fail(&f->trial, &f->c.build->error);
        r = MEASURE_FAILED;
    }
    r = r ? r : measure_load(j, &f->m, err);
    s->n_left += r == 0;
    const struct outcome *o = &j->outcomes[f->c.id];
    /* a candidate that was stopped early has not been verified yet */
    if (r == 0 && o->here && o->ok) {
        f->trial.max_error = o->max_error;
        f->trial.rel_norm = o->rel_norm;
    } else if (r == 0) {
        r = measure_verify(j, &f->m, o->time_us, err);
    }
    return r ? finals_drop_finalist(s, f, r) : 0;
}

static int finals_load_all(struct finals *s, const uint32_t ids[], uint32_t n, struct error *err)
{
    for (; s->n < n; s->n++) {
        struct finalist *f = &s->f[s->n];
        memset(f, 0, sizeof(*f));
        f->m.c = &f->c;
        f->m.t = &f->trial;
        int r = job_candidate(s->job, ids[s->n], &f->c, err);
        if (r) {
            return r;
        }
        f->c.reference = ids[s->n] == s->job->reference;
    }
    for (uint32_t i = 0; i < n; i++) {
        int r = finals_load_kernel(s, &s->f[i], err);
        if (r) {
            return r;
        }
    }
    return 0;
}

static void finals_unload_all(struct finals *s, int status)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (status != ERROR_DEVICE_LOST) {
            finals_unload_kernel(s, &s->f[i]);
        }
        job_release(s->job, &s->f[i].c);
    }
}

/* ---- measuring ------------------------------------------------------------------------------- */

static uint32_t block_samples(const struct job *j, double time_us, double gap_ms)
{
    int64_t iters = j->order->request.query.iters;
    double n;
    if (time_us >= BLOCK_ASKED_US) {
        return 1; /* for launches this long, a sample in each round is enough */
    }
    if (iters > 0) {
        n = fmax(fmin(ceil((double)iters / ROUNDS), BLOCK_ASKED_US / time_us), BLOCK_MIN_ASKED);
    } else {
        n = fmin(fmax(BLOCK_US / (time_us + gap_ms * 1e3), BLOCK_MIN), VISIT_USUAL);
    }
    return (uint32_t)fmin(n, BLOCK_MAX);
}

static int finals_time_block(struct finals *s, struct finalist *f, uint32_t round,
                             struct error *err)
{
    struct job *j = s->job;
    const struct outcome *o = &j->outcomes[f->c.id];
    double time_us = o->known ? o->time_us : f->c.predicted_us;
    double gap_ms = measure_gap_ms(j, time_us, GAP_LAUNCHES);
    const bool is_long = time_us >= BLOCK_ASKED_US || (j->idles && measure_is_long(time_us));
    struct timing t = {
        .warmup = is_long ? 0 : 1, .samples = block_samples(j, time_us, gap_ms), .gap_ms = gap_ms};
    uint32_t before = f->m.n;
    int r = measure_time(j, &f->m, &t, o->time_us, err);
    if (r) {
        return finals_drop_finalist(s, f, r);
    }
    f->medians[round] = stats_median(f->m.samples + before, f->m.n - before);
    scatter_add(&j->scatter, f->m.samples + before, f->m.n - before);
    return 0;
}

/* Computes ratios to the first loaded finalist, over the rounds so far. */
static void score_all(struct finals *s)
{
    const struct finalist *to = NULL;
    s->best = INFINITY;
    for (uint32_t i = 0; i < s->n; i++) {
        struct finalist *f = &s->f[i];
        double ratios[ROUNDS];
        if (!f->m.kernel) {
            continue;
        }
        to = to ? to : f;
        for (uint32_t k = 0; k < s->rounds; k++) {
            ratios[k] = f->medians[k] / to->medians[k];
        }
        f->score = stats_median(ratios, s->rounds);
        s->best = fmin(s->best, f->score);
    }
}

static void finals_record_finalist(struct finals *s, struct finalist *f)
{
    trial_samples(&f->trial, s->job->reference_us, f->m.samples, f->m.n);
    snprintf(f->trial.status, sizeof(f->trial.status), "ok");
    job_record(s->job, &f->c, &f->trial);
}

/* Replaces the reference's time by its median in these finals, when the reference takes part: the
 * GPU's clocks may have changed since the reference's trial. */
static void look_at_reference(struct finals *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const struct finalist *f = &s->f[i];
        if (f->m.kernel && f->c.reference) {
            s->job->reference_us = stats_median(f->m.samples, f->m.n);
        }
    }
}

/* The standard deviation of the ratio of two finalists' times: from the scatter of single launches,
 * and from the scatter of whole blocks of launches, whose variance is VISIT times that of a launch
 * in recordings (tests/data/landscapes). */
static double ratio_error(const struct finals *s)
{
    double launch = scatter_of(&s->job->scatter), worst = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct finalist *f = &s->f[i];
        double each = (double)f->m.n / s->rounds;
        worst =
            f->m.kernel ? fmax(worst, launch * sqrt(2 * (1 / each + VISIT) / s->rounds)) : worst;
    }
    return worst;
}

/* Records and unloads the finalists that are too far behind. */
static void thin_out(struct finals *s)
{
    look_at_reference(s);
    score_all(s);
    double limit = fmax(STAYS[s->rounds - 1], 1 + DOUBTS * ratio_error(s)) * s->best;
    for (uint32_t i = 0; i < s->n; i++) {
        struct finalist *f = &s->f[i];
        if (f->m.kernel && f->score > limit && f->c.id != s->job->former) {
            finals_record_finalist(s, f);
            finals_unload_kernel(s, f);
        }
    }
}

/* True when the ratios' error is below TIE and more rounds cost noticeable time. Short launches,
 * requests with `iters` and keys with a former best run all rounds. ROUNDS_MIN rounds always run,
 * so that each finalist has been first and last. */
static bool is_settled(const struct finals *s)
{
    const struct job *j = s->job;
    return s->rounds >= ROUNDS_MIN && j->idles && measure_is_long(j->best_us) &&
           j->order->request.query.iters <= 0 && j->former == PLAN_NONE && ratio_error(s) < TIE;
}

static int finals_run_rounds(struct finals *s, struct error *err)
{
    const uint32_t enough = s->n > 1 ? 2 : 0; /* the last of several finalists needs no rounds */
    for (uint32_t round = 0; round < ROUNDS && s->n_left >= enough && !is_settled(s); round++) {
        for (uint32_t i = 0; i < s->n; i++) {
            struct finalist *f = &s->f[round % 2 ? s->n - 1 - i : i];
            int r = f->m.kernel ? finals_time_block(s, f, round, err) : 0;
            r = r ? r : job_poll(s->job, err);
            if (r) {
                return r;
            }
        }
        s->rounds = round + 1;
        thin_out(s);
    }
    return 0;
}

/* ---- the decision ---------------------------------------------------------------------------- */

static bool wins_tie(const struct finalist *a, const struct finalist *b)
{
    if (a->c.predicted_us != b->c.predicted_us) {
        return a->c.predicted_us < b->c.predicted_us;
    }
    char x[CONFIG_TEXT_MAX], y[CONFIG_TEXT_MAX];
    record_format(&a->c.config, x, sizeof(x));
    record_format(&b->c.config, y, sizeof(y));
    return strcmp(x, y) < 0;
}

static struct finalist *finals_find_fastest(struct finals *s)
{
    struct finalist *winner = NULL;
    double limit = (1 + TIE) * s->best;
    for (uint32_t i = 0; i < s->n; i++) {
        struct finalist *f = &s->f[i];
        if (f->m.kernel && f->score <= limit && (!winner || wins_tie(f, winner))) {
            winner = f;
        }
    }
    return winner;
}

/* The loaded finalist with the least score, other than `one`; NULL: no other is loaded. */
static const struct finalist *fastest_but(const struct finals *s, const struct finalist *one)
{
    const struct finalist *best = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct finalist *f = &s->f[i];
        if (f != one && f->m.kernel && (!best || f->score < best->score)) {
            best = f;
        }
    }
    return best;
}

static struct finalist *find_former(struct finals *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->f[i].m.kernel && s->f[i].c.id == s->job->former) {
            return &s->f[i];
        }
    }
    return NULL;
}

/* Returns the winner; NULL: no finalist is left. Its trial's reason tells whether the former best
 * was kept, and why. */
static struct finalist *finals_decide_winner(struct finals *s)
{
    struct job *j = s->job;
    struct finalist *winner = finals_find_fastest(s), *former = find_former(s);
    if (!winner) {
        return NULL;
    }
    const struct finalist *other = winner == former ? fastest_but(s, former) : winner;
    if (gate_keeps(j, winner->c.id, other ? other->medians : NULL, former ? former->medians : NULL,
                   s->rounds)) {
        winner = former;
    }
    snprintf(winner->trial.reason, sizeof(winner->trial.reason), "%s", j->gate);
    return winner;
}

/* True when n samples are enough for a winner: SAMPLES_ENOUGH. Any number is enough on a host and
 * for a query with `iters`. */
static bool is_enough(const struct job *j, uint32_t n)
{
    return n > 0 && (!j->idles || j->order->request.query.iters > 0 || n >= SAMPLES_ENOUGH);
}

/* Times the winner again until it has enough samples. */
static int time_winner(struct finals *s, struct finalist *w, struct error *err)
{
    int r = 0;
    for (uint32_t i = s->rounds; r == 0 && i < ROUNDS && w->m.kernel && !is_enough(s->job, w->m.n);
         i++) {
        r = finals_time_block(s, w, i, err);
        r = r ? r : job_poll(s->job, err);
    }
    look_at_reference(s);
    return r;
}

/* Called when no finalist has won although some are loaded: their times cannot be compared (a time
 * of 0 has no ratio). They leave the race, so that the finals end. */
static void give_up_seats(struct finals *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->f[i].m.kernel) {
            s->job->outcomes[s->f[i].c.id].out_of_race = true;
        }
    }
}

/* Runs the finals of n configs. *winner PLAN_NONE: every one of them failed. */
static int finals_run_set(struct job *j, const uint32_t ids[], uint32_t n, uint32_t *winner,
                          struct error *err)
{
    struct finals *s = calloc(1, sizeof(*s));
    if (!s) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the finals");
    }
    s->job = j;
    *winner = PLAN_NONE;
    timeline_enter(&j->runner->timeline, PHASE_FINAL);
    int r = finals_load_all(s, ids, n, err);
    r = r ? r : finals_run_rounds(s, err);
    struct finalist *w = r ? NULL : finals_decide_winner(s);
    r = w ? time_winner(s, w, err) : r;
    w = r == 0 && w && w->m.kernel ? w : NULL;
    for (uint32_t i = 0; w && i < s->n; i++) {
        if (s->f[i].m.kernel) {
            finals_record_finalist(s, &s->f[i]);
        }
    }
    *winner = w ? w->c.id : PLAN_NONE;
    if (r == 0 && !w) {
        give_up_seats(s);
    }
    finals_unload_all(s, r);
    timeline_enter(&j->runner->timeline, PHASE_OTHER);
    free(s);
    return r;
}

/* Lets the configs that were faster than `winner` in this run compete again (out_of_race), also
 * configs that were stopped early. False: no config was faster. */
static bool finals_call_back(struct job *j, uint32_t winner)
{
    bool any = false;
    for (uint32_t i = 0; i < j->n_outcomes; i++) {
        struct outcome *o = &j->outcomes[i];
        if (i != winner && o->here && o->measured && o->eligible &&
            o->time_us < j->outcomes[winner].time_us) {
            o->out_of_race = false;
            any = true;
        }
    }
    return any;
}

int job_finals(struct job *j, uint32_t *winner, struct error *err)
{
    *winner = PLAN_NONE;
    while (*winner == PLAN_NONE) {
        uint32_t ids[SEATS_MAX];
        uint32_t n = finals_choose_seats(j, ids);
        if (n == 0) {
            return job_nothing_works(j, err);
        }
        const struct outcome *o = &j->outcomes[ids[0]];
        if (n == 1 && o->here && is_enough(j, o->samples) && j->order->former.n == 0) {
            *winner = ids[0];
            return 0;
        }
        notice_progress(j, "final", NULL);
        bool here = true; /* every finalist was measured in this run, before the finals begin */
        for (uint32_t i = 0; i < n; i++) {
            here = here && j->outcomes[ids[i]].here;
        }
        int r = finals_run_set(j, ids, n, winner, err);
        if (r) {
            return r;
        }
        if (!here && *winner != PLAN_NONE && finals_call_back(j, *winner)) {
            *winner = PLAN_NONE;
        }
    }
    return 0;
}
