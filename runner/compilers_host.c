/* SPDX-License-Identifier: Apache-2.0 */
/* This host's compilers (compilers.h). Each compile may take 120 s. The runner watches this limit,
 * not gemmd: beyond the limit the config fails (status `hung`) and a thread of the compile pool is
 * lost, but not the process. The `attempt` that the waiting search sends has a limit 5 s longer, so
 * that gemmd does not kill the runner first. */
#include "runner/job_inner.h"

enum { COMPILE_LIMIT_MS = 120000, COMPILE_GRACE_MS = 5000 };

static double compilers_host_now_ms(const struct runner *r)
{
    return device_clock_ms(NULL);
}

static double compilers_host_wall_ms(const struct job *j)
{
    const struct timeline *t = &j->runner->timeline;
    return timeline_ms(t) - t->ms[PHASE_PAUSE] + j->order->spent_ms;
}

static bool compilers_host_is_built(const struct job *j, const struct candidate *c)
{
    return c->build->state != BUILD_PENDING;
}

/* Sends an `attempt` for the longest running compile, once, also when its candidate is not first in
 * the queue. A build without a candidate in the queue belongs to a job that was cancelled or set
 * aside: then the `attempt` names no candidate. */
static void compilers_host_announce(struct job *j, const struct build *b, int64_t left_ms,
                                    struct candidate *const queue[], uint32_t n)
{
    const struct candidate *c = NULL;
    for (uint32_t i = 0; i < n && !c; i++) {
        c = queue[i]->build == b ? queue[i] : NULL;
    }
    if (b != j->announced) {
        j->announced = b;
        runner_announce(j->runner, "compile", c, left_ms + COMPILE_GRACE_MS);
    }
}

static int64_t least_ms(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int compilers_host_wait(struct job *j, struct candidate *const queue[], uint32_t n,
                               int64_t most_ms, struct error *err)
{
    struct compile_pool *all = j->runner->pool;
    struct build *b;
    enum phase before = timeline_enter(&j->runner->timeline, PHASE_COMPILE);
    pauses_give_back(j->runner);
    int64_t limit = runner_limit(j->runner, COMPILE_LIMIT_MS);
    int64_t ran = compile_pool_longest(all, &b);
    if (ran >= limit) {
        compile_pool_give_up(all, b, ran);
    } else if (ran >= 0) {
        compilers_host_announce(j, b, limit - ran, queue, n);
        channel_wait(&j->runner->channel, compile_pool_fd(all),
                     (int)least_ms(limit - ran, most_ms));
    } else {
        channel_wait(&j->runner->channel, compile_pool_fd(all), 10);
    }
    if (compile_pool_collect(all)) {
        j->announced = NULL;
    }
    timeline_enter(&j->runner->timeline, before);
    return job_poll(j, err);
}

static double compilers_host_ran_ms(const struct job *j, const struct candidate *c)
{
    return compile_pool_ran_ms(j->runner->pool, c->build);
}

/* Estimated: time per effort of this job's finished compiles, times the candidate's effort. */
static double compilers_host_left_ms(const struct job *j, const struct candidate *c)
{
    return j->took_ms / j->took_effort * job_effort(j, c->id) - compilers_host_ran_ms(j, c);
}

const struct compilers_ops compilers_host = {
    .real = true,
    .now_ms = compilers_host_now_ms,
    .wall_ms = compilers_host_wall_ms,
    .is_built = compilers_host_is_built,
    .wait = compilers_host_wait,
    .left_ms = compilers_host_left_ms,
    .ran_ms = compilers_host_ran_ms,
    .cost_ms = compilers_host_ran_ms,
};
