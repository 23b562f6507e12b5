/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the other daemons of a database ask its keeper: to be told of changes (`follow`), and to
 * have something written (`ledger`, whose params ledger/wire.h lists). For daemons, not for jobs.
 */
#include <string.h>

#include "daemon/answers/quarantine.h"
#include "daemon/ledger/wire.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/parts.h"
#include "daemon/requests/pending.h"

int method_follow(struct call *c, struct error *err)
{
    static const char *const names[] = {"owner", NULL};
    struct daemon *d = c->d;
    char owner[80];
    int status = call_only(c, names, err);
    if (status == 0 &&
        (!wire_copy_str(wire_find(c->params, "owner"), owner, sizeof(owner)) || !owner[0])) {
        status = error_set(err, ERROR_INVALID,
                           "'owner' must be how the daemon calls itself in "
                           "leases");
    }
    if (status == 0 && !ledger_shared_is_keeper(d->ledger)) {
        status = error_set(err, ERROR_CONFLICT, "this gemmd is not the keeper of %s", d->database);
    }
    status = status ? status : followers_add(&c->parts->followers, d, c->s, owner, err);
    if (status < 0) {
        return status;
    }
    struct wire_buf *b = &c->s->out;
    rpc_put_result(b, c->id);
    wire_put_map(b, 3);
    wire_put_kv_str(b, "owner", d->owner);
    wire_put_kv_str(b, "bucket_scheme", bucket_scheme_name(d->scheme));
    wire_put_kv_int(b, "generation", d->generation);
    quarantine_tell_unsaved(d); /* behind the answer: he takes no news before it */
    return 0;
}

static void on_applied(void *ctx, const struct wire_buf *result, const struct error *err)
{
    struct pending *p = ctx;
    if (err) {
        pending_fail(p, err);
        return;
    }
    struct wire_buf *out = pending_result(p);
    if (out) {
        wire_put_raw(out, result->data, result->len);
    }
    pending_drop(p);
}

int method_ledger(struct call *c, struct error *err)
{
    struct pending *p;
    int status =
        ledger_shared_is_keeper(c->d->ledger)
            ? call_later(c, sizeof(*p), &p, err)
            : error_set(err, ERROR_CONFLICT, "this gemmd is not the keeper of %s", c->d->database);
    if (status < 0) {
        return status;
    }
    status = ledger_wire_apply(c->d->ledger, c->params, on_applied, p, err);
    if (status == 0) {
        return METHOD_LATER;
    }
    if (status == LEDGER_WIRE_TAKEN) {
        struct wire_buf *out = pending_result(p);
        wire_put_nil(out);
        status = METHOD_LATER;
    }
    pending_drop(p);
    return status;
}
