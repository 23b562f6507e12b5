/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int result;
typedef unsigned long long pointer;

struct copy_2d { /* CUDA_MEMCPY2D */
    size_t from_x, from_y;
    unsigned from_type;
    const void *from_host;
    pointer from;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    unsigned to_type;
    void *to_host;
    pointer to;
    void *to_array;
    size_t to_pitch;
    size_t width, height;
};
enum { MEMORY_DEVICE = 2 };

#define FUNCTIONS(X)                                                                               \
    X(error_name, "cuGetErrorName", (int r, const char **text))                                    \
    X(alloc, "cuMemAlloc_v2", (pointer * at, size_t bytes))                                        \
    X(release, "cuMemFree_v2", (pointer at))                                                       \
    X(upload, "cuMemcpyHtoD_v2", (pointer to, const void *from, size_t bytes))                     \
    X(download, "cuMemcpyDtoH_v2", (void *to, pointer from, size_t bytes))                         \
    X(set, "cuMemsetD8Async", (pointer at, unsigned char byte, size_t bytes, void *stream))        \
    X(copy, "cuMemcpy2DUnaligned_v2", (const struct copy_2d *copy))                                \
    X(wait, "cuCtxSynchronize", (void))                                                            \
    X(stream_create, "cuStreamCreate", (void **stream, unsigned flags))                            \
    X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                        \
    X(capture_begin, "cuStreamBeginCapture_v2", (void *stream, int mode))                          \
    X(capture_end, "cuStreamEndCapture", (void *stream, void **graph))                             \
    X(instantiate, "cuGraphInstantiateWithFlags",                                                  \
      (void **ready, void *graph, unsigned long long flags))                                       \
    X(graph_launch, "cuGraphLaunch", (void *ready, void *stream))                                  \
    X(graph_destroy, "cuGraphDestroy", (void *graph))                                              \
    X(ready_destroy, "cuGraphExecDestroy", (void *ready))

static struct {
#define X(member, symbol, parameters) result(*member) parameters;
    FUNCTIONS(X)
#undef X
} cu;

static void check(result r, const char *what)
{
    const char *name = NULL;
    if (r) {
        cu.error_name(r, &name);
        fprintf(stderr, "FATAL: %s: %s (%d)\n", what, name ? name : "?", r);
        exit(1);
    }
}

void gpu_open(void)
{
    const char *named = getenv("GEMMD_LIBCUDA");
    void *library = dlopen(named ? named : "libcuda.so.1", RTLD_NOW);
#define X(member, symbol, parameters)                                                              \
    *(void **)&cu.member = library ? dlsym(library, symbol) : NULL;                                \
    if (!cu.member) {                                                                              \
        fprintf(stderr, "FATAL: libcuda has no %s\n", symbol);                                     \
        exit(1);                                                                                   \
    }
    FUNCTIONS(X)
#undef X
}

void *gpu_alloc(size_t bytes)
{
    pointer at;
    check(cu.alloc(&at, bytes ? bytes : 16), "cuMemAlloc");
    return (void *)(uintptr_t)at;
}

void gpu_free(void *at)
{
    if (at) {
        check(cu.release((pointer)(uintptr_t)at), "cuMemFree");
    }
}

void gpu_upload(void *to, const void *from, size_t bytes)
{
    check(bytes ? cu.upload((pointer)(uintptr_t)to, from, bytes) : 0, "cuMemcpyHtoD");
    gpu_wait(); /* a copy from pageable memory may return before it is complete */
}

void gpu_download(void *to, const void *from, size_t bytes)
{
    check(bytes ? cu.download(to, (pointer)(uintptr_t)from, bytes) : 0, "cuMemcpyDtoH");
}

void gpu_set(void *at, int byte, size_t bytes, gpu_stream stream)
{
    check(bytes ? cu.set((pointer)(uintptr_t)at, (unsigned char)byte, bytes, stream) : 0,
          "cuMemsetD8Async");
}

void gpu_copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                   size_t rows)
{
    struct copy_2d c = {.from_type = MEMORY_DEVICE,
                        .from = (pointer)(uintptr_t)from,
                        .from_pitch = from_pitch,
                        .to_type = MEMORY_DEVICE,
                        .to = (pointer)(uintptr_t)to,
                        .to_pitch = to_pitch,
                        .width = width,
                        .height = rows};
    check(width && rows ? cu.copy(&c) : 0, "cuMemcpy2D");
}

void gpu_wait(void)
{
    check(cu.wait(), "cuCtxSynchronize");
}

gpu_stream gpu_stream_new(void)
{
    enum { NON_BLOCKING = 1 };
    void *stream;
    check(cu.stream_create(&stream, NON_BLOCKING), "cuStreamCreate");
    return stream;
}

void gpu_stream_free(gpu_stream stream)
{
    check(cu.stream_destroy(stream), "cuStreamDestroy");
}

void gpu_capture_begin(gpu_stream stream)
{
    enum { GLOBAL = 0 }; /* the strictest mode: any unsafe call, by any thread, fails the capture */
    check(cu.capture_begin(stream, GLOBAL), "cuStreamBeginCapture");
}

gpu_graph gpu_capture_end(gpu_stream stream)
{
    void *graph, *ready;
    check(cu.capture_end(stream, &graph), "cuStreamEndCapture");
    check(cu.instantiate(&ready, graph, 0), "cuGraphInstantiate");
    check(cu.graph_destroy(graph), "cuGraphDestroy");
    return ready;
}

void gpu_graph_launch(gpu_graph graph, gpu_stream stream)
{
    check(cu.graph_launch(graph, stream), "cuGraphLaunch");
}

void gpu_graph_free(gpu_graph graph)
{
    check(cu.ready_destroy(graph), "cuGraphExecDestroy");
}

double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
