/* SPDX-License-Identifier: Apache-2.0 */
/* The method `subscribe` and the announcements (daemon_parts.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/target.h"
#include "daemon/cache/answer.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/methods.h"

struct subscriber {
    /* the first member; the ticket is never answered, and reports the disconnect */
    struct ticket ticket;
    struct list link;        /* parts->subscribers */
    struct account *account; /* a holder: charged one subscription */
};

static void announce_drop_subscriber(struct subscriber *x)
{
    list_remove(&x->link);
    x->account->subscriptions--;
    account_drop(x->account);
    free(x);
}

static void announce_client_gone(struct ticket *t)
{
    announce_drop_subscriber(LIST_OF(t, struct subscriber, ticket));
}

static struct subscriber *announce_find_subscriber(struct list *subscribers,
                                                   const struct session *s)
{
    LIST_EACH(node, subscribers) {
        struct subscriber *x = LIST_OF(node, struct subscriber, link);
        if (x->ticket.session == s) {
            return x;
        }
    }
    return NULL;
}

static int announce_begin_subscription(struct call *c, struct error *err)
{
    struct subscriber *x = calloc(1, sizeof(*x));
    if (!x) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for one more subscriber");
    }
    list_init(&x->link);
    int status = account_add_subscription(c->s->account, err);
    if (status < 0) {
        free(x);
        return status;
    }
    x->account = account_hold(c->s->account);
    ticket_hold(&x->ticket, c->s, announce_client_gone);
    list_append(&c->parts->subscribers, &x->link);
    return 0;
}

static void announce_end_subscription(struct subscriber *x)
{
    ticket_close(&x->ticket);
    announce_drop_subscriber(x);
}

int method_subscribe(struct call *c, struct error *err)
{
    bool on = true;
    int status = call_flag(c, "on", &on, err);
    struct subscriber *x = announce_find_subscriber(&c->parts->subscribers, c->s);
    if (status == 0 && on && !x) {
        status = announce_begin_subscription(c, err);
    } else if (status == 0 && !on && x) {
        announce_end_subscription(x);
    }
    if (status < 0) {
        return status;
    }
    rpc_put_result(&c->s->out, c->id);
    wire_put_map(&c->s->out, 2);
    wire_put_kv_bool(&c->s->out, "subscribed", on);
    wire_put_kv_int(&c->s->out, "generation", c->d->generation);
    return 0;
}

/* ---- announcing ------------------------------------------------------------------------------ */

void announce_best(struct daemon *d, struct list *subscribers, const struct best *b, bool saved)
{
    struct problem *p = &d->scratch->learned;
    struct error err = ERROR_NULL;
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    struct answer *a = &d->scratch->hint;
    if (list_empty(subscribers) || strcmp(b->class, d->device.class) != 0 ||
        problem_make(p, b->op, &b->problem, &err) < 0) {
        return;
    }
    answer_of_best(a, b, saved);
    if (target_rank(d, a, p) < CACHE_SERVES) {
        return;
    }
    int64_t user = custom_is(p) ? record_int(&p->fields, CUSTOM_USER, -1) : -1;
    rpc_put_notify(&packed, "improved");
    wire_put_map(&packed, 2);
    wire_put_str(&packed, "problem");
    problem_pack(&packed, p);
    wire_put_str(&packed, "answer");
    schema_encode(&packed, &answer_schema, a);
    LIST_EACH(node, subscribers) {
        struct session *s = LIST_OF(node, struct subscriber, link)->ticket.session;
        bool meant = user < 0 || user == (int64_t)s->uid || session_is_owner(s);
        if (meant && !packed.failed) {
            session_tell(s, packed.data, packed.len);
        }
    }
}

void announce_stop(struct list *subscribers)
{
    LIST_EACH(node, subscribers) {
        announce_end_subscription(LIST_OF(node, struct subscriber, link));
    }
}
