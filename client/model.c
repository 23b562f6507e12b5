/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/answer.h"
#include "client/model.h"
#include "kernels/device.h"

static int choose(const struct problem *p, const struct device_info *info, const char *target,
                  struct gemmd_answer *a, struct error *err)
{
    const struct family *f = family_of_problem(p);
    if (!f) {
        return error_set(err, ERROR_UNKNOWN_OP, "no kernels for op %s are known here", p->op_name);
    }
    const struct family_target *t;
    struct record config;
    int r = family_target_choose(f, p, info, target, &t, err);
    r = r ? r : t->choose(p, info, &config, err);
    if (r) {
        return r;
    }
    snprintf(a->family, sizeof(a->family), "%s", f->name);
    snprintf(a->target, sizeof(a->target), "%s", t->label);
    if (info->peak_tflops > 0 && info->peak_gbps > 0) {
        a->floor_us = family_floor_us(f, p, info);
    }
    return answer_set_config(a, &config, err);
}

int model_answer(const struct gemmd_problem *p, const struct device_info *info, const char *target,
                 const char *why, struct gemmd_answer *out, struct error *err)
{
    struct problem problem;
    int r = ask_to_problem(p, &problem, err);
    if (r) {
        return r;
    }
    *out = answer_none();
    r = choose(&problem, info, target, out, err);
    if (r) {
        return r;
    }
    snprintf(out->tier, sizeof(out->tier), "default");
    snprintf(out->source, sizeof(out->source), "model");
    out->local = true;
    snprintf(out->note, sizeof(out->note), "analytic default for %.40s: %s", info->name, why);
    return 0;
}
