/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded cubin: its functions by name, and launching them. For the runner's device and for a
 * training job's launcher alike. */
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
    int threads_max;  /* of a block, given its registers */
    int dynamic_smem; /* most that was asked of the driver so far */
};

struct cuda_module {
    const struct cuda_driver *cu; /* borrowed */
    CUmodule module;              /* owned */
    int smem_optin;
    const struct launch_order *order; /* of its device */
    pthread_mutex_t lock;             /* of the functions: a job launches from any thread */
    int n_functions;
    struct cuda_function functions[CUDA_FUNCTIONS_MAX];
};

/* Into the current context, with every function loaded now (a later first launch must not allocate:
 * it may be inside a stream capture). `name` is for sentences. */
int cuda_module_load(struct cuda_module *m, const struct cuda_driver *cu, const void *image,
                     const char *name, struct error *err);
void cuda_module_unload(struct cuda_module *m); /* of a zeroed struct too */
/* ERROR_INVALID when there is no such entry. */
int cuda_module_find(struct cuda_module *m, const char *entry, struct cuda_function **out,
                     struct error *err);
/* ERROR_RESOURCE when the function cannot be launched with so many threads or so much memory; `why`
 * may be NULL. */
int cuda_module_fits(const struct cuda_module *m, const struct cuda_function *f, uint32_t threads,
                     uint32_t smem_bytes, struct rejection *why, struct error *err);
/* Asynchronous; no allocation, no synchronisation. */
int cuda_module_launch(struct cuda_module *m, const struct launch *l, CUstream stream,
                       struct error *err);

/* ---- maps.c: a launch's params with its tensor maps encoded --------------------------------- */

struct cuda_params {
    _Alignas(TENSOR_MAP_ALIGN) uint8_t bytes[LAUNCH_PARAMS_MAX];
};

/* ERROR_INVALID or what cuda_check makes of it when the driver refuses a map. */
int cuda_maps_encode(const struct cuda_driver *cu, const struct launch *l, struct cuda_params *out,
                     struct error *err);

/* ---- order.c -------------------------------------------------------------------------------- */

/* The order of the device of the current context: found out by two launches of some microseconds,
 * once in a process, on a stream of their own. Never NULL; not known (n is 0) where clusters do not
 * exist, the driver has no compiler for PTX, or others used the device meanwhile: then clusters
 * have the places of their numbers, which is slower by 0.5 % and no fault. Thread-safe; not for
 * launches, since it waits, maybe for all that the context has under way. */
const struct launch_order *cuda_order(const struct cuda_driver *cu, CUdevice device);

#endif
