/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launching in a training job: its process, its current context, its stream. Nothing is created but
 * the loaded module, which belongs to that context.
 */
#include <stdlib.h>

#include "kernels/devices/cuda/module.h"
#include "kernels/devices/cuda/nvml.h"
#include "kernels/launcher.h"

static int current(const struct cuda_driver **cu, struct error *err)
{
    CUcontext context = NULL;
    int r = cuda_driver_open(cu, err);
    r = r ? r
          : cuda_check(*cu, (*cu)->context_get(&context), err, "asking for the current context");
    if (!r && !context) {
        r = error_set(err, ERROR_NO_DEVICE,
                      "no CUDA context is current in this thread: call "
                      "cudaSetDevice (or cuCtxSetCurrent) before loading a kernel");
    }
    return r;
}

static int info(struct device_info *out, struct error *err)
{
    const struct cuda_driver *cu;
    CUdevice device;
    int r = current(&cu, err);
    r = r ? r : cuda_check(cu, cu->context_device(&device), err, "asking for the current GPU");
    if (r) {
        return r;
    }
    struct nvml *nvml = cuda_nvml(cu, device);
    r = cuda_describe(cu, device, nvml, out, err);
    nvml_close(nvml);
    return r;
}

static int load(const void *image, size_t size, void **handle, struct error *err)
{
    (void)size; /* the launcher has checked that the ELF file is whole */
    const struct cuda_driver *cu;
    *handle = NULL;
    int r = current(&cu, err);
    if (r) {
        return r;
    }
    struct cuda_module *m = calloc(1, sizeof(*m));
    if (!m) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a module");
    }
    r = cuda_module_load(m, cu, image, "of the launcher", err);
    if (r) {
        free(m);
        return r;
    }
    *handle = m;
    return 0;
}

static void unload(void *handle)
{
    if (handle) {
        cuda_module_unload(handle);
        free(handle);
    }
}

static int launch(void *handle, const struct launch *l, void *stream, struct error *err)
{
    return cuda_module_launch(handle, l, stream, err);
}

const struct launch_backend cuda_launch_backend = {
    .elf_machine = 190, /* EM_CUDA */
    .info = info,
    .load = load,
    .unload = unload,
    .launch = launch,
};
