/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/devices/cuda/module.h"

#include <pthread.h>

enum { DEVICES_MAX = 32 };

/* Each thread block records its SM, and keeps the SM until all have started. */
static const char source[] = ".version 7.8\n"
                             ".target sm_90\n"
                             ".address_size 64\n"
                             ".visible .entry where(.param .u64 sms)\n"
                             "{\n"
                             "    .reg .u64 at, offset, begin, now;\n"
                             "    .reg .u32 block, sm;\n"
                             "    .reg .pred early;\n"
                             "    ld.param.u64 at, [sms];\n"
                             "    cvta.to.global.u64 at, at;\n"
                             "    mov.u32 block, %ctaid.x;\n"
                             "    mul.wide.u32 offset, block, 4;\n"
                             "    add.u64 at, at, offset;\n"
                             "    mov.u32 sm, %smid;\n"
                             "    st.global.u32 [at], sm;\n"
                             "    mov.u64 begin, %clock64;\n"
                             "WAIT:\n"
                             "    mov.u64 now, %clock64;\n"
                             "    sub.u64 now, now, begin;\n"
                             "    setp.lt.u64 early, now, 20000;\n"
                             "    @early bra WAIT;\n"
                             "    ret;\n"
                             "}\n";

struct asking {
    CUmodule module;
    CUfunction where;
    CUstream stream;
    CUdeviceptr sms; /* the SM of each thread block */
    int n, smem;
};

static bool cuda_order_begin(struct asking *a, CUdevice device)
{
    const CUdevice_attribute sms = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                             smem = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    int major = 0;
    return !cuda.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) &&
           major >= 9 && !cuda.device_attribute(&a->n, sms, device) &&
           a->n <= LAUNCH_ORDER_SMS_MAX && !cuda.device_attribute(&a->smem, smem, device) &&
           !cuda.module_load(&a->module, source) &&
           !cuda.module_function(&a->where, a->module, "where") &&
           !cuda.function_set(a->where, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, a->smem) &&
           !cuda.stream_create(&a->stream, CU_STREAM_NON_BLOCKING) &&
           !cuda.memory_allocate(&a->sms, sizeof(int32_t) * LAUNCH_ORDER_SMS_MAX);
}

/* Launches a thread block for each SM, and copies each thread block's SM to sm_of. Each requests
 * all of an SM's shared memory, so that an SM gets only one. */
static bool cuda_order_ask(struct asking *a, unsigned cluster, int32_t sm_of[LAUNCH_ORDER_SMS_MAX])
{
    CUlaunchAttribute size = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    size.value.clusterDim.x = cluster;
    size.value.clusterDim.y = size.value.clusterDim.z = 1;
    const CUlaunchConfig config = {
        .gridDimX = (unsigned)a->n,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = (unsigned)a->smem,
        .hStream = a->stream,
        .attrs = &size,
        .numAttrs = cluster > 1,
    };
    void *params[] = {&a->sms};
    const size_t bytes = sizeof(int32_t) * (size_t)a->n;
    return !cuda.launch(&config, a->where, params, NULL) &&
           !cuda.memory_download_async(sm_of, a->sms, bytes, a->stream) &&
           !cuda.stream_wait(a->stream);
}

static void cuda_order_end(struct asking *a)
{
    if (a->sms) {
        cuda.memory_free(a->sms);
    }
    if (a->stream) {
        cuda.stream_destroy(a->stream);
    }
    if (a->module) {
        cuda.module_unload(a->module);
    }
}

/* In relaxed capture mode: in the default mode most calls invalidate other threads' captures. */
static void find_out(CUdevice device, struct launch_order *out)
{
    int32_t single[LAUNCH_ORDER_SMS_MAX], paired[LAUNCH_ORDER_SMS_MAX];
    struct asking a = {0};
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    *out = (struct launch_order){0};
    if (!cuda.capture_mode || !cuda.memory_download_async || cuda.capture_mode(&mode)) {
        return;
    }
    if (cuda_order_begin(&a, device) && cuda_order_ask(&a, 1, single) &&
        cuda_order_ask(&a, 2, paired)) {
        launch_order_make(single, paired, (uint32_t)a.n, out);
    }
    cuda_order_end(&a);
    cuda.capture_mode(&mode);
}

/* One lock for each device, not one for all: find_out() frees memory, which may wait for all work
 * of the context. That work may be a collective that waits for a thread with another device. */
static struct {
    pthread_mutex_t lock;
    bool asked;
    struct launch_order order;
} devices[DEVICES_MAX];

static void make_locks(void)
{
    for (int i = 0; i < DEVICES_MAX; i++) {
        pthread_mutex_init(&devices[i].lock, NULL);
    }
}

const struct launch_order *cuda_order(CUdevice device)
{
    static const struct launch_order not_known;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locks);
    if (device < 0 || device >= DEVICES_MAX) {
        return &not_known;
    }
    pthread_mutex_lock(&devices[device].lock);
    if (!devices[device].asked) {
        find_out(device, &devices[device].order);
        devices[device].asked = true;
    }
    pthread_mutex_unlock(&devices[device].lock);
    return &devices[device].order;
}
