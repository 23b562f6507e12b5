/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An opened GPU: its own context and stream, and the candidates' kernels as CUDA modules.
 *
 * Opening describes the GPU through the driver (0.1 s). The context (0.1 s, half a GiB of GPU
 * memory) is created by the first load or prepare: compilers can run meanwhile.
 */
#include <stdlib.h>

#include "kernels/devices/cuda/gpu.h"

/* ---- opening -------------------------------------------------------------------------------- */

static int create_context(struct cuda_device *d, struct error *err)
{
    int mode = CU_COMPUTEMODE_DEFAULT;
    cuda.device_attribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, d->device);
    if (mode == CU_COMPUTEMODE_PROHIBITED) {
        return error_set(err, ERROR_NO_DEVICE,
                         "GPU %s is in compute mode PROHIBITED: nvidia-smi -c DEFAULT allows it",
                         d->base.info.uuid);
    }
    /* BLOCKING_SYNC: a runner that waits for the GPU does not take a core from a training job. */
    int r = cuda_check(cuda.context_create(&d->context, CU_CTX_SCHED_BLOCKING_SYNC, d->device), err,
                       "creating a context on %s", d->base.info.name);
    r = r ? r
          : cuda_check(cuda.stream_create(&d->stream, CU_STREAM_NON_BLOCKING), err,
                       "creating a stream");
    r = r ? r
          : cuda_check(cuda.event_create(&d->begin, CU_EVENT_BLOCKING_SYNC), err,
                       "creating an event");
    r = r ? r
          : cuda_check(cuda.event_create(&d->end, CU_EVENT_BLOCKING_SYNC), err,
                       "creating an event");
    return r ? r : cuda_allocate(CUDA_COUNTERS * sizeof(uint64_t), (void **)&d->counters, err);
}

static void destroy_context(struct cuda_device *d)
{
    if (!d->context) {
        return;
    }
    cuda_module_unload(&d->reference.module);
    cuda_module_unload(&d->tools.module);
    cuda_release(d->sweep, 0);
    cuda_release(d->counters, 0);
    if (d->end) {
        cuda.event_destroy(d->end);
    }
    if (d->begin) {
        cuda.event_destroy(d->begin);
    }
    if (d->stream) {
        cuda.stream_destroy(d->stream);
    }
    cuda.context_destroy(d->context);
    d->context = NULL;
    d->stream = NULL;
    d->begin = d->end = NULL;
    d->counters = d->sweep = NULL;
}

int cuda_wake(struct cuda_device *d, struct error *err)
{
    int r = d->context ? 0 : create_context(d, err);
    if (r) {
        destroy_context(d);
    }
    return r;
}

static void device_close_cuda(struct device *base)
{
    struct cuda_device *d = (struct cuda_device *)base;
    cuda_watch_end(d);
    destroy_context(d);
    nvml_close(d->nvml);
    free(d);
}

static int device_open_cuda(const char *spec, struct device *base, struct error *err)
{
    struct cuda_device *d = (struct cuda_device *)base;
    int r = cuda_driver_open(true, err);
    r = r ? r : cuda_find(spec, &d->device, err);
    d->nvml = r ? NULL : cuda_nvml(d->device);
    return r ? r : cuda_describe(d->device, d->nvml, &base->info, err);
}

/* ---- candidates ----------------------------------------------------------------------------- */

static int device_load_cuda(struct device *base, const struct image *image, const struct variant *v,
                            struct kernel **out, struct rejection *why, struct error *err)
{
    struct cuda_device *d = (struct cuda_device *)base;
    struct cuda_function *f;
    *out = NULL;
    *why = (struct rejection){0};
    struct cuda_kernel *k = calloc(1, sizeof(*k));
    if (!k) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a kernel");
    }
    k->base.variant = *v;
    int r = cuda_wake(d, err);
    r = r ? r : cuda_module_load(&k->module, image->data, image->meta.id, err);
    r = r ? r : cuda_module_find(&k->module, v->entry, &f, err);
    /* Here 1 thread and 0 dynamic bytes: checks the static shared memory. Each launch checks its
     * threads and its dynamic shared memory. */
    r = r ? r : cuda_module_fits(&k->module, f, 1, 0, why, err);
    if (r) {
        cuda_module_unload(&k->module);
        free(k);
        return r;
    }
    *out = &k->base;
    return 0;
}

static void device_unload_cuda(struct device *d, struct kernel *base)
{
    struct cuda_kernel *k = (struct cuda_kernel *)base;
    if (k) {
        cuda_module_unload(&k->module);
        free(k);
    }
}

const struct device_ops cuda_device_ops = {
    .kind = "cuda",
    .size = sizeof(struct cuda_device),
    .open = device_open_cuda,
    .close = device_close_cuda,
    .helpers = cuda_helpers,
    .load = device_load_cuda,
    .unload = device_unload_cuda,
    .health = cuda_health,
    .fits = cuda_fits,
    .prepare = cuda_prepare,
    .release = cuda_release_prepared,
    .verify = prepared_verify,
    .time = prepared_time,
    .baseline = cuda_baseline,
    .clock_ms = device_clock_ms,
};
