/* SPDX-License-Identifier: Apache-2.0 */
/* NVRTC, opened at run time: CUDA source to cubins. It needs neither a GPU nor a driver. */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_NVRTC_H
#define GEMMD_KERNELS_DEVICES_CUDA_NVRTC_H

#include <nvrtc.h>

#include "kernels/device.h"

/* The best kernels known spill a little; more is a bad config. */
enum { CUDA_SPILL_BYTES_MAX = 16 };

#define NVRTC_FUNCTIONS(X)                                                                         \
    X(version, nvrtcVersion)                                                                       \
    X(error_string, nvrtcGetErrorString)                                                           \
    X(create, nvrtcCreateProgram)                                                                  \
    X(destroy, nvrtcDestroyProgram)                                                                \
    X(compile, nvrtcCompileProgram)                                                                \
    X(log_size, nvrtcGetProgramLogSize)                                                            \
    X(log, nvrtcGetProgramLog)                                                                     \
    X(cubin_size, nvrtcGetCUBINSize)                                                               \
    X(cubin, nvrtcGetCUBIN)                                                                        \
    X(arch_count, nvrtcGetNumSupportedArchs)                                                       \
    X(archs, nvrtcGetSupportedArchs)

/* The functions of a library, which is never closed. */
struct cuda_nvrtc {
    int major, minor;
    char name[32]; /* "nvrtc 13.0" */
#define X(member, function) __typeof__(&function) member;
    NVRTC_FUNCTIONS(X)
#undef X
};

/* The best library for a driver that supports CUDA `driver_version` (12080 = 12.8; 0: no driver,
 * any library will do). A cubin loads on drivers of NVRTC's own major version or a later one, so
 * newer libraries than the driver are passed over. $GEMMD_NVRTC names the one to use. Thread-safe.
 * ERROR_NO_COMPILER says what was found and what to do. */
int cuda_nvrtc_open(int driver_version, struct cuda_nvrtc *out, struct error *err);

/* Thread-safe. As compiler_ops.compile; meta.variant and compile_ms are filled in too. */
int cuda_nvrtc_compile(const struct cuda_nvrtc *n, const struct variant *v, struct image *out,
                       struct error *err);

/* What ptxas said of registers, spills and shared memory (the most of all functions), into m; -1
 * for registers where the log says nothing. 0, or ERROR_RESOURCE: not good enough to be run. */
int cuda_ptxas_judge(const char *log, struct module *m, struct error *err);

#endif
