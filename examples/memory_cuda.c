/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver API. The functions are found at run time, so that this program also starts on
 * machines without a driver. A program only for GPUs would link with -lcuda.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>

#include "examples/memory.h"

static struct {
    CUresult (*init)(unsigned flags);
    CUresult (*device_get)(CUdevice *out, int ordinal);
    CUresult (*retain)(CUcontext *out, CUdevice device);
    CUresult (*set_current)(CUcontext context);
    CUresult (*stream_new)(CUstream *out, unsigned flags);
    CUresult (*stream_wait)(CUstream stream);
    CUresult (*alloc)(CUdeviceptr *out, size_t bytes);
    CUresult (*release)(CUdeviceptr p);
    CUresult (*to_device)(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
    CUresult (*to_host)(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
    CUstream stream;
} cuda;

static int check(CUresult r, const char *what)
{
    if (r != CUDA_SUCCESS) {
        fprintf(stderr, "%s: CUDA error %d\n", what, (int)r);
    }
    return r == CUDA_SUCCESS ? 0 : -1;
}

static int find_functions(void)
{
    const struct {
        void *to;
        const char *name;
    } all[] = {{&cuda.init, "cuInit"},
               {&cuda.device_get, "cuDeviceGet"},
               {&cuda.retain, "cuDevicePrimaryCtxRetain"},
               {&cuda.set_current, "cuCtxSetCurrent"},
               {&cuda.stream_new, "cuStreamCreate"},
               {&cuda.stream_wait, "cuStreamSynchronize"},
               {&cuda.alloc, "cuMemAlloc_v2"},
               {&cuda.release, "cuMemFree_v2"},
               {&cuda.to_device, "cuMemcpyHtoDAsync_v2"},
               {&cuda.to_host, "cuMemcpyDtoHAsync_v2"}};
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; library && i < sizeof(all) / sizeof(all[0]); i++) {
        *(void **)all[i].to = dlsym(library, all[i].name);
        library = *(void **)all[i].to ? library : NULL;
    }
    if (!library) {
        fprintf(stderr, "no NVIDIA driver: %s\n", dlerror());
    }
    return library ? 0 : -1;
}

static int open_cuda(const char *device)
{
    CUdevice d;
    CUcontext context;
    int ordinal = device[4] == ':' ? atoi(device + 5) : 0;
    int r = find_functions();
    r = r ? r : check(cuda.init(0), "cuInit");
    r = r ? r : check(cuda.device_get(&d, ordinal), "cuDeviceGet");
    r = r ? r : check(cuda.retain(&context, d), "cuDevicePrimaryCtxRetain");
    r = r ? r : check(cuda.set_current(context), "cuCtxSetCurrent");
    return r ? r : check(cuda.stream_new(&cuda.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

static int get(size_t bytes, void **out)
{
    CUdeviceptr p = 0;
    int r = check(cuda.alloc(&p, bytes ? bytes : 1), "cuMemAlloc");
    *out = (void *)(uintptr_t)p;
    return r;
}

static void put(void *p)
{
    if (p) {
        cuda.release((CUdeviceptr)(uintptr_t)p);
    }
}

static int upload(void *to, const void *from, size_t bytes)
{
    return check(cuda.to_device((CUdeviceptr)(uintptr_t)to, from, bytes, cuda.stream),
                 "cuMemcpyHtoDAsync");
}

static int download(void *to, const void *from, size_t bytes)
{
    int r = check(cuda.to_host(to, (CUdeviceptr)(uintptr_t)from, bytes, cuda.stream),
                  "cuMemcpyDtoHAsync");
    return r ? r : check(cuda.stream_wait(cuda.stream), "cuStreamSynchronize");
}

static void *stream(void)
{
    return cuda.stream;
}

const struct memory cuda_memory = {.open = open_cuda,
                                   .get = get,
                                   .put = put,
                                   .upload = upload,
                                   .download = download,
                                   .stream = stream};
