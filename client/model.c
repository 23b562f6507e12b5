/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/answer.h"
#include "client/get.h"
#include "kernels/allowed.h"
#include "kernels/device.h"

/* Adapts the config to the query's restrict and configs; *ok: the config is allowed now. Queries
 * without limits skip the unpacking. */
static int keep_within(const struct ask *a, const struct problem *p,
                       const struct family_target *target, const struct device_info *info,
                       struct record *config, bool *ok, struct error *err)
{
    *ok = true;
    if (!a->query.restrict_json && !a->query.configs_json) {
        return 0;
    }
    struct request request = {0};
    struct wire_doc *doc = wire_doc_new();
    int r = doc ? ask_to_request(a, doc, &request, err)
                : error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    const struct allowed_place at = {.problem = p, .target = target, .info = info};
    *ok = r || allowed_within(&request, &at, config);
    request_deinit(&request);
    wire_doc_free(doc);
    return r;
}

/* The problem with the config goes first, because the note may cut `why`. The device's name is left
 * out when it would cut `why`, which says how to act. */
static void write_note(struct gemmd_answer *out, const struct device_info *info, bool ok,
                       const char *why)
{
    char device[48];
    const char *limits = ok ? "" : ", which is not what is allowed";
    snprintf(device, sizeof(device), " for %.40s", info->name);
    const size_t all = strlen("analytic default: ") + strlen(device) + strlen(limits) + strlen(why);
    snprintf(out->note, sizeof(out->note), "analytic default%s%s: %s",
             all < sizeof(out->note) ? device : "", limits, why);
}

int model_answer(const struct ask *a, const struct device_info *info, const char *why,
                 struct gemmd_answer *out, struct error *err)
{
    struct problem problem;
    struct record config;
    const struct family_target *target;
    bool ok;
    int r = ask_to_problem(&a->problem, &problem, err);
    if (r) {
        return r;
    }
    const struct family *family = family_of_problem(&problem);
    if (!family) {
        return error_set(err, ERROR_UNKNOWN_OP, "no kernels for op %s are known here",
                         problem.op_name);
    }
    *out = answer_none();
    r = family_target_choose(family, &problem, info, a->query.target, &target, err);
    r = r ? r : target->choose(&problem, info, &config, err);
    r = r ? r : keep_within(a, &problem, target, info, &config, &ok, err);
    r = r ? r : answer_set_config(out, &config, err);
    if (r) {
        return r;
    }
    snprintf(out->family, sizeof(out->family), "%s", family->name);
    snprintf(out->target, sizeof(out->target), "%s", target->label);
    if (info->peak_tflops > 0 && info->peak_gbps > 0) {
        out->floor_us = family_floor_us(family, &problem, info);
    }
    snprintf(out->tier, sizeof(out->tier), "default");
    snprintf(out->source, sizeof(out->source), "model");
    out->local = true;
    write_note(out, info, ok, why);
    return 0;
}
