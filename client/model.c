/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/answer.h"
#include "client/model.h"
#include "kernels/device.h"

static bool allowed(const struct request *r, const struct record *config)
{
    bool listed = r->n_configs == 0;
    for (uint32_t i = 0; i < r->n_configs; i++) {
        listed = listed || record_equal(&r->configs[i], config);
    }
    return listed && request_allows(r, config);
}

/* Whether the ask allows the config. Most allow all, and are not read once more for that. */
static int check_allowed(const struct ask *a, const struct record *config, bool *ok,
                         struct error *err)
{
    *ok = true;
    if (!a->query.restrict_json && !a->query.configs_json) {
        return 0;
    }
    struct request request = {0};
    struct wire_doc *doc = wire_doc_new();
    int r = doc ? ask_to_request(a, doc, &request, err)
                : error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    *ok = r || allowed(&request, config);
    request_deinit(&request);
    wire_doc_free(doc);
    return r;
}

static int choose(const struct problem *p, const struct device_info *info, const char *target,
                  struct gemmd_answer *a, struct record *config, struct error *err)
{
    const struct family *f = family_of_problem(p);
    if (!f) {
        return error_set(err, ERROR_UNKNOWN_OP, "no kernels for op %s are known here", p->op_name);
    }
    const struct family_target *t;
    int r = family_target_choose(f, p, info, target, &t, err);
    r = r ? r : t->choose(p, info, config, err);
    if (r) {
        return r;
    }
    snprintf(a->family, sizeof(a->family), "%s", f->name);
    snprintf(a->target, sizeof(a->target), "%s", t->label);
    if (info->peak_tflops > 0 && info->peak_gbps > 0) {
        a->floor_us = family_floor_us(f, p, info);
    }
    return answer_set_config(a, config, err);
}

int model_answer(const struct ask *a, const struct device_info *info, const char *why,
                 struct gemmd_answer *out, struct error *err)
{
    struct problem problem;
    struct record config;
    bool ok;
    int r = ask_to_problem(&a->problem, &problem, err);
    if (r) {
        return r;
    }
    *out = answer_none();
    r = choose(&problem, info, a->query.target, out, &config, err);
    r = r ? r : check_allowed(a, &config, &ok, err);
    if (r) {
        return r;
    }
    snprintf(out->tier, sizeof(out->tier), "default");
    snprintf(out->source, sizeof(out->source), "model");
    out->local = true;
    /* What is wrong with it goes first: `why` may be cut. */
    snprintf(out->note, sizeof(out->note), "analytic default for %.40s%s: %s", info->name,
             ok ? "" : ", which is not what is allowed", why);
    return 0;
}
