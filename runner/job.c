/* SPDX-License-Identifier: Apache-2.0 */
/* Beginning and end of a job: everything before the search, and after the search and its finals. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/conditions.h"
#include "runner/job_inner.h"

/* ---- the beginning --------------------------------------------------------------------------- */

static int job_find_target(struct job *j, struct error *err)
{
    const struct problem *p = &j->order->request.problem;
    const struct device_info *info = &j->runner->device->info;
    j->family = family_of_problem(p);
    int r =
        family_target_choose(j->family, p, info, j->order->request.query.target, &j->target, err);
    if (r) {
        return r;
    }
    const struct device_ops *ops = j->runner->device->ops;
    r = ops->fits ? ops->fits(j->runner->device, j->family, p, err) : 0;
    r = r ? r : device_host_fits(device_host_lists(j->family, p), err);
    if (r) {
        return r;
    }
    j->seed = conditions_seed(j->runner->device, &j->order->request);
    return j->family->workload_init(&j->workload, p, j->seed, err);
}

/* Records a failed trial, with the reason, for a config of the request's list (`configs`) that
 * cannot be measured. */
static void job_refuse_config(struct job *j, const struct record *config,
                              const struct rejection *why)
{
    struct trial *t = calloc(1, sizeof(*t));
    struct candidate *c = calloc(1, sizeof(*c));
    if (t && c) {
        record_copy(&c->config, config);
        c->predicted_us = NAN;
        trial_begin(t, j, c, "measure");
        trial_reject(t, why);
        job_count_failure(j, t);
        j->done++;
        j->failed++;
        notice_trial(j, t);
    }
    free(t);
    free(c);
}

/* Reports the configs of the request's list that the plan refused. An error when the plan refused
 * all. */
static int job_refuse_listed(struct job *j, struct error *err)
{
    const struct request *q = &j->order->request;
    struct rejection first = {.code = ERROR_INVALID}, why;
    snprintf(first.text, sizeof(first.text),
             "strategy given needs configs: a list of at least one");
    for (uint32_t i = 0; i < q->n_configs; i++) {
        if (plan_check_listed(&j->plan, &q->configs[i], &why)) {
            first = i == 0 ? why : first;
            job_refuse_config(j, &q->configs[i], &why);
        }
    }
    return j->plan.n_ranked ? 0 : error_set(err, first.code, "%s", first.text);
}

/* Chooses the reference: the analytic default. On a replay device whose recording lacks the
 * default: the recording's reference. When the reference fails to run, the first config that works
 * replaces it. */
static bool choose_default(struct job *j, struct record *config)
{
    const struct problem *p = &j->order->request.problem;
    const struct device *d = j->runner->device;
    struct error none;
    if (j->target->choose(p, &d->info, config, &none)) {
        return false;
    }
    if (d->ops->reference && !d->ops->knows(d, p, config)) {
        d->ops->reference(d, p, config);
    }
    return true;
}

static int set_reference(struct job *j, struct error *err)
{
    const struct tune_order *o = j->order;
    struct record config;
    struct rejection why;
    bool found = false;
    for (uint32_t i = 0; i < o->n_done && !found; i++) {
        if (o->done[i].reference && strcmp(o->done[i].status, "ok") == 0) {
            record_copy(&config, &o->done[i].config);
            found = !plan_check(&j->plan, &config, &why);
        }
    }
    found = found || (choose_default(j, &config) && !plan_check(&j->plan, &config, &why));
    j->reference = PLAN_NONE;
    return found ? plan_add(&j->plan, &config, &j->reference, err) : 0;
}

/* True when an earlier run has a trial of the config and this job may measure the config. False for
 * configs that plan_check() refuses: job_refuse_listed() has counted these. */
static bool counts_as_done(const struct job *j, uint32_t id)
{
    struct record config;
    struct rejection why;
    if (!j->outcomes[id].known || !j->outcomes[id].eligible) {
        return false;
    }
    plan_config(&j->plan, id, &config);
    return plan_check(&j->plan, &config, &why) == 0;
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
        job_book(j, id, &o->done[i], false);
    }
    for (uint32_t i = 0; i < j->n_outcomes; i++) {
        bool done = i < plan_count(&j->plan) && counts_as_done(j, i);
        j->done += done;
        j->failed += done && !j->outcomes[i].measured;
    }
    j->done_before = j->done;
    j->reference_again = j->reference != PLAN_NONE && j->outcomes[j->reference].known;
    return 0;
}

static int job_begin(struct job *j, struct error *err)
{
    struct runner *r = j->runner;
    const struct tune_order *o = j->order;
    timeline_enter(&r->timeline, PHASE_PLAN);
    /* A search with earlier trials must make the same choices as before. Which variants its earlier
     * orders compiled but did not measure is chance. So the plan then does not look into the cache
     * directory. */
    const char *present = o->n_done == 0 ? r->opt.mode.cache_dir : NULL;
    int status = job_find_target(j, err);
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
                               .compilers = compilers_count(r)};
    status = plan_init(&j->plan, &setup, err);
    if (status == 0 && j->given) {
        status = job_refuse_listed(j, err);
    }
    status = status ? status : set_reference(j, err);
    status = status ? status : gate_begin(j, err);
    if (status) {
        return status;
    }
    const struct aside *kept = aside_find(r, o->job);
    j->n_outcomes =
        plan_count(&j->plan) + o->n_done + o->n_hints + (kept ? kept->n : 0) + VARIATIONS_MAX;
    j->outcomes = calloc(j->n_outcomes, sizeof(*j->outcomes));
    if (!j->outcomes) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u configs", j->n_outcomes);
    }
    status = take_done(j, err);
    timeline_enter(&r->timeline, PHASE_OTHER);
    return status;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void job_fill_result(const struct job *j, uint32_t winner, struct tune_result *out)
{
    *out = (struct tune_result){
        .set_aside = j->set_aside,
        .device_ms = j->device_ms,
        .wall_ms = j->runner->compilers->wall_ms(j),
    };
    snprintf(out->doubt, sizeof(out->doubt), "%s", j->doubt);
    timeline_format(&j->runner->timeline, out->timeline, sizeof(out->timeline));
    if (j->set_aside) {
        return;
    }
    const struct outcome *o = &j->outcomes[winner];
    out->time_us = o->time_us;
    out->spread = o->spread;
    out->reference_us = j->reference_us;
    out->space = j->plan.legal;
    out->compile_ms = j->compile_ms;
    memcpy(out->gate, j->gate, sizeof(out->gate));
    plan_config(&j->plan, winner, &out->config);
    snprintf(out->module, sizeof(out->module), "%s", o->module);
    j->family->work(&j->order->request.problem, &out->flops, &out->bytes);
    for (uint32_t i = 0; i < j->n_outcomes; i++) {
        out->measured += j->outcomes[i].measured;
    }
}

static int job_conclude(struct job *j, struct tune_result *out, struct error *err)
{
    uint32_t winner = PLAN_NONE;
    int status = j->set_aside ? 0 : job_finals(j, &winner, err);
    if (status == 0) {
        job_fill_result(j, winner, out);
    }
    if (status == 0 && !j->set_aside) {
        notice_progress(j, "done", &out->config);
    }
    return status;
}

/* Releases everything of the job. After ERROR_DEVICE_LOST nothing on the device is released: any
 * call could hang. */
static void job_finish(struct job *j, int status)
{
    struct device *d = j->runner->device;
    if (j->prepared && status != ERROR_DEVICE_LOST) {
        d->ops->release(d, j->prepared);
    }
    strategy_close(j->strategy);
    free(j->outcomes);
    plan_deinit(&j->plan);
    if (j->workload.family) {
        j->family->workload_deinit(&j->workload);
    }
}

static struct job *job_new_for_order(struct runner *r, const struct tune_order *o)
{
    struct job *j = calloc(1, sizeof(*j));
    if (j) {
        j->runner = r;
        j->order = o;
        j->order_began_ms = runner_now_ms(j->runner);
        j->began_ms = j->order_began_ms - o->spent_ms;
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
    struct job *j = job_new_for_order(r, o);
    if (!j) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a tuning job");
    }
    notice_progress(j, "start", NULL);
    int status = job_begin(j, err);
    status = status ? status : job_search(j, err);
    status = status ? status : job_conclude(j, out, err);
    job_finish(j, status);
    free(j);
    return status;
}
