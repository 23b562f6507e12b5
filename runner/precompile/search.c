/* SPDX-License-Identifier: Apache-2.0 */
/* The variants of a search, in the order in which the search asks for them: the device's own
 * kernels, the reference, the strategy's proposals before any observation, then all other variants
 * in the plan's order. That order is only a poor guess of the later proposals, of which few are
 * among the plan's first configs. So --openings stops after the proposals. */
#include <stdlib.h>

#include "runner/base/conditions.h"
#include "runner/precompile/precompile.h"
#include "runner/strategy/plan.h"

struct sequence {
    const struct precompile_setup *to;
    struct tune_order order; /* its request is borrowed */
    struct plan plan;        /* owned */
    /* owned; for each variant of the plan, true when the pool was given it already */
    bool *had;
    uint32_t n, most; /* variants given to the pool so far; limit of that number */
};

/* ---- one by one ------------------------------------------------------------------------------ */

/* Gives a variant to the pool. The device's own kernels (helper) come before all others. The n-th
 * variants of all searches come before the (n + 1)-th of any search. With --openings, the variants
 * of the first search come before those of the second. */
static int precompile_want(const struct sequence *s, const struct variant *v, bool helper,
                           struct error *err)
{
    const struct precompile_setup *to = s->to;
    char hash[HASH_HEX];
    const struct compile_pool_want want = {
        .variant = v,
        .hash = hash,
        .rank = to->rank,
        .turn = helper         ? 0
                : to->openings ? 1
                               : s->n + 1,
    };
    variant_hash(v, to->compiler->ops->version(to->compiler), hash);
    return compile_pool_want(to->pool, &want, NULL, err);
}

/* Gives the pool the device's own kernels, which every search waits for. */
static int precompile_want_helpers(const struct sequence *s, struct error *err)
{
    struct variant helpers[DEVICE_HELPERS_MAX];
    const uint32_t n = device_helpers(s->to->device, &s->to->info, s->plan.setup.target, helpers);
    int r = 0;
    for (uint32_t i = 0; i < n && r == 0; i++) {
        r = precompile_want(s, &helpers[i], true, err);
    }
    return r;
}

/* Gives the pool a config's variant, unless the pool was given the variant before. */
static int precompile_take_config(struct sequence *s, uint32_t id, struct error *err)
{
    bool *had = id < s->plan.grid.n ? &s->had[s->plan.grid.variant[id]] : NULL;
    struct record config;
    struct variant v;
    char hash[HASH_HEX];
    if ((had && *had) || s->n == s->most) {
        return 0;
    }
    plan_config(&s->plan, id, &config);
    int r = plan_variant(&s->plan, &config, &v, hash, err);
    r = r ? r : precompile_want(s, &v, false, err);
    s->n++;
    if (had) {
        *had = true;
    }
    return r;
}

/* ---- the order ------------------------------------------------------------------------------- */

/* The analytic default, which a search measures first, also when a restriction excludes it. */
static int take_reference(struct sequence *s, uint32_t *id, struct error *err)
{
    const struct plan_setup *of = &s->plan.setup;
    struct record config;
    struct rejection why;
    *id = PLAN_NONE;
    if (of->target->choose(&of->order->request.problem, of->info, &config, NULL) ||
        plan_check(&s->plan, &config, &why)) {
        return 0;
    }
    int r = plan_add(&s->plan, &config, id, err);
    return r ? r : precompile_take_config(s, *id, err);
}

static int take_proposals(struct sequence *s, uint32_t reference, struct error *err)
{
    const uint32_t look = s->to->look > 0 ? s->to->look : UINT32_MAX,
                   budget = plan_budget(&s->plan);
    const struct strategy_setup setup = {
        .budget = budget == PLAN_ALL ? budget : budget - (reference != PLAN_NONE),
        .coming = &reference,
        .n_coming = 1};
    struct strategy *strategy;
    uint32_t id;
    if (budget == 1) { /* the reference is the whole budget */
        return 0;
    }
    int r = plan_open_strategy(&s->plan, &setup, &strategy, err);
    if (r) {
        return r == ERROR_INVALID ? 0 : r; /* an unknown strategy has no proposals */
    }
    for (uint32_t n = reference != PLAN_NONE;
         r == 0 && s->n < s->most && n < look && strategy->ops->propose(strategy, &id) == 0; n++) {
        r = precompile_take_config(s, id, err);
    }
    strategy_close(strategy);
    return r;
}

static int precompile_take_all(struct sequence *s, struct error *err)
{
    const bool listed =
        !s->plan
             .point; /* true: the search has a list of configs, and takes only these, all of them */
    uint32_t reference;
    int r = take_reference(s, &reference, err);
    r = r || listed ? r : take_proposals(s, reference, err);
    const bool all = listed || !s->to->openings;
    for (uint32_t i = 0; all && i < s->plan.n_ranked && r == 0 && s->n < s->most; i++) {
        r = precompile_take_config(s, i, err);
    }
    return r;
}

/* ---- the search ------------------------------------------------------------------------------ */

int precompile_add_search(const struct precompile_setup *s, const struct request *r,
                          struct error *err)
{
    struct sequence q = {
        .to = s, .order = {.request = *r}, .most = s->each > 0 ? (uint32_t)s->each : UINT32_MAX};
    const struct family *f = family_of_problem(&r->problem);
    const struct family_target *target;
    struct workload workload;
    const char *wanted = r->query.target[0] ? r->query.target : s->target;
    int status = family_target_choose(f, &r->problem, &s->info, wanted, &target, err);
    status =
        status ? status : f->workload_init(&workload, &r->problem, conditions_seed(NULL, r), err);
    if (status) {
        return status;
    }
    const struct plan_setup setup = {.target = target,
                                     .info = &s->info,
                                     .workload = &workload,
                                     .order = &q.order,
                                     .compiler = s->compiler->ops->version(s->compiler),
                                     .cache_dir = s->openings ? s->cache_dir : NULL,
                                     .compilers = s->threads};
    status = plan_init(&q.plan, &setup, err);
    status = status ? status : precompile_want_helpers(&q, err);
    q.had = calloc(q.plan.grid.n_variants + 1, sizeof(*q.had));
    if (status == 0 && !q.had) {
        status = error_set(err, ERROR_NO_MEMORY, "no memory for a search's variants");
    }
    status = status ? status : precompile_take_all(&q, err);
    free(q.had);
    plan_deinit(&q.plan);
    f->workload_deinit(&workload);
    return status;
}
