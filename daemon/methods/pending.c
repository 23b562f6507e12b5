/* SPDX-License-Identifier: Apache-2.0 */
/* Pending requests, each charged to its user until answered (pending.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/methods/pending.h"
#include "proto/limits.h"

static void charge_side(struct asked *a, enum account_side side, size_t *charged, size_t now)
{
    if (account_charge(a->account, side, charged, now)) {
        sessions_poke_all(a->sessions, a->account);
    }
}

void asked_as(struct asked *a, struct session *s, size_t n)
{
    if (s) {
        s->n_pending += (unsigned)(n - a->charged);
    }
    charge_side(a, ACCOUNT_ASKED, &a->charged, n);
}

static void asked_end(struct asked *a, struct session *s)
{
    if (s && a->reserved) { /* the answer replaces the reservation */
        session_charge(s);
    }
    asked_as(a, s, 0);
    charge_side(a, ACCOUNT_OUT, &a->reserved, 0);
    a->account = account_drop(a->account);
}

void *call_later(struct call *c, size_t size, struct error *err)
{
    struct pending *p = calloc(1, size);
    if (!p) {
        error_set(err, ERROR_NO_MEMORY, "no memory for one more request");
        return NULL;
    }
    p->d = c->d;
    p->parts = c->parts;
    p->uid = (int64_t)c->s->uid;
    if (ticket_open(&p->ticket, c->s, c->id, NULL, err) < 0) {
        free(p);
        return NULL;
    }
    p->asked = (struct asked){.sessions = c->s->all, .account = account_hold(c->s->account)};
    asked_as(&p->asked, c->s, 1);
    return p;
}

void pending_drop(struct pending *p)
{
    asked_end(&p->asked, p->ticket.session);
    ticket_close(&p->ticket);
    wire_buf_deinit(&p->nowhere);
    free(p);
}

void pending_fail(struct pending *p, const struct error *e)
{
    asked_end(&p->asked, p->ticket.session);
    ticket_fail(&p->ticket, e);
    free(p);
}

void pending_reserve(struct pending *p, size_t bytes)
{
    charge_side(&p->asked, ACCOUNT_OUT, &p->asked.reserved, bytes);
}

int pending_asked(struct pending *p, int status, struct error *err)
{
    if (status < 0) {
        pending_drop(p);
        return ledger_refused(status, err);
    }
    return METHOD_LATER;
}

struct wire_buf *pending_result(struct pending *p)
{
    struct wire_buf *out = p->ticket.session ? &p->ticket.session->out : &p->nowhere;
    rpc_put_result(out, p->ticket.id);
    return out;
}

/* Answers the client's `cancel`: fails the request. The user stays charged until its rows are
 * read. */
static void parked_cancel(struct ticket *t, const struct error *e)
{
    t->session->n_pending -= (unsigned)LIST_OF(t, struct pending, ticket)->asked.charged;
    ticket_fail(t, e);
}

void *call_park(struct call *c, size_t size, struct error *err)
{
    struct parked *p = call_later(c, size + c->len, err);
    if (p) {
        p->pending.ticket.cancel = parked_cancel;
        p->len = c->len;
        p->message = memcpy((uint8_t *)p + size, c->data, c->len);
    }
    return p;
}

void parked_begin_anew(struct parked *p)
{
    struct session *s = p->pending.ticket.session;
    asked_end(&p->pending.asked, s);
    ticket_close(&p->pending.ticket);
    if (s) {
        session_again(s, p->message, p->len);
    }
    free(p);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void listing_withdraw_parts(struct ticket *t)
{
    struct listing *l = LIST_OF(t, struct listing, pending.ticket);
    struct ledger *ledger = l->pending.d->ledger;
    for (int i = 0; i < LISTED_ALL; i++) {
        if (l->parts[i].listing) {
            ledger_withdraw(ledger, &l->parts[i]);
        }
    }
}

void *listing_begin(struct call *c, size_t size, size_t bytes, struct error *err)
{
    struct listing *l = call_later(c, size, err);
    if (l) {
        l->left = 1; /* counts listing_wait itself, so that the listing cannot finish before */
        l->pending.ticket.gone = listing_withdraw_parts;
        pending_reserve(&l->pending, bytes);
    }
    return l;
}

static void listing_finish_request(struct listing *l)
{
    struct pending *p = &l->pending;
    const struct error error = l->error;
    if (!error.code) {
        l->put(l, pending_result(p));
    }
    for (int i = 0; i < LISTED_ALL; i++) {
        wire_buf_deinit(&l->parts[i].rows);
    }
    if (error.code) {
        pending_fail(p, &error);
    } else {
        pending_drop(p);
    }
}

static void listing_count_done(struct listing *l, enum listed part)
{
    if (!l->error.code && l->listed && part != LISTED_ALL) {
        l->listed(l, part);
    }
    if (--l->left > 0) {
        return;
    }
    if (!l->error.code && l->listed) {
        l->listed(l, LISTED_ALL);
    }
    listing_finish_request(l);
}

static void listing_on_rows(void *ctx, int status, const void *rows, size_t n, int64_t total,
                            const struct error *err)
{
    struct part *part = ctx;
    struct listing *l = part->listing;
    if (status < 0 && !l->error.code) {
        l->error = *err;
    } else if (status == 0) {
        wire_put_raw(&part->rows, rows, n);
        part->total = total;
    }
    if (part->rows.failed && !l->error.code) {
        error_set(&l->error, ERROR_NO_MEMORY, "no memory to answer");
    }
    listing_count_done(l, (enum listed)(part - l->parts));
}

void listing_ask(struct listing *l, enum listed part, const char *what, const struct record *filter,
                 size_t bytes)
{
    struct pending *p = &l->pending;
    struct ledger *ledger = p->d->ledger;
    l->parts[part].listing = l;
    int status = ledger_list(ledger, p->uid, what, filter, bytes, listing_on_rows, &l->parts[part]);
    if (status < 0) {
        ledger_refused(status, &l->error);
    } else {
        l->left++;
    }
}

static struct record *listing_filter_by(struct listing *l, const char *column, struct value v)
{
    struct record *filter = &l->pending.d->scratch->config;
    record_init(filter);
    record_set(filter, column, v, NULL);
    record_put_int(filter, "limit", 1);
    return filter;
}

enum { ROWS_BYTES = RESPONSE_BYTES_MAX / 4 };

void listing_ask_row(struct listing *l, enum listed part, const char *what, const char *column,
                     struct value v)
{
    listing_ask(l, part, what, listing_filter_by(l, column, v), ROWS_BYTES);
}

void listing_ask_counts(struct listing *l, const char *key)
{
    struct record *filter = listing_filter_by(l, "key", VALUE_OF_TEXT(key));
    listing_ask(l, LISTED_TRIALS, "trials", filter, ROWS_BYTES);
    record_put_text(filter, "status", "ok");
    listing_ask(l, LISTED_OK, "trials", filter, ROWS_BYTES);
    record_put_text(filter, "status", "aborted");
    listing_ask(l, LISTED_ABORTED, "trials", filter, ROWS_BYTES);
}

int listing_wait(struct listing *l)
{
    listing_count_done(l, LISTED_ALL);
    return METHOD_LATER;
}

bool listing_read_row(const struct listing *l, enum listed part, const struct schema *s, void *out)
{
    const struct wire_buf *rows = &l->parts[part].rows;
    const struct wire_obj *page;
    return wire_decode(l->pending.d->doc, rows->data, rows->len, &page, NULL) == 0 &&
           wire_count(page) == 1 &&
           schema_decode(s, SCHEMA_LENIENT, wire_at(page, 0), out, NULL) == 0;
}

void listing_put_counts(const struct listing *l, struct wire_buf *b)
{
    const int64_t trials = l->parts[LISTED_TRIALS].total;
    wire_put_kv_int(b, "trials", trials);
    wire_put_kv_int(b, "failed",
                    trials - l->parts[LISTED_OK].total - l->parts[LISTED_ABORTED].total);
}
