/* SPDX-License-Identifier: Apache-2.0 */
/* The stub of libcuda (stub.h, emulate.h). GPU memory is host memory, so that copies really copy.
 */
#include "tests/cuda_stub/emulate.h"
#include "tests/cuda_stub/stub.h"

#include <stdbool.h>

#include "tests/unit/cuda/emulate_launch.h"

/* Symbols with their ABI version, as they are in the library; prototypes are our own. */
typedef int result;
typedef unsigned long long pointer;
enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_CONTEXT = 201, NOT_FOUND = 500 };

struct config { /* of CUlaunchConfig, what is looked at */
    unsigned grid[3], block[3], smem;
};

enum { FUNCTIONS_MAX = 16 };

struct module;
struct function {
    struct module *module; /* borrowed */
    char name[64];
};
struct module {
    struct emulated *emulated; /* owned; NULL: launches do nothing */
    int n;
    struct function functions[FUNCTIONS_MAX];
};

static int stub_calls, live;
static char context_of_stub, stream_of_stub, event_of_stub;
static void *current;

#define MAY_FAIL() STUB_MAY_FAIL(result)

STUB_EXPORT int stub_live(void);
STUB_EXPORT int stub_live(void)
{
    return live;
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

STUB_EXPORT result cuInit(unsigned flags);
STUB_EXPORT result cuInit(unsigned flags)
{
    (void)flags;
    MAY_FAIL();
    return SUCCESS;
}

/* ---- devices -----------------------------------------------------------------------------------
 */

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

/* ---- contexts, streams, events -----------------------------------------------------------------
 */

STUB_EXPORT result cuCtxCreate_v2(void **context, unsigned flags, int device);
STUB_EXPORT result cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    (void)flags, (void)device;
    MAY_FAIL();
    *context = current = &context_of_stub;
    live++;
    return SUCCESS;
}

STUB_EXPORT result cuCtxDestroy_v2(void *context);
STUB_EXPORT result cuCtxDestroy_v2(void *context)
{
    (void)context;
    current = NULL;
    live--;
    return SUCCESS;
}

static void *current_context(void)
{
    return current || stub_number("GEMMD_STUB_NO_CONTEXT", 0) ? current : &context_of_stub;
}

STUB_EXPORT result cuCtxGetCurrent(void **context);
STUB_EXPORT result cuCtxGetCurrent(void **context)
{
    MAY_FAIL();
    *context = current_context();
    return SUCCESS;
}

STUB_EXPORT result cuCtxGetDevice(int *device);
STUB_EXPORT result cuCtxGetDevice(int *device)
{
    MAY_FAIL();
    *device = 0;
    return current_context() ? SUCCESS : INVALID_CONTEXT;
}

STUB_EXPORT result cuStreamCreate(void **stream, unsigned flags);
STUB_EXPORT result cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    MAY_FAIL();
    *stream = &stream_of_stub;
    live++;
    return SUCCESS;
}

STUB_EXPORT result cuStreamDestroy_v2(void *stream);
STUB_EXPORT result cuStreamDestroy_v2(void *stream)
{
    (void)stream;
    live--;
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
    live++;
    return SUCCESS;
}

STUB_EXPORT result cuEventDestroy_v2(void *event);
STUB_EXPORT result cuEventDestroy_v2(void *event)
{
    (void)event;
    live--;
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
    *ms = 0.25f;
    return SUCCESS;
}

/* ---- modules -------------------------------------------------------------------------------- */

STUB_EXPORT result cuModuleLoadData(struct module **module, const void *image);
STUB_EXPORT result cuModuleLoadData(struct module **module, const void *image)
{
    MAY_FAIL();
    *module = calloc(1, sizeof(**module));
    (*module)->emulated = emulated_load(image);
    live++;
    return SUCCESS;
}

STUB_EXPORT result cuModuleUnload(struct module *module);
STUB_EXPORT result cuModuleUnload(struct module *module)
{
    emulated_unload(module->emulated);
    free(module);
    live--;
    return SUCCESS;
}

STUB_EXPORT result cuModuleGetFunction(struct function **function, struct module *module,
                                       const char *name);
STUB_EXPORT result cuModuleGetFunction(struct function **function, struct module *module,
                                       const char *name)
{
    MAY_FAIL();
    if (strcmp(name, "absent") == 0 || module->n == FUNCTIONS_MAX) {
        return NOT_FOUND;
    }
    struct function *f = &module->functions[module->n++];
    f->module = module;
    snprintf(f->name, sizeof(f->name), "%s", name);
    *function = f;
    return SUCCESS;
}

STUB_EXPORT result cuModuleGetFunctionCount(unsigned *n, void *module);
STUB_EXPORT result cuModuleGetFunctionCount(unsigned *n, void *module)
{
    (void)module;
    MAY_FAIL();
    *n = 2;
    return SUCCESS;
}

STUB_EXPORT result cuModuleEnumerateFunctions(void **functions, unsigned n, void *module);
STUB_EXPORT result cuModuleEnumerateFunctions(void **functions, unsigned n, void *module)
{
    MAY_FAIL();
    for (unsigned i = 0; i < n; i++) {
        functions[i] = module;
    }
    return SUCCESS;
}

STUB_EXPORT result cuFuncLoad(void *function);
STUB_EXPORT result cuFuncLoad(void *function)
{
    (void)function;
    MAY_FAIL();
    return SUCCESS;
}

STUB_EXPORT result cuFuncGetAttribute(int *value, int which, void *function);
STUB_EXPORT result cuFuncGetAttribute(int *value, int which, void *function)
{
    enum { THREADS = 0, SHARED = 1 };
    (void)function;
    MAY_FAIL();
    *value = which == THREADS ? 512 : which == SHARED ? (int)stub_number("GEMMD_STUB_SMEM", 0) : 64;
    return SUCCESS;
}

STUB_EXPORT result cuFuncSetAttribute(void *function, int which, int value);
STUB_EXPORT result cuFuncSetAttribute(void *function, int which, int value)
{
    (void)function, (void)which, (void)value;
    MAY_FAIL();
    return SUCCESS;
}

STUB_EXPORT result cuLaunchKernelEx(const struct config *c, struct function *f, void **params,
                                    void **extra);
STUB_EXPORT result cuLaunchKernelEx(const struct config *c, struct function *f, void **params,
                                    void **extra)
{
    (void)extra;
    MAY_FAIL();
    if (!c->grid[0] || !c->grid[1] || !c->grid[2] || !c->block[0] || !c->block[1] || !c->block[2]) {
        return INVALID_VALUE;
    }
    if (!getenv("GEMMD_STUB_EMULATE")) {
        return SUCCESS;
    }
    return emulated_launch(f->module->emulated, f->name, c->grid, c->block[0], c->smem, params[0]);
}

/* The description instead (tests/unit/cuda/emulate_hopper.h reads it), checked as the driver does.
 */
STUB_EXPORT result cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *base,
                                          const uint64_t *size, const uint64_t *stride,
                                          const unsigned *box, const unsigned *step, int interleave,
                                          int swizzle, int promotion, int fill);
STUB_EXPORT result cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *base,
                                          const uint64_t *size, const uint64_t *stride,
                                          const unsigned *box, const unsigned *step, int interleave,
                                          int swizzle, int promotion, int fill)
{
    enum { FLOAT32 = 7 };
    struct emulate_map m = {.base = base, .rank = rank, .element = type == FLOAT32 ? 4 : 2};
    (void)step, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    MAY_FAIL();
    for (unsigned i = 0; i < rank; i++) {
        bool fits = size[i] > 0 && size[i] <= (uint64_t)1 << 32 && box[i] > 0 && box[i] <= 256;
        if (!fits || (i && (stride[i - 1] % 16 || stride[i - 1] >> 40))) {
            return INVALID_VALUE;
        }
        m.size[i] = size[i];
        m.box[i] = box[i];
        m.stride[i ? i - 1 : 0] = i ? stride[i - 1] : 0;
    }
    if ((uintptr_t)base % 16 || (uintptr_t)map % 64) {
        return INVALID_VALUE;
    }
    memset(map, 0, 128);
    memcpy(map, &m, sizeof(m));
    return SUCCESS;
}

/* ---- memory --------------------------------------------------------------------------------- */

STUB_EXPORT result cuMemAlloc_v2(pointer *at, size_t bytes);
STUB_EXPORT result cuMemAlloc_v2(pointer *at, size_t bytes)
{
    MAY_FAIL();
    *at = (pointer)(size_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
    live++;
    return SUCCESS;
}

STUB_EXPORT result cuMemFree_v2(pointer at);
STUB_EXPORT result cuMemFree_v2(pointer at)
{
    free((void *)(size_t)at);
    live--;
    return SUCCESS;
}

STUB_EXPORT result cuMemGetInfo_v2(size_t *available, size_t *total);
STUB_EXPORT result cuMemGetInfo_v2(size_t *available, size_t *total)
{
    MAY_FAIL();
    *available = (size_t)stub_number("GEMMD_STUB_FREE", 1 << 30);
    *total = (size_t)80 << 30;
    return SUCCESS;
}

STUB_EXPORT result cuMemcpyHtoDAsync_v2(pointer to, const void *from, size_t bytes, void *stream);
STUB_EXPORT result cuMemcpyHtoDAsync_v2(pointer to, const void *from, size_t bytes, void *stream)
{
    (void)stream;
    MAY_FAIL();
    memcpy((void *)(size_t)to, from, bytes);
    return SUCCESS;
}

STUB_EXPORT result cuMemcpyDtoH_v2(void *to, pointer from, size_t bytes);
STUB_EXPORT result cuMemcpyDtoH_v2(void *to, pointer from, size_t bytes)
{
    MAY_FAIL();
    memcpy(to, (const void *)(size_t)from, bytes);
    return SUCCESS;
}

STUB_EXPORT result cuMemcpyDtoDAsync_v2(pointer to, pointer from, size_t bytes, void *stream);
STUB_EXPORT result cuMemcpyDtoDAsync_v2(pointer to, pointer from, size_t bytes, void *stream)
{
    (void)stream;
    MAY_FAIL();
    memcpy((void *)(size_t)to, (const void *)(size_t)from, bytes);
    return SUCCESS;
}

STUB_EXPORT result cuMemsetD8Async(pointer at, unsigned char value, size_t bytes, void *stream);
STUB_EXPORT result cuMemsetD8Async(pointer at, unsigned char value, size_t bytes, void *stream)
{
    (void)stream;
    MAY_FAIL();
    memset((void *)(size_t)at, value, bytes);
    return SUCCESS;
}

/* ---- what only tests/gpu asks for ----------------------------------------------------------- */

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

STUB_EXPORT result cuMemcpy2DUnaligned_v2(const struct copy_2d *c);
STUB_EXPORT result cuMemcpy2DUnaligned_v2(const struct copy_2d *c)
{
    for (size_t i = 0; i < c->height; i++) {
        memcpy((char *)(size_t)c->to + i * c->to_pitch,
               (const char *)(size_t)c->from + i * c->from_pitch, c->width);
    }
    return SUCCESS;
}

STUB_EXPORT result cuMemcpyHtoD_v2(pointer to, const void *from, size_t bytes);
STUB_EXPORT result cuMemcpyHtoD_v2(pointer to, const void *from, size_t bytes)
{
    memcpy((void *)(size_t)to, from, bytes);
    return SUCCESS;
}

STUB_EXPORT result cuCtxSynchronize(void);
STUB_EXPORT result cuCtxSynchronize(void)
{
    return SUCCESS;
}

/* Captures are not recorded: work is done at once, and the graph is empty. */
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
