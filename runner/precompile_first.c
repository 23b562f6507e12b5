/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/job_inner.h"
#include "runner/precompile/plan.h"

static bool is_for(const struct runner *r, const struct tune_order *o)
{
    return !o->quiet && !r->device && r->compilers->precompile_first &&
           strcmp(r->opt.expected.kind, "cuda") == 0 && o->n_done == 0 && o->n_hints == 0 &&
           o->n_avoid == 0;
}

/* The message `attempt`, should compiling it kill us. */
static void precompile_first_put_last_words(const struct runner *r, struct precompile_plan *p,
                                            const struct precompile_item *item, struct wire_buf *b)
{
    struct attempt a = {.job = r->job, .stage = "compile"};
    if (item->origin != PRECOMPILE_HELPER) {
        precompile_plan_config(p, item, &a.config);
        snprintf(a.variant, sizeof(a.variant), "%s", item->hash);
    }
    rpc_put_notify(b, "attempt");
    schema_encode(b, &attempt_schema, &a);
}

static void precompile_first_want(struct runner *r, struct precompile_plan *p,
                                  const struct precompile_item *item)
{
    struct precompile_first *e = &r->precompile_first;
    struct variant v;
    WIRE_BUF_AUTO words = WIRE_BUF_NULL;
    if (precompile_plan_variant(p, item, &v, NULL)) {
        return;
    }
    precompile_first_put_last_words(r, p, item, &words);
    e->n += builds_want(r->builds, &v, item->hash, words.data, words.failed ? 0 : words.len,
                        &e->builds[e->n], NULL) == 0;
}

static void want_all(struct runner *r, struct precompile_plan *p)
{
    precompile_put_in_order(p);
    r->precompile_first.builds = calloc(p->n + 1, sizeof(*r->precompile_first.builds));
    for (uint32_t i = 0; r->precompile_first.builds && i < p->n; i++) {
        precompile_first_want(r, p, &p->items[i]);
    }
}

void precompile_first_begin(struct runner *r, const struct tune_order *o)
{
    struct error err = ERROR_NULL;
    struct precompile_plan p = {.device = r->opt.device, .info = r->opt.expected};
    if (!is_for(r, o) || runner_open_builds(r, &err)) {
        return;
    }
    const struct precompile_setup setup = {.device = r->opt.device,
                                           .look = runner_look(r),
                                           .openings = true,
                                           .cache_dir = r->opt.cache_dir,
                                           .threads = r->threads};
    enum phase before = timeline_enter(&r->timeline, PHASE_PLAN);
    snprintf(p.compiler, sizeof(p.compiler), "%s", r->compiler->ops->version(r->compiler));
    if (precompile_add_search(&p, &setup, &o->request, &err) == 0) {
        want_all(r, &p);
    }
    precompile_plan_deinit(&p);
    timeline_enter(&r->timeline, before);
}

void precompile_first_end(struct runner *r)
{
    struct precompile_first *e = &r->precompile_first;
    while (e->n > 0) {
        builds_release(r->builds, e->builds[--e->n]);
    }
    free(e->builds);
    e->builds = NULL;
}
