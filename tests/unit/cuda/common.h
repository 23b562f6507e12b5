/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the cuda targets: problems and configs from text. */
#ifndef GEMMD_TESTS_UNIT_CUDA_COMMON_H
#define GEMMD_TESTS_UNIT_CUDA_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "proto/problem.h"
#include "tests/unit/cuda/h200.h"

enum { PROBLEM_TEXT_MAX = 9000 };

/* "mode=forward M=..." of grouped_gemm. */
static inline struct problem problem_of(const char *text)
{
    struct problem p;
    struct error err = ERROR_NULL;
    char full[PROBLEM_TEXT_MAX];
    snprintf(full, sizeof(full), "grouped_gemm %s", text);
    if (problem_parse(&p, full, &err)) {
        fail_msg("%s: %s", full, err.text);
    }
    return p;
}

static inline struct record config_of(const char *text)
{
    struct record r;
    struct error err = ERROR_NULL;
    if (record_parse(&r, text, &err)) {
        fail_msg("%s", err.text);
    }
    return r;
}

#endif
