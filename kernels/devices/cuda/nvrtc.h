/* SPDX-License-Identifier: Apache-2.0 */
/* NVRTC, opened at run time: CUDA source to cubins. It needs neither a GPU nor a driver. */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_NVRTC_H
#define GEMMD_KERNELS_DEVICES_CUDA_NVRTC_H

#include "kernels/device.h"

enum {
    CUDA_SPILL_BYTES_MAX = 16
}; /* the best kernels known spill a little; more is a bad config */

struct cuda_nvrtc; /* one per process, never closed */

/* The best library for a driver that supports CUDA `driver_version` (12080 = 12.8; 0: no driver,
 * any library will do). A cubin loads on drivers of NVRTC's own major version or a later one, so
 * newer libraries than the driver are passed over. $GEMMD_NVRTC names the one to use. Thread-safe.
 * ERROR_NO_COMPILER says what was found and what to do. */
int cuda_nvrtc_open(int driver_version, const struct cuda_nvrtc **out, struct error *err);

const char *cuda_nvrtc_name(const struct cuda_nvrtc *n); /* "nvrtc 13.0" */
/* The same without an error: "" when there is none. */
void cuda_nvrtc_version(int driver_version, char *out, size_t size);

/* Thread-safe. As compiler_ops.compile; meta.variant and compile_ms are filled in too. */
int cuda_nvrtc_compile(const struct cuda_nvrtc *n, const struct variant *v, struct image *out,
                       struct error *err);

/* What ptxas said of registers, spills and shared memory (the most of all functions), into m; -1
 * for registers where the log says nothing. */
void cuda_ptxas_read(const char *log, struct module *m);

#endif
