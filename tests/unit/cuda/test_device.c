/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda device over stubs of its libraries: what is said when something is missing, too old,
 * taken or broken, and that nothing is left behind. Each case runs in a process of its own, since
 * the libraries are opened once per process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <elf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/device.h"
#include "kernels/launcher.h"

#define UUID_0 "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f"

/* ---- cases in children ---------------------------------------------------------------------- */

static void stubs(void)
{
    setenv("GEMMD_LIBCUDA", STUB_CUDA, 1);
    setenv("GEMMD_NVRTC", STUB_NVRTC, 1);
    setenv("GEMMD_LIBNVML", STUB_NVML, 1);
}

/* What a child says is wrong; it ends there. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void expect(int r, int code, const struct error *err, const char *words)
{
    if (r != code || (words && !strstr(err->text, words))) {
        fprintf(stderr, "got %d (%s), expected %d (%s) with \"%s\"\n", r, err->text, code,
                error_name(code), words ? words : "");
        exit(1);
    }
}

static int exit_code(void (*run)(const void *), const void *arg)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        stubs();
        run(arg);
        exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void in_child(void (*run)(const void *), const void *arg)
{
    assert_int_equal(exit_code(run, arg), 0);
}

static int live(void)
{
    void *library = dlopen(STUB_CUDA, RTLD_NOW | RTLD_NOLOAD);
    int (*ask)(void) = NULL;
    if (library) {
        *(void **)&ask = dlsym(library, "stub_live");
    }
    return ask ? ask() : 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

struct opening {
    const char *name, *value; /* of the environment */
    const char *spec;
    int code;
    const char *words;
};

static void make_problem(struct problem *p)
{
    struct error err = ERROR_NULL;
    expect(problem_parse(p, "grouped_gemm mode=forward M=96 N=64 K=64 experts=4 topk=2", &err), 0,
           &err, NULL);
}

/* Opening and preparing: what costs memory on a GPU waits for the second. */
static void open_once(const void *arg)
{
    const struct opening *o = arg;
    struct device *d;
    struct prepared *w = NULL;
    struct problem p;
    struct error err = ERROR_NULL;
    make_problem(&p);
    if (o->name) {
        setenv(o->name, o->value, 1);
    }
    int r = device_open(o->spec ? o->spec : "cuda", &d, &err);
    bool opened = r == 0;
    CHECK(live() == 0);
    r = r ? r : d->ops->prepare(d, family_find("grouped_gemm"), &p, 1, &w, &err);
    expect(r, o->code, &err, o->words);
    if (opened) {
        d->ops->release(d, w);
        d->ops->close(d);
    }
    CHECK(live() == 0);
}

static void probe_once(const void *arg)
{
    const struct opening *o = arg;
    struct device_info info;
    struct error err = ERROR_NULL;
    if (o->name) {
        setenv(o->name, o->value, 1);
    }
    expect(device_probe(o->spec ? o->spec : "cuda", &info, &err), o->code, &err, o->words);
    CHECK(live() == 0); /* no context to ask what a GPU is */
}

static void test_probe(void **state)
{
    (void)state;
    static const struct opening cases[] = {
        {NULL, NULL, "cuda", 0, NULL},
        {NULL, NULL, "cuda:0", 0, NULL},
        {NULL, NULL, "cuda:" UUID_0, 0, NULL},
        {"GEMMD_LIBCUDA", "/no/such/libcuda.so", NULL, ERROR_NO_DEVICE, "no NVIDIA driver"},
        {"GEMMD_LIBCUDA", "libm.so.6", NULL, ERROR_NO_DEVICE, "too old"},
        {"GEMMD_STUB_DRIVER", "11080", NULL, ERROR_NO_DEVICE, "supports CUDA 11.8"},
        {"GEMMD_STUB_DEVICES", "0", NULL, ERROR_NO_DEVICE, "sees no GPU"},
        {"GEMMD_STUB_FAIL", "cuInit:1:100", NULL, ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {"GEMMD_STUB_FAIL", "cuInit:1:34", NULL, ERROR_NO_DEVICE, "stub of libcuda"},
        {"GEMMD_STUB_FAIL", "cuInit:1:803", NULL, ERROR_NO_DEVICE, "reboot"},
        {"GEMMD_STUB_FAIL", "cuInit:1:999", NULL, ERROR_DEVICE_LOST, "CUDA error 999"},
        {"GEMMD_STUB_FAIL", "cuDeviceGetAttribute:1:100", NULL, ERROR_NO_DEVICE, "attribute"},
        {"GEMMD_STUB_FAIL", "cuDeviceGetName:1:100", NULL, ERROR_NO_DEVICE, "name"},
        {"GEMMD_STUB_FAIL", "cuDeviceGetPCIBusId:1:1", NULL, 0, NULL},
        {NULL, NULL, "cuda:3", ERROR_NO_DEVICE, "no GPU 3"},
        {NULL, NULL, "cuda:x", ERROR_INVALID, "unknown device"},
        {NULL, NULL, "cuda:-1", ERROR_INVALID, "unknown device"},
        {NULL, NULL, "cuda:GPU-12", ERROR_NO_DEVICE, "UUID GPU-12"},
        {NULL, NULL, "cuda:sm_90a", 0, NULL},
        {NULL, NULL, "cuda:sm_1", ERROR_INVALID, "unknown architecture"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        in_child(probe_once, &cases[i]);
    }
}

static void probe_info(const void *arg)
{
    struct device_info info;
    struct error err = ERROR_NULL;
    const char *nvml = arg;
    setenv("GEMMD_LIBNVML", nvml, 1);
    expect(device_probe("cuda:0", &info, &err), 0, &err, NULL);
    bool known = strcmp(nvml, STUB_NVML) == 0;
    CHECK(strcmp(info.uuid, UUID_0) == 0);
    CHECK(strcmp(info.arch, "sm_90a") == 0);
    CHECK(strcmp(info.mig, "1g.10gb") == 0);
    CHECK(info.power_limit_w == (known ? 700 : 0));
    CHECK(strcmp(info.driver, known ? "580.99.01" : "CUDA 13.0") == 0);
    CHECK(strcmp(info.compiler, "nvrtc 13.0") == 0);
    CHECK(info.sm_count == 4 && info.smem_optin == 232448 &&
          info.memory_bytes == INT64_C(80) << 30);
    CHECK(info.peak_gbps > 1800 && info.peak_gbps < 1803); /* 4096 bits x 2 GHz x 2 x 0.88 */
    CHECK(info.peak_tflops > 13 && info.peak_tflops < 13.2);
    CHECK(strstr(info.class, "sm_90a") && strstr(info.class, "1g.10gb"));
}

static void test_info(void **state)
{
    (void)state;
    in_child(probe_info, STUB_NVML);
    in_child(probe_info, "/no/such/libnvml.so");
    in_child(probe_info, "libm.so.6"); /* a library without the symbols */
}

static void test_open(void **state)
{
    (void)state;
    static const struct opening cases[] = {
        {NULL, NULL, NULL, 0, NULL},
        {"GEMMD_STUB_FAIL", "cuCtxCreate_v2:1:2", NULL, ERROR_NO_MEMORY, "creating a context"},
        {"GEMMD_STUB_FAIL", "cuCtxCreate_v2:1:46", NULL, ERROR_BUSY, "another process has the GPU"},
        {"GEMMD_STUB_MODE", "2", NULL, ERROR_NO_DEVICE, "PROHIBITED"},
        {"GEMMD_STUB_FAIL", "cuModuleLoadData:1:209", NULL, ERROR_COMPILE, "newer CUDA"},
        {"GEMMD_STUB_FAIL", "cuModuleLoadData:1:222", NULL, ERROR_COMPILE, "newer CUDA"},
        {"GEMMD_NVRTC", "/no/such/libnvrtc.so", NULL, ERROR_NO_COMPILER, "GEMMD_NVRTC"},
        {"GEMMD_NVRTC", "libm.so.6", NULL, ERROR_NO_COMPILER, "not NVRTC 12.0"},
        {"GEMMD_STUB_NVRTC", "11080", NULL, ERROR_NO_COMPILER, "not NVRTC 12.0"},
        {"GEMMD_STUB_DRIVER", "12080", NULL, ERROR_NO_COMPILER, "newer than the driver"},
        {"GEMMD_STUB_FAIL", "nvrtcCompileProgram:1:1", NULL, ERROR_NO_MEMORY, "OUT_OF_MEMORY"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        in_child(open_once, &cases[i]);
    }
}

/* ---- compiling ------------------------------------------------------------------------------ */

struct compiling {
    const char *fail, *log;
    int code;
    const char *words;
    int64_t registers;
};

static void compile_once(const void *arg)
{
    const struct compiling *c = arg;
    struct compiler *compiler;
    struct error err = ERROR_NULL;
    struct image image;
    struct variant v = {.family = "f",
                        .kind = "cuda",
                        .arch = "sm_90a",
                        .entry = "f",
                        .source = "",
                        .options = "-DA=1 -DB=2"};
    setenv("GEMMD_LIBCUDA", "/no/such/libcuda.so", 1); /* none is needed */
    expect(compiler_open("cuda:sm_90a", &compiler, &err), 0, &err, NULL);
    CHECK(strcmp(compiler->ops->version(compiler), "nvrtc 13.0") == 0);
    setenv("GEMMD_STUB_FAIL", c->fail ? c->fail : "", 1);
    if (c->log) {
        setenv("GEMMD_STUB_LOG", c->log, 1);
    }
    int r = compiler->ops->compile(compiler, &v, &image, &err);
    expect(r, c->code, &err, c->words);
    CHECK((r == 0) == (image.data != NULL));
    CHECK(r != 0 || (image.meta.registers == c->registers && image.meta.id[0]));
    image_deinit(&image);
    compiler->ops->close(compiler);
}

static void test_compile(void **state)
{
    (void)state;
    static const struct compiling cases[] = {
        {NULL, NULL, 0, NULL, 64},
        {NULL,
         "ptxas info : Used 40 registers\nptxas info : Used 90 registers, 16 bytes smem\n"
         "8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n",
         0, NULL, 90},
        {NULL, "", 0, NULL, -1},
        {NULL,
         "0 bytes stack frame, 24 bytes spill stores, 4 bytes spill loads\nUsed 255 registers",
         ERROR_RESOURCE, "spills 24 bytes", 0},
        {NULL,
         "ptxas info : (C7510) Potential Performance Loss: wgmma is serialized\nUsed 9 registers",
         ERROR_RESOURCE, "(C7510) Potential", 0},
        {"nvrtcCompileProgram:1:6", "f.cu(1): error: identifier \"x\" is undefined\n\n1 error\n",
         ERROR_COMPILE, "identifier \"x\" is undefined", 0},
        {"nvrtcCompileProgram:1:5", "", ERROR_COMPILE, "refused", 0},
        {"nvrtcCompileProgram:1:1", NULL, ERROR_NO_MEMORY, "OUT_OF_MEMORY", 0},
        {"nvrtcCreateProgram:1:1", NULL, ERROR_NO_MEMORY, "OUT_OF_MEMORY", 0},
        {"nvrtcGetProgramLog:1:11", NULL, ERROR_COMPILE, "log", 0},
        {"nvrtcGetProgramLogSize:1:11", NULL, ERROR_COMPILE, "log", 0},
        {"nvrtcGetCUBINSize:1:11", NULL, ERROR_COMPILE, "no cubin", 0},
        {"nvrtcGetCUBIN:1:11", NULL, ERROR_COMPILE, "reading the cubin", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        in_child(compile_once, &cases[i]);
    }
}

static void choose_library(const void *arg)
{
    (void)arg;
    struct compiler *c;
    struct error err = ERROR_NULL;
    setenv("GEMMD_STUB_NVRTC", "13000", 1);
    setenv("GEMMD_STUB_DRIVER", "12040", 1);
    expect(compiler_open("cuda", &c, &err), ERROR_NO_COMPILER, &err, "libnvrtc.so.12");
    /* For other machines any will do. */
    expect(compiler_open("cuda:sm_90a", &c, &err), 0, &err, NULL);
    c->ops->close(c);
}

static void test_choose_library(void **state)
{
    (void)state;
    in_child(choose_library, NULL);
}

/* ---- a whole life ------------------------------------------------------------------------------
 */

/* The stub is an sm_90a: hopper is its own choice, portable a forced one. */
static const char *const targets[] = {"hopper", "portable"};
enum { N_TARGETS = sizeof(targets) / sizeof(targets[0]) };
static const char *target; /* of the lives to come */

struct life {
    struct device *device;
    struct compiler *compiler;
    struct image image;
    struct kernel *kernel;
    struct prepared *prepared;
    struct problem problem;
    struct record config;
    struct variant variant;
    struct verdict verdict;
    double samples[SAMPLES_MAX];
    uint32_t n;
};

static int live_once(struct life *l, struct error *err)
{
    const struct family *f = family_find("grouped_gemm");
    const struct tolerance tol = {1e-2, 1e-2, 0};
    const struct timing timing = {.warmup = 2, .samples = 5};
    struct rejection why;
    make_problem(&l->problem);
    int r = device_open("cuda", &l->device, err);
    r = r ? r : compiler_open("cuda", &l->compiler, err);
    if (r) {
        return r;
    }
    const struct device_ops *ops = l->device->ops;
    const struct family_target *t = NULL;
    r = family_target_choose(f, &l->problem, &l->device->info, target, &t, err);
    CHECK(r == 0 && strcmp(t->label, target) == 0);
    r = t->choose(&l->problem, &l->device->info, &l->config, err);
    r = r ? r : t->variant(&l->problem, &l->config, l->device->info.arch, &l->variant, err);
    r = r ? r : l->compiler->ops->compile(l->compiler, &l->variant, &l->image, err);
    r = r ? r : ops->load(l->device, &l->image, &l->variant, &l->kernel, &why, err);
    r = r ? r : ops->prepare(l->device, f, &l->problem, 1, &l->prepared, err);
    r = r ? r : ops->verify(l->device, l->prepared, l->kernel, &l->config, &tol, &l->verdict, err);
    r = r ? r
          : ops->time(l->device, l->prepared, l->kernel, &l->config, &timing, l->samples, &l->n,
                      err);
    return r;
}

static void end_life(struct life *l)
{
    if (l->device) {
        l->device->ops->release(l->device, l->prepared);
        l->device->ops->unload(l->device, l->kernel);
        l->device->ops->close(l->device);
    }
    image_deinit(&l->image);
    if (l->compiler) {
        l->compiler->ops->close(l->compiler);
    }
    free(l);
}

static void live_well(const void *arg)
{
    (void)arg;
    struct life *l = calloc(1, sizeof(*l));
    struct error err = ERROR_NULL;
    expect(live_once(l, &err), 0, &err, NULL);
    CHECK(!l->verdict.right); /* the stub computes nothing, and that must show */
    CHECK(l->n == 5 && l->samples[0] == 250);
    end_life(l);
    CHECK(live() == 0);
}

/* The stubs compute (tests/cuda_stub/emulate.h): a right candidate is found right, and one that is
 * off by more than is asked for is not. */
static void live_emulated(const void *arg)
{
    (void)arg;
    struct life *l = calloc(1, sizeof(*l));
    struct error err = ERROR_NULL;
    const struct tolerance exact = {1e-9, 1e-9, 0}, norm = {1, 1, 1e-9};
    setenv("GEMMD_STUB_EMULATE", SOURCE_ROOT, 1);
    expect(live_once(l, &err), 0, &err, NULL);
    CHECK(l->verdict.right && l->verdict.unwritten == 0);
    CHECK(l->verdict.max_error > 0 && l->verdict.max_error < 0.05);
    CHECK(l->verdict.rel_norm > 1e-4 && l->verdict.rel_norm < 4e-3);
    const struct device_ops *ops = l->device->ops;
    CHECK(ops->verify(l->device, l->prepared, l->kernel, &l->config, &exact, &l->verdict, &err) ==
          0);
    CHECK(!l->verdict.right && strstr(l->verdict.text, "the reference"));
    CHECK(strstr(l->verdict.text, "(expert ") && strstr(l->verdict.text, "column "));
    CHECK(ops->verify(l->device, l->prepared, l->kernel, &l->config, &norm, &l->verdict, &err) ==
          0);
    CHECK(!l->verdict.right && strstr(l->verdict.text, "of its norm"));
    end_life(l);
    CHECK(live() == 0);
}

static void test_emulated_life(void **state)
{
    (void)state;
    if (system("cc --version >/dev/null 2>&1") != 0) {
        skip();
    }
    for (int i = 0; i < N_TARGETS; i++) {
        target = targets[i];
        in_child(live_emulated, NULL);
    }
}

/* ---- the vendor's library -------------------------------------------------------------------- */

struct comparison {
    const char *problem, *library, *fail;
    int code;
    const char *words;
    uint32_t products;
    bool exact;
};

static void compare_once(const void *arg)
{
    const struct comparison *c = arg;
    const struct tolerance tol = {1e-2, 1e-2, 0};
    const struct timing timing = {.warmup = 1, .samples = 3};
    struct device *d;
    struct prepared *w = NULL;
    struct problem p;
    struct baseline b;
    struct error err = ERROR_NULL;
    double samples[3];
    uint32_t n = 0;
    setenv("GEMMD_STUB_EMULATE", SOURCE_ROOT, 1);
    setenv("GEMMD_LIBCUBLAS", c->library ? c->library : STUB_CUBLAS, 1);
    setenv("GEMMD_STUB_FAIL", c->fail ? c->fail : "", 1);
    expect(problem_parse(&p, c->problem, &err), 0, &err, NULL);
    expect(device_open("cuda", &d, &err), 0, &err, NULL);
    expect(d->ops->prepare(d, family_find("grouped_gemm"), &p, 1, &w, &err), 0, &err, NULL);
    expect(d->ops->baseline(d, w, &tol, &timing, &b, samples, &n, &err), c->code, &err, c->words);
    if (c->code == 0) {
        CHECK(n == 3 && samples[0] == 250 && b.version == 130001);
        CHECK(b.products == c->products && strcmp(b.library, "cublas") == 0);
        CHECK(c->exact ? b.max_error < 0.05 : isnan(b.max_error));
    }
    d->ops->release(d, w);
    d->ops->close(d);
    CHECK(live() == 0);
}

static void test_baseline(void **state)
{
    (void)state;
#define SMALL "grouped_gemm M=48 N=24 K=40 experts=4 topk=2 "
    static const struct comparison cases[] = {
        {SMALL "mode=forward", NULL, NULL, 0, NULL, 4, true},
        {SMALL "mode=dX", NULL, NULL, 0, NULL, 4, true},
        {SMALL "mode=dW", NULL, NULL, 0, NULL, 4, true},
        {SMALL "mode=dW routing=\"rows:40,0,8,0\"", NULL, NULL, 0, NULL, 2, true},
        {SMALL "mode=dW dtype_out=fp32 accumulate=true", NULL, NULL, 0, NULL, 4, true},
        {SMALL "mode=forward permute_x=true", NULL, NULL, 0, NULL, 4, false},
        {SMALL "mode=dX permute_y=true", NULL, NULL, 0, NULL, 4, false},
        {SMALL "mode=forward", "/no/such/libcublas.so", NULL, ERROR_NO_DEVICE, "GEMMD_LIBCUBLAS", 0,
         false},
        {SMALL "mode=forward", "libm.so.6", NULL, ERROR_NO_DEVICE, "not found", 0, false},
        {SMALL "mode=forward", NULL, "cublasCreate_v2:1:3", ERROR_NO_MEMORY, "starting", 0, false},
        {SMALL "mode=forward", NULL, "cublasGemmEx:3:15", ERROR_RESOURCE, "status 15", 0, false},
    };
    if (system("cc --version >/dev/null 2>&1") != 0) {
        skip();
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        in_child(compare_once, &cases[i]);
    }
}

struct fault {
    const char *fail;
    int code;
    const char *words;
};

static void live_badly(const void *arg)
{
    const struct fault *f = arg;
    struct life *l = calloc(1, sizeof(*l));
    struct error err = ERROR_NULL;
    setenv("GEMMD_STUB_FAIL", f->fail, 1);
    expect(live_once(l, &err), f->code, &err, f->words);
    end_life(l);
    CHECK(live() == 0);
}

static void test_life(void **state)
{
    (void)state;
    for (int i = 0; i < N_TARGETS; i++) {
        target = targets[i];
        in_child(live_well, NULL);
    }
}

/* Launches: 1 fill x, 2 fill w, 3 reference, 4 candidate (verify). */
static void test_faults(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {"cuLaunchKernelEx:4:719", ERROR_DEVICE_LOST, "CUDA_ERROR_LAUNCH_FAILED"},
        {"cuLaunchKernelEx:4:701", ERROR_RESOURCE, "too many registers"},
        {"cuLaunchKernelEx:4:1", ERROR_INTERNAL, "launching grouped_gemm_"},
        {"cuStreamSynchronize:3:700", ERROR_DEVICE_LOST, "running the candidate"},
        {"cuStreamSynchronize:3:702", ERROR_DEVICE_LOST, "running the candidate"},
        {"cuStreamSynchronize:3:715", ERROR_DEVICE_LOST, "running the candidate"},
        {"cuStreamSynchronize:3:716", ERROR_DEVICE_LOST, "running the candidate"},
        {"cuStreamSynchronize:3:718", ERROR_DEVICE_LOST, "running the candidate"},
        {"cuEventSynchronize:1:719", ERROR_DEVICE_LOST, "running the candidate"},
        {"cuMemAlloc_v2:2:2", ERROR_NO_MEMORY, "free GPU memory"},
        {"cuModuleLoadData:2:209", ERROR_COMPILE, "newer CUDA"},
        {"cuModuleGetFunction:1:500", ERROR_INVALID, "entry grouped_gemm_"},
        {"cuFuncSetAttribute:1:1", ERROR_INTERNAL, "shared memory"},
    };
    static const struct fault of_maps[] = {
        {"cuTensorMapEncodeTiled:1:1", ERROR_INTERNAL, "tensor map"},
        {"cuTensorMapEncodeTiled:3:1", ERROR_INTERNAL, "tensor map"},
    };
    for (size_t i = 0; i < N_TARGETS * sizeof(faults) / sizeof(faults[0]); i++) {
        target = targets[i % N_TARGETS];
        in_child(live_badly, &faults[i / N_TARGETS]);
    }
    target = "hopper";
    for (size_t i = 0; i < sizeof(of_maps) / sizeof(of_maps[0]); i++) {
        in_child(live_badly, &of_maps[i]);
    }
}

/* Every call of the driver fails once: 0 done, 2 it did not come to that call, else wrong. */
static void fail_nth(const void *arg)
{
    struct life *l = calloc(1, sizeof(*l));
    struct error err = ERROR_NULL;
    char fail[32];
    snprintf(fail, sizeof(fail), "*:%d:719", *(const int *)arg);
    setenv("GEMMD_STUB_FAIL", fail, 1);
    int r = live_once(l, &err);
    end_life(l);
    CHECK(live() == 0);
    if (r == 0) {
        exit(2);
    }
    CHECK(err.text[0]);
}

static void fail_every(void)
{
    int n = 1, code, passed = 0;
    /* A failed PCI id or NVML is no error: three passes in a row mean the end. */
    for (; passed < 3; n++) {
        code = exit_code(fail_nth, &n);
        assert_true(code == 0 || code == 2);
        passed = code == 2 ? passed + 1 : 0;
        assert_true(n < 1000);
    }
    assert_true(n > 100);
}

static void test_every_call(void **state)
{
    (void)state;
    for (int i = 0; i < N_TARGETS; i++) {
        target = targets[i];
        fail_every();
    }
}

static void static_memory(const void *arg)
{
    (void)arg;
    struct life *l = calloc(1, sizeof(*l));
    struct error err = ERROR_NULL;
    struct rejection why;
    expect(live_once(l, &err), 0, &err, NULL);
    struct kernel *k;
    setenv("GEMMD_STUB_SMEM", "232449", 1);
    expect(l->device->ops->load(l->device, &l->image, &l->variant, &k, &why, &err), ERROR_RESOURCE,
           &err, "shared_memory");
    CHECK(strcmp(why.resource, "shared_memory") == 0);
    CHECK(why.required == 232449 && why.limit == 232448);
    end_life(l);
    CHECK(live() == 0);
}

static void memory_share(const void *arg)
{
    (void)arg;
    struct life *l = calloc(1, sizeof(*l));
    struct error err = ERROR_NULL;
    setenv("GEMMD_STUB_FREE", "100000", 1);
    setenv("GEMMD_MEMORY_SHARE", "0.25", 1);
    expect(live_once(l, &err), ERROR_NO_MEMORY, &err, "25 % of the GPU's free memory");
    end_life(l);
    CHECK(live() == 0);
}

static void test_limits(void **state)
{
    (void)state;
    for (int i = 0; i < N_TARGETS; i++) {
        target = targets[i];
        in_child(static_memory, NULL);
        in_child(memory_share, NULL);
    }
}

/* ---- a training job's launcher -------------------------------------------------------------- */

static struct grouped_gemm_args job_args(void)
{
    return (struct grouped_gemm_args){.size = sizeof(struct grouped_gemm_args),
                                      .x = (void *)0x1000,
                                      .w = (void *)0x2000,
                                      .out = (void *)0x3000,
                                      .m_sizes = (void *)0x4000,
                                      .m_sizes_dtype = DTYPE_INT32,
                                      .rows = 96};
}

static void launch_job(const void *arg)
{
    const struct fault *f = arg;
    struct problem p;
    struct record config;
    struct launcher *l = NULL;
    struct error err = ERROR_NULL;
    struct device_info info;
    Elf64_Ehdr image = {.e_ident = ELFMAG, .e_machine = EM_CUDA};
    image.e_ident[EI_CLASS] = ELFCLASS64;
    make_problem(&p);
    if (f->fail && strchr(f->fail, '=')) {
        putenv((char *)(uintptr_t)f->fail);
    }
    int r = cuda_launch_backend.info(&info, &err);
    if (r == 0) {
        const struct family *family = family_find("grouped_gemm");
        const struct family_target *t = family_target_find(family, &info, target);
        CHECK(t != NULL);
        r = t->choose(&p, &info, &config, &err);
        setenv("GEMMD_STUB_FAIL", f->fail && !strchr(f->fail, '=') ? f->fail : "", 1);
        r = r ? r : launcher_new(family, &p, &config, &image, sizeof(image), NULL, &l, &err);
    }
    struct grouped_gemm_args args = job_args();
    r = r ? r : launcher_launch(l, &args, &err);
    expect(r, f->code, &err, f->words);
    launcher_free(l);
    CHECK(live() == 0);
}

static void test_launcher(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {NULL, 0, NULL},
        {"GEMMD_STUB_NO_CONTEXT=1", ERROR_NO_DEVICE, "no CUDA context is current"},
        {"GEMMD_LIBCUDA=/no/such/libcuda.so", ERROR_NO_DEVICE, "no NVIDIA driver"},
        {"cuModuleLoadData:1:209", ERROR_COMPILE, "newer CUDA"},
        {"cuModuleLoadData:1:2", ERROR_NO_MEMORY, "free GPU memory"},
        {"cuFuncLoad:2:2", ERROR_NO_MEMORY, "free GPU memory"},
        {"cuModuleGetFunction:1:500", ERROR_INVALID, "looking for entry grouped_gemm_"},
        {"cuLaunchKernelEx:1:719", ERROR_DEVICE_LOST, "launching"},
        {"cuLaunchKernelEx:1:400", ERROR_INVALID, "the stream"},
    };
    for (size_t i = 0; i < N_TARGETS * sizeof(faults) / sizeof(faults[0]); i++) {
        target = targets[i % N_TARGETS];
        in_child(launch_job, &faults[i / N_TARGETS]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe),          cmocka_unit_test(test_info),
        cmocka_unit_test(test_open),           cmocka_unit_test(test_compile),
        cmocka_unit_test(test_choose_library), cmocka_unit_test(test_life),
        cmocka_unit_test(test_emulated_life),
        cmocka_unit_test(test_baseline),     cmocka_unit_test(test_every_call),
        cmocka_unit_test(test_faults),         cmocka_unit_test(test_limits),
        cmocka_unit_test(test_launcher),
    };
    families_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
