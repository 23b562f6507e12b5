/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the plan: the legal space of the target, less the exclusions of the request and the
 * quarantine, in the order of the analytic model for the real workload. Configs with unknown times
 * come last, and configs with equal times in the order of the space, so that the same problem is
 * searched in the same order everywhere. Then diverse.c mixes the front. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/modules.h"
#include "runner/strategy/plan.h"

/* A search compiles this share of the variants, and at least VARIANTS_LEAST, or as many as the
 * target says (variants_least), for which the host needs as many compilers. */
static const double VARIANT_SHARE = 0.0433;

/* Drops configs that a replay device's recording lacks. */
static void drop_unknown(struct plan *p)
{
    const struct device *d = p->setup.device;
    uint32_t n = 0;
    if (!d || !d->ops->knows) {
        return;
    }
    for (uint32_t i = 0; i < p->space.n; i++) {
        struct record config;
        space_config(&p->space, i, &config);
        if (d->ops->knows(d, &p->setup.order->request.problem, &config)) {
            p->space.points[n++] = p->space.points[i];
        }
    }
    p->space.n = n;
}

/* ---- why a space is empty -------------------------------------------------------------------- */

static const struct param *plan_find_param(const struct space *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_params; i++) {
        if (strcmp(s->params[i].name, name) == 0) {
            return &s->params[i];
        }
    }
    return NULL;
}

static void list_values(const struct value *values, uint32_t n, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n && at + 2 < size; i++) {
        at += (size_t)snprintf(out + at, size - at, "%s", i ? ", " : "");
        at += at < size ? value_format(&values[i], out + at, size - at) : 0;
    }
}

/* True when a restriction allows a value that the space has for the parameter; else sets the
 * error. */
static bool plan_meets_space(const struct plan *p, const struct restriction *r, struct error *err)
{
    const struct param *of = plan_find_param(&p->space, r->name);
    for (uint32_t k = 0; k < of->n; k++) {
        if (restriction_allows(r, &of->values[k])) {
            return true;
        }
    }
    char asked[96], known[192];
    list_values(r->values, r->n, asked, sizeof(asked));
    list_values(of->values, of->n, known, sizeof(known));
    error_set(err, ERROR_NO_CONFIG,
              "restrict: %s = %s is not in the space, which has %s; use strategy given for configs "
              "outside it",
              r->name, asked, known);
    return false;
}

static int compare_rules(const void *a, const void *b)
{
    const struct space_rule *x = a, *y = b;
    return (x->dropped < y->dropped) - (x->dropped > y->dropped);
}

/* Sets the error of an empty space: a restriction without a value of the space, or the rules that
 * dropped most points. Sorts the space's rules by that number. */
static int explain_empty(struct plan *p, struct error *err)
{
    struct space *s = &p->space;
    const struct request *q = &p->setup.order->request;
    for (uint32_t i = 0; i < q->n_restrict; i++) {
        if (!plan_meets_space(p, &q->restrict_[i], err)) {
            return ERROR_NO_CONFIG;
        }
    }
    qsort(s->rules, s->n_rules, sizeof(s->rules[0]), compare_rules);
    char text[256] = "";
    for (uint32_t i = 0, at = 0; i < s->n_rules && i < 4 && at < sizeof(text); i++) {
        at += (uint32_t)snprintf(text + at, sizeof(text) - at, "%s%s dropped %llu", i ? ", " : "",
                                 s->rules[i].rule, (unsigned long long)s->rules[i].dropped);
    }
    return error_set(err, ERROR_NO_CONFIG, "no config is valid for this problem here: of %llu, %s",
                     (unsigned long long)s->raw, text);
}

/* ---- building -------------------------------------------------------------------------------- */

static double plan_predict_config(const struct plan *p, const struct record *config)
{
    const struct plan_setup *s = &p->setup;
    double us = s->target->predict(&s->order->request.problem, config, s->info, s->workload);
    return isnan(us) ? INFINITY : us;
}

static bool is_avoided(const struct plan *p, const struct record *config)
{
    struct variant v;
    char hash[HASH_HEX];
    return p->setup.order->n_avoid > 0 && plan_variant(p, config, &v, hash, NULL) == 0 &&
           plan_avoids(p, hash);
}

static int plan_compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->predicted != y->predicted) {
        return x->predicted < y->predicted ? -1 : 1;
    }
    return (x->point > y->point) - (x->point < y->point);
}

/* Sorts the points that are not in quarantine by their predicted times. */
static void plan_sort_points(struct plan *p, const double us[], struct ranked *out)
{
    for (uint32_t i = 0; i < p->space.n; i++) {
        struct record config;
        if (p->avoids) {
            space_config(&p->space, i, &config);
        }
        if (!p->avoids || !is_avoided(p, &config)) {
            out[p->n_ranked++] = (struct ranked){isnan(us[i]) ? INFINITY : us[i], i};
        }
    }
    p->avoided = p->space.n - p->n_ranked;
    qsort(out, p->n_ranked, sizeof(*out), plan_compare_ranked);
}

static int plan_fail_memory(const struct plan *p, struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "no memory to rank %u configs", p->space.n);
}

static int rank_space(struct plan *p, struct error *err)
{
    const struct plan_setup *s = &p->setup;
    const uint32_t n = p->space.n;
    double *us = calloc(n, sizeof(*us));
    struct ranked *ranked = calloc(n, sizeof(*ranked));
    p->point = malloc(n * sizeof(*p->point));
    p->predicted = malloc(n * sizeof(*p->predicted));
    int r = us && ranked && p->point && p->predicted ? 0 : plan_fail_memory(p, err);
    if (r == 0) {
        space_predict(&p->space, s->target, &s->order->request.problem, s->info, s->workload, us);
        plan_sort_points(p, us, ranked);
        r = diverse_order(p->space.points, ranked, p->n_ranked, err);
    }
    for (uint32_t i = 0; r == 0 && i < p->n_ranked; i++) {
        p->point[i] = ranked[i].point;
        p->predicted[i] = ranked[i].predicted;
    }
    free(us);
    free(ranked);
    return r;
}

/* True when the cache has the module of the config's variant. */
static bool plan_has_module(const struct plan *p, const struct record *config)
{
    struct variant v;
    char hash[HASH_HEX];
    return plan_variant(p, config, &v, hash, NULL) == 0 && modules_has(p->setup.cache_dir, hash);
}

/* Looks each variant up once: its compile effort, and whether the cache has its module. The lookup
 * comes before any compile of the search, so that the search depends only on the cache at its
 * beginning. */
static int plan_look_at_variants(struct plan *p, struct error *err)
{
    const struct plan_setup *s = &p->setup;
    double sum = 0, effort = 0;
    bool present = false;
    p->effort = s->target->effort ? malloc(p->n_ranked * sizeof(*p->effort)) : NULL;
    p->present = s->cache_dir ? malloc(p->n_ranked * sizeof(*p->present)) : NULL;
    if ((s->target->effort && !p->effort) || (s->cache_dir && !p->present)) {
        return plan_fail_memory(p, err);
    }
    for (uint32_t i = 0, variants = 0; i < p->space.n; i++) {
        const uint32_t id = p->grid.rank[i];
        if (id == GRID_NONE) {
            continue;
        }
        if (p->grid.variant[id] == variants) {
            struct record config;
            space_config(&p->space, i, &config);
            effort = p->effort ? s->target->effort(&s->order->request.problem, &config) : 0;
            present = p->present && plan_has_module(p, &config);
            sum += effort;
            variants++;
        }
        if (p->effort) {
            p->effort[id] = effort;
        }
        if (p->present) {
            p->present[id] = present;
        }
    }
    for (uint32_t i = 0; p->effort && i < p->n_ranked; i++) {
        p->effort[i] /= sum / p->grid.n_variants;
    }
    return 0;
}

/* Ranks the configs of the given list that may be measured, in the order of the list. */
static int plan_init_list(struct plan *p, struct error *err)
{
    const struct request *q = &p->setup.order->request;
    struct rejection why;
    uint32_t id;
    int r = 0;
    for (uint32_t i = 0; i < q->n_configs && r == 0; i++) {
        if (plan_check_listed(p, &q->configs[i], &why) == 0) {
            r = plan_add(p, &q->configs[i], &id, err);
        }
    }
    p->legal = p->n_ranked = p->n_extra;
    return r;
}

int plan_init(struct plan *p, const struct plan_setup *setup, struct error *err)
{
    *p = (struct plan){.setup = *setup, .avoids = setup->order->n_avoid > 0};
    const struct request *q = &setup->order->request;
    if (strcmp(q->query.strategy, "given") == 0) {
        return plan_init_list(p, err);
    }
    int r = space_build(&p->space, setup->target, &q->problem, setup->info, q, err);
    if (r) {
        return r;
    }
    bool any = p->space.n > 0;
    drop_unknown(p);
    p->legal = p->space.n;
    if (any && p->space.n == 0) {
        r = error_set(err, ERROR_NO_CONFIG, "the recording has no config that this request allows");
    }
    r = r ? r : p->space.n == 0 ? explain_empty(p, err) : rank_space(p, err);
    r = r ? r : grid_init(&p->grid, &p->space, p->point, p->n_ranked, err);
    return r ? r : plan_look_at_variants(p, err);
}

void plan_deinit(struct plan *p)
{
    grid_deinit(&p->grid);
    space_deinit(&p->space);
    free(p->point);
    free(p->predicted);
    free(p->effort);
    free(p->present);
    free(p->extra);
}

uint32_t plan_budget(const struct plan *p)
{
    const struct query *q = &p->setup.order->request.query;
    bool all = strcmp(q->strategy, "given") == 0 ||
               (strcmp(q->strategy, "exhaustive") == 0 && q->budget == 0);
    int64_t n = q->budget > 0 ? q->budget : BUDGET_DEFAULT;
    return all ? PLAN_ALL : n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

static uint32_t plan_least_variants(const struct plan *p)
{
    const uint32_t wanted = p->setup.target->variants_least,
                   least = wanted < p->setup.compilers ? wanted : p->setup.compilers;
    return least > VARIANTS_LEAST ? least : VARIANTS_LEAST;
}

int plan_open_strategy(const struct plan *p, const struct strategy_setup *rest,
                       struct strategy **out, struct error *err)
{
    const struct query *q = &p->setup.order->request.query;
    const uint32_t share = (uint32_t)(VARIANT_SHARE * p->grid.n_variants),
                   least = plan_least_variants(p);
    struct strategy_setup setup = *rest;
    setup.budget = rest->budget == PLAN_ALL ? 0 : rest->budget;
    setup.n = p->n_ranked;
    setup.predicted_us = p->predicted;
    setup.effort = p->effort;
    setup.present = p->present;
    setup.grid = p->point ? &p->grid : NULL;
    /* without a requested budget: most compile effort, in variants of mean effort */
    setup.variants = q->budget > 0 ? 0 : share > least ? share : least;
    setup.variants_least = least;
    setup.compilers = p->setup.compilers;
    setup.seed = (uint64_t)q->seed;
    return strategy_open(q->strategy, &setup, out, err);
}

/* ---- queries --------------------------------------------------------------------------------- */

/* The plan id of the first config in `extra`. */
static uint32_t extra_base(const struct plan *p)
{
    return p->point ? p->n_ranked : 0;
}

uint32_t plan_count(const struct plan *p)
{
    return extra_base(p) + p->n_extra;
}

void plan_config(const struct plan *p, uint32_t id, struct record *config)
{
    if (id < extra_base(p)) {
        space_config(&p->space, p->point[id], config);
    } else {
        record_copy(config, &p->extra[id - extra_base(p)]);
    }
}

double plan_predicted(const struct plan *p, uint32_t id)
{
    const uint32_t base = extra_base(p);
    return id < base ? p->predicted[id] : plan_predict_config(p, &p->extra[id - base]);
}

static bool to_point(const struct space *s, const struct record *config, struct space_point *out)
{
    *out = (struct space_point){0};
    for (uint32_t i = 0; i < s->n_params; i++) {
        struct value v;
        uint32_t k = 0;
        if (!record_get(config, s->params[i].name, &v)) {
            return false;
        }
        while (k < s->params[i].n && !value_equal(&v, &s->params[i].values[k])) {
            k++;
        }
        if (k == s->params[i].n) {
            return false;
        }
        out->at[i] = (uint8_t)k;
    }
    return config->n == s->n_params;
}

int plan_add(struct plan *p, const struct record *config, uint32_t *id, struct error *err)
{
    struct space_point at;
    *id = p->point && to_point(&p->space, config, &at) ? grid_find(&p->grid, &at) : PLAN_NONE;
    for (uint32_t i = 0; *id == PLAN_NONE && i < p->n_extra; i++) {
        *id = record_equal(config, &p->extra[i]) ? extra_base(p) + i : PLAN_NONE;
    }
    if (*id != PLAN_NONE) {
        return 0;
    }
    if (p->n_extra == p->room) {
        uint32_t room = p->room ? p->room * 2 : 16;
        struct record *extra = realloc(p->extra, room * sizeof(*extra));
        if (!extra) {
            return error_set(err, ERROR_NO_MEMORY, "no memory for %u configs", room);
        }
        p->extra = extra;
        p->room = room;
    }
    record_copy(&p->extra[p->n_extra], config);
    *id = extra_base(p) + p->n_extra++;
    return 0;
}

int plan_variant(const struct plan *p, const struct record *config, struct variant *v,
                 char hash[HASH_HEX], struct error *err)
{
    const struct plan_setup *s = &p->setup;
    int r = s->target->variant(&s->order->request.problem, config, s->info->arch, v, err);
    if (r == 0) {
        variant_hash(v, s->compiler, hash);
    }
    return r;
}

bool plan_avoids(const struct plan *p, const char *hash)
{
    for (uint32_t i = 0; i < p->setup.order->n_avoid; i++) {
        if (strcmp(p->setup.order->avoid[i], hash) == 0) {
            return true;
        }
    }
    return false;
}

int plan_check(const struct plan *p, const struct record *config, struct rejection *why)
{
    const struct plan_setup *s = &p->setup;
    if (s->target->check(&s->order->request.problem, config, s->info, why)) {
        return 1;
    }
    if (is_avoided(p, config)) {
        return rejection_set(why, ERROR_QUARANTINED, "quarantined",
                             "this variant has crashed or hung the runner before and is in "
                             "quarantine; gemmctl quarantine shows why");
    }
    return 0;
}

int plan_check_listed(const struct plan *p, const struct record *config, struct rejection *why)
{
    if (!request_allows(&p->setup.order->request, config)) {
        return rejection_set(why, ERROR_CONFLICT, "restricted", "the restriction excludes it");
    }
    return plan_check(p, config, why);
}
