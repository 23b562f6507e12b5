/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "runner/aside.h"
#include "runner/job_inner.h"

/* Most searches whose state is kept. Beyond this the oldest state is dropped, and that search
 * compiles or finds its kernels again. */
enum { KEPT_MOST = 64 };

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
