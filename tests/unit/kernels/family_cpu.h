/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by tests of a family on the CPU: the device, the compiler, and a launcher of the default
 * config. */
#ifndef GEMMD_TESTS_UNIT_KERNELS_FAMILY_CPU_H
#define GEMMD_TESTS_UNIT_KERNELS_FAMILY_CPU_H

#include "tests/unit/kernels/common.h"

static struct device *device;
static struct compiler *compiler;

static const struct family_target *cpu_find_target(const struct problem *p)
{
    const struct family_target *t;
    assert_ok(family_target_choose(family_of_problem(p), p, &device->info, NULL, &t, err));
    return t;
}

static void cpu_open_launcher(const char *text, struct launcher **out)
{
    struct problem p;
    struct record config;
    struct variant v;
    struct image image;
    problem_of(&p, text);
    const struct family_target *t = cpu_find_target(&p);
    assert_ok(t->choose(&p, &device->info, &config, err));
    assert_ok(t->variant(&p, &config, device->info.arch, &v, err));
    assert_ok(compiler->ops->compile(compiler, &v, &image, err));
    assert_ok(
        launcher_new(family_of_problem(&p), &p, &config, image.data, image.size, NULL, out, err));
    image_deinit(&image);
}

static int cpu_setup(void **state)
{
    (void)state;
    families_register();
    assert_ok(device_open("cpu:2", &device, err));
    assert_ok(compiler_open("cpu:2", &compiler, err));
    return 0;
}

static int cpu_teardown(void **state)
{
    (void)state;
    compiler->ops->close(compiler);
    device->ops->close(device);
    return 0;
}

#endif
