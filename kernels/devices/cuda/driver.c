/* SPDX-License-Identifier: Apache-2.0 */
/* Opens libcuda, and translates CUDA's errors to gemmd's. */
#include "kernels/devices/cuda/driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/loading.h"

enum { VERSION_LEAST = 12000 }; /* cubins and cuLaunchKernelEx need this release */

struct cuda_driver cuda;
/* all three variables are written only between loading_begin and loading_end */
static bool opened, initialised;

/* ---- opening --------------------------------------------------------------------------------- */

static int cuda_driver_load_symbols(void *library, struct error *err)
{
    const char *missing = NULL;
    /* Assigns through void *, because ISO C has no cast from an object to a function pointer. */
#define X(member, symbol, parameters) *(void **)&cuda.member = dlsym(library, symbol);
    CUDA_DRIVER_OPTIONAL(X)
#undef X
#define X(member, symbol, parameters)                                                              \
    *(void **)&cuda.member = dlsym(library, symbol);                                               \
    missing = cuda.member || missing ? missing : symbol;
    CUDA_DRIVER_NEEDED(X)
#undef X
    if (missing) {
        return error_set(
            err, ERROR_NO_DEVICE,
            "the NVIDIA driver has no %s, so it is too old: gemmd needs driver 525 (CUDA "
            "12.0) or newer; update it, or ask for cpu instead",
            missing);
    }
    return 0;
}

static int cuda_driver_open_library(struct error *err)
{
    const char *named = getenv("GEMMD_LIBCUDA");
    const char *name = named && *named ? named : "libcuda.so.1";
    /* RTLD_NOLOAD: a training job has loaded libcuda already, perhaps from an unusual place. */
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    library = library ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return error_set(
            err, ERROR_NO_DEVICE,
            "no NVIDIA driver: %s; install it (or, in a container, pass the GPU in), set "
            "GEMMD_LIBCUDA, or ask for cpu instead",
            dlerror());
    }
    int r = cuda_driver_load_symbols(library, err);
    r = r ? r
          : cuda_check(cuda.driver_version(&cuda.version), err, "asking the driver its version");
    if (!r && cuda.version < VERSION_LEAST) {
        r = error_set(
            err, ERROR_NO_DEVICE,
            "the NVIDIA driver supports CUDA %d.%d: gemmd needs 12.0 (driver 525) or newer; "
            "update it, or ask for cpu instead",
            cuda.version / 1000, cuda.version % 1000 / 10);
    }
    if (r) {
        dlclose(library);
        return r;
    }
    opened = true;
    return 0;
}

int cuda_driver_open(bool init, struct error *err)
{
    loading_begin();
    int r = opened ? 0 : cuda_driver_open_library(err);
    if (!r && init && !initialised) {
        r = cuda_check(cuda.init(0), err, "starting the NVIDIA driver");
        initialised = r == 0;
    }
    loading_end();
    return r;
}

/* ---- errors --------------------------------------------------------------------------------- */

/* Errors by number, because the CUDA headers of the build may lack the newest names. */
static const struct {
    int cuda, ours;
    const char *advice; /* NULL: CUDA's own text is enough */
} meanings[] = {
    {1, ERROR_INTERNAL, NULL}, /* INVALID_VALUE */
    {2, ERROR_NO_MEMORY, "free GPU memory, or ask for a smaller problem"},
    {3, ERROR_NO_DEVICE, "no CUDA context is current in this thread"}, /* NOT_INITIALIZED */
    {4, ERROR_NO_DEVICE, "the process is ending"},                     /* DEINITIALIZED */
    {34, ERROR_NO_DEVICE,
     "this is the stub of libcuda that toolkits link with: install the driver, or "
     "take the stub out of LD_LIBRARY_PATH"},
    {46, ERROR_BUSY,
     "another process has the GPU for itself (compute mode EXCLUSIVE_PROCESS): wait for "
     "it, or nvidia-smi -c DEFAULT"},
    {100, ERROR_NO_DEVICE, "check nvidia-smi and CUDA_VISIBLE_DEVICES, or ask for cpu instead"},
    {101, ERROR_NO_DEVICE, "check nvidia-smi and CUDA_VISIBLE_DEVICES"},
    {102, ERROR_NO_DEVICE, NULL}, /* DEVICE_NOT_LICENSED */
    {200, ERROR_COMPILE, "the module is damaged or for another kind of GPU"},
    {201, ERROR_NO_DEVICE, "no CUDA context is current in this thread"}, /* INVALID_CONTEXT */
    {209, ERROR_COMPILE,
     "the module is for another GPU, or was compiled by a newer CUDA than the driver "
     "knows: update the driver, or set GEMMD_NVRTC to an older libnvrtc"},
    {214, ERROR_DEVICE_LOST, "the GPU's memory has errors: nvidia-smi -q -d ECC"},
    {218, ERROR_COMPILE, NULL},     /* INVALID_PTX */
    {220, ERROR_DEVICE_LOST, NULL}, /* NVLINK_UNCORRECTABLE */
    {222, ERROR_COMPILE,
     "it was compiled by a newer CUDA than the driver knows: update the driver, or "
     "set GEMMD_NVRTC to an older libnvrtc"},
    {226, ERROR_DEVICE_LOST, NULL}, /* CONTAINED */
    {300, ERROR_COMPILE, NULL},     /* INVALID_SOURCE */
    {304, ERROR_NO_DEVICE,
     "the system refuses what the driver needs: check /dev/nvidia* and the "
     "sandbox"}, /* OPERATING_SYSTEM */
    {400, ERROR_INVALID, "the stream or module is not of the current context"}, /* INVALID_HANDLE */
    {500, ERROR_INVALID, "the module does not have it"},                        /* NOT_FOUND */
    {700, ERROR_DEVICE_LOST, NULL}, /* ILLEGAL_ADDRESS */
    {701, ERROR_RESOURCE, "too many registers or threads for this GPU"},
    {702, ERROR_DEVICE_LOST, NULL}, /* LAUNCH_TIMEOUT */
    {709, ERROR_DEVICE_LOST, NULL}, /* CONTEXT_IS_DESTROYED */
    {710, ERROR_DEVICE_LOST, NULL}, /* ASSERT */
    {714, ERROR_DEVICE_LOST, NULL}, /* HARDWARE_STACK_ERROR */
    {715, ERROR_DEVICE_LOST, NULL}, /* ILLEGAL_INSTRUCTION */
    {716, ERROR_DEVICE_LOST, NULL}, /* MISALIGNED_ADDRESS */
    {717, ERROR_DEVICE_LOST, NULL}, /* INVALID_ADDRESS_SPACE */
    {718, ERROR_DEVICE_LOST, NULL}, /* INVALID_PC */
    {719, ERROR_DEVICE_LOST, NULL}, /* LAUNCH_FAILED */
    {720, ERROR_RESOURCE, NULL},    /* COOPERATIVE_LAUNCH_TOO_LARGE */
    {721, ERROR_DEVICE_LOST, NULL}, /* TENSOR_MEMORY_LEAK */
    {801, ERROR_NO_DEVICE, "this GPU or driver does not support it"}, /* NOT_SUPPORTED */
    {802, ERROR_NO_DEVICE, "the system is not ready: is nvidia-fabricmanager running?"},
    {803, ERROR_NO_DEVICE, "the driver's library and kernel module differ: reboot after an update"},
    {804, ERROR_NO_DEVICE, "take the compatibility libcuda out of LD_LIBRARY_PATH"},
    {805, ERROR_DEVICE_LOST, "the MPS server is gone"},
    {806, ERROR_DEVICE_LOST, "the MPS server is gone"},
    {809, ERROR_DEVICE_LOST, "the MPS server ended this client"},
    {900, ERROR_INVALID, "the stream is being captured"},
    {901, ERROR_INVALID, "the stream's capture has failed before"},
    {912, ERROR_RESOURCE, "the GPU cannot hold a cluster of this size"},
    {999, ERROR_DEVICE_LOST, NULL}, /* UNKNOWN */
};

static const char *cuda_driver_text_of(CUresult (*ask)(CUresult, const char **), CUresult r,
                                       const char *unknown)
{
    const char *text = NULL;
    return ask && ask(r, &text) == CUDA_SUCCESS && text ? text : unknown;
}

int cuda_check(CUresult r, struct error *err, const char *format, ...)
{
    if (r == CUDA_SUCCESS) {
        return 0;
    }
    int ours = ERROR_INTERNAL;
    const char *advice = NULL;
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        if (meanings[i].cuda == (int)r) {
            ours = meanings[i].ours;
            advice = meanings[i].advice;
        }
    }
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return error_set(
        err, ours, "%s: %s (CUDA error %d, %s)%s%s", what,
        cuda_driver_text_of(cuda.error_name, r, "an error that this driver cannot name"), (int)r,
        cuda_driver_text_of(cuda.error_string, r, "no description"), advice ? "; " : "",
        advice ? advice : "");
}
