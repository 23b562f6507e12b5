/* SPDX-License-Identifier: Apache-2.0 */
/* Joining jobs, waiting, and leaving (tuning.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/target.h"
#include "daemon/cache/answer.h"
#include "daemon/tuning/tuning.h"

static void on_deadline(uv_timer_t *timer);

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Finds the job that makes the same search, or NULL. A request with `again` wants a whole search,
 * so it does not join a job that only verifies the known best. */
static struct job *find_same(const struct scheduler *s, const struct joining *w,
                             const struct wire_buf *search)
{
    uint64_t identity = job_identity(search, w->pin);
    LIST_EACH(struct job, j, &s->jobs, all) {
        if (j->identity == identity && j->pin == w->pin && !j->cancelled &&
            !(w->again && j->reverify) && j->search.len == search->len &&
            memcmp(j->search.data, search->data, search->len) == 0) {
            return j;
        }
    }
    return NULL;
}

static int make_job(struct scheduler *s, const struct joining *w, struct wire_buf *search,
                    struct job **out, struct error *err)
{
    const struct scratch *x = s->tuning->daemon->scratch;
    if (s->n_queued >= QUEUE_MAX) {
        return error_set(err, ERROR_BUSY, "%d tunings are queued already; retry later", QUEUE_MAX);
    }
    if (account_add_job(w->account, err) < 0) {
        return err->code;
    }
    struct job *j = calloc(1, sizeof(*j));
    if (!j) {
        w->account->jobs--;
        return error_set(err, ERROR_NO_MEMORY, "no memory for one more job");
    }
    list_init(&j->all);
    list_init(&j->link);
    list_init(&j->waiters);
    j->id = ++s->last_id;
    j->account = account_hold(w->account);
    memcpy(j->key, x->key.id, sizeof(j->key));
    j->identity = job_identity(search, w->pin);
    j->search = *search;
    *search = WIRE_BUF_NULL;
    j->pin = w->pin;
    j->again = w->again;
    j->quiet = w->quiet;
    j->in_pauses = w->in_pauses;
    j->ordered_candidate = w->candidate;
    j->ordered_promise = w->promised;
    j->restricted = request_is_restricted(&x->request);
    j->kernels = target_stamp_of(s->tuning->daemon, &x->request);
    memcpy(j->target, x->request.query.target, sizeof(j->target));
    memcpy(j->bucket, x->request.query.bucket, sizeof(j->bucket));
    j->uid = (int64_t)w->account->uid;
    j->progress.best_us = j->progress.reference_us = j->progress.eta_ms = NAN;
    snprintf(j->progress.phase, sizeof(j->progress.phase), "queued");
    *out = j;
    return 0;
}

static void watch_deadline(struct tuning *x, uint64_t deadline_ms)
{
    uv_timer_t *t = &x->deadlines;
    uint64_t now = uv_now(t->loop);
    uint64_t in = deadline_ms > now ? deadline_ms - now : 0;
    if (!uv_is_active((uv_handle_t *)t) || uv_timer_get_due_in(t) > in) {
        uv_timer_start(t, on_deadline, in, 0);
    }
}

static void waiter_gone(struct ticket *t);
static void give_lower_tier(struct chore *c);
static void cancel_waiter(struct ticket *t, const struct error *e);

static int waiters_wait_for(struct tuning *x, struct job *j, const struct joining *w,
                            const struct query *q, struct error *err)
{
    if (!w->session) {
        return 0;
    }
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    problem_pack(&packed, &x->daemon->scratch->other);
    struct waiter *waiter = packed.failed ? NULL : malloc(sizeof(*waiter) + packed.len);
    if (!waiter) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for one more waiting request");
    }
    int status = ticket_open(&waiter->ticket, w->session, w->id, NULL, err);
    if (status < 0) {
        free(waiter);
        return status;
    }
    waiter->ticket.gone = waiter_gone;
    waiter->ticket.cancel = cancel_waiter;
    waiter->tuning = x;
    waiter->job = j;
    waiter->progress = q->progress;
    waiter->problem_len = packed.len;
    memcpy(waiter->problem, packed.data, packed.len);
    chore_init(&waiter->expiry, give_lower_tier, &w->account->served);
    list_append(&j->waiters, &waiter->link);
    j->n_waiters++;
    waiter->deadline_ms = 0;
    if (q->deadline_ms) {
        waiter->deadline_ms = uv_now(x->deadlines.loop) + (uint64_t)q->deadline_ms;
        watch_deadline(x, waiter->deadline_ms);
    }
    return 0;
}

int waiters_join(struct tuning *x, const struct joining *w, struct error *err)
{
    struct scheduler *s = &x->scheduler;
    if (s->off.code) {
        *err = s->off;
        return err->code;
    }
    struct scratch *scratch = x->daemon->scratch;
    struct request *request = &scratch->request;
    struct query query = request->query;
    scratch->other = request->problem;
    request->problem = scratch->bucket;
    WIRE_BUF_AUTO search = WIRE_BUF_NULL;
    int status = job_pack(&search, request, err);
    if (status < 0) {
        return status;
    }
    struct job *j = find_same(s, w, &search);
    bool fresh = !j;
    if (fresh) {
        status = precheck_request(x->daemon, request, err);
        if (status == 0 && w->session) {
            status = precheck_space(x->daemon, request, err);
        }
        status = status ? status : make_job(s, w, &search, &j, err);
        if (status < 0) {
            return status;
        }
    }
    status = waiters_wait_for(x, j, w, &query, err);
    if (status < 0) {
        if (fresh) {
            job_free(j);
        }
        return status;
    }
    j->background = j->background || w->background;
    j->quiet = j->quiet && w->quiet;
    j->in_pauses = j->in_pauses && w->in_pauses;
    if (j->state < JOB_RUNNING) {
        /* until the job runs, a request with `again` may still join and set the flag */
        j->again = j->again || w->again;
    }
    if (fresh) {
        scheduler_queue(s, j);
    } else if (w->session) {
        scheduler_wanted(s, j, w->account);
    }
    pauses_review(x);
    if (query.progress) {
        job_tell(j);
    }
    return 0;
}

int waiters_join_alone(struct tuning *x, struct joining *w, uid_t uid, struct error *err)
{
    struct account *account = account_of(x->accounts, uid);
    int status = account ? daemon_key(x->daemon, err)
                         : error_set(err, ERROR_NO_MEMORY, "no memory for one more job");
    if (status == 0) {
        key_id(&x->daemon->scratch->key);
        w->account = account;
        status = waiters_join(x, w, err);
    }
    account_drop(account);
    return status;
}

/* Packs the search of scratch->request, with its bucket; the request stays unchanged. */
static bool pack_search(struct daemon *d, struct wire_buf *out)
{
    struct scratch *x = d->scratch;
    struct request *r = &x->request;
    struct query query = r->query; /* packing clears the fields that are no part of a search */
    x->other = r->problem;
    r->problem = x->bucket;
    bool packed = job_pack(out, r, NULL) == 0;
    r->problem = x->other;
    r->query = query;
    return packed;
}

bool waiters_known(struct daemon *d, struct wire_buf *out)
{
    const struct request *r = &d->scratch->request;
    WIRE_BUF_AUTO search = WIRE_BUF_NULL;
    return r->n_configs == 0 && !r->query.again && pack_search(d, &search) &&
           partials_reply(&d->cache.partials, &search, out);
}

static bool waiters_recall_answer(struct daemon *d, const struct wire_buf *search,
                                  struct answer *out)
{
    WIRE_BUF_AUTO known = WIRE_BUF_NULL;
    const struct wire_obj *map;
    return partials_reply(&d->cache.partials, search, &known) &&
           wire_decode(d->doc, known.data, known.len, &map, NULL) == 0 &&
           schema_decode(&answer_schema, SCHEMA_LENIENT, map, out, NULL) == 0;
}

bool waiters_recall(struct daemon *d, struct answer *out)
{
    const struct request *r = &d->scratch->request;
    WIRE_BUF_AUTO search = WIRE_BUF_NULL;
    return request_is_restricted(r) && r->n_configs == 0 && pack_search(d, &search) &&
           waiters_recall_answer(d, &search, out);
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void waiter_gone(struct ticket *t)
{
    struct waiter *w = LIST_OF(t, struct waiter, ticket);
    struct scheduler *s = &w->tuning->scheduler;
    struct job *j = w->job;
    waiter_free(w);
    scheduler_unwanted(s, j);
}

/* Removes a waiter from its job, which goes on for other waiters. */
static void cancel_waiter(struct ticket *t, const struct error *e)
{
    ticket_fail(t, e);
    waiter_gone(t);
}

/* The deadline has passed: answers with the best lower tier. The tuning goes on. */
static void give_lower_tier(struct chore *c)
{
    struct waiter *w = LIST_OF(c, struct waiter, expiry);
    struct daemon *d = w->tuning->daemon;
    struct job *j = w->job;
    struct scratch *x = d->scratch;
    struct error err = ERROR_NULL;
    const struct wire_obj *map;
    static const char passed[] = "deadline passed, the tuning goes on";
    int status = ERROR_DEADLINE;
    if (!j->pin) { /* the restrictions are those of the job's search, the problem is the waiter's */
        status = wire_decode(d->doc, j->search.data, j->search.len, &map, &err);
        status = status ? status : request_unpack(&x->request, map, &err);
        status = status ? status : wire_decode(d->doc, w->problem, w->problem_len, &map, &err);
    }
    if (status == 0) {
        status = problem_unpack(&x->request.problem, map, &err);
    }
    if (status == 0) {
        /* round the problem by the rule of the job's request */
        memcpy(x->request.query.bucket, j->bucket, sizeof(j->bucket));
        status = daemon_key(d, &err);
        x->request.query.bucket[0] = '\0';
    }
    if (status == 0 && waiters_recall_answer(d, &j->search, &x->answer)) {
        answer_note(&x->answer, "%s", passed);
    } else if (status == 0) {
        key_id(&x->key);
        status = tiers_answer(w->tuning->tiers, &x->request, w->ticket.session->uid, &x->bucket,
                              &x->key, passed, &x->answer, NULL, &err);
    }
    request_deinit(&x->request);
    x->request.query = (struct query){0};
    j->background = true;
    if (status < 0) {
        error_set(&err, ERROR_DEADLINE, "not done within its deadline_ms; the tuning goes on");
        ticket_fail(&w->ticket, &err);
    } else {
        struct wire_buf *out = ticket_out(&w->ticket);
        rpc_put_result(out, w->ticket.id);
        schema_encode(out, &answer_schema, &x->answer);
        daemon_count_answer(d, &x->answer);
        session_count_answer(w->ticket.session, &x->answer, x->key.id, &x->bucket);
        ticket_close(&w->ticket);
    }
    waiter_gone(&w->ticket);
}

static uint64_t waiters_expire_job(struct tuning *x, struct job *j, uint64_t now, uint64_t next)
{
    LIST_EACH(struct waiter, w, &j->waiters, link) {
        if (w->deadline_ms && w->deadline_ms <= now && list_empty(&w->expiry.link)) {
            turns_chore(&x->daemon->turns, &w->expiry);
        } else if (w->deadline_ms > now && w->deadline_ms < next) {
            next = w->deadline_ms;
        }
    }
    return next;
}

static void on_deadline(uv_timer_t *timer)
{
    struct tuning *x = timer->data;
    uint64_t now = uv_now(timer->loop), next = UINT64_MAX;
    LIST_EACH(struct job, j, &x->scheduler.jobs, all) {
        next = waiters_expire_job(x, j, now, next);
    }
    if (next != UINT64_MAX) {
        watch_deadline(x, next);
    }
}
