/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "runner/aside.h"
#include "runner/job_inner.h"

/* Most searches that the runner keeps while they are set aside. Beyond this the oldest is dropped:
 * that search asks for its builds again, and finds in the cache those that have ended. */
enum { KEPT_MOST = 64 };
enum {
    AFTER_MS = 40,    /* a build that has run longer is a compile, not a lookup in the cache */
    WORTH_MS = 200,   /* a shorter expected wait does not set the search aside */
    TRIALS_LEAST = 6, /* trials that an order must have measured before it is set aside to wait */
    TURN_MS = 10000,  /* an order's turn on the device: longer than most searches take */
};

static struct aside **aside_find_place(struct runner *r, int64_t job)
{
    struct aside **at = &r->aside;
    while (*at && (*at)->job != job) {
        at = &(*at)->next;
    }
    return at;
}

static void aside_free_one(struct runner *r, struct aside **at)
{
    struct aside *a = *at;
    *at = a->next;
    for (uint32_t i = 0; i < a->n; i++) {
        compile_pool_release(r->pool, a->kept[i].build);
    }
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
        aside_free_one(r, at);
    }
}

void aside_keep(struct job *j, struct candidate *const queue[], uint32_t n)
{
    struct runner *r = j->runner;
    struct aside *a = calloc(1, sizeof(*a) + n * sizeof(a->kept[0]));
    aside_drop(r, j->order->job);
    if (!a) {
        return;
    }
    *a = (struct aside){.next = r->aside, .job = j->order->job, .n = n};
    for (uint32_t i = 0; i < n; i++) {
        record_copy(&a->kept[i].config, &queue[i]->config);
        a->kept[i].build = queue[i]->build;
        compile_pool_hold(a->kept[i].build);
    }
    r->aside = a;
    forget_oldest(r);
}

const struct aside *aside_find(struct runner *r, int64_t job)
{
    return *aside_find_place(r, job);
}

void aside_drop(struct runner *r, int64_t job)
{
    struct aside **at = aside_find_place(r, job);
    if (*at) {
        aside_free_one(r, at);
    }
}

/* ---- when ------------------------------------------------------------------------------------ */

/* True when this order has measured `trials` configs, and the reference has a time. */
static bool has_measured(const struct job *j, uint32_t trials)
{
    return j->done >= j->done_before + trials && isfinite(j->reference_us);
}

bool job_turn_is_over(const struct job *j)
{
    const double prepared = j->turn_began_ms - j->order_began_ms,
                 had = runner_now_ms(j->runner) - j->turn_began_ms;
    return j->runner->others_wait && had >= fmax(TURN_MS, prepared) && has_measured(j, 1);
}

int64_t job_patience(const struct job *j, struct candidate *const queue[], uint32_t n)
{
    const struct compilers_ops *compilers = j->runner->compilers;
    double left = INFINITY, ran = 0;
    if (!j->runner->others_wait || j->given || !has_measured(j, TRIALS_LEAST)) {
        return ASIDE_NEVER;
    }
    for (uint32_t i = 0; i < n; i++) {
        double ms = compilers->left_ms(j, queue[i]);
        left = isnan(ms) ? 0 : fmin(left, ms);
        ran = fmax(ran, compilers->ran_ms(j, queue[i]));
    }
    if (left < WORTH_MS) {
        return ASIDE_NEVER;
    }
    struct build *longest;
    bool taken = ran == 0 && compile_pool_longest(j->runner->pool, &longest) >= AFTER_MS;
    if (ran >= AFTER_MS || taken /* other compiles occupy the compilers */) {
        return 0;
    }
    return AFTER_MS - (int64_t)ran; /* a shorter build may be a mere lookup in the module cache */
}
