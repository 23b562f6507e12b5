/* SPDX-License-Identifier: Apache-2.0 */
/* Cheap checks before a job is made (target.h). */
#include <stdio.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/answers/target.h"
#include "kernels/devices/cpu/cpu.h"
#include "kernels/space.h"

static int no_compiler(const struct daemon *d, struct error *err)
{
    if (strcmp(d->device.kind, "cuda") == 0) {
        return error_set(
            err, ERROR_NO_COMPILER,
            "no NVRTC was found when gemmd started: install libnvrtc of a CUDA toolkit "
            "that the driver %s can run, then restart gemmd",
            d->device.driver);
    }
    struct error why = ERROR_NULL; /* the runner looks for the compiler in the same environment */
    return cpu_compiler_find(&why)
               ? error_set(err, ERROR_NO_COMPILER, "%.400s; then restart gemmd", why.text)
               : error_set(
                     err, ERROR_NO_COMPILER,
                     "the C compiler was installed after gemmd's start, or reported no version "
                     "(-dumpversion) then: restart gemmd");
}

/* A list with a valid config passes; the runner records the fault of each other config. */
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

int precheck_request(struct daemon *d, const struct request *r, struct error *err)
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
    status = space_check_request(t, r, &d->device, err);
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
    if (r->n_configs) {
        return 0;
    }
    int status = target_choose(d, &r->problem, r->query.target, &t, err);
    return status < 0
               ? status
               : defaults_choose(&d->defaults, t, &r->problem, &d->scratch->config, NULL, err);
}
