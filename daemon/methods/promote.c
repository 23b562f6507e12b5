/* SPDX-License-Identifier: Apache-2.0 */
/*
 * promote: the owner makes a user's row of a custom op the answer for all users. The best and its
 * trials are written again under the key without the user (answers/custom.h). The user's own row
 * stays and still answers that user.
 */
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/answers/learn.h"
#include "daemon/base/log.h"
#include "daemon/cache/answer.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/pending.h"

struct promoting {
    struct pending pending; /* first member: its address is the struct's */
    char from[HASH_HEX];
    struct best best; /* the row to write, under the key of all users */
};

static void on_promoted(void *ctx, int status, const struct best *b, bool saved,
                        const struct error *err)
{
    struct promoting *x = ctx;
    struct daemon *d = x->pending.d;
    if (!b) {
        pending_fail(&x->pending, err);
        return;
    }
    if (status < 0) {
        log_warning("a promoted row is not saved: %s", err->text);
    }
    learn_best(d, b, saved);
    daemon_event(d, "promote", x->pending.uid, "%s: %s now answers everybody", x->from, b->key);
    struct answer *a = &d->scratch->answer;
    answer_of_best(a, b, saved);
    schema_encode(pending_result(&x->pending), &answer_schema, a);
    pending_drop(&x->pending);
}

static void promote_on_trials(void *ctx, int status, const struct trial *trials, uint32_t n,
                              char (*avoid)[HASH_HEX], uint32_t n_avoid, const struct error *err)
{
    struct promoting *x = ctx;
    struct daemon *d = x->pending.d;
    struct trial *t = &d->scratch->trial;
    struct error gone = ERROR_NULL;
    (void)err; /* when the trials cannot be read, the row is promoted without them */
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        *t = trials[i];
        t->id = 0;
        memcpy(t->key, x->best.key, sizeof(t->key));
        ledger_add_trial(d->ledger, t);
    }
    status = d->ledger ? ledger_publish(d->ledger, &x->best, on_promoted, x) : ERROR_SHUTTING_DOWN;
    if (status < 0) {
        ledger_refused(status, &gone);
        pending_fail(&x->pending, &gone);
    }
}

/* Fills x->best from the user's entry `e`, whose problem is in scratch->request, under the key
 * without the user. */
static int promote_fill_row(struct promoting *x, const struct cache_entry *e, struct error *err)
{
    struct daemon *d = x->pending.d;
    struct scratch *s = d->scratch;
    struct answer *a = &s->answer;
    struct best *b = &x->best;
    int status = cache_answer(&d->cache, e, a, err);
    int64_t uid = record_int(&s->request.problem.fields, CUSTOM_USER, 0);
    if (status == 0 && !custom_share(&s->request.problem)) {
        status = error_set(err, ERROR_CONFLICT, "key %.12s answers everybody already", a->key);
    }
    status = status ? status : daemon_key(d, err);
    if (status < 0) {
        return status;
    }
    key_id(&s->key);
    memcpy(x->from, a->key, sizeof(x->from));
    best_of_answer(b, a, &s->bucket, d->device.class);
    memcpy(b->key, s->key.id, sizeof(b->key));
    b->generation = 0; /* the ledger assigns a generation */
    b->uid = uid;
    return 0;
}

/* Finds the cache entry to promote, by the params' "key", or by their "problem" with the field
 * `user`. */
static int promote_find_entry(struct call *c, const struct cache_entry **out, struct error *err)
{
    struct daemon *d = c->d;
    struct scratch *x = d->scratch;
    char key[HASH_HEX];
    int status = call_key(c, key, err);
    *out = status < 0 ? NULL : cache_find_id(&d->cache, key, NULL);
    if (status == 0 && !*out) {
        status =
            error_set(err, ERROR_NOT_FOUND,
                      "there is no answer of this device class to promote; name whose it is by "
                      "the field '" CUSTOM_USER "' (a uid), or give its key; `gemmctl list` "
                      "shows both");
    }
    status = status ? status : cache_problem(&d->cache, *out, &x->request.problem, err);
    return status ? status : call_only_custom(&x->request.problem, "promote", err);
}

int method_promote(struct call *c, struct error *err)
{
    const struct cache_entry *e = NULL;
    int status = promote_find_entry(c, &e, err);
    struct promoting *x = status ? NULL : call_later(c, sizeof(*x), err);
    if (!x) {
        return err->code;
    }
    struct device_info *device = &c->d->device;
    status = promote_fill_row(x, e, err);
    if (status < 0) {
        pending_drop(&x->pending);
        return status;
    }
    status = ledger_history(c->d->ledger, x->from, "", device->class, device->driver,
                            promote_on_trials, x);
    return pending_asked(&x->pending, status, err);
}
