/* SPDX-License-Identifier: Apache-2.0 */
/* Tunes while the GPU of a training job pauses (tuning.h). */
#include <stdlib.h>

#include "daemon/tuning/tuning.h"
#include "proto/rpc.h"

/* A session that keeps jobs to its pauses, or a request `pause` that waits for the pause's end. */
struct pausing {
    struct ticket ticket; /* first member: its address is the struct's */
    struct list link;     /* pauses.sessions or pauses.requests */
    struct tuning *tuning;
};

/* ---- jobs bound to pauses -------------------------------------------------------------------- */

/* True when the tuning job may use the device only in pauses. False while a job is queued that need
 * not keep to pauses: it would have to wait for the pauses of this job. */
static bool pauses_bind(const struct tuning *x, const struct job *j)
{
    if (!j->in_pauses || list_empty(&x->pauses.sessions)) {
        return false;
    }
    LIST_EACH(const struct job, other, &x->scheduler.queue, link) {
        if (!other->in_pauses && !other->quiet) {
            return false;
        }
    }
    return true;
}

bool pauses_bind_order(struct tuning *x, const struct job *j)
{
    x->pauses.wanted_ms = 0;
    return x->pauses.bound = pauses_bind(x, j);
}

void pauses_review(struct tuning *x)
{
    const struct job *j = x->scheduler.running;
    if (j && x->pauses.bound && !pauses_bind(x, j)) {
        supervisor_pause(&x->supervisor, j->id, -1);
        pauses_end(x);
    }
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void pausing_free(struct pausing *p)
{
    list_remove(&p->link);
    free(p);
}

static void on_session_gone(struct ticket *t)
{
    struct pausing *p = LIST_OF(t, struct pausing, ticket);
    struct tuning *x = p->tuning;
    pausing_free(p);
    pauses_review(x);
}

void pauses_hold(struct tuning *x, struct session *s)
{
    LIST_EACH(const struct pausing, other, &x->pauses.sessions, link) {
        if (other->ticket.session == s) {
            return;
        }
    }
    struct pausing *p = calloc(1, sizeof(*p));
    if (p) { /* without memory the session's jobs are tuned as background jobs */
        p->tuning = x;
        ticket_hold(&p->ticket, s, on_session_gone);
        list_append(&x->pauses.sessions, &p->link);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

/* The session has ended within its pause. The training job may have gone on, so the pause ends. */
static void on_request_gone(struct ticket *t)
{
    struct pausing *p = LIST_OF(t, struct pausing, ticket);
    struct tuning *x = p->tuning;
    pausing_free(p);
    if (list_empty(&x->pauses.requests) && x->scheduler.running) {
        supervisor_pause(&x->supervisor, x->scheduler.running->id, 0);
    }
}

static void pauses_put(const struct tuning *x, struct wire_buf *out, uint32_t id)
{
    int64_t left = 0;
    LIST_EACH(const struct job, j, &x->scheduler.jobs, all) {
        left += j->in_pauses && !j->cancelled;
    }
    rpc_put_result(out, id);
    wire_put_map(out, 2);
    wire_put_kv_int(out, "left", left);
    wire_put_kv_int(out, "generation", x->daemon->generation);
}

static void pauses_answer(struct tuning *x)
{
    LIST_EACH(struct pausing, p, &x->pauses.requests, link) {
        pauses_put(x, ticket_out(&p->ticket), p->ticket.id);
        ticket_close(&p->ticket);
        pausing_free(p);
    }
}

int pauses_ask(struct tuning *x, struct session *s, uint32_t id, int64_t ms, struct error *err)
{
    struct pauses *all = &x->pauses;
    const bool opens = all->wanted_ms && x->scheduler.running;
    if (!opens && list_empty(&all->requests)) {
        pauses_put(x, &s->out, id);
        return 0;
    }
    struct pausing *p = calloc(1, sizeof(*p));
    if (!p) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for one more request");
    }
    int status = ticket_open(&p->ticket, s, id, on_request_gone, err);
    if (status < 0) {
        free(p);
        return status;
    }
    p->tuning = x;
    list_append(&all->requests, &p->link);
    if (opens) {
        all->wanted_ms = 0;
        supervisor_pause(&x->supervisor, x->scheduler.running->id, ms);
    }
    return PAUSES_LATER;
}

/* ---- the runner ------------------------------------------------------------------------------ */

void pauses_on_quiet(struct tuning *x, int64_t job, bool wants)
{
    const struct job *j = x->scheduler.running;
    if (!j || j->id != job) {
        return;
    }
    if (!x->pauses.bound) { /* the order was freed before the runner had it */
        supervisor_pause(&x->supervisor, job, -1);
        return;
    }
    x->pauses.wanted_ms = wants ? uv_now(&x->daemon->loop) : 0;
    pauses_answer(x);
}

void pauses_end(struct tuning *x)
{
    x->pauses.bound = false;
    x->pauses.wanted_ms = 0;
    pauses_answer(x);
}

bool pauses_are_overdue(const struct tuning *x, const struct job *j)
{
    const uint64_t since_ms = x->pauses.wanted_ms;
    return j == x->scheduler.running && since_ms &&
           uv_now(&x->daemon->loop) - since_ms > PAUSES_OVERDUE_MS;
}
