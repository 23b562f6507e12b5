/* SPDX-License-Identifier: Apache-2.0 */
/* Who follows the keeper (followers.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/daemon.h"
#include "daemon/base/log.h"
#include "daemon/requests/followers.h"

void followers_init(struct followers *f)
{
    list_init(&f->all);
    f->n = 0;
}

static void drop(struct follower *x)
{
    list_remove(&x->link);
    x->all->n--;
    free(x);
}

static void gone(struct ticket *t)
{
    struct follower *x = LIST_OF(t, struct follower, ticket);
    struct daemon *d = x->daemon;
    char owner[sizeof(x->owner)];
    memcpy(owner, x->owner, sizeof(owner));
    drop(x); /* before the others are told */
    log_notice("gemmd %s does not follow this one any more", owner);
    if (d->ledger) {
        d->ledger->ops->unlease(d->ledger, "", owner);
    }
}

int followers_add(struct followers *f, struct daemon *d, struct session *s, const char *owner,
                  struct error *err)
{
    struct follower *x = calloc(1, sizeof(*x));
    if (!x) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for one more follower");
    }
    x->daemon = d;
    x->all = f;
    snprintf(x->owner, sizeof(x->owner), "%s", owner);
    ticket_hold(&x->ticket, s, gone);
    list_append(&f->all, &x->link);
    f->n++;
    s->apart = true;
    log_notice("gemmd %s (pid %d) follows this one", x->owner, (int)s->pid);
    return 0;
}

static void pack(struct wire_buf *b, const struct ledger_news *n)
{
    static const char *const kinds[] = {"best", "evicted", "freed", "said"};
    rpc_put_notify(b, "news");
    wire_put_map(b, n->best ? 4 : n->said ? 3 : 2);
    wire_put_kv_str(b, "kind", kinds[n->kind]);
    wire_put_kv_str(b, "key", n->key);
    if (n->said) {
        wire_put_str(b, "said");
        wire_put_obj(b, n->said);
    }
    if (n->best) {
        wire_put_str(b, "row");
        schema_encode(b, &best_schema, n->best);
        wire_put_kv_bool(b, "saved", n->saved);
    }
}

void followers_tell(struct followers *f, const struct ledger_news *n)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    if (list_empty(&f->all)) {
        return;
    }
    pack(&b, n);
    LIST_EACH(node, &f->all) {
        struct follower *x = LIST_OF(node, struct follower, link);
        struct wire_buf *out = ticket_out(&x->ticket);
        wire_put_raw(out, b.data, b.len);
        out->failed = out->failed || b.failed; /* then he is hung up on, and asks anew */
        session_poke(x->ticket.session);
    }
}

void followers_stop(struct followers *f)
{
    LIST_EACH(node, &f->all) {
        struct follower *x = LIST_OF(node, struct follower, link);
        ticket_close(&x->ticket);
        drop(x);
    }
}
