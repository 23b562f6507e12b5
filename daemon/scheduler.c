/* SPDX-License-Identifier: Apache-2.0 */
/* Which job runs, and who is let go when (scheduler.h). What a running job does is in tuning.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/precheck.h"
#include "daemon/scheduler.h"

static void on_deadline(uv_timer_t *timer);
static void on_next(uv_timer_t *timer);
static void on_retry(uv_timer_t *timer);

void scheduler_init(struct scheduler *s, struct daemon *d, struct tiers *t,
                    const struct scheduler_hooks *hooks, void *ctx)
{
    *s = (struct scheduler){.daemon = d, .tiers = t, .hooks = hooks, .ctx = ctx};
    list_init(&s->queue);
    list_init(&s->elsewhere);
    uv_timer_init(&d->loop, &s->deadlines);
    uv_timer_init(&d->loop, &s->next);
    uv_timer_init(&d->loop, &s->retry);
    s->deadlines.data = s->next.data = s->retry.data = s;
}

void scheduler_next(struct scheduler *s)
{
    if (!s->running && s->n_queued && !s->stopping && !uv_is_active((uv_handle_t *)&s->next)) {
        uv_timer_start(&s->next, on_next, 0, 0);
    }
    if (!s->running && !s->n_queued) {
        s->hooks->idle(s->ctx);
    }
}

static void set_running(struct scheduler *s, struct job *j)
{
    s->running = j;
    s->daemon->tuning = j != NULL;
}

void scheduler_unqueue(struct scheduler *s, struct job *j)
{
    list_remove(&j->link);
    if (j->state == JOB_ELSEWHERE) {
        s->n_elsewhere--;
    } else {
        s->n_queued--;
    }
}

static void on_next(uv_timer_t *timer)
{
    struct scheduler *s = timer->data;
    struct job *next = NULL;
    LIST_EACH(node, &s->queue) {
        struct job *j = LIST_OF(node, struct job, link);
        if (!next || (j->n_waiters && !next->n_waiters)) {
            next = j;
        }
        if (next->n_waiters) {
            break;
        }
    }
    if (next && !s->running) {
        scheduler_unqueue(s, next);
        set_running(s, next);
        s->hooks->begin(s->ctx, next);
    }
}

void scheduler_step_aside(struct scheduler *s, struct job *j)
{
    set_running(s, NULL);
    j->state = JOB_ELSEWHERE;
    snprintf(j->progress.phase, sizeof(j->progress.phase), "elsewhere");
    list_append(&s->elsewhere, &j->link);
    s->n_elsewhere++;
    job_tell(j);
    scheduler_next(s);
}

void scheduler_come_back(struct scheduler *s, struct job *j)
{
    list_remove(&j->link);
    s->n_elsewhere--;
    j->state = JOB_QUEUED;
    list_append(&s->queue, &j->link);
    s->n_queued++;
}

/* ---- wanting ------------------------------------------------------------------------------------- */

static bool same(const struct job *j, uint64_t identity, const struct wire_buf *search, bool pin)
{
    return j->identity == identity && j->pin == pin && !j->cancelled &&
           j->search.len == search->len && memcmp(j->search.data, search->data, search->len) == 0;
}

static struct job *find_in(const struct list *jobs, uint64_t identity, const struct wire_buf *search,
                           bool pin)
{
    LIST_EACH(node, jobs) {
        struct job *j = LIST_OF(node, struct job, link);
        if (same(j, identity, search, pin)) {
            return j;
        }
    }
    return NULL;
}

static struct job *find_same(const struct scheduler *s, uint64_t identity,
                             const struct wire_buf *search, bool pin)
{
    if (s->running && same(s->running, identity, search, pin)) {
        return s->running;
    }
    struct job *j = find_in(&s->queue, identity, search, pin);
    return j ? j : find_in(&s->elsewhere, identity, search, pin);
}

static int make_job(struct scheduler *s, const struct wanted *w, struct wire_buf *search,
                    struct job **out, struct error *err)
{
    if (s->n_queued >= QUEUE_MAX) {
        return error_set(err, ERROR_BUSY, "%d tunings are queued already; retry later", QUEUE_MAX);
    }
    if (account_add_job(w->account, err) < 0) {
        return err->code;
    }
    uint64_t identity = job_identity(search, w->pin);
    struct job *j = job_new(++s->last_id, search, err);
    if (!j) {
        w->account->jobs--;
        return ERROR_NO_MEMORY;
    }
    j->account = account_hold(w->account);
    j->scheduler = s;
    memcpy(j->key, w->key->id, sizeof(j->key));
    j->identity = identity;
    j->pin = w->pin;
    j->again = w->again;
    j->restricted = request_is_restricted(w->request);
    memcpy(j->target, w->request->query.target, sizeof(j->target));
    memcpy(j->bucket, w->request->query.bucket, sizeof(j->bucket));
    j->uid = (int64_t)w->account->uid;
    j->progress.best_us = j->progress.reference_us = j->progress.eta_ms = NAN;
    snprintf(j->progress.phase, sizeof(j->progress.phase), "queued");
    *out = j;
    return 0;
}

static void watch_deadline(struct scheduler *s, uint64_t deadline_ms)
{
    uv_timer_t *t = &s->deadlines;
    uint64_t now = uv_now(t->loop);
    uint64_t in = deadline_ms > now ? deadline_ms - now : 0;
    if (!uv_is_active((uv_handle_t *)t) || uv_timer_get_due_in(t) > in) {
        uv_timer_start(t, on_deadline, in, 0);
    }
}

static void waiter_gone(struct ticket *t);

static int wait_for(struct scheduler *s, struct job *j, const struct wanted *w,
                    const struct problem *problem, const struct query *q, struct error *err)
{
    if (!w->session) {
        return 0;
    }
    uint64_t deadline = q->deadline_ms ? uv_now(s->deadlines.loop) + (uint64_t)q->deadline_ms : 0;
    int status = job_wait(j, w->session, w->id, problem, deadline, q->progress, waiter_gone, err);
    if (status == 0 && deadline) {
        watch_deadline(s, deadline);
    }
    return status;
}

int scheduler_want(struct scheduler *s, const struct wanted *w, struct error *err)
{
    if (s->off.code) {
        *err = s->off;
        return err->code;
    }
    struct query query = w->request->query;
    struct problem *problem = &s->daemon->scratch->other;
    *problem = w->request->problem;
    w->request->problem = *w->bucket;
    WIRE_BUF_AUTO search = WIRE_BUF_NULL;
    int status = job_pack(&search, w->request, err);
    if (status < 0) {
        return status;
    }
    struct job *j = find_same(s, job_identity(&search, w->pin), &search, w->pin);
    bool fresh = !j;
    if (fresh) {
        status = precheck(s->daemon, w->request, err);
        if (status == 0 && w->session) {
            status = precheck_space(s->daemon, w->request, err);
        }
        status = status ? status : make_job(s, w, &search, &j, err);
        if (status < 0) {
            return status;
        }
    }
    status = wait_for(s, j, w, problem, &query, err);
    if (status < 0) {
        if (fresh) {
            job_free(j);
        }
        return status;
    }
    j->background = j->background || w->background;
    if (fresh) {
        list_append(&s->queue, &j->link);
        s->n_queued++;
        scheduler_next(s);
        s->hooks->queued(s->ctx, j);
    }
    if (query.progress) {
        job_tell(j);
    }
    return 0;
}

/* ---- letting go ------------------------------------------------------------------------------------ */

/* Nobody waits any more: does it go on? */
static void unwanted(struct scheduler *s, struct job *j)
{
    if (j->n_waiters || j->background || j->cancelled) {
        return;
    }
    j->cancelled = true;
    if (j == s->running) {
        s->hooks->cancel(s->ctx, j);
    } else {
        scheduler_unqueue(s, j);
        s->cancelled++;
        job_free(j);
    }
}

static void waiter_gone(struct ticket *t)
{
    struct waiter *w = LIST_OF(t, struct waiter, ticket);
    struct job *j = w->job;
    struct scheduler *s = j->scheduler;
    waiter_free(w);
    unwanted(s, j);
}

struct waiter *scheduler_find(struct scheduler *s, const struct session *session, uint32_t id)
{
    (void)s;
    LIST_EACH(node, &session->tickets) {
        struct ticket *t = LIST_OF(node, struct ticket, link);
        if (t->id == id && t->gone == waiter_gone) {
            return LIST_OF(t, struct waiter, ticket);
        }
    }
    return NULL;
}

void scheduler_drop(struct scheduler *s, struct waiter *w, const struct error *e)
{
    struct job *j = w->job;
    ticket_fail(&w->ticket, e);
    waiter_free(w);
    unwanted(s, j);
}

/* The deadline has passed: the best lower tier is the answer, and the tuning goes on. */
static void give_lower_tier(struct scheduler *s, struct waiter *w)
{
    struct daemon *d = s->daemon;
    struct job *j = w->job;
    struct scratch *x = d->scratch;
    struct error err = ERROR_NULL;
    const struct wire_obj *map;
    int status = ERROR_DEADLINE;
    if (!j->pin) {
        status = wire_decode(d->doc, w->problem, w->problem_len, &map, &err);
    }
    if (status == 0) {
        status = problem_unpack(&x->request.problem, map, &err);
    }
    if (status == 0) {
        memcpy(x->request.query.bucket, j->bucket, sizeof(j->bucket)); /* as it was asked for */
        status = daemon_key(d, &err);
        x->request.query.bucket[0] = '\0';
    }
    if (status == 0) {
        key_id(&x->key);
        status = tiers_answer(s->tiers, &x->request.problem, &x->bucket, &x->key, j->target,
                              "deadline passed, the tuning goes on", &x->answer, &err);
    }
    j->background = true;
    if (status < 0) {
        error_set(&err, ERROR_DEADLINE, "not done within its deadline_ms; the tuning goes on");
        ticket_fail(&w->ticket, &err);
    } else {
        struct wire_buf *out = ticket_out(&w->ticket);
        rpc_put_result(out, w->ticket.id);
        schema_encode(out, &answer_schema, &x->answer);
        ticket_close(&w->ticket);
    }
    waiter_free(w);
}

static uint64_t expire(struct scheduler *s, struct job *j, uint64_t now, uint64_t next)
{
    LIST_EACH(node, &j->waiters) {
        struct waiter *w = LIST_OF(node, struct waiter, link);
        if (w->deadline_ms && w->deadline_ms <= now) {
            give_lower_tier(s, w);
        } else if (w->deadline_ms && w->deadline_ms < next) {
            next = w->deadline_ms;
        }
    }
    return next;
}

static void on_deadline(uv_timer_t *timer)
{
    struct scheduler *s = timer->data;
    uint64_t now = uv_now(timer->loop), next = UINT64_MAX;
    if (s->running) {
        next = expire(s, s->running, now, next);
    }
    LIST_EACH(node, &s->queue) {
        next = expire(s, LIST_OF(node, struct job, link), now, next);
    }
    LIST_EACH(node, &s->elsewhere) {
        next = expire(s, LIST_OF(node, struct job, link), now, next);
    }
    if (next != UINT64_MAX) {
        watch_deadline(s, next);
    }
}

/* ---- ends ---------------------------------------------------------------------------------------- */

static void retry_later(struct scheduler *s)
{
    uint64_t first = (uint64_t)s->daemon->config->retry_ms;
    uint64_t twice = s->retry_ms > RETRY_MS_MAX / 2 ? RETRY_MS_MAX : 2 * s->retry_ms;
    s->retry_ms = s->retry_ms && first ? twice : first;
    if (s->retry_ms && !s->stopping) {
        uv_timer_start(&s->retry, on_retry, s->retry_ms, 0);
    }
}

/* One job may show that the device is well again. */
static void on_retry(uv_timer_t *timer)
{
    struct scheduler *s = timer->data;
    struct daemon *d = s->daemon;
    if (!s->hooks->device_is_free(s->ctx)) { /* one that does not end still has the device */
        uv_timer_start(timer, on_retry, s->retry_ms, 0);
        return;
    }
    log_notice("tuning is tried again after %llu s", (unsigned long long)s->retry_ms / 1000);
    daemon_event(d, "tuning_on", (int64_t)geteuid(), "tried again after %llu s",
                 (unsigned long long)s->retry_ms / 1000);
    s->off = ERROR_NULL;
    s->failing = FAILING_JOBS_MAX - 1;
}

/* All that do not run. Returns how many. */
static unsigned fail_waiting(struct scheduler *s, const struct error *e)
{
    unsigned n = 0;
    while (!list_empty(&s->queue) || !list_empty(&s->elsewhere)) {
        struct list *jobs = list_empty(&s->queue) ? &s->elsewhere : &s->queue;
        struct job *j = LIST_OF(jobs->next, struct job, link);
        scheduler_unqueue(s, j);
        job_fail(j, e);
        job_free(j);
        n++;
    }
    return n;
}

const char *scheduler_tuning(const struct scheduler *s)
{
    if (s->off.code) {
        return s->off.text;
    }
    return s->daemon->device.compiler[0] ? "on" : "off: no compiler was found when gemmd started";
}

void scheduler_switch_off(struct scheduler *s, const struct error *why)
{
    s->off = *why;
    log_error("tuning is off: %s", s->off.text);
    daemon_event(s->daemon, "tuning_off", (int64_t)geteuid(), "%s", s->off.text);
    retry_later(s);
    s->failed += fail_waiting(s, &s->off);
}

void scheduler_ended(struct scheduler *s, struct job *j, enum job_end how)
{
    set_running(s, NULL);
    s->done += how == JOB_DONE;
    s->failed += how == JOB_FAILED || how == JOB_DIED;
    s->cancelled += how == JOB_CANCELLED;
    s->shared += how == JOB_SHARED;
    if (how != JOB_CANCELLED && how != JOB_SHARED) { /* these say nothing of the device */
        s->failing = how == JOB_DIED ? s->failing + 1 : 0;
    }
    s->retry_ms = how == JOB_DONE ? 0 : s->retry_ms;
    job_free(j);
    if (s->failing >= FAILING_JOBS_MAX && !s->off.code) {
        struct error e = ERROR_NULL;
        error_set(&e, ERROR_DEVICE_LOST,
                  "device unhealthy: %u jobs in a row ended by the death of their runner; answers "
                  "that are known are served on; see gemmctl quarantine and check the device; tuning "
                  "is tried again after a while",
                  s->failing);
        scheduler_switch_off(s, &e);
    }
    scheduler_next(s);
}

void scheduler_stop(struct scheduler *s)
{
    struct error e = ERROR_NULL;
    s->stopping = true;
    error_set(&e, ERROR_SHUTTING_DOWN, "gemmd is stopping");
    if (s->running) {
        s->cancelled++;
        job_fail(s->running, &e);
        job_free(s->running);
        set_running(s, NULL);
    }
    s->cancelled += fail_waiting(s, &e);
    uv_close((uv_handle_t *)&s->deadlines, NULL);
    uv_close((uv_handle_t *)&s->next, NULL);
    uv_close((uv_handle_t *)&s->retry, NULL);
}
