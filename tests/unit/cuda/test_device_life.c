/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A candidate's way through the cuda device on stubs of its libraries, for both targets: from
 * opening to times. Every call of the driver fails once. Results are computed by emulation and
 * compared with the vendor's library. Also the launcher of a training job.
 */
#include <elf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/launcher.h"
#include "tests/unit/cuda/stubbed.h"

/* ---- a whole life ---------------------------------------------------------------------------- */

/* On the stub's architecture, sm_90a, the default target is hopper; the test forces portable. */
static const char *const targets[] = {"hopper", "portable"};
enum { N_TARGETS = sizeof(targets) / sizeof(targets[0]) };
static const char *target; /* target of the next lives */

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
    CHECK(!l->verdict.right); /* the check must detect that the stub computes no result */
    CHECK(l->n == 5 && l->samples[0] == 250);
    end_life(l);
    CHECK(live() == 0);
}

/* The stubs compute (tests/cuda_stub/emulate.h): a right candidate passes, and a candidate with
 * errors beyond the tolerance fails. */
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
        /* 24 tokens: an expert gets at most 24 rows */
        {SMALL "mode=dW permute_x=true routing=\"rows:24,24,0,0\"", NULL, NULL, 0, NULL, 2, false},
        {SMALL "mode=forward permute_x=true routing=\"rows:25,23,0,0\"", NULL, NULL,
         ERROR_NO_CONFIG, "routing", 0, false},
        {SMALL "mode=dW permute_x=true routing=\"rows:0,48,0,0\"", NULL, NULL, ERROR_NO_CONFIG,
         "routing", 0, false},
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

/* The launches in order: 1 fills x, 2 fills w, 3 is the reference, 4 the candidate (verify). */
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

/* Makes the driver's nth call fail. Exit status 0: the life ends with an error, 2: without an
 * error. */
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
    /* A life passes when the failed call is one that may fail (PCI id, NVML). Three passes in a
     * row: the life makes fewer than n calls. */
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

/* A candidate's workspace counts as memory, too: here it is eight times as large as X. */
static void memory_share_of_workspaces(const void *arg)
{
    (void)arg;
    const struct family *f = family_find("grouped_gemm");
    const struct tolerance tol = {1e-2, 1e-2, 0};
    struct life *l = calloc(1, sizeof(*l));
    struct error err = ERROR_NULL;
    struct rejection why;
    const struct family_target *t;
    char least[32];
    CHECK(problem_parse(&l->problem,
                        "grouped_gemm mode=dW M=16384 N=64 K=8192 experts=8 topk=8 permute_x=true",
                        &err) == 0);
    CHECK(device_open("cuda", &l->device, &err) == 0 &&
          compiler_open("cuda", &l->compiler, &err) == 0);
    const struct device_ops *ops = l->device->ops;
    CHECK(family_target_choose(f, &l->problem, &l->device->info, target, &t, &err) == 0);
    CHECK(t->choose(&l->problem, &l->device->info, &l->config, &err) == 0);
    record_put_bool(&l->config, "permute_copy", true);
    if (t->check(&l->problem, &l->config, &l->device->info, &why)) {
        CHECK(strcmp(target, "hopper") != 0); /* portable has no permute_copy */
        end_life(l);
        return;
    }
    CHECK(t->variant(&l->problem, &l->config, l->device->info.arch, &l->variant, &err) == 0);
    CHECK(l->compiler->ops->compile(l->compiler, &l->variant, &l->image, &err) == 0);
    CHECK(ops->load(l->device, &l->image, &l->variant, &l->kernel, &why, &err) == 0);
    setenv("GEMMD_MEMORY_SHARE", "0.5", 1);
    snprintf(least, sizeof(least), "%d", 500 << 20);
    setenv("GEMMD_STUB_FREE", least, 1);
    CHECK(ops->prepare(l->device, f, &l->problem, 1, &l->prepared, &err) == 0);
    expect(ops->verify(l->device, l->prepared, l->kernel, &l->config, &tol, &l->verdict, &err),
           ERROR_NO_MEMORY, &err, "less what the operands take");
    ops->release(l->device, l->prepared);
    l->prepared = NULL;
    snprintf(least, sizeof(least), "%d", 1000 << 20);
    setenv("GEMMD_STUB_FREE", least, 1);
    CHECK(ops->prepare(l->device, f, &l->problem, 1, &l->prepared, &err) == 0);
    expect(ops->verify(l->device, l->prepared, l->kernel, &l->config, &tol, &l->verdict, &err), 0,
           &err, NULL);
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
        in_child(memory_share_of_workspaces, NULL);
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

/* A thread with another current context, or without a context, frees a kernel: the thread's current
 * context stays. */
static void free_elsewhere(const void *arg)
{
    struct problem p;
    struct record config;
    struct launcher *l = NULL;
    struct error err = ERROR_NULL;
    struct device_info info;
    static char another;
    void *now = NULL, *library;
    int (*push)(void *context);
    int (*ask)(void **context);
    Elf64_Ehdr image = {.e_ident = ELFMAG, .e_machine = EM_CUDA};
    (void)arg;
    image.e_ident[EI_CLASS] = ELFCLASS64;
    make_problem(&p);
    CHECK(cuda_launch_backend.info(&info, &err) == 0);
    const struct family *family = family_find("grouped_gemm");
    const struct family_target *t = family_target_find(family, &info, target);
    CHECK(t && t->choose(&p, &info, &config, &err) == 0);
    CHECK(launcher_new(family, &p, &config, &image, sizeof(image), NULL, &l, &err) == 0);
    library = dlopen(STUB_CUDA, RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);
    *(void **)&push = dlsym(library, "cuCtxPushCurrent_v2");
    *(void **)&ask = dlsym(library, "cuCtxGetCurrent");
    CHECK(push(&another) == 0 && live() > 0);
    launcher_free(l);
    CHECK(live() == 0);
    CHECK(ask(&now) == 0 && now == &another);
}

static void test_a_launcher_is_freed_from_any_context(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TARGETS; i++) {
        target = targets[i];
        in_child(free_elsewhere, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_emulated_life),
        cmocka_unit_test(test_baseline),
        cmocka_unit_test(test_every_call),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_launcher),
        cmocka_unit_test(test_a_launcher_is_freed_from_any_context),
    };
    families_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
