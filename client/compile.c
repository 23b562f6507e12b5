/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel without a daemon: the variant of a config compiled in this process. That takes a second,
 * so it goes through the module cache that gemmd itself uses: of ranks that start together one
 * compiles, the others wait for it, and the next start finds it there. Where there is no cache
 * directory, or others may write to it, each compiles for itself.
 */
#include <stdio.h>
#include <string.h>

#include "client/ask.h"
#include "client/find.h"
#include "client/handle.h"
#include "client/kernel.h"
#include "kernels/launcher.h"
#include "kernels/modules.h"

struct recipe {
    struct problem problem;
    struct record config;
    struct device_info info;
    struct variant variant;
};

static int compile_find_device(const char *spec, struct device_info *out, struct error *err)
{
    bool cpu = spec && strncmp(spec, "cpu", 3) == 0;
    if (!cpu && find_current_cuda(out)) {
        return 0;
    }
    if (spec && !cpu) {
        return error_set(err, ERROR_NO_DEVICE,
                         "no CUDA context is current in this thread, so no kernel can be made for "
                         "%s: call cudaSetDevice first",
                         spec);
    }
    return cpu_launch_backend.info(out, err);
}

static int compile_choose_target(struct recipe *r, const struct family *f,
                                 const struct family_target **out, struct error *err)
{
    int status = family_target_choose(f, &r->problem, &r->info, NULL, out, err);
    return status ? status : (*out)->choose(&r->problem, &r->info, &r->config, err);
}

static int compile_read_config(struct recipe *r, const struct family *f, const char *text,
                               const struct family_target **out, struct error *err)
{
    struct rejection why;
    int status = record_parse(&r->config, text, err);
    if (status) {
        return status;
    }
    *out = family_target_of_config(f, &r->problem, &r->info, &r->config, &why);
    return *out ? 0
                : error_set(err, why.code, "the config is not one of this library's kernels: %s",
                            why.text);
}

static int compile_plan_recipe(struct recipe *r, const char *device,
                               const struct gemmd_problem *problem, const char *config,
                               struct error *err)
{
    const struct family_target *t;
    int status = ask_to_problem(problem, &r->problem, err);
    status = status ? status : compile_find_device(device, &r->info, err);
    if (status) {
        return status;
    }
    const struct family *f = family_of_problem(&r->problem);
    if (!f) {
        return error_set(err, ERROR_UNKNOWN_OP, "kernels of op %s cannot be made by this library",
                         r->problem.op_name);
    }
    status = config && *config ? compile_read_config(r, f, config, &t, err)
                               : compile_choose_target(r, f, &t, err);
    return status ? status : t->variant(&r->problem, &r->config, r->info.arch, &r->variant, err);
}

static int compile_make_module(const struct recipe *r, struct compiler *compiler,
                               struct modules_made *out, struct error *err)
{
    char cache_dir[PATHS_MAX], hash[HASH_HEX];
    struct error why = ERROR_NULL;
    variant_hash(&r->variant, compiler->ops->version(compiler), hash);
    if (paths_cache_dir(cache_dir, &why) || paths_check_cache_dir(cache_dir, &why)) {
        fprintf(stderr, "variant %s is not cached: %s\n", hash, why.text);
        return compiler->ops->compile(compiler, &r->variant, &out->image, err);
    }
    const struct modules_order order = {.compiler = compiler,
                                        .cache_dir = cache_dir,
                                        .variant = &r->variant,
                                        .hash = hash,
                                        .wait_ms = MODULES_WAIT_MS};
    return modules_make(&order, out, err);
}

static int compile_build_module(const struct recipe *r, struct modules_made *out, struct error *err)
{
    struct compiler *compiler;
    int status = compiler_open(r->info.kind, &compiler, err);
    if (status) {
        return status;
    }
    status = compile_make_module(r, compiler, out, err);
    compiler->ops->close(compiler);
    return status;
}

int kernel_compile(const char *device, const struct gemmd_problem *problem, const char *config,
                   struct gemmd_kernel **out, struct error *err)
{
    struct recipe r;
    struct modules_made made = {.found = false};
    int status = compile_plan_recipe(&r, device, problem, config, err);
    status = status ? status : compile_build_module(&r, &made, err);
    status = status
                 ? status
                 : kernel_make(&r.problem, &r.config, made.image.data, made.image.size, out, err);
    image_deinit(&made.image);
    return status;
}

int gemmd_kernel_compile(const char *device, const struct gemmd_problem *problem,
                         const char *config, struct gemmd_kernel **out, struct gemmd_error *err)
{
    struct error e;
    struct ask a;
    int r = out ? 0 : error_set(&e, ERROR_INVALID, "there is no place for the kernel (NULL)");
    if (r == 0) {
        *out = NULL;
    }
    r = r ? r : ask_problem(&a, problem, &e);
    r = r ? r : kernel_compile(device, &a.problem, config, out, &e);
    return handle_result(r, &e, err);
}
