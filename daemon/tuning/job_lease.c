/* SPDX-License-Identifier: Apache-2.0 */
/* Leases of keys, and jobs whose keys other daemons have leased (job_lease.h). */
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/tuning/job_lease.h"
#include "daemon/tuning/job.h"
#include "store/store.h"

enum {
    /* time between attempts to lease a key: no message tells when a killed daemon's lease ends */
    RETRY_MS = 500,
};

static void job_lease_on_timer(uv_timer_t *timer);

void job_lease_init(struct job_lease *e, struct scheduler *s,
                    void (*leased)(void *ctx, struct job *j), void *ctx)
{
    *e = (struct job_lease){.daemon = s->daemon, .scheduler = s, .leased = leased, .ctx = ctx};
    uv_timer_init(&s->daemon->loop, &e->recheck);
    e->recheck.data = e;
}

void job_lease_stop(struct job_lease *e)
{
    LIST_EACH(node, &e->scheduler->queue) {
        job_lease_release(e, LIST_OF(node, struct job, link));
    }
    if (e->scheduler->running) {
        job_lease_release(e, e->scheduler->running);
    }
    uv_close((uv_handle_t *)&e->recheck, NULL);
}

static bool job_lease_is_needed(const struct scheduler *s)
{
    if (s->n_leased_out || (s->running && s->running->leased)) {
        return true;
    }
    LIST_EACH(node, &s->queue) {
        if (LIST_OF(node, struct job, link)->leased) { /* set aside */
            return true;
        }
    }
    return false;
}

static void job_lease_watch_jobs(struct job_lease *e)
{
    if (job_lease_is_needed(e->scheduler) && !e->daemon->stopping &&
        !uv_is_active((uv_handle_t *)&e->recheck)) {
        uv_timer_start(&e->recheck, job_lease_on_timer, RETRY_MS, 0);
    }
}

/* ---- leasing --------------------------------------------------------------------------------- */

static void step_aside(struct job_lease *e, struct job *j)
{
    log_debug("job %lld: another gemmd has %s", (long long)j->id, j->key);
    if (!j->set_aside) {
        job_reset(j);
    }
    scheduler_step_aside(e->scheduler, j);
    job_lease_watch_jobs(e);
}

static void job_lease_on_leased(void *ctx, int status, const struct error *err)
{
    struct job_lease *e = ctx;
    struct job *j = e->scheduler->running;
    if (!j) {
        return;
    }
    j->leased = status == 0;
    j->was_leased_out = false;
    if (status == STORE_HELD && !j->cancelled) {
        step_aside(e, j);
        return;
    }
    if (status < 0) { /* without the ledger go on: tuning a key twice is better than no tuning */
        log_warning("job %lld: its key is not leased: %s", (long long)j->id, err->text);
    }
    job_lease_watch_jobs(e);
    e->leased(e->ctx, j);
}

void job_lease_take(struct job_lease *e, struct job *j)
{
    struct daemon *d = e->daemon;
    j->state = JOB_LEASING;
    if (j->pin || j->restricted || d->config->offline ||
        d->ledger->ops->lease(d->ledger, j->key, LEASE_LEDGER_MS, job_lease_on_leased, e) < 0) {
        e->leased(e->ctx, j);
    }
}

void job_lease_release(struct job_lease *e, struct job *j)
{
    struct daemon *d = e->daemon;
    if (j->leased && d->ledger) {
        d->ledger->ops->unlease(d->ledger, j->key);
    }
    j->leased = false;
}

void job_lease_left(struct job_lease *e, struct job *j)
{
    if (j->set_aside && !j->n_waiters) {
        job_lease_release(e, j);
    }
}

static void on_renewed(void *ctx, int status, const struct error *err)
{
    (void)ctx;
    (void)err;
    if (status == STORE_HELD) {
        log_warning("another gemmd tunes the same key: this one did not answer for a while");
    }
}

/* ---- coming back ----------------------------------------------------------------------------- */

void job_lease_freed(struct job_lease *e, const char *key)
{
    LIST_EACH(node, &e->scheduler->leased_out) {
        struct job *j = LIST_OF(node, struct job, link);
        if (!key[0] || strcmp(j->key, key) == 0) {
            scheduler_come_back(e->scheduler, j);
        }
    }
    scheduler_next(e->scheduler);
}

/* Answers a waiting job, after an answer was published. A job that was set aside with its lease
 * goes on, like a running job. */
static void answer_waiting(struct job_lease *e, struct job *j, bool searched)
{
    WIRE_BUF_AUTO answer = WIRE_BUF_NULL;
    if (j->set_aside && j->leased) {
        return;
    }
    if (searched && j->state == JOB_LEASED_OUT && !j->restricted && !j->pin) {
        /* another daemon has just tuned the key again, so its answer is new enough */
        j->again = false;
    }
    bool known =
        j->set_aside ? tuning_answered(e->daemon, j, &answer) : tuning_known(e->daemon, j, &answer);
    if (known) {
        job_answer(j, answer.data, answer.len);
        scheduler_drop(e->scheduler, j);
        e->scheduler->shared++;
    }
}

static void job_lease_answer_all(struct job_lease *e, struct list *jobs, const char *key,
                                 bool searched)
{
    LIST_EACH(node, jobs) {
        struct job *j = LIST_OF(node, struct job, link);
        if (strcmp(j->key, key) == 0) {
            answer_waiting(e, j, searched);
        }
    }
}

void job_lease_learned(struct job_lease *e, const char *key, bool searched)
{
    job_lease_answer_all(e, &e->scheduler->leased_out, key, searched);
    job_lease_answer_all(e, &e->scheduler->queue, key, searched);
}

static void job_lease_renew_key(struct job_lease *e, const struct job *j)
{
    struct daemon *d = e->daemon;
    if (j->leased && d->ledger) {
        d->ledger->ops->lease(d->ledger, j->key, LEASE_LEDGER_MS, on_renewed, d);
    }
}

static void job_lease_on_timer(uv_timer_t *timer)
{
    struct job_lease *e = timer->data;
    if (e->scheduler->running) {
        job_lease_renew_key(e, e->scheduler->running);
    }
    LIST_EACH(node, &e->scheduler->queue) {
        job_lease_renew_key(e, LIST_OF(node, struct job, link)); /* set aside */
    }
    job_lease_freed(e, "");
    job_lease_watch_jobs(e);
}
