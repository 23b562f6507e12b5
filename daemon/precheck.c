/* SPDX-License-Identifier: Apache-2.0 */
/* Cheap questions to the family before a job is made (precheck.h). */
#include <stdio.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/precheck.h"
#include "daemon/target.h"

static int no_compiler(const struct daemon *d, struct error *err)
{
    if (strcmp(d->device.kind, "cuda") == 0) {
        return error_set(
            err, ERROR_NO_COMPILER,
            "no NVRTC was found when gemmd started: install libnvrtc of a CUDA toolkit "
            "that the driver %s can run, then restart gemmd",
            d->device.driver);
    }
    return error_set(
        err, ERROR_NO_COMPILER,
        "no C compiler was found when gemmd started: install gcc or clang, or name one "
        "in GEMMD_CC, then restart gemmd");
}

/* A value of another type is a mistake; one that this problem's space does not have need not be: a
 * list may serve several problems. */
static int check_values(const struct restriction *r, const struct param *p, struct error *err)
{
    for (uint32_t i = 0; i < r->n; i++) {
        char asked[48], one[48];
        if (p->n && r->values[i].type != p->values[0].type) {
            value_format(&r->values[i], asked, sizeof(asked));
            value_format(&p->values[0], one, sizeof(one));
            return error_set(err, ERROR_INVALID, "restrict: %s takes values such as %s, not %s",
                             r->name, one, asked);
        }
    }
    return 0;
}

static int check_restrictions(const struct request *r, const struct param *params, uint32_t n,
                              struct error *err)
{
    for (uint32_t i = 0; i < r->n_restrict; i++) {
        char known[400] = "";
        size_t at = 0;
        const struct param *found = NULL;
        for (uint32_t k = 0; k < n; k++) {
            found = strcmp(r->restrict_[i].name, params[k].name) == 0 ? &params[k] : found;
            if (at < sizeof(known)) {
                at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", k ? ", " : "",
                                       params[k].name);
            }
        }
        if (!found) {
            return error_set(err, ERROR_UNKNOWN_FIELD,
                             "restrict: %s is no tunable here; these are: %s", r->restrict_[i].name,
                             known);
        }
        int status = check_values(&r->restrict_[i], found, err);
        if (status < 0) {
            return status;
        }
    }
    return 0;
}

/* Of a list, the runner records what is wrong with each; here one good config is enough. */
static int check_given(const struct daemon *d, const struct family_target *t,
                       const struct request *r, const struct problem *bucket, struct error *err)
{
    struct rejection first = {0};
    for (uint32_t i = 0; i < r->n_configs; i++) {
        struct rejection why;
        if (t->check(bucket, &r->configs[i], &d->device, &why) == 0) {
            return 0;
        }
        first = i == 0 ? why : first;
    }
    return error_set(err, first.code, "%s", first.text);
}

int precheck(struct daemon *d, const struct request *r, struct error *err)
{
    const struct problem *bucket = &r->problem;
    const struct family *f = family_of_problem(bucket);
    if (!f) {
        return error_set(
            err, ERROR_NO_CONFIG,
            "gemmd has no kernels for the op %s and cannot measure it: put a result, which is "
            "answered from then on",
            bucket->op_name);
    }
    const struct family_target *t;
    int status = target_choose(d, bucket, r->query.target, &t, err);
    if (status < 0) {
        return status;
    }
    struct param params[PARAMS_MAX];
    uint32_t n = t->params(bucket, &d->device, params);
    status = check_restrictions(r, params, n, err);
    if (status == 0 && r->n_configs) {
        status = check_given(d, t, r, bucket, err);
    }
    if (status == 0 && !d->device.compiler[0]) {
        status = no_compiler(d, err);
    }
    return status;
}

int precheck_space(struct daemon *d, const struct request *r, struct error *err)
{
    const struct family_target *t;
    int status = r->n_configs ? 0 : target_choose(d, &r->problem, r->query.target, &t, err);
    return status < 0 || r->n_configs
               ? status
               : defaults_choose(&d->defaults, t, &r->problem, &d->scratch->config, err);
}
