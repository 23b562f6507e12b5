/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/devices/cuda/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loads all functions now. Lazy loading, the driver's default, copies a function's code at its
 * first launch, which then synchronises. Drivers before 12.4 lack the calls: there the first launch
 * does. */
static int load_functions(struct cuda_module *m, struct error *err)
{
    unsigned n = 0;
    if (!cuda.module_count || !cuda.module_functions || !cuda.function_load) {
        return 0;
    }
    int r = cuda_check(cuda.module_count(&n, m->module), err, "counting a module's functions");
    if (r || n == 0) {
        return r;
    }
    CUfunction *functions = calloc(n, sizeof(*functions));
    if (!functions) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u functions", n);
    }
    r = cuda_check(cuda.module_functions(functions, n, m->module), err,
                   "listing a module's functions");
    for (unsigned i = 0; i < n && r == 0; i++) {
        r = cuda_check(cuda.function_load(functions[i]), err, "loading a function");
    }
    free(functions);
    return r;
}

int cuda_module_load(struct cuda_module *m, const void *image, const char *name, struct error *err)
{
    *m = (struct cuda_module){0};
    CUdevice device;
    int r = cuda_check(cuda.context_device(&device), err, "asking for the current GPU");
    r = r ? r
          : cuda_check(cuda.device_attribute(&m->smem_optin,
                                             CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                             device),
                       err, "asking the GPU for its shared memory");
    r = r ? r : cuda_check(cuda.module_load(&m->module, image), err, "loading module %s", name);
    if (r) {
        return r;
    }
    m->order = cuda_order(device);
    pthread_mutex_init(&m->lock, NULL);
    r = load_functions(m, err);
    if (r) {
        cuda_module_unload(m);
    }
    return r;
}

void cuda_module_unload(struct cuda_module *m)
{
    if (m->module) {
        cuda.module_unload(m->module);
        m->module = NULL;
        pthread_mutex_destroy(&m->lock);
    }
}

/* ---- functions ------------------------------------------------------------------------------ */

static int cuda_module_describe(struct cuda_function *f, struct error *err)
{
    const struct {
        CUfunction_attribute which;
        int *to;
    } all[] = {
        {CU_FUNC_ATTRIBUTE_NUM_REGS, &f->registers},
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &f->static_smem},
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &f->threads_max},
    };
    int r = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && r == 0; i++) {
        r = cuda_check(cuda.function_get(all[i].to, all[i].which, f->function), err,
                       "asking %s for attribute %d", f->name, (int)all[i].which);
    }
    return r;
}

static struct cuda_function *cuda_module_find_known(struct cuda_module *m, const char *entry)
{
    for (int i = 0; i < m->n_functions; i++) {
        if (strcmp(m->functions[i].name, entry) == 0) {
            return &m->functions[i];
        }
    }
    return NULL;
}

static int cuda_module_add_function(struct cuda_module *m, const char *entry,
                                    struct cuda_function **out, struct error *err)
{
    if (m->n_functions == CUDA_FUNCTIONS_MAX) {
        return error_set(err, ERROR_INTERNAL, "a module has more than %d entries",
                         CUDA_FUNCTIONS_MAX);
    }
    struct cuda_function *f = &m->functions[m->n_functions];
    *f = (struct cuda_function){0};
    snprintf(f->name, sizeof(f->name), "%s", entry);
    int r = cuda_check(cuda.module_function(&f->function, m->module, entry), err,
                       "looking for entry %s", entry);
    r = r ? r : cuda_module_describe(f, err);
    if (r == 0) {
        m->n_functions++;
        *out = f;
    }
    return r;
}

int cuda_module_find(struct cuda_module *m, const char *entry, struct cuda_function **out,
                     struct error *err)
{
    pthread_mutex_lock(&m->lock);
    *out = cuda_module_find_known(m, entry);
    int r = *out ? 0 : cuda_module_add_function(m, entry, out, err);
    pthread_mutex_unlock(&m->lock);
    return r;
}

/* ---- launching ------------------------------------------------------------------------------ */

static int too_much(const char *resource, int64_t required, int64_t limit,
                    const struct cuda_function *f, struct rejection *why, struct error *err)
{
    struct rejection unused;
    why = why ? why : &unused;
    rejection_resource(
        why, resource, required, limit,
        "%s needs %lld of %s per block, this GPU has %lld (the kernel has %d registers "
        "per thread and %d bytes of static shared memory)",
        f->name, (long long)required, resource, (long long)limit, f->registers, f->static_smem);
    return error_set(err, ERROR_RESOURCE, "%s", why->text);
}

int cuda_module_fits(const struct cuda_module *m, const struct cuda_function *f, uint32_t threads,
                     uint32_t smem_bytes, struct rejection *why, struct error *err)
{
    int64_t shared = (int64_t)smem_bytes + f->static_smem;
    if (shared > m->smem_optin) {
        return too_much("shared_memory", shared, m->smem_optin, f, why, err);
    }
    if (threads > (uint32_t)f->threads_max) {
        return too_much("threads", threads, f->threads_max, f, why, err);
    }
    return 0;
}

/* Raises the function's limit of dynamic shared memory in the driver to `bytes`. The driver refuses
 * launches with more than 48 KiB until then. */
static int allow_smem(struct cuda_module *m, struct cuda_function *f, uint32_t bytes,
                      struct error *err)
{
    pthread_mutex_lock(&m->lock);
    int r = 0;
    if ((int64_t)bytes > f->dynamic_smem) {
        r = cuda_check(cuda.function_set(f->function,
                                         CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         (int)bytes),
                       err, "asking for %u bytes of shared memory", bytes);
        f->dynamic_smem = r ? f->dynamic_smem : (int)bytes;
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

int cuda_module_launch(struct cuda_module *m, const struct launch *l, CUstream stream,
                       struct error *err)
{
    struct cuda_function *f;
    if (l->zero_bytes) {
        return cuda_check(
            cuda.memory_set((CUdeviceptr)(uintptr_t)l->zero, 0, (size_t)l->zero_bytes, stream), err,
            "setting %lld bytes of the workspace to 0", (long long)l->zero_bytes);
    }
    int r = cuda_module_find(m, l->entry, &f, err);
    r = r ? r
          : cuda_module_fits(m, f, l->block[0] * l->block[1] * l->block[2], l->smem_bytes, NULL,
                             err);
    r = r ? r : allow_smem(m, f, l->smem_bytes, err);
    struct cuda_params encoded;
    const uint8_t *bytes = l->n_maps ? encoded.bytes : l->params;
    r = r || !l->n_maps ? r : cuda_maps_encode(l, &encoded, err);
    if (r) {
        return r;
    }
    if (l->n_maps && launch_is_ordered(l, m->order)) {
        memcpy(encoded.bytes + l->order_at, m->order->place, m->order->n);
    }
    CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    cluster.value.clusterDim.x = l->cluster[0];
    cluster.value.clusterDim.y = l->cluster[1];
    cluster.value.clusterDim.z = l->cluster[2];
    CUlaunchConfig config = {
        .gridDimX = l->grid[0],
        .gridDimY = l->grid[1],
        .gridDimZ = l->grid[2],
        .blockDimX = l->block[0],
        .blockDimY = l->block[1],
        .blockDimZ = l->block[2],
        .sharedMemBytes = l->smem_bytes,
        .hStream = stream,
        .attrs = &cluster,
        .numAttrs = l->cluster[0] > 0,
    };
    void *params[] = {(void *)(uintptr_t)bytes};
    return cuda_check(cuda.launch(&config, f->function, params, NULL), err,
                      "launching %s (%u x %u blocks of %u threads, %u bytes of shared memory)",
                      l->entry, l->grid[0], l->grid[1], l->block[0], l->smem_bytes);
}
