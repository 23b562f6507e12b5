/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of kernels/: problems and configs from text, and expected errors. */
#ifndef GEMMD_TESTS_UNIT_KERNELS_COMMON_H
#define GEMMD_TESTS_UNIT_KERNELS_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/device.h"
#include "kernels/launcher.h"

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        struct error ok_err = ERROR_NULL;                                                          \
        struct error *err = &ok_err;                                                               \
        if ((call) != 0) {                                                                         \
            fail_msg("%s: %s: %s", #call, error_name(err->code), err->text);                       \
        }                                                                                          \
    } while (0)

/* The call, which uses `err`, fails with this code and an error message that holds this text. */
#define assert_fails(call, expected, part)                                                         \
    do {                                                                                           \
        struct error fail_err = ERROR_NULL;                                                        \
        struct error *err = &fail_err;                                                             \
        int fail_code = (call);                                                                    \
        if (fail_code != (expected) || err->code != (expected) || !strstr(err->text, (part))) {    \
            fail_msg("%s: got %d \"%s\", expected %d with \"%s\"", #call, fail_code, err->text,    \
                     (expected), (part));                                                          \
        }                                                                                          \
    } while (0)

static inline void problem_of(struct problem *p, const char *text)
{
    assert_ok(problem_parse(p, text, err));
}

static inline void config_of(struct record *config, const char *text)
{
    assert_ok(record_parse(config, text, err));
}

/* A fixed device: tests of rules and spaces must not depend on this machine. */
static inline struct device_info cpu_like(void)
{
    struct device_info info = {.kind = "cpu",
                               .name = "test",
                               .uuid = "cpu",
                               .arch = "x86_64",
                               .sm_count = 4,
                               .smem_optin = 1 << 20,
                               .l2_bytes = 32 << 20,
                               .memory_bytes = INT64_C(16) << 30,
                               .clock_khz = 3000000,
                               .peak_tflops = 0.5,
                               .peak_gbps = 30};
    device_class_format(&info);
    return info;
}

#endif
