/* SPDX-License-Identifier: Apache-2.0 */
/* Launches in a training job: in its process, current context and stream. Creates only the
 * loaded module, which belongs to that context. */
#include <stdlib.h>

#include "kernels/devices/cuda/module.h"
#include "kernels/launcher.h"

struct loaded {
    struct cuda_module module;
    CUcontext context; /* borrowed: the job's context, which has the module */
};

static int cuda_get_current(CUcontext *context, struct error *err)
{
    *context = NULL;
    int r = cuda_driver_open(false, err);
    r = r ? r : cuda_check(cuda.context_get(context), err, "asking for the current context");
    if (!r && !*context) {
        r = error_set(err, ERROR_NO_DEVICE,
                      "no CUDA context is current in this thread: call "
                      "cudaSetDevice (or cuCtxSetCurrent) before loading a kernel");
    }
    return r;
}

static int cuda_read_info(struct device_info *out, struct error *err)
{
    CUcontext context;
    CUdevice device;
    int r = cuda_get_current(&context, err);
    r = r ? r : cuda_check(cuda.context_device(&device), err, "asking for the current GPU");
    if (r) {
        return r;
    }
    struct nvml *nvml = cuda_nvml(device);
    r = cuda_describe(device, nvml, out, err);
    nvml_close(nvml);
    return r;
}

static int cuda_load_image(const void *image, size_t size, void **handle, struct error *err)
{
    CUcontext context;
    *handle = NULL;
    int r = cuda_get_current(&context, err);
    if (r) {
        return r;
    }
    struct loaded *l = calloc(1, sizeof(*l));
    if (!l) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a module");
    }
    l->context = context;
    r = cuda_module_load(&l->module, image, "of the launcher", err);
    if (r) {
        free(l);
        return r;
    }
    *handle = l;
    return 0;
}

/* A module can only be unloaded while its context is current, and a job frees kernels from any
 * thread. A destroyed context has already freed its modules. */
static void cuda_unload_image(void *handle)
{
    struct loaded *l = handle;
    if (!l) {
        return;
    }
    CUcontext now = NULL;
    bool here = cuda.context_get(&now) == CUDA_SUCCESS && now == l->context;
    bool pushed = !here && cuda.context_push(l->context) == CUDA_SUCCESS;
    if (here || pushed) {
        cuda_module_unload(&l->module);
    }
    if (pushed) {
        cuda.context_pop(&now);
    }
    free(l);
}

static int cuda_launch_kernel(void *handle, const struct launch *l, void *stream, struct error *err)
{
    return cuda_module_launch(&((struct loaded *)handle)->module, l, stream, err);
}

const struct launch_backend cuda_launch_backend = {
    .elf_machine = 190, /* EM_CUDA */
    .info = cuda_read_info,
    .load = cuda_load_image,
    .unload = cuda_unload_image,
    .launch = cuda_launch_kernel,
};
