/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A seeded sample of legal variants through the real NVRTC, for every supported architecture: each
 * mode with each of its flags and types, of every family; and the families' references. No variant
 * may spill more than a few bytes, or need more registers than its launch bounds leave. Needs no
 * GPU and no driver. GEMMD_TEST_VARIANTS: variants per architecture and target (default 8; on
 * sm_90a 2, of which the tests of compile_space compile more); 0: all. GEMMD_TEST_ARCHS names the
 * architectures, GEMMD_TEST_SEED draws another sample.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/device.h"
#include "kernels/space.h"

enum { JOBS_MAX = 200000, THREADS_MAX = 64 };

struct job {
    struct variant *variant; /* owned */
    int code;
    char text[ERROR_TEXT_MAX];
    int64_t registers, spills;
};

static struct job *jobs;
static int n_jobs, next_job;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct compiler *compiler;

/* ---- the variants --------------------------------------------------------------------------- */

static const char *const flags[] = {
    "mode=forward",
    "mode=forward permute_x=true",
    "mode=forward permute_y=true",
    "mode=forward permute_y=true fuse_mul_post=true",
    "mode=dX",
    "mode=dX permute_x=true",
    "mode=dX permute_y=true",
    "mode=dW",
    "mode=dW permute_x=true",
    "mode=dW permute_y=true",
    "mode=dW dtype_out=fp32",
    "mode=dW permute_x=true dtype_out=fp32",
    "mode=dW permute_y=true dtype_out=fp32",
};
enum { N_FLAGS = sizeof(flags) / sizeof(flags[0]) };

static const char *const scaled[] = {
    "mode=forward permute_x=true quant=fp8_block",
    "mode=forward permute_y=true fuse_mul_post=true quant=fp8_row",
    "mode=dX permute_y=true quant=fp8_block",
    "mode=dW quant=fp8_block",
    "mode=dW quant=fp8_row dtype_out=fp32",
};
enum { N_SCALED = sizeof(scaled) / sizeof(scaled[0]) };

/* The problems of a family: each is compiled when all variants are wanted. */
static uint32_t gemm_problem(uint32_t which, char *text, size_t size)
{
    const bool is_scaled = which >= 2 * N_FLAGS;
    snprintf(text, size, "grouped_gemm M=4096 N=1536 K=2048 experts=128 topk=8 %s %s",
             is_scaled   ? ""
             : which % 2 ? "dtype_in=fp16"
                         : "dtype_in=bf16",
             is_scaled ? scaled[which - 2 * N_FLAGS] : flags[which / 2]);
    return 2 * N_FLAGS + N_SCALED;
}

static uint32_t quantise_problem(uint32_t which, char *text, size_t size)
{
    static const char *const modes[] = {"rows", "columns", "both", "weights", "whole_rows"};
    snprintf(text, size,
             "quantise M=4096 K=2048 experts=8 topk=8 mode=%s permute_x=%s scale_type=%s",
             modes[which % 5], which % 5 != 3 && which / 5 % 2 ? "true" : "false",
             which / 10 ? "pow2" : "fp32");
    return 20;
}

typedef uint32_t problem_fn(uint32_t which, char *text, size_t size); /* returns their number */

static bool known(const struct variant *v, int from)
{
    for (int i = from; i < n_jobs; i++) {
        if (strcmp(jobs[i].variant->options, v->options) == 0) {
            return true;
        }
    }
    return false;
}

static void add_point(const struct family_target *t, const struct problem *p, const struct space *s,
                      uint32_t point, const char *arch, int from)
{
    struct record config;
    struct error err = ERROR_NULL;
    struct variant *v = calloc(1, sizeof(*v));
    space_config(s, point, &config);
    assert_int_equal(t->variant(p, &config, arch, v, &err), 0);
    if (known(v, from)) { /* other points of this variant differ at run time only */
        free(v);
        return;
    }
    assert_true(n_jobs < JOBS_MAX);
    jobs[n_jobs++] = (struct job){.variant = v};
}

/* Adds all of a problem's variants, or a random sample. */
static void add_problem(const struct family_target *t, const struct device_info *info,
                        problem_fn *problem, uint32_t which, long wanted, uint64_t *random)
{
    struct problem p;
    struct space s;
    struct error err = ERROR_NULL;
    struct rejection why;
    char text[256];
    problem(which, text, sizeof(text));
    if (problem_parse(&p, text, &err)) {
        fail_msg("%s", err.text);
    }
    if (t->takes && t->takes(&p, info, &why)) {
        return;
    }
    assert_int_equal(space_build(&s, t, &p, info, NULL, &err), 0);
    assert_true(s.n > 0);
    int from = n_jobs;
    for (uint32_t i = 0; wanted == 0 && i < s.n; i++) {
        add_point(t, &p, &s, i, info->arch, from);
    }
    for (long i = 0; i < wanted; i++) {
        add_point(t, &p, &s, (uint32_t)(random_next(random) % s.n), info->arch, from);
    }
    space_deinit(&s);
}

/* The target's reference, which the device compiles as a variant without options. */
static void add_reference(const struct family_target *t, const char *arch)
{
    struct variant *v = calloc(1, sizeof(*v));
    variant_init(v, "helpers", "cuda", "cuda_reference", t->reference_source, arch);
    jobs[n_jobs++] = (struct job){.variant = v};
}

static void add_jobs(const char *arch, const char *family, const char *label, problem_fn *problem,
                     long wanted, uint64_t *random)
{
    char spec[32], text[256];
    struct device_info info;
    struct error err = ERROR_NULL;
    snprintf(spec, sizeof(spec), "cuda:%s", arch);
    if (device_probe(spec, &info, &err)) {
        fail_msg("%s", err.text);
    }
    const struct family_target *t = family_target_find(family_find(family), &info, label);
    assert_non_null(t);
    if (strcmp(label, "portable") == 0) {
        add_reference(t, info.arch);
    }
    uint32_t n = problem(0, text, sizeof(text)), first = (uint32_t)(random_next(random) % n);
    for (uint32_t i = 0; i < n && wanted == 0; i++) {
        add_problem(t, &info, problem, i, 0, random);
    }
    for (long i = 0; i < wanted; i++) {
        add_problem(t, &info, problem, (first + (uint32_t)(i * n / wanted)) % n, 1, random);
    }
}

/* ---- the compiles --------------------------------------------------------------------------- */

static void *work(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&lock);
        int i = next_job++;
        pthread_mutex_unlock(&lock);
        if (i >= n_jobs) {
            return NULL;
        }
        struct job *j = &jobs[i];
        struct image image;
        struct error err = ERROR_NULL;
        j->code = compiler->ops->compile(compiler, j->variant, &image, &err);
        j->registers = image.meta.registers;
        j->spills = image.meta.spill_bytes;
        snprintf(j->text, sizeof(j->text), "%s", err.text);
        image_deinit(&image);
    }
}

static void compile_all(void)
{
    pthread_t threads[THREADS_MAX];
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    n = n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : n;
    for (long i = 0; i < n; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
    }
    for (long i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Registers that __launch_bounds__ leaves a thread. */
static int64_t register_limit(const struct variant *v)
{
    int rows, cols, blocks, consumers;
    const char *at = strstr(v->options, "-DCONSUMERS=");
    if (!v->options[0]) {
        return 255;
    }
    if (at) {
        assert_int_equal(sscanf(at, "-DCONSUMERS=%d", &consumers), 1);
        return consumers == 1 ? 255 : 168;
    }
    assert_int_equal(sscanf(strstr(v->options, "-DMIN_BLOCKS="), "-DMIN_BLOCKS=%d", &blocks), 1);
    int threads = 0;
    if (strcmp(v->family, "quantise") == 0) {
        at = strstr(v->options, "-DTILE_ROWS=");
        if (sscanf(at, "-DTILE_ROWS=%d -DLANES=%d", &rows, &cols) == 2) {
            threads = rows * cols;
        } else {
            assert_int_equal(sscanf(at, "-DTILE_ROWS=%d -DROWS_PER_THREAD=%d", &rows, &cols), 2);
            threads = rows / cols * 16;
        }
    } else {
        at = strstr(v->options, "-DWARPS_R=");
        assert_int_equal(sscanf(at, "-DWARPS_R=%d -DWARPS_C=%d", &rows, &cols), 2);
        threads = rows * cols * 32;
    }
    int64_t limit = 65536 / (threads * blocks) / 8 * 8;
    return limit < 255 ? limit : 255;
}

static void test_variants(void **state)
{
    (void)state;
    int bad = 0, spilling = 0;
    compile_all();
    for (int i = 0; i < n_jobs; i++) {
        const struct job *j = &jobs[i];
        spilling += j->spills > 0;
        if (j->code || j->registers < 0 || j->registers > register_limit(j->variant)) {
            bad++;
            print_error("%s %s: %d registers, %d bytes spilled, %s\n", j->variant->arch,
                        j->variant->options, (int)j->registers, (int)j->spills, j->text);
        }
    }
    print_message("%d variants, %d spill a little\n", n_jobs, spilling);
    assert_int_equal(bad, 0);
}

static void test_reproducible(void **state)
{
    (void)state;
    struct image a, b;
    struct error err = ERROR_NULL;
    assert_int_equal(compiler->ops->compile(compiler, jobs[0].variant, &a, &err), 0);
    assert_int_equal(compiler->ops->compile(compiler, jobs[0].variant, &b, &err), 0);
    assert_string_equal(a.meta.id, b.meta.id);
    assert_string_equal(a.meta.compiler, compiler->ops->version(compiler));
    assert_int_equal(a.meta.size, a.size);
    image_deinit(&a);
    image_deinit(&b);
}

static void test_errors(void **state)
{
    (void)state;
    struct image image;
    struct error err = ERROR_NULL;
    struct variant v = {.family = "test",
                        .kind = "cuda",
                        .entry = "f",
                        .arch = "sm_90a",
                        .source = "extern \"C\" __global__ void f(int *p) { *p = oops; }"};
    assert_int_equal(compiler->ops->compile(compiler, &v, &image, &err), ERROR_COMPILE);
    assert_non_null(strstr(err.text, "oops"));
    assert_null(image.data);
    v.source = "extern \"C\" __global__ void f(int *p) { *p = 1; }";
    strcpy(v.options, "--no-such-option");
    assert_int_equal(compiler->ops->compile(compiler, &v, &image, &err), ERROR_COMPILE);
    assert_non_null(strstr(err.text, "no-such-option"));
    v.options[0] = '\0';
    strcpy(v.arch, "sm_10");
    assert_int_equal(compiler->ops->compile(compiler, &v, &image, &err), ERROR_NO_COMPILER);
    assert_non_null(strstr(err.text, "sm_10"));
}

/* A kernel with more values than registers: the compiler reports spills. */
static void test_spills(void **state)
{
    (void)state;
    struct image image;
    struct error err = ERROR_NULL;
    struct variant v = {
        .family = "test",
        .kind = "cuda",
        .entry = "f",
        .arch = "sm_90a",
        .source = "extern \"C\" __global__ void __launch_bounds__(1024, 2) f(float *p) {\n"
                  "  float v[64];\n"
                  "  #pragma unroll\n"
                  "  for (int i = 0; i < 64; i++) v[i] = p[i * 1024 + threadIdx.x];\n"
                  "  __syncthreads();\n"
                  "  #pragma unroll\n"
                  "  for (int i = 0; i < 64; i++) p[threadIdx.x * 64 + i] = v[i] * v[63 - i];\n"
                  "}\n"};
    assert_int_equal(compiler->ops->compile(compiler, &v, &image, &err), ERROR_RESOURCE);
    assert_non_null(strstr(err.text, "spills"));
    assert_null(image.data);
}

static void free_jobs(void)
{
    for (int i = 0; i < n_jobs; i++) {
        free(jobs[i].variant);
    }
    free(jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_reproducible),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_spills),
    };
    const char *wanted = getenv("GEMMD_TEST_VARIANTS"), *archs = getenv("GEMMD_TEST_ARCHS");
    const char *seed = getenv("GEMMD_TEST_SEED");
    struct error err = ERROR_NULL;
    if (compiler_open("cuda:sm_90a", &compiler, &err)) {
        printf("SKIP: %s\n", err.text);
        return 77;
    }
    families_register();
    jobs = calloc(JOBS_MAX, sizeof(*jobs));
    uint64_t random = seed ? strtoull(seed, NULL, 10) : 1;
    char list[256], *rest = NULL;
    snprintf(list, sizeof(list), "%s", archs ? archs : "sm_80 sm_86 sm_89 sm_90a sm_120");
    for (char *arch = strtok_r(list, " ", &rest); arch; arch = strtok_r(NULL, " ", &rest)) {
        const long n = wanted ? atol(wanted) : strcmp(arch, "sm_90a") == 0 ? 2 : 8;
        add_jobs(arch, "grouped_gemm", "portable", gemm_problem, n, &random);
        add_jobs(arch, "quantise", "portable", quantise_problem, wanted ? n : 2, &random);
        if (strcmp(arch, "sm_90a") == 0) {
            add_jobs(arch, "grouped_gemm", "hopper", gemm_problem, n, &random);
        }
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    free_jobs();
    compiler->ops->close(compiler);
    return r;
}
