/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/ready.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/hopper/cubins.h"
#include "tests/gpu/hopper/report.h"

static const float NORM_MAX = 5e-3f; /* limit of a row's relative error (norm) */

/* ---- made ready */

static int make_plan(struct launch_plan *plan, struct data *d, const struct record *config,
                     const struct device_info *info, struct error *err)
{
    int r = hopper_plan(&d->problem, config, info, &d->args, plan, err);
    if (r && plan->workspace_bytes > 0 && (size_t)plan->workspace_bytes > d->workspace_bytes) {
        data_workspace(d, plan->workspace_bytes);
        r = hopper_plan(&d->problem, config, info, &d->args, plan, err);
    }
    return r;
}

/* Makes the plans, and the real plan again if the workspace was enlarged: plans hold its address.
 */
static int make_plans(struct ready *r, struct data *d, const struct record *config,
                      const struct device_info *info, int few, struct error *err)
{
    struct device_info small = *info;
    int bad = make_plan(&r->plans[PLAN_ALL], d, config, info, err);
    if (bad || few == 0) {
        return bad;
    }
    const void *workspace = d->workspace;
    small.sm_count = few;
    bad = make_plan(&r->plans[PLAN_FEW], d, config, &small, err);
    if (bad == 0 && d->workspace != workspace) {
        bad = make_plan(&r->plans[PLAN_ALL], d, config, info, err);
    }
    return bad;
}

enum tally ready_make(struct ready *r, struct lab *lab, struct data *d, const struct record *config,
                      const struct variant *v, int few, const char *name)
{
    struct error err = ERROR_NULL;
    void *cubin;
    char why[512];
    *r = (struct ready){0};
    if (make_plans(r, d, config, &lab->info, few, &err)) {
        say("FAILED %s: plan: %s\n", name, err.text);
        return WRONG;
    }
    switch (cubin_get(v, &cubin, why, sizeof(why))) {
    case CUBIN_HERE:
        gpu_load(&r->module, cubin);
        free(cubin);
        return RIGHT;
    case CUBIN_REFUSED:
        return REFUSED;
    case CUBIN_BROKEN:
        break;
    }
    say("BROKEN %s: %s\n", name, why);
    return WRONG;
}

void ready_launch(struct ready *r, enum plan plan)
{
    for (uint32_t i = 0; i < r->plans[plan].n; i++) {
        gpu_launch(&r->module, &r->plans[plan].steps[i]);
    }
}

void ready_free(struct ready *r)
{
    gpu_unload(&r->module);
}

/* ---- judged */

static bool is_right(const struct data *d, const struct findings *f, char *text, size_t size)
{
    float norm;
    memcpy(&norm, &f->norm_bits, sizeof(norm));
    snprintf(text, size,
             "norm %.3g, %u beyond tolerance, %u NaN, first row %d, %u units outside, %u compared",
             (double)norm, f->wrong, f->nan, (int)f->row - 1, f->outside, f->compared);
    const bool something = f->compared > 0 || d->out.rows == 0;
    return something && norm <= NORM_MAX && !f->wrong && !f->nan && !f->outside;
}

bool ready_right(struct ready *r, struct lab *lab, struct data *d, const char *name, bool save,
                 char *finding, size_t size)
{
    for (int plan = 0; plan < PLANS; plan++) {
        struct findings f = {0};
        data_poison(d);
        data_poison_workspace(d);
        ready_launch(r, (enum plan)plan);
        gpu_wait();
        progress_beat();
        data_compare(d, &lab->tools, &f);
        if (!is_right(d, &f, finding, size)) {
            say("WRONG %s: %s: %s\n", name, plan == PLAN_ALL ? "launch" : "few thread blocks",
                finding);
            return false;
        }
        if (save) {
            data_save(d, plan);
        }
    }
    return true;
}

bool ready_steady(struct ready *r, struct lab *lab, struct data *d, int launches, const char *name)
{
    enum { SOME = 100 };
    data_again_begin(d);
    for (int i = 0; i < launches; i++) {
        const int plan = i % PLANS;
        ready_launch(r, (enum plan)plan);
        data_again(d, &lab->tools, plan);
        progress_beat();
        if (i % SOME == SOME - 1) {
            gpu_wait(); /* notices a hanging launch before thousands more are queued */
        }
    }
    const uint32_t differed = data_differed(d);
    if (differed) {
        say("UNSTEADY %s: %u units of 16 bytes differed in %d launches\n", name, differed,
            launches);
    }
    return differed == 0;
}
