/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles and runs kernels of grouped_gemm on the cpu device, also with an edited source. */
#ifndef GEMMD_TESTS_UNIT_KERNELS_CPU_RUN_H
#define GEMMD_TESTS_UNIT_KERNELS_CPU_RUN_H

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "tests/unit/kernels/common.h"

static struct device *device;
static struct compiler *compiler;

static inline struct kernel *build(const struct problem *p, const struct record *config,
                                   const char *source)
{
    struct variant v, compiled;
    struct image image;
    struct kernel *k;
    struct rejection why;
    if (grouped_gemm_cpu.check(p, config, &device->info, &why)) {
        fail_msg("%s", why.text);
    }
    assert_ok(grouped_gemm_cpu.variant(p, config, device->info.arch, &v, err));
    compiled = v;
    compiled.source = source ? source : v.source;
    assert_ok(compiler->ops->compile(compiler, &compiled, &image, err));
    assert_ok(device->ops->load(device, &image, &v, &k, &why, err));
    image_deinit(&image);
    return k;
}

static inline void run(const char *problem, const char *config_text, const char *source,
                       struct verdict *verdict)
{
    struct problem p;
    struct record config;
    struct prepared *w;
    struct tolerance tol = {.atol = 1e-2, .rtol = 1e-2};
    problem_of(&p, problem);
    config_of(&config, config_text);
    struct kernel *k = build(&p, &config, source);
    assert_ok(device->ops->prepare(device, &grouped_gemm_family, &p, 42, &w, err));
    assert_ok(device->ops->verify(device, w, k, &config, &tol, verdict, err));
    device->ops->release(device, w);
    device->ops->unload(device, k);
}

/* The kernel's source with `to` in place of the first `from`. The caller frees the text. */
static inline char *edited(const char *from, const char *to)
{
    const char *source = grouped_gemm_cpu_source, *at = strstr(source, from);
    assert_non_null(at);
    char *out = malloc(strlen(source) + strlen(to) + 1);
    size_t before = (size_t)(at - source);
    memcpy(out, source, before);
    strcpy(out + before, to);
    strcat(out, at + strlen(from));
    return out;
}

static inline int setup(void **state)
{
    (void)state;
    families_register();
    assert_ok(device_open("cpu:2", &device, err));
    assert_ok(compiler_open("cpu:2", &compiler, err));
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    compiler->ops->close(compiler);
    device->ops->close(device);
    return 0;
}

#endif
