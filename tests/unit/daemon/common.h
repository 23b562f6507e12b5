/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by these tests: cmocka, a temporary folder, a problem. */
#ifndef GEMMD_TESTS_UNIT_DAEMON_COMMON_H
#define GEMMD_TESTS_UNIT_DAEMON_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/family.h"
#include "proto/problem.h"

static inline void assert_ok(int status, const struct error *err)
{
    if (status) {
        fail_msg("status %d: %s", status, err->text);
    }
}

/* "grouped_gemm mode=forward M=..." */
static inline void make_problem(struct problem *p, const char *text)
{
    struct error err = ERROR_NULL;
    assert_ok(problem_parse(p, text, &err), &err);
}

struct folder {
    char path[64];
};

static inline struct folder folder_make(void)
{
    struct folder f;
    strcpy(f.path, "/tmp/gemmd-test-XXXXXX");
    assert_non_null(mkdtemp(f.path));
    return f;
}

static inline void folder_remove(const struct folder *f)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -rf '%s'", f->path);
    assert_int_equal(system(command), 0);
}

#endif
