/* SPDX-License-Identifier: Apache-2.0 */
/* Connects the parts by their hooks (life.h). */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/answers/learn.h"
#include "daemon/answers/target.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/fleet_pins.h"
#include "daemon/tuning/tuning.h"
#include "daemon/life.h"

/* ---- news ------------------------------------------------------------------------------------ */

static void tell_best(struct daemon_parts *p, const struct ledger_news *n)
{
    const struct cache_entry *e = cache_find_id(&p->daemon.cache, n->key, NULL);
    /* A row that is saved late, or restored, has a generation that the cache's entry has reached
     * already, and is no news. A row of generation 0 is not saved yet, and is news. */
    bool news = !e || n->best->generation == 0 || e->generation < n->best->generation;
    bool searched = news && learned_is_search(&p->daemon, e, n->best);
    learn_best(&p->daemon, n->best, n->saved);
    if (searched) {
        remeasure_heard(p, n->key);
    }
    if (news) {
        announce_best(p, n->best, n->saved);
    }
    fleet_pins_changed(p, n->key);
    job_lease_learned(&p->tuning, n->key, searched);
    leases_known(&p->leases, n->key);
}

/* Removes a key from the other parts of the daemon after the key left the cache. */
static void forget_key(struct daemon_parts *p, const char *key)
{
    tried_remove(&p->daemon.tried, key);
    portfolio_evicted(&p->tiers.portfolio, key);
    generations_forget(&p->generations, key);
}

static void forget_unmet(struct daemon_parts *p)
{
    char id[HASH_HEX];
    for (size_t at = 0; cache_sweep(&p->daemon.cache, &at, id);) {
        forget_key(p, id);
    }
}

/* Handles the news of a reload: this daemon reads all bests again. Rows that the cache has already
 * are no news for other parts. */
static void hear_reloaded(struct daemon_parts *p, const struct ledger_news *n)
{
    struct cache *c = &p->daemon.cache;
    if (n->kind == NEWS_RELOADING) {
        cache_unmeet(c);
    } else if (n->kind == NEWS_RELOADED) {
        p->restore.due = false;
        forget_unmet(p);
        quarantine_read(&p->daemon);
    } else if (n->kind == NEWS_RELOADED_LOST) {
        restore_begin(&p->restore);
        quarantine_read(&p->daemon);
    } else if (!cache_meet(c, n->key, n->best->generation)) {
        tell_best(p, n);
    }
}

/* Announces the stamps of this daemon's kernels to gemmd-fleet. */
static void wiring_announce_stamps(struct daemon *d)
{
    char lines[STAMPS_MAX * (STAMP_MAX + 1)] = "";
    size_t n = 0;
    for (size_t i = 0; families[i]; i++) {
        for (const struct family_target *const *t = families[i]->targets; *t; t++) {
            if (family_target_runs_on(*t, &d->device) && n + STAMP_MAX < sizeof(lines)) {
                n += (size_t)snprintf(lines + n, sizeof(lines) - n, "%s\n",
                                      target_stamp(d, families[i], *t));
            }
        }
    }
    ledger_announce(d->ledger, d->device.class, lines);
}

static void fleet_heard(struct daemon_parts *p, const char *number)
{
    struct daemon *d = &p->daemon;
    if (!d->fleet_known && d->config->fleet_ms > 0 && !d->config->offline) {
        wiring_announce_stamps(d);
    }
    d->fleet_known = true;
    d->fleet_seq = number[0] ? strtoll(number, NULL, 10) : d->fleet_seq;
    fleet_pins_read_on(p);
}

void wiring_news(void *ctx, const struct ledger_news *n)
{
    struct daemon_parts *p = ctx;
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
        fleet_pins_changed(p, n->key);
    } else if (n->kind == NEWS_QUARANTINE) {
        quarantine_read(d);
    } else if (n->kind == NEWS_FLEET) {
        fleet_heard(p, n->key);
    } else if (n->kind == NEWS_WANTED) {
        offers_take(&p->tuning);
    } else if (n->kind == NEWS_FREED) {
        job_lease_freed(&p->tuning, n->key);
        leases_freed(&p->leases, n->key);
    }
}

/* ---- binding --------------------------------------------------------------------------------- */

void wiring_init(struct daemon_parts *p)
{
    struct daemon *d = &p->daemon;
    loader_init(&p->loader, d);
    p->restore.daemon = d;
    p->tiers.daemon = d;
    portfolio_init(&p->tiers.portfolio, d);
    tuning_init(&p->tuning, d, &p->tiers, &p->server.sessions.accounts);
    leases_init(&p->leases, d);
}
