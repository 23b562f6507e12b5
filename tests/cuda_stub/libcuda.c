/* SPDX-License-Identifier: Apache-2.0 */
/* The stub of libcuda (stub.h): errors, versions, GPUs, contexts, streams, events. */
#include <unistd.h>

#include "tests/cuda_stub/libcuda.h"

int stub_calls, stub_objects;
static char context_of_stub, stream_of_stub, event_of_stub;
static void *current;

STUB_EXPORT int stub_live(void);
STUB_EXPORT int stub_live(void)
{
    return stub_objects;
}

/* ---- errors and versions -------------------------------------------------------------------- */

STUB_EXPORT result cuGetErrorName(int code, const char **text);
STUB_EXPORT result cuGetErrorName(int code, const char **text)
{
    static const struct {
        int code;
        const char *name;
    } names[] = {{1, "CUDA_ERROR_INVALID_VALUE"},
                 {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
                 {100, "CUDA_ERROR_NO_DEVICE"},
                 {201, "CUDA_ERROR_INVALID_CONTEXT"},
                 {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                 {500, "CUDA_ERROR_NOT_FOUND"},
                 {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                 {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
                 {719, "CUDA_ERROR_LAUNCH_FAILED"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].code == code) {
            *text = names[i].name;
            return SUCCESS;
        }
    }
    *text = NULL;
    return INVALID_VALUE;
}

STUB_EXPORT result cuGetErrorString(int code, const char **text);
STUB_EXPORT result cuGetErrorString(int code, const char **text)
{
    (void)code;
    *text = "said by the stub";
    return SUCCESS;
}

STUB_EXPORT result cuDriverGetVersion(int *version);
STUB_EXPORT result cuDriverGetVersion(int *version)
{
    *version = (int)stub_number("GEMMD_STUB_DRIVER", 13000);
    return SUCCESS;
}

void stub_wait_gate(void)
{
    const char *gate = getenv("GEMMD_STUB_GATE");
    FILE *f = gate ? fopen(gate, "r+") : NULL;
    if (f) {
        fseek(f, 0, SEEK_END);
        fputc('.', f);
        fclose(f);
    }
    while (gate && access(gate, F_OK) == 0) {
        usleep(10000);
    }
}

STUB_EXPORT result cuInit(unsigned flags);
STUB_EXPORT result cuInit(unsigned flags)
{
    (void)flags;
    MAY_FAIL();
    stub_wait_gate();
    return SUCCESS;
}

/* ---- devices --------------------------------------------------------------------------------- */

STUB_EXPORT result cuDeviceGetCount(int *n);
STUB_EXPORT result cuDeviceGetCount(int *n)
{
    MAY_FAIL();
    *n = (int)stub_number("GEMMD_STUB_DEVICES", 1);
    return SUCCESS;
}

STUB_EXPORT result cuDeviceGet(int *device, int ordinal);
STUB_EXPORT result cuDeviceGet(int *device, int ordinal)
{
    MAY_FAIL();
    *device = ordinal;
    return SUCCESS;
}

STUB_EXPORT result cuDeviceGetName(char *name, int size, int device);
STUB_EXPORT result cuDeviceGetName(char *name, int size, int device)
{
    (void)device;
    MAY_FAIL();
    snprintf(name, (size_t)size, "NVIDIA Stub MIG 1g.10gb");
    return SUCCESS;
}

STUB_EXPORT result cuDeviceGetUuid_v2(char uuid[16], int device);
STUB_EXPORT result cuDeviceGetUuid_v2(char uuid[16], int device)
{
    MAY_FAIL();
    for (int i = 0; i < 16; i++) {
        uuid[i] = (char)(16 * device + i);
    }
    long own = stub_number("GEMMD_STUB_UUID", 0);
    for (int i = 0; i < 4 && own; i++) {
        uuid[i] = (char)(own >> 8 * i);
    }
    return SUCCESS;
}

STUB_EXPORT result cuDeviceTotalMem_v2(size_t *bytes, int device);
STUB_EXPORT result cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    MAY_FAIL();
    *bytes = (size_t)80 << 30;
    return SUCCESS;
}

STUB_EXPORT result cuDeviceGetAttribute(int *value, int which, int device);
STUB_EXPORT result cuDeviceGetAttribute(int *value, int which, int device)
{
    static const struct {
        int which, value;
    } known[] = {{10, 32},      {12, 65536}, {13, 1000000}, {16, 4},      {36, 2000000}, {37, 4096},
                 {38, 1 << 16}, {75, 9},     {76, 0},       {81, 233472}, {97, 232448}};
    (void)device;
    MAY_FAIL();
    if (which == 20) {
        *value = (int)stub_number("GEMMD_STUB_MODE", 0);
        return SUCCESS;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].which == which) {
            *value = known[i].value;
            return SUCCESS;
        }
    }
    return INVALID_VALUE;
}

STUB_EXPORT result cuDeviceGetPCIBusId(char *id, int size, int device);
STUB_EXPORT result cuDeviceGetPCIBusId(char *id, int size, int device)
{
    MAY_FAIL();
    snprintf(id, (size_t)size, "0000:%02x:00.0", device);
    return SUCCESS;
}

STUB_EXPORT result cuThreadExchangeStreamCaptureMode(int *mode);
STUB_EXPORT result cuThreadExchangeStreamCaptureMode(int *mode)
{
    /* initial-exec: otherwise the thread-local block has a random address, and GCC 12's
     * LeakSanitizer crashes on some addresses (tests/unit/cuda/meson.build). */
    static __thread int now __attribute__((tls_model("initial-exec")));
    const int before = now;
    if (!getenv("GEMMD_STUB_ORDER")) {
        return NOT_SUPPORTED;
    }
    MAY_FAIL();
    now = *mode;
    *mode = before;
    return SUCCESS;
}

/* ---- contexts, streams, events --------------------------------------------------------------- */

STUB_EXPORT result cuCtxCreate_v2(void **context, unsigned flags, int device);
STUB_EXPORT result cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    (void)flags, (void)device;
    MAY_FAIL();
    *context = current = &context_of_stub;
    stub_objects++;
    return SUCCESS;
}

STUB_EXPORT result cuCtxDestroy_v2(void *context);
STUB_EXPORT result cuCtxDestroy_v2(void *context)
{
    (void)context;
    current = NULL;
    stub_objects--;
    return SUCCESS;
}

void *stub_context(void)
{
    return current || stub_number("GEMMD_STUB_NO_CONTEXT", 0) ? current : &context_of_stub;
}

enum { PUSHED_MAX = 8 };
static void *pushed[PUSHED_MAX]; /* below the current context */
static int n_pushed;

STUB_EXPORT result cuCtxPushCurrent_v2(void *context);
STUB_EXPORT result cuCtxPushCurrent_v2(void *context)
{
    MAY_FAIL();
    if (!context || n_pushed == PUSHED_MAX) {
        return INVALID_CONTEXT;
    }
    pushed[n_pushed++] = current;
    current = context;
    return SUCCESS;
}

STUB_EXPORT result cuCtxPopCurrent_v2(void **context);
STUB_EXPORT result cuCtxPopCurrent_v2(void **context)
{
    if (n_pushed == 0) {
        return INVALID_CONTEXT;
    }
    *context = current;
    current = pushed[--n_pushed];
    return SUCCESS;
}

STUB_EXPORT result cuCtxGetCurrent(void **context);
STUB_EXPORT result cuCtxGetCurrent(void **context)
{
    MAY_FAIL();
    *context = stub_context();
    return SUCCESS;
}

STUB_EXPORT result cuCtxGetDevice(int *device);
STUB_EXPORT result cuCtxGetDevice(int *device)
{
    MAY_FAIL();
    *device = 0;
    return stub_context() ? SUCCESS : INVALID_CONTEXT;
}

STUB_EXPORT result cuStreamCreate(void **stream, unsigned flags);
STUB_EXPORT result cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    MAY_FAIL();
    *stream = &stream_of_stub;
    stub_objects++;
    return SUCCESS;
}

STUB_EXPORT result cuStreamDestroy_v2(void *stream);
STUB_EXPORT result cuStreamDestroy_v2(void *stream)
{
    (void)stream;
    stub_objects--;
    return SUCCESS;
}

STUB_EXPORT result cuStreamSynchronize(void *stream);
STUB_EXPORT result cuStreamSynchronize(void *stream)
{
    (void)stream;
    MAY_FAIL();
    return SUCCESS;
}

STUB_EXPORT result cuEventCreate(void **event, unsigned flags);
STUB_EXPORT result cuEventCreate(void **event, unsigned flags)
{
    (void)flags;
    MAY_FAIL();
    *event = &event_of_stub;
    stub_objects++;
    return SUCCESS;
}

STUB_EXPORT result cuEventDestroy_v2(void *event);
STUB_EXPORT result cuEventDestroy_v2(void *event)
{
    (void)event;
    stub_objects--;
    return SUCCESS;
}

STUB_EXPORT result cuEventRecord(void *event, void *stream);
STUB_EXPORT result cuEventRecord(void *event, void *stream)
{
    (void)event, (void)stream;
    MAY_FAIL();
    return SUCCESS;
}

STUB_EXPORT result cuEventSynchronize(void *event);
STUB_EXPORT result cuEventSynchronize(void *event)
{
    (void)event;
    MAY_FAIL();
    return SUCCESS;
}

STUB_EXPORT result cuEventElapsedTime(float *ms, void *begin, void *end);
STUB_EXPORT result cuEventElapsedTime(float *ms, void *begin, void *end)
{
    (void)begin, (void)end;
    MAY_FAIL();
    const char *us = getenv(STUB_TIME);
    *ms = us ? strtof(us, NULL) / 1e3f : 0.25f;
    unsetenv(STUB_TIME);
    return SUCCESS;
}

/* ---- calls of tests/gpu only ---------------------------------------------------------------- */

STUB_EXPORT result cuCtxSynchronize(void);
STUB_EXPORT result cuCtxSynchronize(void)
{
    return SUCCESS;
}

/* A capture records nothing: calls run at once, and launching the graph does nothing. */
STUB_EXPORT result cuStreamBeginCapture_v2(void *stream, int mode);
STUB_EXPORT result cuStreamBeginCapture_v2(void *stream, int mode)
{
    (void)stream, (void)mode;
    return SUCCESS;
}

STUB_EXPORT result cuStreamEndCapture(void *stream, void **graph);
STUB_EXPORT result cuStreamEndCapture(void *stream, void **graph)
{
    *graph = stream;
    return SUCCESS;
}

STUB_EXPORT result cuGraphInstantiateWithFlags(void **ready, void *graph, unsigned long long flags);
STUB_EXPORT result cuGraphInstantiateWithFlags(void **ready, void *graph, unsigned long long flags)
{
    (void)flags;
    *ready = graph;
    return SUCCESS;
}

STUB_EXPORT result cuGraphLaunch(void *ready, void *stream);
STUB_EXPORT result cuGraphLaunch(void *ready, void *stream)
{
    (void)ready, (void)stream;
    return SUCCESS;
}

STUB_EXPORT result cuGraphDestroy(void *graph);
STUB_EXPORT result cuGraphDestroy(void *graph)
{
    (void)graph;
    return SUCCESS;
}

STUB_EXPORT result cuGraphExecDestroy(void *ready);
STUB_EXPORT result cuGraphExecDestroy(void *ready)
{
    (void)ready;
    return SUCCESS;
}
