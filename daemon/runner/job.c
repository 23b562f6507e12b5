/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's beginning and end, and what its parts share: bookkeeping of outcomes, waiting for builds.
 *
 * Limits of what is not a candidate's: preparing the problem 120 s, each compile 120 s. A compile
 * is watched here, not by gemmd: it fails its config (status `hung`) and costs a thread, not the
 * process. While nothing else happens its `attempt` stands on the socket, with some grace.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/runner/conditions.h"
#include "daemon/runner/job.h"

enum { PREPARE_LIMIT_MS = 120000, COMPILE_LIMIT_MS = 120000, COMPILE_GRACE_MS = 5000 };

double job_clock_ms(const struct job *j)
{
    struct timespec t;
    if (j->runner->replay) {
        return lanes_now(&j->runner->lanes, j->runner->device);
    }
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int job_poll(struct job *j, struct error *err)
{
    runner_pump(j->runner);
    if (j->runner->cancelled) {
        return error_set(err, ERROR_CANCELLED, "cancelled after %u of %u configs", j->done,
                         j->total);
    }
    return 0;
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* When a recorded compiler is done with a variant, which must not have been wanted yet. */
static double due_ms(struct job *j, const struct variant *v, const char *hash)
{
    struct runner *r = j->runner;
    struct image image = {0};
    bool cached = modules_find(r->opt.cache_dir, hash, &image, NULL) != MODULES_MISS;
    image_deinit(&image);
    return lanes_want(&r->lanes, hash, cached ? 0 : r->compiler->ops->takes_ms(r->compiler, v),
                      job_clock_ms(j));
}

int job_candidate(struct job *j, uint32_t id, struct candidate *c, struct error *err)
{
    *c = (struct candidate){.id = id, .predicted_us = plan_predicted(&j->plan, id)};
    plan_config(&j->plan, id, &c->config);
    int r = plan_variant(&j->plan, &c->config, &c->variant, c->hash, err);
    if (r) {
        return r;
    }
    c->due_ms = j->runner->replay ? due_ms(j, &c->variant, c->hash) : 0;
    WIRE_BUF_AUTO words = WIRE_BUF_NULL;
    notice_last_words(j, c, &words);
    return builds_want(j->runner->builds, &c->variant, c->hash, words.data,
                       words.failed ? 0 : words.len, &c->build, err);
}

double job_effort(const struct job *j, uint32_t id)
{
    return j->plan.effort && id < j->plan.n_ranked ? j->plan.effort[id] : 1;
}

void job_release(struct job *j, struct candidate *c)
{
    if (c->build) {
        builds_release(j->runner->builds, c->build);
        c->build = NULL;
    }
}

void job_drop(struct job *j, struct candidate *c)
{
    struct runner *r = j->runner;
    bool last = c->build->refs == 1;
    if (last && r->replay) {
        j->compile_ms += r->compiler->ops->takes_ms(r->compiler, &c->variant);
    } else if (last) {
        j->compile_ms += builds_ran_ms(r->builds, c->build);
    }
    job_release(j, c);
}

bool job_is_built(const struct job *j, const struct candidate *c)
{
    return j->runner->replay ? c->due_ms <= job_clock_ms(j) : c->build->state != BUILD_PENDING;
}

/* Whether this job has sent the module; remembers that it has. */
static bool was_told(struct job *j, const char *id)
{
    for (uint32_t i = 0; i < j->n_told; i++) {
        if (strcmp(j->told[i], id) == 0) {
            return true;
        }
    }
    if (j->n_told == j->room_told) {
        uint32_t room = j->room_told ? j->room_told * 2 : 64;
        char(*told)[HASH_HEX] = realloc(j->told, room * sizeof(*told));
        if (!told) {
            return false; /* said twice: no harm */
        }
        j->told = told;
        j->room_told = room;
    }
    snprintf(j->told[j->n_told++], HASH_HEX, "%s", id);
    return false;
}

void job_module(struct job *j, struct candidate *c)
{
    struct build *b = c->build;
    if (b->state == BUILD_READY && !was_told(j, b->image.meta.id)) {
        j->compile_ms += b->compile_ms;
        j->took_ms += b->image.meta.compile_ms;
        j->took_effort += job_effort(j, c->id);
        notice_module(j, &b->image.meta);
    }
}

/* The compile that has run longest is what we wait for: say so once, whoever in the queue it is.
 * One that nobody in the queue wants is of a job that was cancelled or set aside. */
static void announce_compile(struct job *j, const struct build *b, int64_t left_ms,
                             struct candidate *const queue[], uint32_t n)
{
    const struct candidate *c = NULL;
    for (uint32_t i = 0; i < n && !c; i++) {
        c = queue[i]->build == b ? queue[i] : NULL;
    }
    if (b != j->announced) {
        j->announced = b;
        notice_attempt(j, "compile", c, left_ms + COMPILE_GRACE_MS);
    }
}

static int64_t least_ms(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int wait_for_any(struct job *j, struct candidate *const queue[], uint32_t n,
                        int64_t most_ms, struct error *err)
{
    struct builds *all = j->runner->builds;
    struct build *b;
    enum phase before = timeline_enter(&j->runner->timeline, PHASE_COMPILE);
    int64_t limit = runner_limit(j->runner, COMPILE_LIMIT_MS);
    int64_t ran = builds_longest(all, &b);
    if (ran >= limit) {
        builds_give_up(all, b, ran);
    } else if (ran >= 0) {
        announce_compile(j, b, limit - ran, queue, n);
        channel_wait(&j->runner->channel, builds_fd(all), (int)least_ms(limit - ran, most_ms));
    } else {
        channel_wait(&j->runner->channel, builds_fd(all), 10);
    }
    if (builds_collect(all)) {
        j->announced = NULL;
    }
    timeline_enter(&j->runner->timeline, before);
    return job_poll(j, err);
}

/* A recorded host waits on its own clock for the first that is due, and until it is really there.
 */
static int wait_on_clock(struct job *j, struct candidate *const queue[], uint32_t n,
                         struct error *err)
{
    struct candidate *first = queue[0];
    int r = 0;
    for (uint32_t i = 1; i < n; i++) {
        first = queue[i]->due_ms < first->due_ms ? queue[i] : first;
    }
    lanes_wait(&j->runner->lanes, first->due_ms, job_clock_ms(j));
    while (r == 0 && first->build->state == BUILD_PENDING) {
        r = wait_for_any(j, queue, n, ASIDE_NEVER, err);
    }
    return r ? r : job_poll(j, err);
}

int job_wait_builds(struct job *j, struct candidate *const queue[], uint32_t n, int64_t most_ms,
                    struct error *err)
{
    return j->runner->replay ? wait_on_clock(j, queue, n, err)
                             : wait_for_any(j, queue, n, most_ms, err);
}

/* ---- outcomes -------------------------------------------------------------------------------- */

double job_score(const struct job *j, const struct outcome *o)
{
    if (o->here && isfinite(j->reference_us)) {
        return o->time_us / j->reference_us;
    }
    return isfinite(o->ratio) ? o->ratio : o->time_us;
}

static void count_failure(struct job *j, const struct trial *t)
{
    uint32_t i = 0;
    while (i < j->n_tally && strcmp(j->tally[i].status, t->status) != 0) {
        i++;
    }
    if (i == TALLY_MAX) {
        return;
    }
    struct tally *y = &j->tally[i];
    if (i == j->n_tally) {
        j->n_tally++;
        snprintf(y->status, sizeof(y->status), "%s", t->status);
        snprintf(y->reason, sizeof(y->reason), "%s", t->reason);
    }
    y->n++;
}

static void book(struct job *j, uint32_t id, const struct trial *t, bool here)
{
    struct outcome *o = &j->outcomes[id];
    bool ok = strcmp(t->status, "ok") == 0;
    if (o->ok && !ok && !here) {
        return; /* of several trials of an earlier run, the good one counts */
    }
    struct record config;
    plan_config(&j->plan, id, &config);
    /* An earlier run may have measured what has crashed the runner since. */
    bool eligible = plan_eligible(&j->plan, &config) && !plan_avoids(&j->plan, t->variant);
    *o = (struct outcome){
        .known = true,
        .ok = ok,
        .here = here,
        .eligible = eligible,
        .measured = ok || strcmp(t->status, "aborted") == 0,
        .out_of_race = !ok || !eligible,
        .time_us = t->time_us,
        .ratio = t->ratio,
        .spread = (t->q75_us - t->q25_us) / t->time_us,
        .samples = t->samples_us.n,
        .max_error = t->max_error,
        .rel_norm = t->rel_norm,
    };
    snprintf(o->module, sizeof(o->module), "%s", t->module);
    if (!o->measured) {
        count_failure(j, t);
    }
}

void job_record(struct job *j, const struct candidate *c, struct trial *t)
{
    bool final = strcmp(t->stage, "final") == 0;
    bool early = job_awaits_reference(j) && c->id != j->reference;
    if (strcmp(t->status, "ok") == 0 && isnan(j->reference_us) && !early) {
        job_become_reference(j, c->id, t); /* when it is another one, the reference has failed */
    }
    conditions_note(j->runner->device, t);
    conditions_after(t, j->doubt);
    book(j, c->id, t, true);
    struct outcome *o = &j->outcomes[c->id];
    if (!o->out_of_race && !(j->best_us <= o->time_us)) {
        j->best_us = o->time_us;
    }
    if (!final && strcmp(t->stage, "reference") != 0) {
        j->done++;
        j->failed += !o->measured;
    }
    if (!early || !job_hold(j, c->id, t)) {
        notice_trial(j, t);
    }
    if (!job_awaits_reference(j)) {
        job_send_held(j);
    }
    notice_progress(j, final ? "final" : "measure", &c->config);
}

int job_nothing_works(const struct job *j, struct error *err)
{
    const struct tally *most = NULL;
    char counts[160] = "";
    for (uint32_t i = 0, at = 0; i < j->n_tally && at < sizeof(counts); i++) {
        const struct tally *y = &j->tally[i];
        most = !most || y->n > most->n ? y : most;
        at += (uint32_t)snprintf(counts + at, sizeof(counts) - at, "%s%u %s", i ? ", " : "", y->n,
                                 y->status);
    }
    if (!most) {
        return error_set(err, ERROR_NO_CONFIG,
                         "no config was left to measure (%u of %u in the "
                         "space are in quarantine)",
                         j->plan.avoided, j->plan.legal);
    }
    return error_set(err, ERROR_NO_CONFIG, "no config works (%s); most common: %s", counts,
                     most->reason);
}

/* ---- the beginning --------------------------------------------------------------------------- */

static int find_target(struct job *j, struct error *err)
{
    const struct problem *p = &j->order->request.problem;
    const struct device_info *info = &j->runner->device->info;
    j->family = family_of_problem(p);
    if (!j->family) {
        return error_set(err, ERROR_UNKNOWN_OP, "no family of kernels tunes op %s", p->op_name);
    }
    int r =
        family_target_choose(j->family, p, info, j->order->request.query.target, &j->target, err);
    if (r) {
        return r;
    }
    const struct device *d = j->runner->device;
    uint64_t seed = (uint64_t)j->order->request.query.seed;
    seed = d->ops->rows_seed ? d->ops->rows_seed(d, seed) : seed;
    return j->family->workload_init(&j->workload, p, seed, err);
}

/* A config of a list that cannot be measured is a failed trial with its reason. */
static void refuse(struct job *j, const struct record *config, const struct rejection *why)
{
    struct trial *t = calloc(1, sizeof(*t));
    struct candidate *c = calloc(1, sizeof(*c));
    if (t && c) {
        record_copy(&c->config, config);
        c->predicted_us = NAN;
        trial_begin(t, j, c, "measure");
        trial_reject(t, why);
        count_failure(j, t);
        j->done++;
        j->failed++;
        notice_trial(j, t);
    }
    free(t);
    free(c);
}

static int add_given(struct job *j, struct error *err)
{
    const struct request *q = &j->order->request;
    struct rejection first = {.code = ERROR_INVALID}, why;
    snprintf(first.text, sizeof(first.text),
             "strategy given needs configs: a list of at least one");
    uint32_t valid = 0, id;
    for (uint32_t i = 0; i < q->n_configs; i++) {
        if (!request_allows(q, &q->configs[i])) {
            rejection_set(&why, ERROR_CONFLICT, "restricted", "the restriction excludes it");
        } else if (!plan_check(&j->plan, &q->configs[i], &why)) {
            int r = plan_add(&j->plan, &q->configs[i], &id, err);
            if (r) {
                return r;
            }
            valid++;
            continue;
        }
        if (i == 0) {
            first = why;
        }
        refuse(j, &q->configs[i], &why);
    }
    return valid ? plan_rank_extras(&j->plan, err) : error_set(err, first.code, "%s", first.text);
}

static void choose_reference(struct job *j, struct record *config, bool *found)
{
    const struct tune_order *o = j->order;
    struct rejection why;
    *found = false;
    for (uint32_t i = 0; i < o->n_done && !*found; i++) {
        if (o->done[i].reference && strcmp(o->done[i].status, "ok") == 0) {
            record_copy(config, &o->done[i].config);
            *found = !plan_check(&j->plan, config, &why);
        }
    }
    if (!*found) {
        struct error none;
        *found =
            j->target->choose(&o->request.problem, &j->runner->device->info, config, &none) == 0 &&
            !plan_check(&j->plan, config, &why);
    }
}

static int set_reference(struct job *j, struct error *err)
{
    struct record config;
    bool found;
    choose_reference(j, &config, &found);
    j->reference = PLAN_NONE;
    return found ? plan_add(&j->plan, &config, &j->reference, err) : 0;
}

static int take_done(struct job *j, struct error *err)
{
    const struct tune_order *o = j->order;
    for (uint32_t i = 0; i < o->n_done; i++) {
        uint32_t id;
        int r = plan_add(&j->plan, &o->done[i].config, &id, err);
        if (r) {
            return r;
        }
        book(j, id, &o->done[i], false);
    }
    for (uint32_t i = 0; i < j->n_outcomes; i++) {
        j->done += j->outcomes[i].known && j->outcomes[i].eligible;
        j->failed += j->outcomes[i].known && j->outcomes[i].eligible && !j->outcomes[i].measured;
    }
    j->done_before = j->done;
    j->reference_again = j->reference != PLAN_NONE && j->outcomes[j->reference].known;
    return 0;
}

int job_prepare(struct job *j, struct error *err)
{
    struct device *d = j->runner->device;
    const struct request *q = &j->order->request;
    struct timeline *t = &j->runner->timeline;
    enum phase before = timeline_enter(t, PHASE_PREPARE);
    notice_attempt(j, "prepare", NULL, runner_limit(j->runner, PREPARE_LIMIT_MS));
    conditions_before(d, j->doubt);
    if (j->runner->unlocked[0]) {
        memcpy(j->doubt, j->runner->unlocked, sizeof(j->doubt));
    }
    double began = d->ops->clock_ms(d), waited = t->ms[PHASE_HELPERS];
    int r = d->ops->prepare(d, j->family, &q->problem, (uint64_t)q->query.seed, &j->prepared, err);
    waited = t->ms[PHASE_HELPERS] - waited;
    j->device_ms += fmax(d->ops->clock_ms(d) - began - waited, 0);
    timeline_enter(t, before);
    return r;
}

static int make_plan(struct job *j, const struct plan_setup *setup, struct error *err)
{
    if (aside_take_plan(j->runner, j->order->job, &j->plan)) {
        if (plan_go_on(&j->plan, setup)) {
            return 0;
        }
        plan_deinit(&j->plan);
    }
    return plan_init(&j->plan, setup, err);
}

static int begin(struct job *j, struct error *err)
{
    struct runner *r = j->runner;
    const struct tune_order *o = j->order;
    timeline_enter(&r->timeline, PHASE_PLAN);
    /* A search that goes on goes the way that it went: what its first life had compiled without
     * having measured it depends on the moment of its end. */
    const char *present = o->n_done == 0 ? r->opt.cache_dir : NULL;
    int status = find_target(j, err);
    status = status ? status : helpers_want(&r->helpers, j->target, err);
    if (status) {
        return status;
    }
    struct plan_setup setup = {.target = j->target,
                               .info = &r->device->info,
                               .device = r->device,
                               .order = o,
                               .workload = &j->workload,
                               .compiler = r->compiler->ops->version(r->compiler),
                               .cache_dir = present,
                               .threads = r->threads,
                               .compilers = r->replay ? LANES : r->threads};
    status = make_plan(j, &setup, err);
    if (status == 0 && j->given) {
        status = add_given(j, err);
    }
    status = status ? status : set_reference(j, err);
    status = status ? status : gate_begin(j, err);
    if (status) {
        return status;
    }
    const struct aside *kept = aside_find(r, o->job);
    j->n_outcomes = plan_count(&j->plan) + o->n_done + o->n_hints + (kept ? kept->n : 0);
    j->outcomes = calloc(j->n_outcomes, sizeof(*j->outcomes));
    if (!j->outcomes) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u configs", j->n_outcomes);
    }
    status = take_done(j, err);
    timeline_enter(&r->timeline, PHASE_OTHER);
    return status;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Of all orders of this tuning. */
static double wall_ms(const struct job *j)
{
    return j->runner->replay ? job_clock_ms(j) - j->began_ms
                             : timeline_ms(&j->runner->timeline) + j->order->spent_ms;
}

static void fill_set_aside(const struct job *j, struct tune_result *out)
{
    *out = (struct tune_result){
        .set_aside = true, .device_ms = j->device_ms, .wall_ms = wall_ms(j)};
    snprintf(out->doubt, sizeof(out->doubt), "%s", j->doubt);
    timeline_format(&j->runner->timeline, out->timeline, sizeof(out->timeline));
}

static void fill_result(const struct job *j, uint32_t winner, struct tune_result *out)
{
    const struct outcome *o = &j->outcomes[winner];
    *out = (struct tune_result){
        .time_us = o->time_us,
        .spread = o->spread,
        .reference_us = j->reference_us,
        .space = j->plan.legal,
        .device_ms = j->device_ms,
        .compile_ms = j->compile_ms,
        .wall_ms = wall_ms(j),
    };
    snprintf(out->doubt, sizeof(out->doubt), "%s", j->doubt);
    memcpy(out->gate, j->gate, sizeof(out->gate));
    timeline_format(&j->runner->timeline, out->timeline, sizeof(out->timeline));
    plan_config(&j->plan, winner, &out->config);
    snprintf(out->module, sizeof(out->module), "%s", o->module);
    j->family->work(&j->order->request.problem, &out->flops, &out->bytes);
    for (uint32_t i = 0; i < j->n_outcomes; i++) {
        out->measured += j->outcomes[i].measured;
    }
}

static int conclude(struct job *j, struct tune_result *out, struct error *err)
{
    uint32_t winner = PLAN_NONE;
    if (j->set_aside) {
        fill_set_aside(j, out);
        return 0;
    }
    int status = job_finals(j, &winner, err);
    if (status == 0) {
        fill_result(j, winner, out);
        notice_progress(j, "done", &out->config);
    }
    return status;
}

/* After a lost device nothing of it is touched. */
static void end(struct job *j, int status)
{
    struct device *d = j->runner->device;
    if (j->prepared && status != ERROR_DEVICE_LOST) {
        d->ops->release(d, j->prepared);
    }
    if (j->strategy) {
        j->strategy->ops->close(j->strategy);
    }
    free(j->outcomes);
    free(j->held);
    free(j->held_id);
    free(j->told);
    if (j->set_aside) {
        aside_keep_plan(j);
    }
    plan_deinit(&j->plan);
    if (j->workload.family) {
        j->family->workload_deinit(&j->workload);
    }
}

static struct job *job_new(struct runner *r, const struct tune_order *o)
{
    struct job *j = calloc(1, sizeof(*j));
    if (j) {
        j->runner = r;
        j->order = o;
        j->began_ms = job_clock_ms(j) - o->spent_ms;
        j->device_ms = o->spent_device_ms;
        j->reference_us = j->best_us = NAN;
        j->former = PLAN_NONE;
        j->given = strcmp(o->request.query.strategy, "given") == 0;
        j->idles = strcmp(r->device->info.kind, "cuda") == 0;
    }
    return j;
}

int job_run(struct runner *r, const struct tune_order *o, struct tune_result *out,
            struct error *err)
{
    struct job *j = job_new(r, o);
    if (!j) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a tuning job");
    }
    notice_progress(j, "start", NULL);
    int status = begin(j, err);
    status = status ? status : job_search(j, err);
    status = status ? status : conclude(j, out, err);
    end(j, status);
    free(j);
    return status;
}
