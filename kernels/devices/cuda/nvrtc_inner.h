/* SPDX-License-Identifier: Apache-2.0 */
/* NVRTC inside: what nvrtc_find.c finds, nvrtc.c calls and ptxas.c judges. */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_NVRTC_INNER_H
#define GEMMD_KERNELS_DEVICES_CUDA_NVRTC_INNER_H

#include <nvrtc.h>

#include "kernels/devices/cuda/nvrtc.h"

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

struct cuda_nvrtc {
    int major, minor;
    char name[32];
#define X(member, function) __typeof__(&function) member;
    NVRTC_FUNCTIONS(X)
#undef X
};

/* ptxas.c: whether what ptxas said of a cubin, in the log and in m, is good enough to be run. 0, or
 * ERROR_RESOURCE. */
int cuda_ptxas_judge(const char *log, const struct module *m, struct error *err);

#endif
