/* SPDX-License-Identifier: Apache-2.0 */
/* The stub of libcuda: modules, functions, launches (emulate.h), tensor maps. */
#include <stdbool.h>

#include "tests/cuda_stub/emulate.h"
#include "tests/cuda_stub/libcuda.h"
#include "tests/unit/cuda/emulate_launch.h"

struct attribute { /* CUlaunchAttribute */
    int which;
    char reserved[4];
    unsigned value[16];
};
struct config { /* CUlaunchConfig */
    unsigned grid[3], block[3], smem;
    void *stream;
    const struct attribute *attributes;
    unsigned n_attributes;
};

enum { FUNCTIONS_MAX = 16 };

struct module;
struct function {
    struct module *module; /* borrowed */
    char name[64];
};
struct module {
    void *context;             /* current at loading */
    struct emulated *emulated; /* owned; NULL: launches compute nothing */
    int n;
    struct function functions[FUNCTIONS_MAX];
};

STUB_EXPORT result cuModuleLoadData(struct module **module, const void *image);
STUB_EXPORT result cuModuleLoadData(struct module **module, const void *image)
{
    MAY_FAIL();
    *module = calloc(1, sizeof(**module));
    (*module)->context = stub_context();
    (*module)->emulated = emulated_load(image);
    stub_objects++;
    return SUCCESS;
}

STUB_EXPORT result cuModuleUnload(struct module *module);
STUB_EXPORT result cuModuleUnload(struct module *module)
{
    if (module->context != stub_context()) {
        return INVALID_CONTEXT;
    }
    emulated_unload(module->emulated);
    free(module);
    stub_objects--;
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

/* The kernel `where`, by which kernels/devices/cuda/order.c asks for the SM of each thread block.
 * Single block i runs on SM i, the first cluster of two blocks on the last two SMs, and so on. */
static result say_where(const struct config *c, int *sms)
{
    for (unsigned block = 0; block < c->grid[0]; block++) {
        sms[block] = (int)(c->n_attributes ? c->grid[0] - 2 - block / 2 * 2 + block % 2 : block);
    }
    return SUCCESS;
}

/* Thread blocks in a cluster. */
static unsigned cluster_of(const struct config *c)
{
    enum { CLUSTER_DIMENSION = 4 };
    unsigned size = 1;
    for (unsigned i = 0; i < c->n_attributes; i++) {
        size *= c->attributes[i].which == CLUSTER_DIMENSION ? c->attributes[i].value[0] : 1;
    }
    return size;
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
    if (strcmp(f->name, "where") == 0) {
        return say_where(c, *(int **)params[0]);
    }
    if (!getenv("GEMMD_STUB_EMULATE")) {
        return SUCCESS;
    }
    return emulated_launch(f->module->emulated, f->name, c->grid, cluster_of(c), c->block[0],
                           c->smem, params[0]);
}

/* Checks arguments as the driver does. Writes a struct emulate_map into `map`, which
 * tests/unit/cuda/emulate_hopper.h reads. */
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
