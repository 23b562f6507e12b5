/* SPDX-License-Identifier: Apache-2.0 */
/* Finds keys to measure again; each look reads a slice of the cache's slots (life.h). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/answers/learn.h"
#include "daemon/base/log.h"
#include "daemon/life.h"

enum { SLICE = 4096 };

/* Queues the search that a plain query of the key would make, with the row's tolerances. */
static int remeasure_want_key(struct daemon_parts *p, struct cache_entry *e, struct error *err)
{
    struct daemon *d = &p->daemon;
    struct scratch *x = d->scratch;
    struct query *q = &x->request.query;
    struct joining w = {.again = true, .background = true, .quiet = true};
    int status = learned_row(d, e, &x->best, err);
    status = status ? status : problem_make(&x->request.problem, x->best.op, &x->best.problem, err);
    status = status ? status : request_default(&x->request, err);
    if (status == 0) {
        q->atol = x->best.atol;
        q->rtol = x->best.rtol;
        /* A client's plain query makes the same search, and so can join the job. Only when the
         * database's scheme would round the row's problem again does the search take the problem as
         * it is. */
        problem_bucket(&x->request.problem, d->scheme, &x->bucket);
        if (!record_equal(&x->bucket.fields, &x->request.problem.fields)) {
            snprintf(q->bucket, sizeof(q->bucket), "exact");
        }
        e->tries++;
        status = waiters_join_alone(&p->tuning, &w, geteuid(), err);
    }
    request_deinit(&x->request);
    *q = (struct query){0};
    return status;
}

static bool remeasure_is_due(const struct cache_entry *e)
{
    return e && e->low && e->rank == CACHE_SERVES && e->tries < REMEASURE_TRIES;
}

void remeasure_heard(struct daemon_parts *p, const char *key)
{
    const struct job *running = p->tuning.scheduler.running;
    struct cache_entry *e = cache_find_id(&p->daemon.cache, key, NULL);
    if (e && e->low && e->tries < REMEASURE_TRIES && !(running && strcmp(running->key, key) == 0)) {
        e->tries++;
    }
}

static void measure_again(struct daemon_parts *p, struct cache_entry *e)
{
    struct error err = ERROR_NULL;
    char id[HASH_HEX];
    cache_entry_id(e, id);
    if (remeasure_want_key(p, e, &err) < 0) {
        log_info("key %s is not measured again: %s", id, err.text);
    } else {
        log_info("key %s is measured again: its confidence is low", id);
    }
}

/* Returns the ms for which the device must have been idle. They double with each job in a row that
 * found it in use. */
static uint64_t rest_ms(const struct daemon_parts *p)
{
    unsigned n = p->tuning.scheduler.put_off;
    return (uint64_t)p->daemon.config->remeasure_s * 1000 << (n < PUT_OFF_MAX ? n : PUT_OFF_MAX);
}

void remeasure_look(struct remeasure *x, struct daemon_parts *p)
{
    struct daemon *d = &p->daemon;
    const struct scheduler *s = &p->tuning.scheduler;
    uint64_t now = turns_now(&d->turns);
    if (s->running || s->n_queued || s->n_leased_out || s->off.code || x->busy_ms == 0) {
        x->busy_ms = now;
    } else if (s->since_ms > x->busy_ms) {
        x->busy_ms = s->since_ms; /* a job ran since the last look, and has ended */
    }
    bool wanted = d->config->remeasure_s > 0 && !d->config->offline && (d->doubtful || x->at > 0);
    if (!wanted || !p->loader.done || now - x->busy_ms < rest_ms(p)) {
        return;
    }
    if (x->at == 0) {
        /* a pass over the cache begins; the pass sets the flag again when it finds such a key */
        d->doubtful = false;
    }
    for (size_t n = 0; n < SLICE && x->at < d->cache.keys.capacity; n++) {
        struct cache_entry *e = d->cache.keys.slots[x->at++];
        if (remeasure_is_due(e)) {
            d->doubtful = true;
            measure_again(p, e);
            x->busy_ms = now; /* the job counts as work, also if it has ended by the next look */
            return;
        }
    }
    if (x->at >= d->cache.keys.capacity) {
        x->at = 0;
    }
}
