/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda device over stubs of its libraries: errors for libraries and devices that are missing,
 * too old, taken or broken, without leftovers. Each case has its own process, since a process opens
 * the libraries once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cuda/stubbed.h"

#define UUID_0 "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f"

/* ---- opening -------------------------------------------------------------------------------- */

struct opening {
    const char *name, *value; /* environment variable */
    const char *spec;
    int code;
    const char *words;
};

/* Opens a device, then prepares it; only the second step may use memory of the GPU. */
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
    CHECK(live() == 0); /* a probe makes no context */
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
        {NULL, NULL, "cuda:mig-00010203-0405-0607-0809-0A0B0C0D0E0F", 0, NULL},
        {NULL, NULL, "cuda:MIG-0001", 0, NULL},
        {"GEMMD_STUB_DEVICES", "2", "cuda:MIG-1", 0, NULL},
        {"GEMMD_STUB_DEVICES", "17", "cuda:MIG-0", ERROR_INVALID, "of several UUIDs here"},
        {NULL, NULL, "cuda:GPU-0001", ERROR_NO_DEVICE, "UUID GPU-0001"}, /* a MIG device */
        {NULL, NULL, "cuda:" UUID_0 "0", ERROR_INVALID, "unknown device"},
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
    /* the stub's hardware, and the share of its peaks that kernels reach: 0.88 and 0.74 */
    CHECK(info.peak_gbps > 1800 && info.peak_gbps < 1803);   /* 512 bytes x 2 GHz x 2 x 0.88 */
    CHECK(info.peak_tflops > 12 && info.peak_tflops < 12.2); /* 4 SMs x 4096 flops x 1 GHz x 0.74 */
    CHECK(strstr(info.class, "sm_90a") && strstr(info.class, "1g.10gb"));
}

static void test_info(void **state)
{
    (void)state;
    in_child(probe_info, STUB_NVML);
    in_child(probe_info, "/no/such/libnvml.so");
    in_child(probe_info, "libm.so.6"); /* this library lacks NVML's symbols */
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
    setenv("GEMMD_LIBCUDA", "/no/such/libcuda.so", 1); /* no driver needed */
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
    /* A compiler that is opened for an architecture, without a GPU, accepts any version of NVRTC.
     */
    expect(compiler_open("cuda:sm_90a", &c, &err), 0, &err, NULL);
    c->ops->close(c);
}

static void test_choose_library(void **state)
{
    (void)state;
    in_child(choose_library, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe),          cmocka_unit_test(test_info),
        cmocka_unit_test(test_open),           cmocka_unit_test(test_compile),
        cmocka_unit_test(test_choose_library),
    };
    families_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
