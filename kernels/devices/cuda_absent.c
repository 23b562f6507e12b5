/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda device in a build without CUDA headers: replaces kernels/devices/cuda and reports why
 * no device can be opened. */
#include "kernels/device.h"
#include "kernels/launcher.h"

#define REBUILD "build it again where cuda.h and nvrtc.h are found (meson -Dinclude_cuda=DIR)"

static int no_device(struct error *err)
{
    return error_set(err, ERROR_NO_DEVICE,
                     "gemmd was built without CUDA headers; " REBUILD ", or ask for cpu instead");
}

static int device_none(const char *spec, struct device *d, struct error *err)
{
    return no_device(err);
}

static int compiler_none(const char *spec, struct compiler *c, struct error *err)
{
    return error_set(err, ERROR_NO_COMPILER, "gemmd was built without CUDA headers; " REBUILD);
}

int device_set_clocks(const char *uuid, int64_t mhz, struct error *err)
{
    return no_device(err);
}

static int info_none(struct device_info *out, struct error *err)
{
    *out = (struct device_info){0};
    return no_device(err);
}

static int load_none(const void *image, size_t size, void **handle, struct error *err)
{
    *handle = NULL;
    return no_device(err);
}

/* Without a device only open() is ever called. */
const struct device_ops cuda_device_ops = {
    .kind = "cuda", .size = sizeof(struct device), .open = device_none};
const struct compiler_ops cuda_compiler_ops = {
    .suffix = "cubin", .size = sizeof(struct compiler), .open = compiler_none};
const struct launch_backend cuda_launch_backend = {
    .elf_machine = 190, .info = info_none, .load = load_none};
