/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks, each a line or two (wiring.h). */
#include "daemon/answers/learn.h"
#include "daemon/answers/quarantine.h"
#include "daemon/methods/announce.h"
#include "daemon/methods/dispatch.h"
#include "daemon/tuning/tuning.h"
#include "daemon/wiring.h"

/* ---- sessions -------------------------------------------------------------------------------- */

static bool on_known(void *ctx, struct session *s, const uint8_t *data, size_t n)
{
    return dispatch_known(ctx, s, data, n);
}

static void on_message(void *ctx, struct session *s, const uint8_t *data, size_t n, bool again)
{
    dispatch(ctx, s, data, n, again);
}

const struct session_hooks wiring_sessions = {.known = on_known, .message = on_message};

/* ---- jobs ------------------------------------------------------------------------------------ */

static void on_begin(void *ctx, struct job *j)
{
    struct parts *p = ctx;
    tuning_begin(&p->tuner, j);
}

static void on_cancel(void *ctx, struct job *j)
{
    struct parts *p = ctx;
    tuning_cancel(&p->tuner, j);
}

static void on_left(void *ctx, struct job *j)
{
    struct parts *p = ctx;
    elsewhere_left(&p->elsewhere, j);
}

static void on_queued(void *ctx, struct job *j)
{
    struct parts *p = ctx;
    offers_queued(&p->offers, j);
    ahead_queued(&p->ahead);
    tuning_others(&p->tuner);
}

static void on_idle(void *ctx)
{
    struct parts *p = ctx;
    offers_take(&p->offers);
}

static bool device_is_free(void *ctx)
{
    const struct parts *p = ctx;
    return p->supervisor.state == RUNNER_NONE;
}

static void on_dropped(void *ctx, struct job *j)
{
    struct parts *p = ctx;
    elsewhere_unlease(&p->elsewhere, j);
    offers_dropped(&p->offers, j);
    if (j->set_aside) {
        supervisor_forget(&p->supervisor, j->id);
    }
}

static const struct scheduler_hooks scheduler_hooks = {.begin = on_begin,
                                                       .cancel = on_cancel,
                                                       .left = on_left,
                                                       .queued = on_queued,
                                                       .idle = on_idle,
                                                       .device_is_free = device_is_free,
                                                       .dropped = on_dropped};

static void on_leased(void *ctx, struct job *j)
{
    tuning_leased(ctx, j);
}

/* ---- news ------------------------------------------------------------------------------------ */

static void tell_best(struct parts *p, const struct ledger_news *n)
{
    bool many;
    const struct cache_entry *e = cache_find_id(&p->daemon.cache, n->key, &many);
    /* What is saved late, or restored, is old: known already, or overtaken. What is only in memory
     * has no number yet. */
    bool news = !e || n->best->generation == 0 || e->generation < n->best->generation;
    bool searched = news && learned_is_search(&p->daemon, e, n->best);
    learn_best(&p->daemon, n->best, n->saved);
    if (news) {
        announce(&p->daemon, &p->subscribers, n->best, n->saved);
    }
    elsewhere_learned(&p->elsewhere, n->key, searched);
    leases_known(&p->leases, n->key);
}

/* Of a key that is in the cache no more. */
static void forget_key(struct parts *p, const char *key)
{
    tried_remove(&p->daemon.tried, key);
    shortlist_evicted(&p->tiers.shortlist, key);
    generations_forget(&p->generations, key);
}

static void forget_unmet(struct parts *p)
{
    char id[HASH_HEX];
    for (size_t at = 0; cache_sweep(&p->daemon.cache, &at, id);) {
        forget_key(p, id);
    }
}

/* For this daemon alone; what it knows already is no news. */
static void hear_reloaded(struct parts *p, const struct ledger_news *n)
{
    struct cache *c = &p->daemon.cache;
    if (n->kind == NEWS_RELOADING) {
        cache_unmeet(c);
    } else if (n->kind == NEWS_RELOADED) {
        forget_unmet(p);
        quarantine_read(&p->daemon);
    } else if (n->kind == NEWS_RELOADED_LOST) {
        restore_begin(&p->restore);
        quarantine_read(&p->daemon);
    } else if (!cache_meet(c, n->key, n->best->generation)) {
        tell_best(p, n);
    }
}

void wiring_news(struct parts *p, const struct ledger_news *n)
{
    struct daemon *d = &p->daemon;
    if (n->kind >= NEWS_RELOADING) {
        hear_reloaded(p, n);
        return;
    }
    if (n->kind == NEWS_BEST) {
        tell_best(p, n);
    } else if (n->kind == NEWS_EVICTED) {
        cache_remove_id(&d->cache, n->key);
        forget_key(p, n->key);
        loader_evicted(&p->loader);
    } else if (n->kind == NEWS_QUARANTINE) {
        quarantine_read(d);
    } else if (n->kind == NEWS_WANTED) {
        offers_take(&p->offers);
    } else if (n->kind == NEWS_FREED) {
        elsewhere_freed(&p->elsewhere, n->key);
        leases_freed(&p->leases, n->key);
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

void wiring_init(struct parts *p)
{
    struct daemon *d = &p->daemon;
    loader_init(&p->loader, d);
    restore_init(&p->restore, d);
    p->tiers.daemon = d;
    shortlist_init(&p->tiers.shortlist, d);
    scheduler_init(&p->scheduler, d, &scheduler_hooks, p);
    wanting_init(&p->wanting, &p->scheduler, &p->tiers);
    supervisor_init(&p->supervisor, d, &tuning_hooks, &p->tuner);
    elsewhere_init(&p->elsewhere, &p->scheduler, on_leased, &p->tuner);
    p->tuner = (struct tuner){.daemon = d,
                              .scheduler = &p->scheduler,
                              .elsewhere = &p->elsewhere,
                              .supervisor = &p->supervisor,
                              .tiers = &p->tiers};
    ahead_init(&p->ahead, d, &p->scheduler);
    leases_init(&p->leases, d);
    offers_init(&p->offers, &p->wanting, &p->server.sessions.accounts);
    list_init(&p->subscribers);
}
