/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the cuda device: declarations shared by its files.
 *
 *   driver.c   libcuda as function pointers; CUDA's errors as gemmd's
 *   nvml.c     state and clocks through NVML
 *   health.c   the GPU's state and its other users
 *   nvrtc*.c   finds and calls libnvrtc; the compiler of this device
 *   ptxas.c    reads ptxas's report in the log
 *   probe.c    describes a GPU without a context
 *   module.c   a loaded cubin and its launches
 *   order.c    the order in which the GPU deals clusters to its SMs
 *   launch.c   modules and launches for a training job's launcher
 *   device.c   the device's context; loading candidates
 *   helpers.c  tools.cu and the op's reference, as modules
 *   prepare.c  a problem on the GPU: memory, tools.cu's small kernels, timing
 *   baseline.c times the same work as dense products of the vendor's library
 *
 * One thread calls a device. The device has a context of its own, not the primary context: a
 * candidate can poison the context, and then the process exits without loss.
 */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_GPU_H
#define GEMMD_KERNELS_DEVICES_CUDA_GPU_H

#include "kernels/device.h"
#include "kernels/devices/cuda/driver.h"
#include "kernels/devices/cuda/module.h"
#include "kernels/devices/cuda/nvrtc.h"
#include "kernels/devices/prepared.h"

extern const char cuda_tools_source[]; /* tools.cu */

enum { CUDA_UNWRITTEN, CUDA_GUARD_BEFORE, CUDA_GUARD_BEHIND, CUDA_COUNTERS };

struct cuda_helper {
    struct cuda_module module;
    const char *source; /* borrowed, static: the source of the loaded module */
};

struct cuda_device {
    struct device base; /* first member: its address is the struct's */
    CUdevice device;
    struct nvml *nvml;        /* owned; NULL: no NVML */
    struct cuda_watch *watch; /* owned; thread that samples NVML while a problem is prepared */
    /* the time, in ms of the device's clock, at which the last problem was released */
    double left_ms;
    CUcontext context;                   /* owned; NULL until the first load or prepare */
    CUstream stream;                     /* owned; the device's only stream */
    CUevent begin, end;                  /* owned */
    struct cuda_helper tools, reference; /* owned; loaded by the first prepare */
    char *counters;                      /* owned: CUDA_COUNTERS of 64 bits */
    void *sweep; /* owned: memory that is read to empty L2; 0 until needed */
};

struct cuda_kernel {
    struct kernel base; /* first member: its address is the struct's */
    struct cuda_module module;
};

/* ---- device.c, helpers.c -------------------------------------------------------------------- */

/* Creates the context, unless it exists. */
int cuda_wake(struct cuda_device *d, struct error *err);
uint32_t cuda_helpers(const struct device_info *info, const struct family_target *t,
                      struct variant out[DEVICE_HELPERS_MAX]);
/* Load the helpers (tools.cu, the reference) into the context, unless they are already loaded. */
int cuda_load_tools(struct cuda_device *d, struct error *err);
int cuda_load_reference(struct cuda_device *d, const struct family_target *t, struct error *err);

/* ---- health.c ------------------------------------------------------------------------------- */

void cuda_health(struct device *d, struct device_health *out);
void cuda_watch_begin(struct cuda_device *d);
void cuda_watch_end(struct cuda_device *d);

/* ---- prepare.c, baseline.c ------------------------------------------------------------------ */

int cuda_allocate(int64_t bytes, void **out, struct error *err);
void cuda_release(void *at, int64_t bytes); /* `at` may be NULL */
int cuda_fits(struct device *d, const struct family *f, const struct problem *p, struct error *err);
int cuda_prepare(struct device *d, const struct family *f, const struct problem *p, uint64_t seed,
                 struct prepared **out, struct error *err);
void cuda_release_prepared(struct device *d, struct prepared *w);
int cuda_baseline(struct device *d, struct prepared *w, const struct tolerance *tol,
                  const struct timing *t, struct baseline *out, double *samples_us, uint32_t *n,
                  struct error *err);

#endif
