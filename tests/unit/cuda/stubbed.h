/* SPDX-License-Identifier: Apache-2.0 */
/* Cases over the stubs of CUDA's libraries (tests/cuda_stub), each in a child process: loaded
 * libraries and their environment last for the life of a process. */
#ifndef GEMMD_TESTS_UNIT_CUDA_STUBBED_H
#define GEMMD_TESTS_UNIT_CUDA_STUBBED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/device.h"

static inline void stubs(void)
{
    setenv("GEMMD_LIBCUDA", STUB_CUDA, 1);
    setenv("GEMMD_NVRTC", STUB_NVRTC, 1);
    setenv("GEMMD_LIBNVML", STUB_NVML, 1);
}

/* Prints a child's failure and ends the child. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline void expect(int r, int code, const struct error *err, const char *words)
{
    if (r != code || (words && !strstr(err->text, words))) {
        fprintf(stderr, "got %d (%s), expected %d (%s) with \"%s\"\n", r, err->text, code,
                error_name(code), words ? words : "");
        exit(1);
    }
}

static inline int exit_code(void (*run)(const void *), const void *arg)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        stubs();
        run(arg);
        exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static inline void in_child(void (*run)(const void *), const void *arg)
{
    assert_int_equal(exit_code(run, arg), 0);
}

static inline int live(void)
{
    void *library = dlopen(STUB_CUDA, RTLD_NOW | RTLD_NOLOAD);
    int (*ask)(void) = NULL;
    if (library) {
        *(void **)&ask = dlsym(library, "stub_live");
    }
    return ask ? ask() : 0;
}

static inline void make_problem(struct problem *p)
{
    struct error err = ERROR_NULL;
    expect(problem_parse(p, "grouped_gemm mode=forward M=96 N=64 K=64 experts=4 topk=2", &err), 0,
           &err, NULL);
}

#endif
