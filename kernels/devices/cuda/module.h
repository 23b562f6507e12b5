/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded cubin: its functions by name, and launching them. For the runner's device and for a
 * training job's launcher alike. */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_MODULE_H
#define GEMMD_KERNELS_DEVICES_CUDA_MODULE_H

#include <pthread.h>

#include "kernels/devices/cuda/driver.h"
#include "kernels/devices/cuda/order.h"
#include "kernels/family.h"

enum { CUDA_FUNCTIONS_MAX = 8 };

struct cuda_function {
    char name[64];
    CUfunction function;
    int registers, local_bytes, static_smem;
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

#endif
