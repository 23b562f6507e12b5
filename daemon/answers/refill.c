/* SPDX-License-Identifier: Apache-2.0 */
/* From the cache to the ledger (refill.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/answers/learn.h"
#include "daemon/answers/refill.h"
#include "daemon/base/log.h"

enum { FLYING_MAX = 64 }; /* they share a transaction or two, and others come between */

static void end(struct refill *x)
{
    x->running = false;
    if (x->n) {
        log_notice("the rebuilt database lacked %zu keys of our memory: they are written again",
                   x->n);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static void go_on(struct refill *x);

static void on_written(void *ctx, int status, const struct best *b, bool saved,
                       const struct error *err)
{
    struct refill *x = ctx;
    (void)b;
    x->n += status == 0 && saved; /* if not, it is there, or the writer's to save */
    if (status < 0) {
        log_warning("a key that the rebuilt database has lost is not written again: %s", err->text);
    }
    if (--x->flying == 0 && x->running && !x->daemon->stopping) {
        go_on(x);
    }
}

/* One that cannot be is no reason to lose the others. */
static void write_again(struct refill *x, const struct cache_entry *e)
{
    struct daemon *d = x->daemon;
    struct error err = ERROR_NULL;
    int status = learned_row(d, e, &d->scratch->best, &err);
    if (status == 0) {
        d->scratch->best.uid = e->uid == CACHE_NOBODY ? (int64_t)geteuid() : (int64_t)e->uid;
        status = d->ledger->ops->restore(d->ledger, &d->scratch->best, on_written, x);
        status = status < 0 ? ledger_refused(status, &err) : 0;
    }
    if (status < 0) {
        log_warning("a key that the rebuilt database has lost stays in memory alone: %s", err.text);
    }
    x->flying += status == 0;
}

/* Up to so many on their way. What is being taken out comes first, or it might be written behind
 * that. */
static void write_some(struct refill *x, size_t most)
{
    const struct cache *c = &x->daemon->cache;
    while (x->at < c->capacity && x->flying < most && !ledger_shared_removes(x->daemon->ledger)) {
        const struct cache_entry *e = c->slots[x->at++];
        if (e && e->saved) { /* the rest is with the writer */
            write_again(x, e);
        }
    }
}

static void begin_pass(struct refill *x)
{
    x->at = 0;
    x->n_before = x->n;
    x->moves = x->daemon->cache.moves;
}

static void go_on(struct refill *x)
{
    const struct cache *c = &x->daemon->cache;
    write_some(x, FLYING_MAX);
    while (x->flying == 0 && x->at >= c->capacity) {
        if (x->n == x->n_before && x->moves == c->moves) {
            end(x);
            return;
        }
        begin_pass(x);
        write_some(x, FLYING_MAX);
    }
}

void refill_init(struct refill *x, struct daemon *d)
{
    *x = (struct refill){.daemon = d};
}

void refill_due(struct refill *x)
{
    x->due = true;
}

bool refill_is_needed(const struct refill *x)
{
    return x->due || x->running;
}

static bool is_ours(const struct refill *x)
{
    return ledger_shared_is_keeper(x->daemon->ledger);
}

void refill_begin(struct refill *x)
{
    if (x->flying || !is_ours(x)) {
        return;
    }
    if (x->due && !x->running) {
        x->due = false;
        x->running = true;
        x->n = 0;
        begin_pass(x);
    }
    if (x->running) {
        go_on(x);
    }
}

void refill_finish(struct refill *x)
{
    if (refill_is_needed(x) && is_ours(x)) {
        x->at = 0;
        write_some(x, SIZE_MAX);
    }
}
