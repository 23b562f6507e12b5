/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole space on several threads: a part for each combination of values of the first few
 * tunables, walked by whoever is free, and put together in order. Hopper's spaces have some hundred
 * thousand points.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/space.h"

enum {
    THREADS_MAX = 32,
    PARTS_ENOUGH = 32,
    RULES_MAX = sizeof(((struct space *)0)->rules) / sizeof(struct space_rule)
};

struct parts {
    const struct space_setup *setup; /* borrowed */
    uint32_t n, leading;             /* leading: tunables whose values a part has */
    struct space *parts;             /* owned, n of them */
    struct error *errors;            /* owned, of each */
    int *status;                     /* owned, of each */
    atomic_uint next;
};

/* ---- walking --------------------------------------------------------------------------------- */

/* Part k's first point; the tunables before `fixed` stay. */
static int space_parts_place(struct space *s, uint32_t leading, uint32_t k, struct error *err)
{
    int r = 0;
    s->fixed = leading;
    for (uint32_t i = leading; i-- > 0 && r == 0; k /= s->params[i].n) {
        const uint32_t at = k % s->params[i].n;
        s->at.at[i] = (uint8_t)at;
        r = record_set(&s->config, s->params[i].name, s->params[i].values[at], err);
    }
    return r;
}

static int space_parts_walk(struct parts *p, uint32_t k)
{
    struct space *s = &p->parts[k];
    int r = space_begin(s, p->setup, true, &p->errors[k]);
    r = r ? r : space_parts_place(s, p->leading, k, &p->errors[k]);
    while (r == 0 && !s->ended) {
        r = space_more(s, UINT32_MAX, &p->errors[k]);
        r = r == SPACE_MORE ? 0 : r;
    }
    return r;
}

static void *space_parts_run(void *arg)
{
    struct parts *p = arg;
    for (uint32_t k; (k = atomic_fetch_add(&p->next, 1)) < p->n;) {
        p->status[k] = space_parts_walk(p, k);
    }
    return NULL;
}

static void space_parts_walk_all(struct parts *p, unsigned threads)
{
    pthread_t ids[THREADS_MAX];
    unsigned n = 0;
    threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    while (n + 1 < threads && n + 1 < p->n &&
           pthread_create(&ids[n], NULL, space_parts_run, p) == 0) {
        n++;
    }
    space_parts_run(p); /* this thread, too; and alone where there are no others */
    while (n > 0) {
        pthread_join(ids[--n], NULL);
    }
}

/* ---- putting together ------------------------------------------------------------------------ */

static void add_rule(struct space *s, const struct space_rule *rule)
{
    uint32_t i = 0;
    while (i < s->n_rules &&
           (s->rules[i].legal != rule->legal || strcmp(s->rules[i].rule, rule->rule) != 0)) {
        i++;
    }
    if (i == RULES_MAX) {
        s->rules[i - 1].dropped += rule->dropped;
    } else if (i == s->n_rules) {
        s->rules[s->n_rules++] = *rule;
    } else {
        s->rules[i].dropped += rule->dropped;
    }
}

static void add_part(struct space *s, const struct space *part)
{
    if (part->n > 0) {
        memcpy(&s->points[s->n], part->points, part->n * sizeof(part->points[0]));
    }
    s->n += part->n;
    s->raw += part->raw;
    s->unworthy += part->unworthy;
    s->variants += part->variants;
    s->settings = part->settings > s->settings ? part->settings : s->settings;
    for (uint32_t i = 0; i < part->n_rules; i++) {
        add_rule(s, &part->rules[i]);
    }
}

static int space_parts_join(struct parts *p, struct space *s, struct error *err)
{
    size_t n = 0;
    for (uint32_t k = 0; k < p->n; k++) {
        if (p->status[k]) {
            *err = p->errors[k];
            return p->status[k];
        }
        n += p->parts[k].n;
    }
    s->points = malloc((n ? n : 1) * sizeof(*s->points));
    if (!s->points) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a space of %zu configs", n);
    }
    s->room = (uint32_t)n;
    for (uint32_t k = 0; k < p->n; k++) {
        add_part(s, &p->parts[k]);
    }
    s->ended = true;
    return 0;
}

static void parts_deinit(struct parts *p)
{
    for (uint32_t k = 0; p->parts && k < p->n; k++) {
        space_deinit(&p->parts[k]);
    }
    free(p->parts);
    free(p->errors);
    free(p->status);
}

/* So many of the first tunables that there are parts enough, since some are much longer than
 * others, and no more: what a rule settles for all values of a tunable (rejection.settled_by) each
 * part would look at anew. None at run time: the points of a variant are one part's. */
static void space_parts_split(struct parts *p, const struct space *s)
{
    p->n = 1;
    for (p->leading = 0;
         p->leading + 1 < s->n_params && !s->params[p->leading].run_time && p->n < PARTS_ENOUGH;
         p->leading++) {
        p->n *= s->params[p->leading].n;
    }
}

static int space_parts_build(unsigned threads, struct space *s, const struct space_setup *setup,
                             struct error *err)
{
    struct parts p = {.setup = setup};
    space_parts_split(&p, s);
    p.parts = calloc(p.n, sizeof(*p.parts));
    p.errors = calloc(p.n, sizeof(*p.errors));
    p.status = calloc(p.n, sizeof(*p.status));
    int r = 0;
    if (!p.parts || !p.errors || !p.status) {
        r = error_set(err, ERROR_NO_MEMORY, "no memory for a space of %u parts", p.n);
    } else {
        space_parts_walk_all(&p, threads);
        r = space_parts_join(&p, s, err);
    }
    parts_deinit(&p);
    return r;
}

static int build_alone(struct space *s, const struct space_setup *u, struct error *err)
{
    return space_build(s, u->target, u->problem, u->info, u->allow, u->ctx, err);
}

int space_build_on(unsigned threads, struct space *s, const struct space_setup *setup,
                   struct error *err)
{
    int r = space_begin(s, setup, true, err);
    if (r) {
        return r;
    }
    bool splits = threads > 1 && s->n_params > 1 && !s->params[0].run_time;
    if (!splits) {
        return build_alone(s, setup, err);
    }
    r = space_parts_build(threads, s, setup, err);
    if (r == 0 && s->n == 0 && s->unworthy > 0) { /* what is not worth it, is wanted */
        space_deinit(s);
        r = build_alone(s, setup, err);
    }
    return r;
}
