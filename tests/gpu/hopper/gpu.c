/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/gpu.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/launch_order.h"

#define DRIVER(X)                                                                                  \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(error_string, "cuGetErrorString", (CUresult r, const char **text))                           \
    X(device_get, "cuDeviceGet", (CUdevice * device, int ordinal))                                 \
    X(device_name, "cuDeviceGetName", (char *name, int size, CUdevice device))                     \
    X(device_attribute, "cuDeviceGetAttribute", (int *v, CUdevice_attribute which, CUdevice d))    \
    X(context_retain, "cuDevicePrimaryCtxRetain", (CUcontext * c, CUdevice d))                     \
    X(context_set, "cuCtxSetCurrent", (CUcontext c))                                               \
    X(module_load, "cuModuleLoadData", (CUmodule * m, const void *image))                          \
    X(module_unload, "cuModuleUnload", (CUmodule m))                                               \
    X(module_function, "cuModuleGetFunction", (CUfunction * f, CUmodule m, const char *name))      \
    X(function_set, "cuFuncSetAttribute", (CUfunction f, CUfunction_attribute which, int v))       \
    X(launch_config, "cuLaunchKernelEx",                                                           \
      (const CUlaunchConfig *config, CUfunction f, void **params, void **extra))                   \
    X(launch, "cuLaunchKernel",                                                                    \
      (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
       unsigned smem, CUstream s, void **params, void **extra))                                    \
    X(allocate, "cuMemAlloc_v2", (CUdeviceptr * p, size_t bytes))                                  \
    X(release, "cuMemFree_v2", (CUdeviceptr p))                                                    \
    X(memory_info, "cuMemGetInfo_v2", (size_t * available, size_t * total))                        \
    X(upload, "cuMemcpyHtoDAsync_v2",                                                              \
      (CUdeviceptr to, const void *from, size_t bytes, CUstream s))                                \
    X(download, "cuMemcpyDtoHAsync_v2", (void *to, CUdeviceptr from, size_t bytes, CUstream s))    \
    X(copy, "cuMemcpyDtoDAsync_v2", (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s))  \
    X(fill, "cuMemsetD8Async", (CUdeviceptr p, unsigned char v, size_t bytes, CUstream s))         \
    X(stream_create, "cuStreamCreate", (CUstream * s, unsigned flags))                             \
    X(stream_wait, "cuStreamSynchronize", (CUstream s))                                            \
    X(event_create, "cuEventCreate", (CUevent * e, unsigned flags))                                \
    X(event_record, "cuEventRecord", (CUevent e, CUstream s))                                      \
    X(event_wait, "cuEventSynchronize", (CUevent e))                                               \
    X(event_elapsed, "cuEventElapsedTime", (float *ms, CUevent a, CUevent b))                      \
    X(encode_tiled, "cuTensorMapEncodeTiled",                                                      \
      (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *base,                   \
       const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,                    \
       const cuuint32_t *step, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,       \
       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill))

#define X(name, symbol, params) static CUresult(*name) params;
DRIVER(X)
#undef X

static CUstream stream;
static CUevent events[2];
static struct launch_order order; /* of the device */

static void check(CUresult r, const char *what)
{
    if (r != CUDA_SUCCESS) {
        const char *text = NULL;
        if (error_string) {
            error_string(r, &text);
        }
        printf("FAULT %s: %d %s\n", what, (int)r, text ? text : "");
        fflush(stdout);
        _exit(4);
    }
}

static void *symbol(void *library, const char *name)
{
    void *s = dlsym(library, name);
    if (!s) {
        printf("FAULT no %s\n", name);
        fflush(stdout);
        _exit(4);
    }
    return s;
}

static int attribute(CUdevice d, CUdevice_attribute which)
{
    int v = 0;
    check(device_attribute(&v, which, d), "attribute");
    return v;
}

void gpu_open(struct device_info *info)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("SKIP %s\n", dlerror());
        fflush(stdout);
        exit(77);
    }
#define X(name, text, params) *(void **)&name = symbol(library, text);
    DRIVER(X)
#undef X
    CUdevice d;
    CUcontext c;
    check(init(0), "cuInit");
    check(device_get(&d, 0), "device");
    check(context_retain(&c, d), "context");
    check(context_set(c), "context");
    check(stream_create(&stream, CU_STREAM_NON_BLOCKING), "stream");
    check(event_create(&events[0], 0), "event");
    check(event_create(&events[1], 0), "event");
    *info = (struct device_info){
        .kind = "cuda",
        .arch = "sm_90a",
        .sm_count = attribute(d, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        .cc_major = attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        .cc_minor = attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        .smem_optin = attribute(d, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        .regs_per_block = attribute(d, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        .l2_bytes = attribute(d, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
        .warp_size = 32,
    };
    check(device_name(info->name, sizeof(info->name), d), "name");
}

static CUdeviceptr address(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

void *gpu_alloc(size_t bytes)
{
    CUdeviceptr p = 0;
    check(allocate(&p, bytes ? bytes : 16), "allocate");
    return (void *)(uintptr_t)p;
}

void gpu_free(void *p)
{
    if (p) {
        check(release(address(p)), "free");
    }
}

void gpu_upload(void *to, const void *from, size_t bytes)
{
    check(upload(address(to), from, bytes, stream), "upload");
    gpu_wait();
}

void gpu_download(void *to, const void *from, size_t bytes)
{
    check(download(to, address(from), bytes, stream), "download");
    gpu_wait();
}

void gpu_fill(void *to, uint8_t value, size_t bytes)
{
    check(fill(address(to), value, bytes, stream), "fill");
}

void gpu_copy(void *to, const void *from, size_t bytes)
{
    check(copy(address(to), address(from), bytes, stream), "copy");
}

void gpu_wait(void)
{
    check(stream_wait(stream), "wait");
}

size_t gpu_free_bytes(void)
{
    size_t available = 0, total = 0;
    check(memory_info(&available, &total), "memory");
    return available;
}

void gpu_load(struct gpu_module *m, const void *image)
{
    CUmodule module;
    *m = (struct gpu_module){0};
    check(module_load(&module, image), "load a module");
    m->module = module;
}

void gpu_unload(struct gpu_module *m)
{
    if (m->module) {
        check(module_unload(m->module), "unload");
        m->module = NULL;
    }
}

static CUfunction entry_of(struct gpu_module *m, const char *name, uint32_t smem)
{
    uint32_t i = 0;
    while (i < m->n && strcmp(m->entries[i].name, name) != 0) {
        i++;
    }
    if (i == m->n) {
        CUfunction f;
        check(module_function(&f, m->module, name), name);
        m->n += i + 1 <
                GPU_ENTRIES_MAX; /* when all slots are taken, the last slot gets the new entry */
        snprintf(m->entries[i].name, sizeof(m->entries[i].name), "%s", name);
        m->entries[i].function = f;
        m->entries[i].smem = 0;
    }
    if (smem > m->entries[i].smem && smem > 48 * 1024) {
        check(function_set(m->entries[i].function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                           (int)smem),
              "shared memory");
        m->entries[i].smem = smem;
    }
    return m->entries[i].function;
}

static void encode(const struct tensor_map *m, void *to)
{
    const CUtensorMapDataType type = m->dtype == DTYPE_BF16   ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                     : m->dtype == DTYPE_FP16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                              : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    const cuuint32_t step[5] = {1, 1, 1, 1, 1};
    CUtensorMap map;
    if (m->swizzle != 128 ||
        m->l2_promotion != 256) { /* all maps of this template have this swizzle and promotion */
        printf("FAULT a tensor map of swizzle %u and promotion %u: encode it as it says\n",
               m->swizzle, m->l2_promotion);
        fflush(stdout);
        _exit(4);
    }
    check(encode_tiled(&map, type, m->rank, (void *)(uintptr_t)m->base, (const cuuint64_t *)m->size,
                       (const cuuint64_t *)m->stride, m->box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                       CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
          "encode a tensor map");
    memcpy(to, &map, sizeof(map));
}

void gpu_launch(struct gpu_module *m, const struct launch *l)
{
    if (l->zero_bytes) {
        gpu_fill(l->zero, 0, (size_t)l->zero_bytes);
        return;
    }
    CUfunction f = entry_of(m, l->entry, l->smem_bytes);
    _Alignas(64) uint8_t bytes[LAUNCH_PARAMS_MAX];
    memcpy(bytes, l->params, l->params_bytes);
    for (uint32_t i = 0; i < l->n_maps; i++) {
        encode(&l->maps[i], bytes + l->maps[i].offset);
    }
    if (launch_is_ordered(l, &order)) {
        memcpy(bytes + l->order_at, order.place, order.n);
    }
    void *params[] = {bytes};
    CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    cluster.value.clusterDim.x = l->cluster[0];
    cluster.value.clusterDim.y = l->cluster[1];
    cluster.value.clusterDim.z = l->cluster[2];
    const CUlaunchConfig config = {
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
    check(launch_config(&config, f, params, NULL), l->entry);
}

void gpu_run(struct gpu_module *m, const char *entry, uint32_t blocks_x, uint32_t blocks_y,
             uint32_t threads, const void *params, size_t bytes)
{
    _Alignas(64) uint8_t copied[LAUNCH_PARAMS_MAX];
    memcpy(copied, params, bytes);
    void *all[] = {copied};
    check(launch(entry_of(m, entry, 0), blocks_x, blocks_y, 1, threads, 1, 1, 0, stream, all, NULL),
          entry);
}

static void ask_order(struct gpu_module *m, const struct device_info *info, uint32_t cluster,
                      int32_t *sm_of)
{
    const size_t bytes = sizeof(int32_t) * (size_t)info->sm_count;
    void *at = gpu_alloc(bytes);
    struct launch l = {
        .entry = "tool_where",
        .grid = {(uint32_t)info->sm_count, 1, 1},
        .block = {32, 1, 1},
        .cluster = {cluster, 1, 1},
        .smem_bytes = (uint32_t)info->smem_optin, /* so much shared memory that an SM has room for
                                                     one thread block only */
        .params_bytes = sizeof(at),
    };
    memcpy(l.params, &at, sizeof(at));
    gpu_launch(m, &l);
    gpu_download(sm_of, at, bytes);
    gpu_free(at);
}

void gpu_learn_order(struct gpu_module *tools, const struct device_info *info)
{
    int32_t single[LAUNCH_ORDER_SMS_MAX], paired[LAUNCH_ORDER_SMS_MAX];
    if (info->sm_count > LAUNCH_ORDER_SMS_MAX || getenv("HOPPER_BENCH_NO_ORDER")) {
        return;
    }
    ask_order(tools, info, 0, single);
    ask_order(tools, info, 2, paired);
    launch_order_make(single, paired, (uint32_t)info->sm_count, &order);
}

void gpu_mark(int which)
{
    check(event_record(events[which], stream), "event");
}

double gpu_elapsed_us(void)
{
    float ms = 0;
    check(event_wait(events[1]), "event");
    check(event_elapsed(&ms, events[0], events[1]), "event");
    return (double)ms * 1e3;
}
