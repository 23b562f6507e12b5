/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stubs of libcuda, libnvrtc, libnvidia-ml and libcublas, to reach the error paths of the cuda
 * device without a GPU. The stubs track contexts, modules and memory. A launch computes nothing,
 * unless GEMMD_STUB_EMULATE is set (emulate.h).
 *
 *   GEMMD_STUB_FAIL=<function>:<n>:<code>[,...]  the n-th call of a function fails with this code.
 *                    "*" counts the calls of all functions that can fail.
 *   GEMMD_STUB_DRIVER=<n>     result of cuDriverGetVersion (default 13000).
 *   GEMMD_STUB_DEVICES=<n>    number of GPUs (default 1).
 *   GEMMD_STUB_MODE=<n>       compute mode of the GPUs.
 *   GEMMD_STUB_UUID=<n>       first 4 bytes of each UUID, for GPUs of another host; 0: no change.
 *   GEMMD_STUB_SMEM=<n>       static shared memory of every function, in bytes.
 *   GEMMD_STUB_FREE=<n>       bytes of GPU memory for allocations (default 1 GiB).
 *   GEMMD_STUB_NO_CONTEXT=1   no context is current until the caller creates a context.
 *   GEMMD_STUB_NVRTC=<n>      version of NVRTC, 1000 * major + 10 * minor (default 13000).
 *   GEMMD_STUB_LOG=<text>     NVRTC's log (messages) of every compile.
 *   GEMMD_STUB_TALLY=<file>   each compile appends a byte.
 *   GEMMD_STUB_PIDS=<file>    each compile appends a line with the process ID.
 *   GEMMD_STUB_MS=<n>         each compile sleeps n ms (default 0).
 *   GEMMD_STUB_SIGNAL=<n>     each compile raises this signal.
 *   GEMMD_STUB_MHZ, GEMMD_STUB_THROTTLE (bits), GEMMD_STUB_BUSY (percent), GEMMD_STUB_FREE_MIB,
 *   GEMMD_STUB_PROCESSES      NVML's values for the GPU.
 *   GEMMD_STUB_GATE=<file>    cuInit, and each allocation of a MiB or more, appends a byte to the
 *                             file, and waits while the file exists.
 *   GEMMD_STUB_ORDER=1        the order of thread blocks on SMs can be probed (libcuda_modules.c).
 *   GEMMD_STUB_CUBLAS_US=<n>  microseconds of a measurement with a cuBLAS product; the default, and
 *                             the time of every other measurement, is 250.
 *   GEMMD_STUB_CLOCKS=<file>  each lock or unlock of clocks appends a line.
 *
 * Instead of a number, variables except CUBLAS_US may hold the absolute path of a file with the
 * number, which a test can change during a run. stub_live() counts the contexts, streams, events,
 * modules and allocations that are not freed.
 */
#ifndef GEMMD_TESTS_CUDA_STUB_H
#define GEMMD_TESTS_CUDA_STUB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The cuBLAS stub sets this variable for the libcuda stub: microseconds of the next measurement. */
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

/* Returns the error code of this call, or 0. `calls` counts the calls of the function. */
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
