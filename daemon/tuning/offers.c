/* SPDX-License-Identifier: Apache-2.0 */
/* Searches that another device may carry out (offers.h). */
#include "daemon/tuning/offers.h"
#include "daemon/daemon.h"
#include "daemon/base/log.h"

void offers_init(struct offers *o, struct waiters *waiters, struct accounts *accounts)
{
    *o = (struct offers){.daemon = waiters->daemon,
                         .scheduler = waiters->scheduler,
                         .waiters = waiters,
                         .accounts = accounts};
}

/* ---- own searches ---------------------------------------------------------------------------- */

/* True for a search that makes the key's answer, which then answers the waiters here. */
static bool can_be_offered(const struct job *j)
{
    return !j->pin && !j->restricted && !j->again && !j->offered && !j->set_aside;
}

void offers_queued(struct offers *o, struct job *j)
{
    const struct scheduler *s = o->scheduler;
    struct daemon *d = o->daemon;
    bool waits = s->running || s->n_queued > 1;
    if (!waits || !can_be_offered(j) || d->config->offline || d->ledger->daemons < 2) {
        return;
    }
    d->ledger->ops->want(d->ledger, j->key, d->device.class, j->uid, &j->search);
    j->offered = true;
    o->offered++;
}

void offers_dropped(struct offers *o, struct job *j)
{
    struct daemon *d = o->daemon;
    if (j->offered && d->ledger) {
        d->ledger->ops->unwant(d->ledger, j->key);
    }
    j->offered = false;
}

/* ---- searches of other daemons --------------------------------------------------------------- */

static bool has_nothing_to_do(const struct offers *o)
{
    const struct scheduler *s = o->scheduler;
    return o->ready && !s->running && s->n_queued == 0 && !s->off.code && !s->stopping &&
           !o->daemon->stopping && !o->daemon->config->offline;
}

static int offers_take_search(struct offers *o, const struct wire_obj *search, uid_t uid,
                              struct error *err)
{
    struct scratch *x = o->daemon->scratch;
    struct account *account = account_of(o->accounts, uid);
    int status = account ? request_unpack(&x->request, search, err)
                         : error_set(err, ERROR_NO_MEMORY, "no memory for one more job");
    status = status ? status : daemon_key(o->daemon, err);
    if (status == 0) {
        key_id(&x->key);
        struct wanted w = {.request = &x->request,
                           .bucket = &x->bucket,
                           .key = &x->key,
                           .background = true,
                           .account = account};
        status = waiters_join(o->waiters, &w, err);
    }
    request_deinit(&x->request);
    x->request.query = (struct query){0};
    account_drop(account);
    return status;
}

static void on_wanted(void *ctx, int status, const void *search, size_t n, int64_t uid,
                      const struct error *err)
{
    struct offers *o = ctx;
    const struct wire_obj *map;
    struct error local = ERROR_NULL;
    (void)err;
    o->asking = false;
    if (status == 0 && has_nothing_to_do(o)) {
        status = wire_decode(o->daemon->cache.entries.doc, search, n, &map, &local);
        status = status ? status : offers_take_search(o, map, (uid_t)uid, &local);
        if (status < 0) {
            log_info("a search of another gemmd is not taken: %s", local.text);
        } else {
            o->taken++;
        }
    } else if (o->again) {
        offers_take(o);
    }
}

void offers_take(struct offers *o)
{
    struct daemon *d = o->daemon;
    o->again = o->asking;
    if (!o->asking && has_nothing_to_do(o) && d->ledger->daemons > 1) {
        o->asking = d->ledger->ops->next_wanted(d->ledger, d->device.class, on_wanted, o) == 0;
    }
}

void offers_ready(struct offers *o)
{
    o->ready = true;
    offers_take(o);
}
