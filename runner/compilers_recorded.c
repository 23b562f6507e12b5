/* SPDX-License-Identifier: Apache-2.0 */
/* The compilers of a recorded host (compilers.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/job_inner.h"

double lanes_now(const struct lanes *l, struct device *device)
{
    return l->waited_ms + (device ? device->ops->clock_ms(device) : 0);
}

static void lanes_remember_build(struct lanes *l, const char *hash, double due_ms)
{
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 64;
        struct lane_build *builds = realloc(l->builds, room * sizeof(*builds));
        if (!builds) {
            return; /* without memory: the next lanes_want() for this variant takes a lane again */
        }
        l->builds = builds;
        l->room = room;
    }
    snprintf(l->builds[l->n].hash, HASH_HEX, "%s", hash);
    l->builds[l->n++].due_ms = due_ms;
}

double lanes_want(struct lanes *l, const char *hash, double ms, double now_ms)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if (strcmp(l->builds[i].hash, hash) == 0) {
            return l->builds[i].due_ms;
        }
    }
    double *first = &l->free_ms[0];
    for (uint32_t i = 1; i < LANES; i++) {
        first = l->free_ms[i] < *first ? &l->free_ms[i] : first;
    }
    double due_ms = ms > 0 ? fmax(*first, now_ms) + ms : now_ms;
    *first = ms > 0 ? due_ms : *first;
    lanes_remember_build(l, hash, due_ms);
    return due_ms;
}

void lanes_wait(struct lanes *l, double until_ms, double now_ms)
{
    l->waited_ms += fmax(until_ms - now_ms, 0);
}

/* ---- the table ------------------------------------------------------------------------------- */

static double compilers_recorded_now_ms(const struct runner *r)
{
    return lanes_now(&r->lanes, r->device);
}

static double compilers_recorded_wall_ms(const struct job *j)
{
    return runner_now_ms(j->runner) - j->began_ms;
}

static double compilers_recorded_cost_ms(const struct job *j, const struct candidate *c)
{
    struct compiler *compiler = j->runner->compiler;
    return compiler->ops->takes_ms(compiler, &c->variant);
}

/* Returns when the build of a candidate is due. Called before the compile pool has the variant,
 * since the pool puts it into the cache directory, where this function looks. */
static double compilers_recorded_due_ms(struct job *j, const struct candidate *c)
{
    struct runner *r = j->runner;
    bool cached = modules_has(r->opt.mode.cache_dir, c->hash);
    return lanes_want(&r->lanes, c->hash, cached ? 0 : compilers_recorded_cost_ms(j, c),
                      runner_now_ms(r));
}

static bool compilers_recorded_is_built(const struct job *j, const struct candidate *c)
{
    return c->due_ms <= runner_now_ms(j->runner);
}

/* Advances the virtual clock to the earliest due time in the queue, and waits until this host has
 * really compiled that build. */
static int compilers_recorded_wait(struct job *j, struct candidate *const queue[], uint32_t n,
                                   int64_t most_ms, struct error *err)
{
    struct candidate *first = queue[0];
    int r = 0;
    for (uint32_t i = 1; i < n; i++) {
        first = queue[i]->due_ms < first->due_ms ? queue[i] : first;
    }
    lanes_wait(&j->runner->lanes, first->due_ms, runner_now_ms(j->runner));
    while (r == 0 && first->build->state == BUILD_PENDING) {
        r = compilers_host.wait(j, queue, n, ASIDE_NEVER, err);
    }
    return r ? r : job_poll(j, err);
}

static double compilers_recorded_left_ms(const struct job *j, const struct candidate *c)
{
    return c->due_ms - runner_now_ms(j->runner);
}

/* A variant in the cache is due at once. So a variant that is not due is not in the cache. */
static double compilers_recorded_ran_ms(const struct job *j, const struct candidate *c)
{
    return INFINITY;
}

const struct compilers_ops compilers_recorded = {
    .now_ms = compilers_recorded_now_ms,
    .wall_ms = compilers_recorded_wall_ms,
    .due_ms = compilers_recorded_due_ms,
    .is_built = compilers_recorded_is_built,
    .wait = compilers_recorded_wait,
    .left_ms = compilers_recorded_left_ms,
    .ran_ms = compilers_recorded_ran_ms,
    .cost_ms = compilers_recorded_cost_ms,
};

const struct compilers_ops *compilers_choose(const char *device)
{
    return strncmp(device, "replay:", 7) == 0 ? &compilers_recorded : &compilers_host;
}

uint32_t compilers_count(const struct runner *r)
{
    return r->compilers->real ? r->threads : LANES;
}
