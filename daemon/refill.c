/* SPDX-License-Identifier: Apache-2.0 */
/* From the cache to the ledger (refill.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/answer.h"
#include "daemon/log.h"
#include "daemon/refill.h"

enum { FLYING_MAX = 64 }; /* they share a transaction or two, and others come between */

static void end(struct refill *x)
{
    x->running = false;
    if (x->n) {
        log_notice("the rebuilt database lacked %zu keys of our memory: they are written again",
                   x->n);
    }
}

static void fail(struct refill *x, const struct error *err)
{
    x->running = false;
    log_warning("keys that the rebuilt database has lost are in memory only: %s", err->text);
}

/* ---- a row of an answer ---------------------------------------------------------------------- */

/* As it was before it became a float. */
static double tolerance(float kept)
{
    char text[32];
    snprintf(text, sizeof(text), "%.7g", (double)kept);
    return strtod(text, NULL);
}

static void fill(struct best *b, const struct answer *a, const struct problem *bucket,
                 const struct device_info *device)
{
    const struct family *f = a->family[0] ? family_find(a->family) : NULL;
    memset(b, 0, sizeof(*b));
    memcpy(b->key, a->key, sizeof(b->key));
    snprintf(b->op, sizeof(b->op), "%s", bucket->op_name);
    memcpy(b->family, a->family, sizeof(b->family));
    record_copy(&b->problem, &bucket->fields);
    memcpy(b->class, device->class, sizeof(b->class));
    memcpy(b->source, a->source, sizeof(b->source));
    record_copy(&b->config, &a->config);
    memcpy(b->module, a->module, sizeof(b->module));
    b->time_us = a->time_us;
    b->spread = a->spread;
    b->reference_us = a->reference_us;
    if (f) {
        best_work(b, f, bucket, device);
    }
    b->measured = a->measured;
    memcpy(b->stamp, a->stamp, sizeof(b->stamp));
    b->uid = (int64_t)geteuid();
    b->created_s = a->created_s;
    memcpy(b->doubt, a->note, sizeof(b->doubt));
}

/* Into scratch->best. */
static int make_row(struct daemon *d, const struct cache_entry *e, struct error *err)
{
    struct scratch *x = d->scratch;
    int status = cache_answer(&d->cache, e, &x->answer, err);
    status = status ? status : cache_problem(&d->cache, e, d->device.class, &x->other, err);
    if (status == 0) {
        fill(&x->best, &x->answer, &x->other, &d->device);
        x->best.atol = tolerance(e->atol);
        x->best.rtol = tolerance(e->rtol);
        x->best.generation = e->generation;
    }
    return status;
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

static int write_again(struct refill *x, const struct cache_entry *e, struct error *err)
{
    struct daemon *d = x->daemon;
    int status = make_row(d, e, err);
    if (status == 0) {
        status = d->ledger->ops->restore(d->ledger, &d->scratch->best, on_written, x);
        status = status < 0 ? ledger_refused(status, err) : 0;
    }
    x->flying += status == 0;
    return status;
}

/* Entries that move meanwhile may stand behind us: what the last pass found nothing in is whole. */
static bool is_over(struct refill *x)
{
    bool over = x->n == x->n_before;
    x->n_before = x->n;
    x->at = 0;
    return over;
}

static void go_on(struct refill *x)
{
    struct cache *c = &x->daemon->cache;
    struct error err = ERROR_NULL;
    do {
        while (x->at < c->capacity && x->flying < FLYING_MAX) {
            const struct cache_entry *e = c->slots[x->at++];
            if (e && e->saved && write_again(x, e, &err) < 0) { /* the rest is with the writer */
                fail(x, &err);
                return;
            }
        }
    } while (x->flying == 0 && !is_over(x));
    if (x->flying == 0) {
        end(x);
    }
}

void refill_init(struct refill *x, struct daemon *d)
{
    *x = (struct refill){.daemon = d};
}

void refill_rebuilt(struct refill *x)
{
    x->due = true;
}

bool refill_is_needed(const struct refill *x)
{
    return x->due || x->running;
}

void refill_begin(struct refill *x)
{
    const struct ledger *l = x->daemon->ledger;
    if (!x->due || x->running || x->flying || !l || !l->ops->restore) {
        return;
    }
    x->due = false;
    x->running = true;
    x->at = x->n = x->n_before = 0;
    go_on(x);
}
