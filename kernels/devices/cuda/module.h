/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded cubin: finds its functions by name and launches them, for the runner's device and for a
 * training job's launcher. */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_MODULE_H
#define GEMMD_KERNELS_DEVICES_CUDA_MODULE_H

#include <pthread.h>

#include "kernels/devices/cuda/driver.h"
#include "kernels/family.h"
#include "kernels/launch_order.h"

enum { CUDA_FUNCTIONS_MAX = 8 };

struct cuda_function {
    char name[64];
    CUfunction function;
    int registers, static_smem;
    int threads_max;  /* most threads of a thread block, as the function's registers allow */
    int dynamic_smem; /* bytes; the largest limit set in the driver so far */
};

struct cuda_module {
    CUmodule module; /* owned */
    int smem_optin;
    const struct launch_order *order; /* of the module's device */
    pthread_mutex_t lock;             /* protects the functions: any thread of a job may launch */
    int n_functions;
    struct cuda_function functions[CUDA_FUNCTIONS_MAX];
};

/* Loads into the current context, with every function: a first launch must not allocate, because it
 * may be inside a stream capture. `name` is for messages. */
int cuda_module_load(struct cuda_module *m, const void *image, const char *name, struct error *err);
void cuda_module_unload(struct cuda_module *m); /* also for a zeroed struct */
/* ERROR_INVALID when the module lacks the entry. */
int cuda_module_find(struct cuda_module *m, const char *entry, struct cuda_function **out,
                     struct error *err);
/* ERROR_RESOURCE: too many threads or too much memory for the function. `why` may be NULL. */
int cuda_module_fits(const struct cuda_module *m, const struct cuda_function *f, uint32_t threads,
                     uint32_t smem_bytes, struct rejection *why, struct error *err);
/* Asynchronous; no allocation, no synchronisation. */
int cuda_module_launch(struct cuda_module *m, const struct launch *l, CUstream stream,
                       struct error *err);

/* ---- maps.c: params with encoded tensor maps ------------------------------------------------ */

struct cuda_params {
    _Alignas(TENSOR_MAP_ALIGN) uint8_t bytes[LAUNCH_PARAMS_MAX];
};

/* Copies the launch's params and encodes its tensor maps. Returns ERROR_INVALID, or an error of
 * cuda_check(), when the driver refuses a map. */
int cuda_maps_encode(const struct launch *l, struct cuda_params *out, struct error *err);

/* ---- order.c -------------------------------------------------------------------------------- */

/* The launch order of the current context's device. Measured once per process by two launches of
 * some microseconds on a separate stream. Never NULL. The order is unknown (n is 0) when the GPU
 * has no clusters, the driver cannot compile PTX, or other work used the GPU meanwhile. Then
 * cluster i of a launch begins with tile i, which is correct and takes 0.5 % more time.
 * Thread-safe. Not for launch paths: the call may wait for all work of the context. */
const struct launch_order *cuda_order(CUdevice device);

#endif
