/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and their waiters (job.h). tuning.c runs jobs. */
#include <stdlib.h>

#include "daemon/tuning/job.h"
#include "proto/hash.h"

int job_pack(struct wire_buf *b, struct request *r, struct error *err)
{
    struct query *q = &r->query;
    q->wait[0] = 0;
    q->deadline_ms = 0;
    q->progress = q->again = false;
    request_pack(b, r);
    return b->failed ? error_set(err, ERROR_NO_MEMORY, "no memory for one more job") : 0;
}

uint64_t job_identity(const struct wire_buf *search, bool pin)
{
    return hash64(search->data, search->len) ^ (pin ? UINT64_C(0x70696e) : 0);
}

void job_name(const struct job *j, char *out, size_t size)
{
    const struct record *f = j->request ? &j->request->problem.fields : NULL;
    const char *mode = f ? record_text(f, "mode", NULL) : NULL;
    const long long experts = mode ? record_int(f, "experts", 1) : 1;
    if (!mode) {
        snprintf(out, size, "%s", j->key);
        return;
    }
    static const char *const sizes[] = {"M", "N", "K"};
    const char *between = " ";
    size_t n = (size_t)snprintf(out, size, "%s", mode);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && n < size; i++) {
        const long long value = record_int(f, sizes[i], 0);
        if (value > 0) { /* some ops have no N */
            n += (size_t)snprintf(out + n, size - n, "%s%lld", between, value);
            between = "x";
        }
    }
    if (experts > 1 && n < size) {
        snprintf(out + n, size - n, " e%lld", experts);
    }
}

void job_reset(struct job *j)
{
    if (j->request) {
        request_deinit(j->request);
        free(j->request);
    }
    free(j->known);
    j->request = NULL;
    j->known = NULL;
    j->reverify = j->manual = j->stale = j->confirms = false;
}

struct job *job_free(struct job *j)
{
    if (!j) {
        return NULL;
    }
    list_remove(&j->all);
    list_remove(&j->link);
    wire_buf_deinit(&j->search);
    wire_buf_deinit(&j->done);
    job_reset(j);
    if (j->account) {
        j->account->jobs--;
        account_drop(j->account);
    }
    account_drop(j->turn);
    free(j->avoid);
    free(j->best);
    free(j->gate);
    free(j->died);
    free(j);
    return NULL;
}

struct waiter *waiter_free(struct waiter *w)
{
    list_remove(&w->link);
    w->job->n_waiters--;
    chore_cancel(&w->expiry);
    free(w);
    return NULL;
}

static struct waiter *job_first_waiter(struct job *j)
{
    return list_empty(&j->waiters) ? NULL : LIST_OF(j->waiters.next, struct waiter, link);
}

void job_answer(struct job *j, const void *answer, size_t n)
{
    for (struct waiter *w; (w = job_first_waiter(j)); waiter_free(w)) {
        struct wire_buf *out = ticket_out(&w->ticket);
        rpc_put_result(out, w->ticket.id);
        wire_put_raw(out, answer, n);
        session_count_exact(w->ticket.session, 1);
        ticket_close(&w->ticket);
    }
}

void job_fail(struct job *j, const struct error *e)
{
    for (struct waiter *w; (w = job_first_waiter(j)); waiter_free(w)) {
        ticket_fail(&w->ticket, e);
    }
}

void job_tell(struct job *j)
{
    LIST_EACH(struct waiter, w, &j->waiters, link) {
        if (w->progress && !session_is_behind(w->ticket.session)) {
            struct wire_buf *out = ticket_out(&w->ticket);
            j->progress.request = w->ticket.id;
            rpc_put_notify(out, "progress");
            schema_encode(out, &progress_schema, &j->progress);
            session_poke(w->ticket.session);
        }
    }
}
