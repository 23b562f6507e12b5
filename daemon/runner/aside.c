/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "daemon/runner/aside.h"
#include "daemon/runner/job.h"

enum {
    AFTER_MS = 40,    /* of compiling: it is not in the cache */
    WORTH_MS = 200,   /* of waiting */
    TRIALS_LEAST = 6, /* of an order */
    KEPT_MOST = 64,   /* searches: of more, the oldest ask for it again */
};

/* ---- when ------------------------------------------------------------------------------------ */

static bool may_be_set_aside(const struct job *j)
{
    return j->runner->others_wait && !j->given && j->done >= j->done_before + TRIALS_LEAST &&
           isfinite(j->reference_us);
}

/* Until a build is done, by what others took; NaN: nothing is known. */
static double left_ms(const struct job *j, const struct candidate *c)
{
    if (j->runner->replay) {
        return c->due_ms - job_clock_ms(j);
    }
    return j->took_ms / j->took_effort * job_effort(j, c->id) -
           builds_ran_ms(j->runner->builds, c->build);
}

int64_t aside_patience(const struct job *j, struct candidate *const queue[], uint32_t n)
{
    double left = INFINITY, ran = 0;
    if (!may_be_set_aside(j)) {
        return ASIDE_NEVER;
    }
    for (uint32_t i = 0; i < n; i++) {
        double ms = left_ms(j, queue[i]);
        left = isnan(ms) ? 0 : fmin(left, ms);
        ran = fmax(ran, builds_ran_ms(j->runner->builds, queue[i]->build));
    }
    if (left < WORTH_MS) {
        return ASIDE_NEVER;
    }
    struct build *longest;
    bool taken = ran == 0 && builds_longest(j->runner->builds, &longest) >= AFTER_MS;
    if (j->runner->replay || ran >= AFTER_MS || taken /* by others, the compilers */) {
        return 0;
    }
    return AFTER_MS - (int64_t)ran; /* it may be found, in the cache */
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static struct aside **place_of(struct runner *r, int64_t job)
{
    struct aside **at = &r->aside;
    while (*at && (*at)->job != job) {
        at = &(*at)->next;
    }
    return at;
}

static void forget(struct runner *r, struct aside **at)
{
    struct aside *a = *at;
    *at = a->next;
    for (uint32_t i = 0; i < a->n; i++) {
        builds_release(r->builds, a->builds[i]);
    }
    plan_deinit(&a->plan);
    free(a->configs);
    free(a->builds);
    free(a);
}

static void forget_oldest(struct runner *r)
{
    uint32_t n = 0;
    struct aside **at = &r->aside;
    for (; *at && n < KEPT_MOST; n++) {
        at = &(*at)->next;
    }
    while (*at) {
        forget(r, at);
    }
}

void aside_keep(struct job *j, struct candidate *const queue[], uint32_t n)
{
    struct runner *r = j->runner;
    struct aside *a = calloc(1, sizeof(*a));
    struct record *configs = calloc(n, sizeof(*configs));
    struct build **builds = calloc(n, sizeof(struct build *));
    aside_drop(r, j->order->job);
    if (!a || !configs || !builds) {
        free(a);
        free(configs);
        free(builds);
        return;
    }
    *a = (struct aside){.next = r->aside, .job = j->order->job, .n = n, .configs = configs,
                        .builds = builds};
    for (uint32_t i = 0; i < n; i++) {
        record_copy(&configs[i], &queue[i]->config);
        builds[i] = queue[i]->build;
        builds_hold(builds[i]);
    }
    r->aside = a;
    forget_oldest(r);
}

const struct aside *aside_find(struct runner *r, int64_t job)
{
    return *place_of(r, job);
}

void aside_keep_plan(struct job *j)
{
    struct aside *a = *place_of(j->runner, j->order->job);
    if (a) {
        a->plan = j->plan;
        j->plan = (struct plan){0};
    }
}

bool aside_take_plan(struct runner *r, int64_t job, struct plan *out)
{
    struct aside *a = *place_of(r, job);
    if (!a || !a->plan.point) {
        return false;
    }
    *out = a->plan;
    a->plan = (struct plan){0};
    return true;
}

void aside_drop(struct runner *r, int64_t job)
{
    struct aside **at = place_of(r, job);
    if (*at) {
        forget(r, at);
    }
}
