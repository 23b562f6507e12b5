/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A config on its way through the compilers: who wants it, waits for it, gives it back.
 *
 * Each compile may take 120 s. It is watched here, not by gemmd: it fails its config (status
 * `hung`) and costs a thread, not the process. While nothing else happens its `attempt` stands on
 * the socket, with some grace.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/job_inner.h"

enum { COMPILE_LIMIT_MS = 120000, COMPILE_GRACE_MS = 5000 };

int job_poll(struct job *j, struct error *err)
{
    runner_pump(j->runner);
    if (j->runner->cancelled) {
        return error_set(err, ERROR_CANCELLED, "cancelled after %u of %u configs", j->done,
                         j->total);
    }
    return 0;
}

/* When a recorded compiler is done with a variant, which must not have been wanted yet. */
static double due_ms(struct job *j, const struct variant *v, const char *hash)
{
    struct runner *r = j->runner;
    struct image image = {0};
    bool cached = modules_find(r->opt.cache_dir, hash, &image, NULL) != MODULES_MISS;
    image_deinit(&image);
    return lanes_want(&r->lanes, hash, cached ? 0 : r->compiler->ops->takes_ms(r->compiler, v),
                      runner_now_ms(j->runner));
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
    return j->runner->replay ? c->due_ms <= runner_now_ms(j->runner)
                             : c->build->state != BUILD_PENDING;
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

static int wait_for_any(struct job *j, struct candidate *const queue[], uint32_t n, int64_t most_ms,
                        struct error *err)
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

/* A recorded host waits on its own clock for the first that is due, and until it is really
 * there. */
static int wait_on_clock(struct job *j, struct candidate *const queue[], uint32_t n,
                         struct error *err)
{
    struct candidate *first = queue[0];
    int r = 0;
    for (uint32_t i = 1; i < n; i++) {
        first = queue[i]->due_ms < first->due_ms ? queue[i] : first;
    }
    lanes_wait(&j->runner->lanes, first->due_ms, runner_now_ms(j->runner));
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
