/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stubs of libcuda, libnvrtc and libnvidia-ml, to reach the error paths of the cuda device without
 * a GPU. They keep the books (contexts, modules, memory), and compute nothing: a launch does
 * nothing, unless GEMMD_STUB_EMULATE says otherwise (emulate.h).
 *
 *   GEMMD_STUB_FAIL=<function>:<n>:<code>[,...]  the n-th call of a function fails with this code;
 *                    "*" counts the calls of all functions that can fail
 *   GEMMD_STUB_DRIVER=<n>     what cuDriverGetVersion says (default 13000)
 *   GEMMD_STUB_DEVICES=<n>    how many GPUs there are (default 1)
 *   GEMMD_STUB_MODE=<n>       their compute mode
 *   GEMMD_STUB_UUID=<n>       in their UUIDs: GPUs of another host (0: those of this one)
 *   GEMMD_STUB_SMEM=<n>       static shared memory of every function
 *   GEMMD_STUB_FREE=<n>       free GPU memory, bytes (default 1 GiB)
 *   GEMMD_STUB_NO_CONTEXT=1   no context is current until one is created
 *   GEMMD_STUB_NVRTC=<n>      version of NVRTC, 1000 * major + 10 * minor (default 13000)
 *   GEMMD_STUB_LOG=<text>     the log of every compile
 *   GEMMD_STUB_TALLY=<file>   grows by a byte for each compile
 *   GEMMD_STUB_MS=<n>         how long each takes (default 0)
 *   GEMMD_STUB_PIDS=<file>    grows by a line for each compile, the process that does it
 *   GEMMD_STUB_SIGNAL=<n>     each dies of it
 *   GEMMD_STUB_MHZ, GEMMD_STUB_THROTTLE (bits), GEMMD_STUB_BUSY (percent), GEMMD_STUB_FREE_MIB,
 *   GEMMD_STUB_PROCESSES      what NVML says of the GPU
 *   GEMMD_STUB_GATE=<file>    cuInit waits while there is one
 *   GEMMD_STUB_ORDER=1        the driver can be asked where thread blocks lie: clusters of two in
 *                             the order opposite to single blocks; else it cannot
 *   GEMMD_STUB_CUBLAS_US=<n>  what a time that has products of cuBLAS in it takes (others, and by
 *                             default: 250)
 *   GEMMD_STUB_CLOCKS=<file>  grows by a line for each time that clocks are locked or unlocked
 *
 * A number may be in a file, whose absolute path is given instead: it may change meanwhile.
 * stub_live() says how many contexts, streams, events, modules and allocations are not freed.
 */
#ifndef GEMMD_TESTS_CUDA_STUB_H
#define GEMMD_TESTS_CUDA_STUB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The process tells itself: of the time that is read next. */
#define STUB_TIME   "GEMMD_STUB_TIME_IS"
#define STUB_EXPORT __attribute__((visibility("default")))

static inline long stub_number(const char *name, long fallback)
{
    const char *text = getenv(name);
    char read[32];
    FILE *f = text && text[0] == '/' ? fopen(text, "r") : NULL;
    if (f) {
        text = fgets(read, sizeof(read), f);
        fclose(f);
    }
    return text ? strtol(text, NULL, 0) : fallback;
}

/* The code that this call must fail with, or 0. `calls` counts those of the function. */
static inline int stub_fails(const char *function, int *calls, int *all_calls)
{
    const char *at = getenv("GEMMD_STUB_FAIL");
    int nth = __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED);
    int nth_of_all = __atomic_add_fetch(all_calls, 1, __ATOMIC_RELAXED);
    for (; at && *at; at += strcspn(at, ","), at += *at == ',') {
        char name[64];
        int n, code;
        if (sscanf(at, "%63[^:]:%d:%d", name, &n, &code) != 3) {
            continue;
        }
        if ((strcmp(name, "*") == 0 && nth_of_all == n) ||
            (strcmp(name, function) == 0 && nth == n)) {
            return code;
        }
    }
    return 0;
}

#define STUB_MAY_FAIL(type)                                                                        \
    do {                                                                                           \
        static int calls;                                                                          \
        int code = stub_fails(__func__, &calls, &stub_calls);                                      \
        if (code) {                                                                                \
            return (type)code;                                                                     \
        }                                                                                          \
    } while (0)

#endif
