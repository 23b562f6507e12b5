/* SPDX-License-Identifier: Apache-2.0 */
/* The method `subscribe` and the announcements (daemon_parts.h). */
#include <string.h>

#include "daemon/answers/target.h"
#include "daemon/cache/answer.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/methods.h"

int method_subscribe(struct call *c, struct error *err)
{
    bool on = true;
    int status = call_flag(c, "on", &on, err);
    status = status ? status : session_subscribe(c->s, on, err);
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

void announce_best(struct daemon_parts *parts, const struct best *b, bool saved)
{
    struct daemon *d = &parts->daemon;
    const struct sessions *sessions = &parts->server.sessions;
    struct problem *p = &d->scratch->learned;
    struct error err = ERROR_NULL;
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    struct answer *a = &d->scratch->hint;
    if (sessions->n_subscribed == 0 || strcmp(b->class, d->device.class) != 0 ||
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
    LIST_EACH(struct session, s, &sessions->all, link) {
        bool meant = user < 0 || user == (int64_t)s->uid || session_is_owner(s);
        if (s->subscribed && meant && !packed.failed) {
            session_tell(s, packed.data, packed.len);
        }
    }
}
