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
    struct wanted w = {.request = &x->request,
                       .bucket = &x->bucket,
                       .key = &x->key,
                       .pin = true,
                       .again = true,
                       .account = c->s->account,
                       .session = c->s,
                       .id = c->id};
    status = waiters_join(&c->parts->waiters, &w, err);
    return status < 0 ? status : METHOD_LATER;
}

/* ---- unpin ----------------------------------------------------------------------------------- */

struct unpinning {
    struct pending pending; /* first */
    char key[HASH_HEX];
};

static void on_unpinned(void *ctx, int status, const struct best *b, bool saved,
                        const struct error *err)
{
    struct unpinning *x = ctx;
    struct daemon *d = x->pending.d;
    if (status < 0) {
        pending_fail(&x->pending, err);
        return;
    }
    cache_remove_id(&d->cache, x->key);
    bool left = status == 0 && b;
    if (left) {
        learn_best(d, b, saved);
        left = strcmp(b->source, "tuned") == 0; /* any other row is a hint */
    }
    daemon_event(d, "unpin", x->pending.uid, "%s", x->key);
    struct wire_buf *out = pending_result(&x->pending);
    struct answer *a = &d->scratch->answer;
    if (left) {
        answer_of_best(a, b, saved);
    }
    if (out) {
        schema_encode(out, &answer_schema, left ? a : NULL);
    }
    pending_drop(&x->pending);
}

int method_unpin(struct call *c, struct error *err)
{
    char key[HASH_HEX];
    struct pending *p;
    int status = call_key(c, key, err);
    status = status ? status : call_later(c, sizeof(struct unpinning), &p, err);
    if (status < 0) {
        return status;
    }
    memcpy(((struct unpinning *)p)->key, key, sizeof(key));
    return pending_asked(p, c->d->ledger->ops->unpin(c->d->ledger, key, on_unpinned, p), err);
}

/* ---- removals -------------------------------------------------------------------------------- */

struct removing {
    struct pending pending; /* first */
    const char *event;
    bool must_exist;
    char what[HASH_HEX];
};

static void on_removed(void *ctx, int status, int64_t rows, const struct error *err)
{
    struct removing *x = ctx;
    if (status < 0) {
        pending_fail(&x->pending, err);
        return;
    }
    if (strcmp(x->event, "unquarantine") == 0 && quarantine_remove(x->pending.d, x->what)) {
        rows = rows ? rows : 1; /* the variant was in memory only */
    }
    if (rows == 0 && x->must_exist) {
        struct error e = ERROR_NULL;
        error_set(&e, ERROR_NOT_FOUND, "there is no %s to %s", x->what, x->event);
        pending_fail(&x->pending, &e);
        return;
    }
    if (strcmp(x->event, "evict") == 0) {
        /* After the ledger's answer, since a refused evict must remove nothing. Rows sent to the
         * ledger before the evict are gone by now; later rows arrive later. */
        cache_remove_id(&x->pending.d->cache, x->what);
        portfolio_evicted(&x->pending.parts->tiers.portfolio, x->what);
    }
    daemon_event(x->pending.d, x->event, x->pending.uid, "%s: %lld rows", x->what, (long long)rows);
    struct wire_buf *b = pending_result(&x->pending);
    if (b) {
        wire_put_map(b, 1);
        wire_put_kv_int(b, "removed", rows);
    }
    pending_drop(&x->pending);
}

int method_evict(struct call *c, struct error *err)
{
    char key[HASH_HEX];
    struct pending *p;
    int status = call_key(c, key, err);
    if (status == 0) {
        bool by_problem = !wire_find(c->params, "key");
        status = custom_check_evict(c->d, key, by_problem ? &c->d->scratch->request.problem : NULL,
                                    (int64_t)c->s->uid, err);
    }
    status = status ? status : call_later(c, sizeof(struct removing), &p, err);
    if (status < 0) {
        return status;
    }
    struct removing *x = (struct removing *)p;
    x->event = "evict";
    memcpy(x->what, key, sizeof(x->what));
    return pending_asked(p, c->d->ledger->ops->evict(c->d->ledger, key, on_removed, x), err);
}

int method_unquarantine(struct call *c, struct error *err)
{
    char variant[HASH_HEX];
    struct pending *p;
    if (!wire_copy_str(wire_find(c->params, "variant"), variant, HASH_HEX) ||
        !hash_is_hex(variant)) {
        return error_set(err, ERROR_INVALID,
                         "'variant' must be the 32 hexadecimal digits that `list` of quarantine "
                         "gives");
    }
    int status = call_later(c, sizeof(struct removing), &p, err);
    if (status < 0) {
        return status;
    }
    struct removing *x = (struct removing *)p;
    x->event = "unquarantine";
    x->must_exist = true;
    memcpy(x->what, variant, sizeof(x->what));
    return pending_asked(p, c->d->ledger->ops->unquarantine(c->d->ledger, variant, on_removed, x),
                         err);
}

/* ---- backup, shutdown ------------------------------------------------------------------------ */

struct backing_up {
    struct pending pending; /* first */
    char path[PATHS_MAX];
};

static void on_backup(void *ctx, int status, const struct error *err)
{
    struct backing_up *x = ctx;
    if (status < 0) {
        pending_fail(&x->pending, err);
        return;
    }
    struct wire_buf *b = pending_result(&x->pending);
    if (b) {
        wire_put_map(b, 1);
        wire_put_kv_str(b, "path", x->path);
    }
    pending_drop(&x->pending);
}

int method_backup(struct call *c, struct error *err)
{
    char path[PATHS_MAX];
    struct pending *p;
    if (!wire_copy_str(wire_find(c->params, "path"), path, sizeof(path)) || path[0] != '/') {
        return error_set(err, ERROR_INVALID, "'path' must be an absolute path; it must not exist");
    }
    int status = call_later(c, sizeof(struct backing_up), &p, err);
    if (status < 0) {
        return status;
    }
    struct backing_up *x = (struct backing_up *)p;
    memcpy(x->path, path, sizeof(x->path));
    return pending_asked(p, c->d->ledger->ops->backup(c->d->ledger, path, on_backup, x), err);
}

int method_shutdown(struct call *c, struct error *err)
{
    (void)err;
    rpc_put_result(&c->s->out, c->id);
    wire_put_map(&c->s->out, 1);
    wire_put_kv_bool(&c->s->out, "stopping", true);
    char why[64];
    snprintf(why, sizeof(why), "asked by pid %d uid %d", (int)c->s->pid, (int)c->s->uid);
    c->parts->stop(c->parts, c->s->uid, why);
    return 0;
}
