/* SPDX-License-Identifier: Apache-2.0 */
/* NVRTC, opened at run time: compiles CUDA source to cubins. Needs neither a GPU nor a driver. */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_NVRTC_H
#define GEMMD_KERNELS_DEVICES_CUDA_NVRTC_H

#include <nvrtc.h>

#include "kernels/device.h"

/* Most bytes of registers that a kernel may spill: the best kernels spill a little, and configs
 * that spill more are slow. */
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

/* The functions of an NVRTC library, which stays open. */
struct cuda_nvrtc {
    int major, minor;
    char name[32]; /* "nvrtc 13.0" */
#define X(member, function) __typeof__(&function) member;
    NVRTC_FUNCTIONS(X)
#undef X
};

/* Opens the best library for a driver that supports CUDA `driver_version` (12080 = 12.8; 0: no
 * driver, any library). A cubin loads on drivers of NVRTC's own major version or later, so
 * libraries newer than the driver are skipped. $GEMMD_NVRTC names a library. Thread-safe.
 * ERROR_NO_COMPILER names the libraries found and the remedy. */
int cuda_nvrtc_open(int driver_version, struct cuda_nvrtc *out, struct error *err);

/* Thread-safe. Compiles as compiler_ops.compile does; also fills meta.variant and compile_ms. */
int cuda_nvrtc_compile(const struct cuda_nvrtc *n, const struct variant *v, struct image *out,
                       struct error *err);

/* Reads ptxas's registers, spills and shared memory (each the maximum of all functions) into m;
 * registers are -1 when the log has none. 0, or ERROR_RESOURCE: the kernel is too bad to run. */
int cuda_ptxas_judge(const char *log, struct module *m, struct error *err);

#endif
