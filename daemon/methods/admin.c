/* SPDX-License-Identifier: Apache-2.0 */
/* The owner's methods: pin, remove rows, copy the database, stop. Users may evict their own keys.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/custom.h"
#include "daemon/answers/learn.h"
#include "daemon/answers/target.h"
#include "daemon/cache/answer.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/pending.h"

/* ---- pin ------------------------------------------------------------------------------------- */

/* A pin is a query of strategy `given` with only the pinned config. */
static int pin_read_query(struct call *c, struct error *err)
{
    static const char *const beside[] = {"problem", "config", NULL};
    struct request *r = &c->d->scratch->request;
    int status = request_unpack_beside(r, c->params, beside, err);
    if (status < 0) {
        return status;
    }
    r->configs = calloc(1, sizeof(*r->configs));
    if (!r->configs) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to read a pin");
    }
    r->n_configs = 1;
    snprintf(r->query.strategy, sizeof(r->query.strategy), "given");
    return call_config(c, r->configs, err);
}

int method_pin(struct call *c, struct error *err)
{
    struct daemon *d = c->d;
    struct scratch *x = d->scratch;
    int status = pin_read_query(c, err);
    status = status ? status : call_problem(c, CUSTOM_READ, err);
    status = status ? status : target_settle(d, &x->request, NULL, err);
    if (status < 0) {
        return status;
    }
    struct joining w = {
        .pin = true, .again = true, .account = c->s->account, .session = c->s, .id = c->id};
    status = waiters_join(&c->parts->tuning, &w, err);
    return status < 0 ? status : METHOD_LATER;
}

/* ---- unpin ----------------------------------------------------------------------------------- */

struct administering {      /* a request while the ledger carries it out */
    struct pending pending; /* first member: its address is the struct's */
    const char *event;
    char what[PATHS_MAX]; /* the key, variant or path that the request names */
};

static struct administering *admin_begin(struct call *c, const char *event, const char *what,
                                         struct error *err)
{
    struct administering *x = call_later(c, sizeof(*x), err);
    if (x) {
        x->event = event;
        snprintf(x->what, sizeof(x->what), "%s", what);
    }
    return x;
}

static void on_unpinned(void *ctx, int status, const struct best *b, bool saved,
                        const struct error *err)
{
    struct administering *x = ctx;
    struct daemon *d = x->pending.d;
    if (status < 0) {
        pending_fail(&x->pending, err);
        return;
    }
    cache_remove_id(&d->cache, x->what);
    bool left = status == 0 && b;
    if (left) {
        learn_best(d, b, saved);
        /* without the pin an older row is the key's row: it answers if its source is "tuned", else
         * it is a hint */
        left = strcmp(b->source, "tuned") == 0;
    }
    daemon_event(d, x->event, x->pending.uid, "%s", x->what);
    struct answer *a = &d->scratch->answer;
    if (left) {
        answer_of_best(a, b, saved);
    }
    schema_encode(pending_result(&x->pending), &answer_schema, left ? a : NULL);
    pending_drop(&x->pending);
}

int method_unpin(struct call *c, struct error *err)
{
    char key[HASH_HEX];
    struct ledger *l = c->d->ledger;
    int status = call_key(c, key, err);
    struct administering *x = status ? NULL : admin_begin(c, "unpin", key, err);
    return x ? pending_asked(&x->pending, ledger_unpin(l, key, on_unpinned, x), err) : err->code;
}

/* ---- removals -------------------------------------------------------------------------------- */

static void on_removed(void *ctx, int status, int64_t rows, const struct error *err)
{
    struct administering *x = ctx;
    const bool is_evict = strcmp(x->event, "evict") == 0;
    if (status < 0) {
        pending_fail(&x->pending, err);
        return;
    }
    if (!is_evict && quarantine_remove(x->pending.d, x->what)) {
        rows = rows ? rows : 1; /* the variant was in quarantine in memory only */
    }
    if (rows == 0 && !is_evict) {
        struct error e = ERROR_NULL;
        error_set(&e, ERROR_NOT_FOUND, "there is no %s to %s", x->what, x->event);
        pending_fail(&x->pending, &e);
        return;
    }
    if (is_evict) {
        /* The cache is cleared after the ledger's answer, since a refused evict must remove
         * nothing. Rows of this key that were sent to the ledger before the evict are removed by
         * now; rows sent after the evict reach the cache after this line. */
        cache_remove_id(&x->pending.d->cache, x->what);
        portfolio_evicted(&x->pending.parts->tiers.portfolio, x->what);
    }
    daemon_event(x->pending.d, x->event, x->pending.uid, "%s: %lld rows", x->what, (long long)rows);
    struct wire_buf *b = pending_result(&x->pending);
    wire_put_map(b, 1);
    wire_put_kv_int(b, "removed", rows);
    pending_drop(&x->pending);
}

int method_evict(struct call *c, struct error *err)
{
    char key[HASH_HEX];
    struct ledger *l = c->d->ledger;
    int status = call_key(c, key, err);
    if (status == 0) {
        bool by_problem = !wire_find(c->params, "key");
        status = custom_check_evict(c->d, key, by_problem ? &c->d->scratch->request.problem : NULL,
                                    (int64_t)c->s->uid, err);
    }
    struct administering *x = status ? NULL : admin_begin(c, "evict", key, err);
    return x ? pending_asked(&x->pending, ledger_evict(l, key, on_removed, x), err) : err->code;
}

int method_unquarantine(struct call *c, struct error *err)
{
    char variant[HASH_HEX];
    struct ledger *l = c->d->ledger;
    if (!wire_copy_str(wire_find(c->params, "variant"), variant, HASH_HEX) ||
        !hash_is_hex(variant)) {
        return error_set(err, ERROR_INVALID,
                         "'variant' must be the 32 hexadecimal digits that `list` of quarantine "
                         "gives");
    }
    struct administering *x = admin_begin(c, "unquarantine", variant, err);
    return x ? pending_asked(&x->pending, ledger_unquarantine(l, variant, on_removed, x), err)
             : err->code;
}

/* ---- backup, shutdown ------------------------------------------------------------------------ */

static void on_backup(void *ctx, int status, const struct error *err)
{
    struct administering *x = ctx;
    if (status < 0) {
        pending_fail(&x->pending, err);
        return;
    }
    struct wire_buf *b = pending_result(&x->pending);
    wire_put_map(b, 1);
    wire_put_kv_str(b, "path", x->what);
    pending_drop(&x->pending);
}

int method_backup(struct call *c, struct error *err)
{
    char path[PATHS_MAX];
    struct ledger *l = c->d->ledger;
    if (!wire_copy_str(wire_find(c->params, "path"), path, sizeof(path)) || path[0] != '/') {
        return error_set(err, ERROR_INVALID, "'path' must be an absolute path; it must not exist");
    }
    struct administering *x = admin_begin(c, "backup", path, err);
    return x ? pending_asked(&x->pending, ledger_backup(l, path, on_backup, x), err) : err->code;
}

int method_shutdown(struct call *c, struct error *err)
{
    rpc_put_result(&c->s->out, c->id);
    wire_put_map(&c->s->out, 1);
    wire_put_kv_bool(&c->s->out, "stopping", true);
    char why[64];
    snprintf(why, sizeof(why), "asked by pid %d uid %d", (int)c->s->pid, (int)c->s->uid);
    c->parts->stop(c->parts, c->s->uid, why);
    return 0;
}
