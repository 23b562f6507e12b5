/* SPDX-License-Identifier: Apache-2.0 */
/* Searches that another device may carry out (tuning.h). */
#include "daemon/tuning/tuning.h"
#include "daemon/daemon.h"
#include "daemon/base/log.h"
#include "proto/pull.h"

/* ---- own searches ---------------------------------------------------------------------------- */

/* True for a search that makes the key's answer, which then answers the waiters here. A search in
 * pauses stays here, since another daemon knows nothing of the pauses. */
static bool can_be_offered(const struct job *j)
{
    return !j->pin && !j->restricted && !j->again && !j->offered && !j->set_aside && !j->in_pauses;
}

void offers_queued(struct tuning *x, struct job *j)
{
    const struct scheduler *s = &x->scheduler;
    struct daemon *d = x->daemon;
    bool waits = s->running || s->n_queued > 1;
    if (!waits || !can_be_offered(j) || d->config->offline || ledger_daemons(d->ledger) < 2) {
        return;
    }
    ledger_want(d->ledger, j->key, d->device.class, j->uid, &j->search);
    j->offered = true;
}

void offers_dropped(struct tuning *x, struct job *j)
{
    struct daemon *d = x->daemon;
    if (j->offered && d->ledger) {
        ledger_unwant(d->ledger, j->key);
    }
    j->offered = false;
}

/* ---- searches of other daemons --------------------------------------------------------------- */

static bool has_nothing_to_do(const struct tuning *x)
{
    const struct scheduler *s = &x->scheduler;
    return x->offers_open && !s->running && s->n_queued == 0 && !s->off.code && !s->stopping &&
           !x->daemon->stopping && !x->daemon->config->offline && list_empty(&x->pauses.sessions);
}

/* Queues a search that another daemon offers: its user, and the packed request. */
static int offers_join(struct tuning *x, const void *found, size_t n, struct error *err)
{
    struct pull in = {found, (const uint8_t *)found + n};
    struct request *r = &x->daemon->scratch->request;
    struct joining w = {.background = true};
    const struct wire_obj *map;
    int64_t uid = 0;
    pull_int(&in, &uid);
    int status = wire_decode(x->daemon->cache.entries.doc, in.at, pull_left(&in), &map, err);
    status = status ? status : request_unpack(r, map, err);
    status = status ? status : waiters_join_alone(x, &w, (uid_t)uid, err);
    request_deinit(r);
    r->query = (struct query){0};
    return status;
}

static void on_wanted(void *ctx, int status, const void *found, size_t n, int64_t rank,
                      const struct error *err)
{
    struct tuning *x = ctx;
    struct error refused = ERROR_NULL;
    bool again = x->offers_again;
    x->offers_asking = false;
    if (status == 0 && has_nothing_to_do(x)) {
        x->offers_rank = rank;
        again = offers_join(x, found, n, &refused) < 0;
        if (again) {
            log_info("a search of another gemmd is not taken: %s", refused.text);
        }
    }
    if (again) {
        offers_take(x);
    }
}

void offers_take(struct tuning *x)
{
    struct daemon *d = x->daemon;
    x->offers_again = x->offers_asking;
    if (!x->offers_asking && has_nothing_to_do(x) && ledger_daemons(d->ledger) > 1) {
        x->offers_asking =
            ledger_next_wanted(d->ledger, d->device.class, x->offers_rank, on_wanted, x) == 0;
    }
}

void offers_tick(struct tuning *x)
{
    enum { AGAIN_MS = 10000 };
    const uint64_t now = uv_now(&x->daemon->loop);
    if (now >= x->offers_again_ms) {
        x->offers_again_ms = now + AGAIN_MS;
        x->offers_rank = 0;
        offers_take(x);
    }
}

void offers_ready(struct tuning *x)
{
    x->offers_open = true;
    offers_take(x);
}
