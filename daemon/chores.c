/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/base/notify.h"
#include "daemon/life.h"
#include "daemon/methods/fleet_pins.h"
#include "daemon/methods/methods.h"

enum { CHORES_MS = 1000 };

static bool chores_is_idle(const struct daemon_parts *p)
{
    const struct scheduler *s = &p->tuning.scheduler;
    return p->server.sessions.n == 0 && !s->running && s->n_queued == 0 && s->n_leased_out == 0 &&
           !p->restore.running;
}

/* True when the daemon has been idle for --idle-exit-s. */
static bool is_long_idle(struct daemon_parts *p)
{
    struct daemon *d = &p->daemon;
    uint64_t limit_ms = (uint64_t)d->config->idle_exit_s * 1000, now = turns_now(&d->turns);
    if (!chores_is_idle(p)) {
        p->server.sessions.quiet_since_ms = now;
    }
    return limit_ms && now - p->server.sessions.quiet_since_ms >= limit_ms;
}

/* Called with the ledger's counts, when the daemon is idle: ends it, unless rows are unsaved, which
 * would be lost. */
static void on_counts(void *ctx, const struct ledger_status *counts)
{
    struct chores *c = ctx;
    struct daemon_parts *p = c->parts;
    c->counting = false;
    if (p->daemon.stopping || !is_long_idle(p)) {
        return;
    }
    if (counts->unsaved + counts->unsaved_quarantine > 0) {
        p->server.sessions.quiet_since_ms = turns_now(&p->daemon.turns);
        return;
    }
    p->stop(p, geteuid(), "idle for --idle-exit-s");
}

static void chores_on_timer(uv_timer_t *timer)
{
    struct chores *c = timer->data;
    struct daemon_parts *p = c->parts;
    struct ledger *l = p->daemon.ledger;
    struct error err = ERROR_NULL;
    if (p->daemon.stopping || p->server.fd < 0) {
        return;
    }
    /* binds the socket's path again when the runtime directory was removed, for example at a
     * logout */
    if (server_mend(&p->server, p->daemon.config->group, &err) < 0) {
        log_error("%s", err.text);
    }
    scheduler_tick(&p->tuning.scheduler);
    job_lease_tick(&p->tuning);
    offers_tick(&p->tuning);
    precompile_tick(&p->tuning.precompiler);
    portfolio_tick(&p->tiers.portfolio);
    served_tick(p);
    fleet_pins_tick(p);
    remeasure_look(&c->remeasure, p);
    if (is_long_idle(p) && !c->counting) {
        /* first asks the ledger for the number of unsaved rows */
        c->counting = ledger_status(l, on_counts, c) == 0;
    }
}

/* Tells systemd's watchdog that the loop runs. A timer of the loop does so, and no other thread, so
 * that the watchdog notices a loop that stands still. */
static void feed_watchdog(uv_timer_t *timer)
{
    notify_send("WATCHDOG=1");
}

void chores_init(struct chores *c, struct daemon_parts *p)
{
    uv_loop_t *loop = &p->daemon.loop;
    uint64_t period_ms = notify_watchdog_ms();
    c->parts = p;
    uv_timer_init(loop, &c->timer);
    c->timer.data = c;
    uv_timer_start(&c->timer, chores_on_timer, CHORES_MS, CHORES_MS);
    uv_timer_init(loop, &c->watchdog);
    if (period_ms) {
        uv_timer_start(&c->watchdog, feed_watchdog, period_ms, period_ms);
    }
}

void chores_close(struct chores *c)
{
    uv_close((uv_handle_t *)&c->timer, NULL);
    uv_close((uv_handle_t *)&c->watchdog, NULL);
}
