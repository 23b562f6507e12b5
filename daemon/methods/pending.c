/* SPDX-License-Identifier: Apache-2.0 */
/* What is answered later is charged to who asks, until it is (pending.h). */
#include <stdlib.h>

#include "daemon/daemon.h"
#include "daemon/methods/pending.h"

static void charge_side(struct asked *a, enum account_side side, size_t *charged, size_t now)
{
    if (account_charge(a->account, side, charged, now)) {
        sessions_poke_all(a->sessions, a->account);
    }
}

static void asked_charge_user(struct asked *a, size_t now)
{
    charge_side(a, ACCOUNT_ASKED, &a->charged, now);
}

void asked_begin(struct asked *a, struct session *s, size_t n)
{
    *a = (struct asked){.sessions = s->all, .account = account_hold(s->account)};
    s->n_pending += (unsigned)n;
    asked_charge_user(a, n);
}

void asked_as(struct asked *a, struct session *s, size_t n)
{
    s->n_pending += (unsigned)(n - a->charged);
    asked_charge_user(a, n);
}

void asked_end(struct asked *a, struct session *s)
{
    if (s) {
        s->n_pending -= (unsigned)a->charged;
    }
    if (s && a->reserved) { /* the answer takes the place of its reservation */
        session_charge(s);
    }
    asked_charge_user(a, 0);
    charge_side(a, ACCOUNT_OUT, &a->reserved, 0);
    a->account = account_drop(a->account);
}

int call_later(struct call *c, size_t size, struct pending **out, struct error *err)
{
    struct pending *p = calloc(1, size);
    if (!p) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for one more request");
    }
    p->d = c->d;
    p->parts = c->parts;
    p->uid = (int64_t)c->s->uid;
    int status = ticket_open(&p->ticket, c->s, c->id, NULL, err);
    if (status < 0) {
        free(p);
        return status;
    }
    asked_begin(&p->asked, c->s, 1);
    *out = p;
    return 0;
}

static void no_longer(struct pending *p)
{
    asked_end(&p->asked, p->ticket.session);
}

void pending_free(struct pending *p)
{
    no_longer(p);
    free(p);
}

void pending_end(struct pending *p)
{
    no_longer(p);
    ticket_close(&p->ticket);
}

void pending_drop(struct pending *p)
{
    pending_end(p);
    free(p);
}

void pending_fail(struct pending *p, const struct error *e)
{
    no_longer(p);
    ticket_fail(&p->ticket, e);
    free(p);
}

void pending_cancel(struct pending *p, const struct error *e)
{
    struct session *s = p->ticket.session;
    if (s) {
        s->n_pending -= (unsigned)p->asked.charged;
        ticket_fail(&p->ticket, e);
    }
}

void pending_reserve(struct pending *p, size_t bytes)
{
    charge_side(&p->asked, ACCOUNT_OUT, &p->asked.reserved, bytes);
}

static void pending_withdraw_lists(struct ticket *t)
{
    struct pending *p = LIST_OF(t, struct pending, ticket);
    p->d->ledger->ops->withdraw(p->d->ledger, p);
}

void pending_lists(struct pending *p)
{
    p->ticket.gone = pending_withdraw_lists;
}

struct wire_buf *pending_result(struct pending *p)
{
    struct wire_buf *out = ticket_out(&p->ticket);
    if (out) {
        rpc_put_result(out, p->ticket.id);
    }
    return out;
}
