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
        return error_set(err, ERROR_NO_COMPILER,
                         "no NVRTC was found when gemmd started: install libnvrtc of a CUDA toolkit "
                         "that the driver %s can run, then restart gemmd",
                         d->device.driver);
    }
    return error_set(err, ERROR_NO_COMPILER,
                     "no C compiler was found when gemmd started: install gcc or clang, or name one "
                     "in GEMMD_CC, then restart gemmd");
}

static int check_restrictions(const struct request *r, const struct param *params, uint32_t n,
                              struct error *err)
{
    for (uint32_t i = 0; i < r->n_restrict; i++) {
        char known[400] = "";
        size_t at = 0;
        bool found = false;
        for (uint32_t k = 0; k < n; k++) {
            found = found || strcmp(r->restrict_[i].name, params[k].name) == 0;
            if (at < sizeof(known)) {
                at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", k ? ", " : "",
                                       params[k].name);
            }
        }
        if (!found) {
            return error_set(err, ERROR_UNKNOWN_FIELD, "restrict: %s is no tunable here; these are: %s",
                             r->restrict_[i].name, known);
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
        return error_set(err, ERROR_NO_CONFIG,
                         "nothing is known of this problem of %s, and gemmd cannot tune that op: "
                         "put a result first",
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
