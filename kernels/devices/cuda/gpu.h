/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda device inside: what its files share.
 *
 *   driver.c   libcuda as function pointers; CUDA's errors as ours
 *   nvml.c     what only NVML knows
 *   health.c   how the GPU is, and who else uses it
 *   nvrtc*.c   libnvrtc: found, called; the compiler of this device
 *   ptxas.c    what its log says of a kernel
 *   probe.c    what a GPU is, without a context on it
 *   module.c   a loaded cubin and its launches
 *   order.c    in which order it deals clusters to its SMs
 *   launch.c   the same for a training job's launcher
 *   device.c   a context of our own; loading candidates
 *   helpers.c  tools.cu and the op's reference, as modules
 *   buffers.c  memory within our share; tools.cu's small kernels
 *   prepare.c  a workload on the GPU, with the reference's result
 *   verify.c   one launch, compared
 *   time.c     single launches with a cold L2
 *   cublas.c   the vendor's dense products
 *   baseline.c the same work by these, timed
 *
 * One thread calls a device. Its context is its own, not the primary one: when a candidate poisons
 * it the process exits, and nothing else lives there.
 */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_GPU_H
#define GEMMD_KERNELS_DEVICES_CUDA_GPU_H

#include "kernels/device.h"
#include "kernels/devices/cuda/driver.h"
#include "kernels/devices/cuda/module.h"
#include "kernels/devices/cuda/nvml.h"
#include "kernels/devices/cuda/nvrtc.h"

extern const char cuda_tools_source[]; /* tools.cu */

enum { CUDA_COPIES_MAX = 8, CUDA_GUARD_BYTES = 4096, CUDA_COUNTERS = 3 };

struct cuda_device {
    struct device base;             /* first */
    const struct cuda_driver *cu;   /* borrowed */
    const struct cuda_nvrtc *nvrtc; /* borrowed */
    CUdevice device;
    struct nvml *nvml;            /* owned; NULL: there is none */
    struct cuda_watch *watch;     /* owned; while a problem is prepared */
    double left_ms;               /* when the last one was released */
    CUcontext context;            /* owned; NULL until the first load or prepare */
    CUstream stream;              /* owned: everything runs in it */
    CUevent begin, end;           /* owned */
    struct cuda_module tools;     /* owned; loaded by the first prepare */
    struct cuda_module reference; /* owned: of reference_source, when one is loaded */
    const char *reference_source; /* borrowed, static */
    CUdeviceptr counters;         /* owned: CUDA_COUNTERS of 64 bits */
    CUdeviceptr sweep;            /* owned: what is read to empty L2; 0 until it is needed */
};

struct kernel {
    struct variant variant;
    struct cuda_module module;
};

struct prepared {
    struct workload workload;
    uint32_t n_copies;
    /* buffers[copy][i]: copy 0 of all, further copies of those that rotate (else copy 0's again).
     * The output's memory has a guard before and behind it. */
    void *buffers[CUDA_COPIES_MAX][BUFFERS_MAX];
    CUdeviceptr workspace; /* owned */
    int64_t workspace_bytes;
    int64_t workspace_max;  /* what our share of the memory leaves for it */
    CUdeviceptr check_at;   /* owned: the workload's, on the GPU */
    CUdeviceptr expected;   /* owned: the reference's result over the check rows, doubles */
    CUdeviceptr row_errors; /* owned: struct cuda_row_error of each, of the last verification */
};

struct cuda_row_error { /* as in tools.cu, which says what they are */
    double max_error, difference, norm, excess;
    int64_t worst;
    double got, expected;
};

/* ---- device.c, helpers.c -------------------------------------------------------------------- */

/* The context, when there is none yet. */
int cuda_wake(struct cuda_device *d, struct error *err);
uint32_t cuda_helpers(const struct device_info *info, const struct family_target *t,
                      struct variant out[DEVICE_HELPERS_MAX]);
/* Into the context, unless they are there. */
int cuda_load_tools(struct cuda_device *d, struct error *err);
int cuda_load_reference(struct cuda_device *d, const struct family_target *t, struct error *err);

/* ---- health.c ------------------------------------------------------------------------------- */

void cuda_health(struct device *d, struct device_health *out);
void cuda_watch_begin(struct cuda_device *d);
void cuda_watch_end(struct cuda_device *d);

/* ---- buffers.c ------------------------------------------------------------------------------ */

/* Bytes that a problem may take now: a share of what is free, as we are a guest beside training
 * jobs, less what cuda_sweep_l2 is going to take. */
int cuda_memory_limit(struct cuda_device *d, int64_t *bytes, struct error *err);
/* ERROR_NO_MEMORY: what does not fit, and what to do. `of`: "memory", "free memory". */
int cuda_too_much(double need, double limit, const char *of, struct error *err);
int cuda_allocate(struct cuda_device *d, int64_t bytes, CUdeviceptr *out, struct error *err);
void cuda_release(struct cuda_device *d, CUdeviceptr *at); /* 0 is fine; sets it to 0 */
int cuda_wait(struct cuda_device *d, const char *what, struct error *err);
/* Launches of tools.cu, asynchronous. */
int cuda_fill(struct cuda_device *d, const struct buffer *b, uint64_t seed, void *to,
              struct error *err);
int cuda_compare(struct cuda_device *d, const struct prepared *w, const struct tolerance *tol,
                 struct error *err);
/* To what is expected of the check rows, what the output holds there. */
int cuda_add_rows(struct cuda_device *d, const struct prepared *w, struct error *err);
int cuda_spin(struct cuda_device *d, double us, struct error *err);
int cuda_sweep_l2(struct cuda_device *d, struct error *err);
/* Adds to a counter how many of `count` elements of `size` bytes are all ones. */
int cuda_count_poison(struct cuda_device *d, const void *data, int64_t count, size_t size,
                      uint32_t counter, struct error *err);
int cuda_clear_counters(struct cuda_device *d, struct error *err);
/* Waits for nothing: what counts must be done. */
int cuda_read_counters(struct cuda_device *d, uint64_t out[CUDA_COUNTERS], struct error *err);

/* ---- prepare.c, verify.c, time.c ------------------------------------------------------------ */

/* As prepare() leaves a buffer that nobody has written to yet. Asynchronous. */
int cuda_fill_buffer(struct cuda_device *d, const struct prepared *w, uint32_t i, void *to,
                     struct error *err);
int cuda_fits(struct device *d, const struct family *f, const struct problem *p, struct error *err);
int cuda_prepare(struct device *d, const struct family *f, const struct problem *p, uint64_t seed,
                 struct prepared **out, struct error *err);
void cuda_release_prepared(struct device *d, struct prepared *w);
int cuda_verify(struct device *d, struct prepared *w, struct kernel *k, const struct record *config,
                const struct tolerance *tol, struct verdict *out, struct error *err);
int cuda_time(struct device *d, struct prepared *w, struct kernel *k, const struct record *config,
              const struct timing *t, double *samples_us, uint32_t *n, struct error *err);
/* What is timed: queue() puts all of it over one copy of the buffers into the device's stream. */
struct cuda_work {
    const struct prepared *prepared;
    uint32_t launches; /* beyond a candidate's few: the GPU is kept busy until they are queued */
    int (*queue)(void *ctx, uint32_t copy, struct error *err);
    void *ctx;
};
int cuda_samples(struct cuda_device *d, const struct cuda_work *work, const struct timing *t,
                 double *samples_us, uint32_t *n, struct error *err);
int cuda_baseline(struct device *d, struct prepared *w, const struct tolerance *tol,
                  const struct timing *t, struct baseline *out, double *samples_us, uint32_t *n,
                  struct error *err);
/* How the check rows of what is in the output compare, once all that is queued is done. */
int cuda_judge_rows(struct cuda_device *d, const struct prepared *w, const struct tolerance *tol,
                    struct verdict *out, struct error *err);
/* The launches of a kernel over one copy of the buffers; grows the workspace as the plan asks. */
int cuda_plan(struct cuda_device *d, struct prepared *w, const struct kernel *k,
              const struct record *config, uint32_t copy, struct launch_plan *out,
              struct error *err);

#endif
