/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a config through the compilers: a candidate gets a build from the compile pool, sends
 * the build's module to gemmd, and gives the build back. */
#include <string.h>

#include "runner/job_inner.h"

int job_poll(struct job *j, struct error *err)
{
    runner_pump(j->runner);
    if (j->runner->cancelled) {
        return error_set(err, ERROR_CANCELLED, "cancelled after %u of %u configs", j->done,
                         j->total);
    }
    return 0;
}

int job_candidate(struct job *j, uint32_t id, struct candidate *c, struct error *err)
{
    *c = (struct candidate){.id = id, .predicted_us = plan_predicted(&j->plan, id)};
    plan_config(&j->plan, id, &c->config);
    int r = plan_variant(&j->plan, &c->config, &c->variant, c->hash, err);
    if (r) {
        return r;
    }
    c->due_ms = j->runner->compilers->due_ms ? j->runner->compilers->due_ms(j, c) : 0;
    const struct compile_pool_want want = {
        .variant = &c->variant, .hash = c->hash, .rank = RANK_CANDIDATE};
    return compile_pool_want(j->runner->pool, &want, &c->build, err);
}

double job_effort(const struct job *j, uint32_t id)
{
    return j->plan.effort && id < j->plan.n_ranked ? j->plan.effort[id] : 1;
}

void job_release(struct job *j, struct candidate *c)
{
    if (c->build) {
        compile_pool_release(j->runner->pool, c->build);
        c->build = NULL;
    }
}

void job_drop(struct job *j, struct candidate *c)
{
    if (c->build->refs == 1) {
        j->compile_ms += j->runner->compilers->cost_ms(j, c);
    }
    job_release(j, c);
}

/* True when a trial of this run names the module: then the job has sent the module already. */
static bool job_has_sent(const struct job *j, const char *module)
{
    for (uint32_t i = 0; i < j->n_outcomes; i++) {
        if (j->outcomes[i].here && strcmp(j->outcomes[i].module, module) == 0) {
            return true;
        }
    }
    return false;
}

void job_module(struct job *j, struct candidate *c)
{
    struct build *b = c->build;
    if (b->state == BUILD_READY && !job_has_sent(j, b->image.meta.id)) {
        j->compile_ms += b->compile_ms;
        j->took_ms += b->image.meta.compile_ms;
        j->took_effort += job_effort(j, c->id);
        channel_notify(&j->runner->channel, "module", &module_schema, &b->image.meta);
    }
}
