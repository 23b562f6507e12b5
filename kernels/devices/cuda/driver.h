/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcuda as a table of function pointers, opened at run time: the same gemmd runs with and without
 * a GPU. Included only in kernels/devices/cuda.
 *
 * Symbols are named with their ABI version, never through the macros of cuda.h. So neither the
 * toolkit of the build nor the driver's release (12.0 or newer) matters.
 */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_DRIVER_H
#define GEMMD_KERNELS_DEVICES_CUDA_DRIVER_H

#include <cuda.h>

#include "proto/device.h"
#include "proto/error.h"

/* X(member, "symbol", parameters) for each function without which no device can be opened. */
#define CUDA_DRIVER_NEEDED(X)                                                                      \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(driver_version, "cuDriverGetVersion", (int *version))                                        \
    X(error_name, "cuGetErrorName", (CUresult r, const char **text))                               \
    X(error_string, "cuGetErrorString", (CUresult r, const char **text))                           \
    X(device_count, "cuDeviceGetCount", (int *n))                                                  \
    X(device_get, "cuDeviceGet", (CUdevice * device, int ordinal))                                 \
    X(device_name, "cuDeviceGetName", (char *name, int size, CUdevice device))                     \
    X(device_uuid, "cuDeviceGetUuid_v2", (CUuuid * uuid, CUdevice device))                         \
    X(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, CUdevice device))                     \
    X(device_attribute, "cuDeviceGetAttribute",                                                    \
      (int *value, CUdevice_attribute which, CUdevice device))                                     \
    X(device_pci, "cuDeviceGetPCIBusId", (char *id, int size, CUdevice device))                    \
    X(context_create, "cuCtxCreate_v2", (CUcontext * context, unsigned flags, CUdevice device))    \
    X(context_destroy, "cuCtxDestroy_v2", (CUcontext context))                                     \
    X(context_get, "cuCtxGetCurrent", (CUcontext * context))                                       \
    X(context_push, "cuCtxPushCurrent_v2", (CUcontext context))                                    \
    X(context_pop, "cuCtxPopCurrent_v2", (CUcontext * context))                                    \
    X(context_device, "cuCtxGetDevice", (CUdevice * device))                                       \
    X(module_load, "cuModuleLoadData", (CUmodule * module, const void *image))                     \
    X(module_unload, "cuModuleUnload", (CUmodule module))                                          \
    X(module_function, "cuModuleGetFunction",                                                      \
      (CUfunction * function, CUmodule module, const char *name))                                  \
    X(function_get, "cuFuncGetAttribute",                                                          \
      (int *value, CUfunction_attribute which, CUfunction function))                               \
    X(function_set, "cuFuncSetAttribute",                                                          \
      (CUfunction function, CUfunction_attribute which, int value))                                \
    X(launch, "cuLaunchKernelEx",                                                                  \
      (const CUlaunchConfig *config, CUfunction function, void **params, void **extra))            \
    X(memory_allocate, "cuMemAlloc_v2", (CUdeviceptr * at, size_t bytes))                          \
    X(memory_free, "cuMemFree_v2", (CUdeviceptr at))                                               \
    X(memory_info, "cuMemGetInfo_v2", (size_t * available, size_t * total))                        \
    X(memory_upload, "cuMemcpyHtoDAsync_v2",                                                       \
      (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                           \
    X(memory_download, "cuMemcpyDtoH_v2", (void *to, CUdeviceptr from, size_t bytes))              \
    X(memory_copy, "cuMemcpyDtoDAsync_v2",                                                         \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
    X(memory_set, "cuMemsetD8Async",                                                               \
      (CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream))                        \
    X(stream_create, "cuStreamCreate", (CUstream * stream, unsigned flags))                        \
    X(stream_destroy, "cuStreamDestroy_v2", (CUstream stream))                                     \
    X(stream_wait, "cuStreamSynchronize", (CUstream stream))                                       \
    X(event_create, "cuEventCreate", (CUevent * event, unsigned flags))                            \
    X(event_destroy, "cuEventDestroy_v2", (CUevent event))                                         \
    X(event_record, "cuEventRecord", (CUevent event, CUstream stream))                             \
    X(event_wait, "cuEventSynchronize", (CUevent event))                                           \
    X(event_elapsed, "cuEventElapsedTime", (float *ms, CUevent begin, CUevent end))

/* X(member, "symbol", parameters): the member is NULL when the driver lacks the function. */
#define CUDA_DRIVER_OPTIONAL(X)                                                                    \
    X(event_elapsed_v2, "cuEventElapsedTime_v2", (float *ms, CUevent begin, CUevent end))          \
    X(map_encode, "cuTensorMapEncodeTiled",                                                        \
      (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *base,                   \
       const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,                    \
       const cuuint32_t *step, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,       \
       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill))                            \
    X(module_count, "cuModuleGetFunctionCount", (unsigned *count, CUmodule module))                \
    X(module_functions, "cuModuleEnumerateFunctions",                                              \
      (CUfunction * functions, unsigned n, CUmodule module))                                       \
    X(function_load, "cuFuncLoad", (CUfunction function))                                          \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", (CUstreamCaptureMode * mode))             \
    X(memory_download_async, "cuMemcpyDtoHAsync_v2",                                               \
      (void *to, CUdeviceptr from, size_t bytes, CUstream stream))

extern struct cuda_driver {
    int version; /* CUDA version that the driver supports, 12080 for 12.8 */
#define X(member, symbol, parameters) CUresult(*member) parameters;
    CUDA_DRIVER_NEEDED(X)
    CUDA_DRIVER_OPTIONAL(X)
#undef X
} cuda; /* to be read after cuda_driver_open */

/* Opens the driver's library, once per process; never closed. $GEMMD_LIBCUDA names another file.
 * `init` calls cuInit, for processes that create a context of their own, so not for training jobs.
 * ERROR_NO_DEVICE names the missing part and the remedy. Thread-safe. */
int cuda_driver_open(bool init, struct error *err);

/* Turns a CUresult into gemmd's error code. The text has CUDA's name and text and, where known, the
 * remedy: "<what>: CUDA_ERROR_... (...)". Returns 0 for success. */
int cuda_check(CUresult r, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- probe.c -------------------------------------------------------------------------------- */

struct nvml;
/* Describes a device as far as possible without a context on it. */
int cuda_describe(CUdevice device, const struct nvml *nvml, struct device_info *out,
                  struct error *err);
/* NULL: no NVML, or NVML does not know the GPU. */
struct nvml *cuda_nvml(CUdevice device);
/* Finds the device of a spec: "cuda", "cuda:<index>", "cuda:GPU-<uuid>", "cuda:MIG-<uuid>". */
int cuda_find(const char *spec, CUdevice *out, struct error *err);

/* ---- nvml.c: a GPU's state and clocks by NVML; needs no context and no cuInit --------------- */

/* Opens NVML for a GPU, "0000:01:00.0" or "GPU-<uuid>". NULL: no NVML, or an unknown GPU. */
struct nvml *nvml_open(const char *gpu);
void nvml_close(struct nvml *n); /* NULL is fine */

/* Sets the power limit and the driver version in `info`, where NVML knows them. */
void nvml_describe(const struct nvml *n, struct device_info *info);
/* Reads clocks, temperature, power, throttling and memory, which takes a few milliseconds with
 * slow drivers. busy_percent and processes count all processes, this process included; -1:
 * unknown. */
void nvml_sample(const struct nvml *n, struct device_health *out);

#endif
