/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs whose keys other daemons are working on (elsewhere.h). */
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/elsewhere.h"
#include "daemon/log.h"
#include "daemon/tuning.h"
#include "store/store.h"

enum {
    RETRY_MS = 2000, /* in case that nobody tells of the end of a lease: it may have run out */
};

static void on_timer(uv_timer_t *timer);

static void watch(struct scheduler *s)
{
    bool needed = s->n_elsewhere || (s->running && s->running->leased);
    if (needed && !s->stopping && !uv_is_active((uv_handle_t *)&s->recheck)) {
        uv_timer_start(&s->recheck, on_timer, RETRY_MS, 0);
    }
}

/* ---- leasing
 * ------------------------------------------------------------------------------------- */

static void step_aside(struct scheduler *s, struct job *j)
{
    log_debug("job %lld: another gemmd has %s", (long long)j->id, j->key);
    tuning_reset(j);
    s->running = NULL;
    j->state = JOB_ELSEWHERE;
    snprintf(j->progress.phase, sizeof(j->progress.phase), "elsewhere");
    list_append(&s->elsewhere, &j->link);
    s->n_elsewhere++;
    job_tell(j);
    watch(s);
    scheduler_next(s);
}

static void on_leased(void *ctx, int status, const struct error *err)
{
    struct daemon *d = ctx;
    struct scheduler *s = &d->scheduler;
    struct job *j = s->running;
    if (!j) {
        return;
    }
    j->leased = status != STORE_HELD; /* after a fault it is asked for again, and given back */
    if (status == STORE_HELD && !j->cancelled) {
        step_aside(s, j);
        return;
    }
    if (status < 0) { /* a key tuned twice is better than not at all */
        log_warning("job %lld: its key is not leased: %s", (long long)j->id, err->text);
    }
    watch(s);
    tuning_leased(d, j);
}

void elsewhere_lease(struct daemon *d, struct job *j)
{
    j->state = JOB_LEASING;
    if (j->pin || j->restricted || d->config->offline) {
        tuning_leased(d, j);
    } else if (d->ledger->ops->lease(d->ledger, j->key, d->owner, LEASE_LEDGER_MS, on_leased, d) <
               0) {
        j->leased = true; /* like after a fault */
        watch(&d->scheduler);
        tuning_leased(d, j);
    }
}

void elsewhere_unlease(struct daemon *d, struct job *j)
{
    if (j->leased && d->ledger) {
        d->ledger->ops->unlease(d->ledger, j->key, d->owner);
    }
    j->leased = false;
}

static void on_renewed(void *ctx, int status, const struct error *err)
{
    (void)ctx;
    (void)err;
    if (status == STORE_HELD) {
        log_warning("another gemmd tunes the same key: this one did not answer for a while");
    }
}

/* ---- coming back
 * ----------------------------------------------------------------------------------- */

static void come_back(struct scheduler *s, struct job *j)
{
    list_remove(&j->link);
    s->n_elsewhere--;
    j->state = JOB_QUEUED;
    list_append(&s->queue, &j->link);
    s->n_queued++;
}

void scheduler_freed(struct scheduler *s, const char *key)
{
    LIST_EACH(node, &s->elsewhere)
    {
        struct job *j = LIST_OF(node, struct job, link);
        if (!key[0] || strcmp(j->key, key) == 0) {
            come_back(s, j);
        }
    }
    scheduler_next(s);
}

/* Told by another daemon, or by the job that ran here: answers one that waits. */
static void answer_waiting(struct scheduler *s, struct job *j)
{
    WIRE_BUF_AUTO answer = WIRE_BUF_NULL;
    if (j->state == JOB_ELSEWHERE && !j->restricted && !j->pin) {
        j->again = false; /* it has just been tuned again */
    }
    if (tuning_known(s->daemon, j, &answer)) {
        job_answer(j, answer.data, answer.len);
        scheduler_unqueue(s, j);
        s->shared++;
        job_free(j);
    }
}

static void answer_all(struct scheduler *s, struct list *jobs, const char *key)
{
    LIST_EACH(node, jobs)
    {
        struct job *j = LIST_OF(node, struct job, link);
        if (strcmp(j->key, key) == 0) {
            answer_waiting(s, j);
        }
    }
}

void scheduler_learned(struct scheduler *s, const char *key)
{
    answer_all(s, &s->elsewhere, key);
    answer_all(s, &s->queue, key);
}

static void on_timer(uv_timer_t *timer)
{
    struct scheduler *s = timer->data;
    struct daemon *d = s->daemon;
    if (s->running && s->running->leased && d->ledger) {
        d->ledger->ops->lease(d->ledger, s->running->key, d->owner, LEASE_LEDGER_MS, on_renewed, d);
    }
    scheduler_freed(s, "");
    watch(s);
}

void elsewhere_init(struct scheduler *s)
{
    list_init(&s->elsewhere);
    uv_timer_init(&s->daemon->loop, &s->recheck);
    s->recheck.data = s;
}

void elsewhere_stop(struct scheduler *s)
{
    uv_close((uv_handle_t *)&s->recheck, NULL);
}
