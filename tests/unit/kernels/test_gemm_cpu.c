/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped_gemm on the cpu device, compiled and run: every mode with every permute, flag and dtype
 * against the reference. Experts have 0, 1, 15, 64 and 65 rows, N and K are odd. Deliberately
 * broken kernels must be detected.
 */
#include <dirent.h>
#include <math.h>

#include "tests/unit/kernels/cpu_run.h"

/* Tiles with more and with fewer rows than an expert has, both directions of vectors, narrow
 * vectors, odd numbers of unrolled rows and columns. */
static const char *const configs[] = {
    "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 unroll_rows=8 unroll_cols=2",
    "BLOCK_SIZE_M=16 BLOCK_SIZE_N=32 BLOCK_SIZE_K=32 vector_width=8 unroll_rows=4 GROUP_SIZE_M=1",
    "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=256 vector_width=4 unroll_rows=2 unroll_cols=4",
    "BLOCK_SIZE_M=21 BLOCK_SIZE_N=48 BLOCK_SIZE_K=96 vector_width=16 unroll_rows=3 unroll_cols=3",
};
enum { N_CONFIGS = sizeof(configs) / sizeof(configs[0]) };

static void expect_right(const char *problem, const char *config)
{
    struct verdict v;
    run(problem, config, NULL, &v);
    if (!v.right || v.unwritten) {
        fail_msg("%s | %s: %s", problem, config, v.text);
    }
}

/* ---- right ----------------------------------------------------------------------------------- */

static void all_of_mode(const char *mode, const char *const flags[], const char *dtype, int first)
{
    for (int i = 0; flags[i]; i++) {
        char problem[256], config[256];
        snprintf(problem, sizeof(problem),
                 "grouped_gemm mode=%s M=145 N=77 K=131 experts=6 topk=5 dtype_in=%s "
                 "routing=\"rows:0,1,15,64,65,0\" %s",
                 mode, dtype, flags[i]);
        int at = (first + i) % N_CONFIGS;
        snprintf(config, sizeof(config), "%s%s", configs[at],
                 strcmp(mode, "forward") == 0 ? at % 2 ? " transpose_w=true" : " transpose_w=false"
                                              : "");
        expect_right(problem, config);
    }
}

static const char *const forward_flags[] = {"", "permute_x=true", "permute_y=true",
                                            "permute_y=true fuse_mul_post=true", NULL};
static const char *const dx_flags[] = {"", "permute_x=true", "permute_y=true", NULL};
static const char *const dw_flags[] = {"", "permute_x=true", "permute_y=true",
                                       "dtype_out=fp32 accumulate=true", NULL};

static void test_bf16(void **state)
{
    (void)state;
    all_of_mode("forward", forward_flags, "bf16", 0);
    all_of_mode("dX", dx_flags, "bf16", 1);
    all_of_mode("dW", dw_flags, "bf16", 2);
}

static void test_fp32(void **state)
{
    (void)state;
    all_of_mode("forward", forward_flags, "fp32", 1);
    all_of_mode("dX", dx_flags, "fp32", 2);
    all_of_mode("dW", dw_flags, "fp32", 3);
}

/* Kernels for fp16 are right, or the compiler's error says that it lacks _Float16. */
static void test_fp16(void **state)
{
    (void)state;
    struct problem p;
    struct record config;
    struct variant v;
    struct image image;
    struct error e = ERROR_NULL;
    problem_of(&p, "gemm mode=forward M=8 N=8 K=8 dtype_in=fp16");
    config_of(&config, configs[0]);
    assert_ok(grouped_gemm_cpu.variant(&p, &config, device->info.arch, &v, err));
    int r = compiler->ops->compile(compiler, &v, &image, &e);
    if (r) {
        assert_int_equal(r, ERROR_COMPILE);
        assert_non_null(strstr(e.text, "_Float16"));
        skip();
    }
    image_deinit(&image);
    all_of_mode("forward", forward_flags, "fp16", 2);
    all_of_mode("dX", dx_flags, "fp16", 3);
    all_of_mode("dW", dw_flags, "fp16", 0);
}

static void test_dense(void **state)
{
    (void)state;
    expect_right("gemm mode=forward M=1 N=1 K=1", configs[0]);
    expect_right("gemm mode=forward M=130 N=257 K=300 dtype_in=fp32", configs[2]);
    expect_right("gemm mode=dW M=300 N=65 K=17", configs[1]);
}

static void test_many_experts(void **state)
{
    (void)state;
    expect_right("grouped_gemm mode=forward M=96 N=40 K=48 experts=300 topk=6 permute_x=true",
                 configs[1]);
    expect_right("grouped_gemm mode=dW M=96 N=40 K=48 experts=300 topk=6 permute_y=true "
                 "routing=zipf:1.5",
                 configs[1]);
}

/* Rounding grows with a sum's terms: an error above the tolerance of short sums is no fault. */
static void test_long_sums(void **state)
{
    (void)state;
    struct verdict v;
    run("grouped_gemm mode=dW M=262144 N=16 K=16 experts=2 topk=1 routing=\"rows:262144,0\" "
        "dtype_out=fp32",
        configs[1], NULL, &v);
    if (!v.right) {
        fail_msg("%s", v.text);
    }
    assert_true(v.rel_norm > 1e-5);
}

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d)) {
        n++;
    }
    closedir(d);
    return n;
}

/* A job may hold thousands of kernels: each is its own module, and none keeps a file open. */
static void test_many_modules(void **state)
{
    (void)state;
    enum { N = 5 };
    struct kernel *kernels[N];
    struct problem p;
    struct record config;
    struct verdict v;
    struct prepared *w;
    struct tolerance tol = {.atol = 1e-2, .rtol = 1e-2};
    problem_of(&p, "gemm mode=forward M=30 N=57 K=30 dtype_in=fp32");
    config_of(&config, configs[0]);
    int before = open_files();
    for (int i = 0; i < N; i++) { /* every second kernel must compute another result */
        char *source = edited("out[c] = TO_OUT(from[c]);", i % 2 ? "out[c] = TO_OUT(2 * from[c]);"
                                                                 : "out[c] = TO_OUT(1 * from[c]);");
        kernels[i] = build(&p, &config, source);
        free(source);
    }
    assert_int_equal(open_files(), before);
    assert_ok(device->ops->prepare(device, &grouped_gemm_family, &p, 42, &w, err));
    for (int i = 0; i < N; i++) {
        assert_ok(device->ops->verify(device, w, kernels[i], &config, &tol, &v, err));
        assert_int_equal(v.right, i % 2 == 0);
        device->ops->unload(device, kernels[i]);
    }
    device->ops->release(device, w);
}

/* ---- wrong ----------------------------------------------------------------------------------- */

static void expect_wrong(const char *problem, const char *from, const char *to, const char *part)
{
    struct verdict v;
    char *source = edited(from, to);
    run(problem, configs[0], source, &v);
    free(source);
    if (v.right || !strstr(v.text, part)) {
        fail_msg("\"%s\" for \"%s\": %s \"%s\"", to, from, v.right ? "right" : "wrong", v.text);
    }
}

#define SMALL "M=145 N=64 K=64 experts=6 topk=5 routing=\"rows:0,1,15,64,65,0\" "

static void test_wrong_is_found(void **state)
{
    (void)state;
    /* faults: a wrong sign, a missing row of the reduction, rows written to wrong places */
    expect_wrong("grouped_gemm mode=dX " SMALL, "acc[r][c] += left", "acc[r][c] -= left",
                 "the reference");
    expect_wrong("grouped_gemm mode=dW " SMALL, "int64_t n_l = least(L, length - l0);",
                 "int64_t n_l = least(L, length - l0 - (length > 64));", "the reference");
    expect_wrong("grouped_gemm mode=forward permute_y=true " SMALL,
                 "t->start + t->r0 + r;\n        int64_t row = SCATTER",
                 "t->start + t->r0 + (r == 0 && t->n_r > 1 ? 1 : r == 1 ? 0 : r);\n"
                 "        int64_t row = SCATTER",
                 "the reference");
    expect_wrong("grouped_gemm mode=forward permute_y=true fuse_mul_post=true " SMALL,
                 "FROM_OUT(TO_OUT(from[c])) * weight", "FROM_OUT(TO_OUT(from[c]))",
                 "the reference");
    expect_wrong("grouped_gemm mode=forward " SMALL, "out[c] = TO_OUT(from[c]);",
                 "out[c] = TO_OUT(from[c] / (c - 5));", "the reference");
    /* overwrites instead of adding */
    expect_wrong("grouped_gemm mode=dW dtype_out=fp32 accumulate=true " SMALL,
                 "if (p->flags & ACCUMULATE) {", "if (p->flags > ACCUMULATE) {", "the reference");
}

static void test_unwritten_is_found(void **state)
{
    (void)state;
    expect_wrong("grouped_gemm mode=dX " SMALL, "out[c] = TO_OUT(from[c]);",
                 "if (c != 7) out[c] = TO_OUT(from[c]);",
                 "145 of 9280 elements of the output were not written");
    /* This kernel does not write empty experts, where dW must have zeros. */
    expect_wrong("grouped_gemm mode=dW " SMALL, "    store(p, &t, sum);",
                 "    if (t.rows) store(p, &t, sum);",
                 "8192 of 24576 elements of the output were not written");
}

static void test_small_errors_are_found(void **state)
{
    (void)state;
    struct verdict v;
    /* an error of 1 % is within the tolerance of elements, and far outside that of rows */
    char *source = edited("out[c] = TO_OUT(from[c]);", "out[c] = TO_OUT(from[c] * 1.008f);");
    run("grouped_gemm mode=dX " SMALL, configs[0], source, &v);
    free(source);
    assert_false(v.right);
    assert_non_null(strstr(v.text, "of its norm (limit 0.005)"));
    assert_true(v.rel_norm > 0.006 && v.rel_norm < 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_fp32),
        cmocka_unit_test(test_fp16),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_many_experts),
        cmocka_unit_test(test_long_sums),
        cmocka_unit_test(test_many_modules),
        cmocka_unit_test(test_wrong_is_found),
        cmocka_unit_test(test_unwritten_is_found),
        cmocka_unit_test(test_small_errors_are_found),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
