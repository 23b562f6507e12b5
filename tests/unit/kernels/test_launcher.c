/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher in a training job: strides with guarded gaps, 64-bit indices, row counts other than
 * the problem's, args of older and newer callers, accumulation, the two roundings of fuse_mul_post
 * bit by bit; errors of bad images, configs and args.
 */
#include <elf.h>
#include <math.h>
#include <pthread.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "tests/unit/kernels/common.h"

#define TILE "BLOCK_SIZE_M=16 BLOCK_SIZE_N=32 BLOCK_SIZE_K=32 unroll_rows=4 unroll_cols=1"

static struct compiler *compiler;

static struct image compile(const char *problem, const char *config)
{
    struct problem p;
    struct record c;
    struct variant v;
    struct image image;
    problem_of(&p, problem);
    config_of(&c, config);
    assert_ok(grouped_gemm_cpu.variant(&p, &c, "x86_64", &v, err));
    assert_ok(compiler->ops->compile(compiler, &v, &image, err));
    return image;
}

static struct launcher *launcher_of(const char *problem, const char *config)
{
    struct problem p;
    struct record c;
    struct launcher *l;
    struct image image = compile(problem, config);
    problem_of(&p, problem);
    config_of(&c, config);
    assert_ok(launcher_new(&grouped_gemm_family, &p, &c, image.data, image.size, NULL, &l, err));
    image_deinit(&image);
    return l;
}

/* ---- a small layer with gaps ----------------------------------------------------------------- */

/* The layer has T = 145 rows: 29 tokens x 5 slots. Experts have 0, 1, 15, 64 and 65 rows. */
enum { E = 5, TOPK = 5, TOKENS = 29, T = 145, N = 37, K = 53, GAP = 3 };
enum {
    X_STRIDE = K + GAP,
    W_STRIDE = K + 5,
    W_EXPERT = N * W_STRIDE + 7,
    DY_STRIDE = N + 2,
    DW_STRIDE = K + 1,
    DW_EXPERT = N * DW_STRIDE + 4
};

static const int64_t sizes[E] = {0, 1, 15, 64, 65};
static int64_t gather[T];
static float x[T * X_STRIDE], w[E * W_EXPERT], dy[T * DY_STRIDE], weights[T];
static float out[T * (K + N) + E * DW_EXPERT], expected[T * (K + N) + E * DW_EXPERT];

static void fill(float *to, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) { /* multiples of 1/8: products and sums are exact */
        to[i] = (float)((int64_t)(random_next(&seed) % 33) - 16) / 8;
    }
}

static void fill_all(void)
{
    fill(x, sizeof(x) / 4, 1);
    fill(w, sizeof(w) / 4, 2);
    fill(dy, sizeof(dy) / 4, 3);
    fill(weights, sizeof(weights) / 4, 4);
    for (int64_t i = 0; i < T; i++) {
        gather[i] = i * 63 % T; /* names each row once: 63 and 145 have no common factor */
    }
    for (size_t i = 0; i < sizeof(out) / 4; i++) {
        out[i] = expected[i] = -999;
    }
}

static struct grouped_gemm_args args_of(void)
{
    return (struct grouped_gemm_args){.size = sizeof(struct grouped_gemm_args),
                                      .x = x,
                                      .w = w,
                                      .dy = dy,
                                      .out = out,
                                      .x_stride = X_STRIDE,
                                      .w_stride = W_STRIDE,
                                      .w_stride_expert = W_EXPERT,
                                      .dy_stride = DY_STRIDE,
                                      .m_sizes = sizes,
                                      .gather_indices = gather,
                                      .topk_weights = weights,
                                      .m_sizes_dtype = DTYPE_INT64,
                                      .gather_dtype = DTYPE_INT64,
                                      .weights_dtype = DTYPE_FP32,
                                      .rows = T};
}

static void run(const char *problem, const struct grouped_gemm_args *args)
{
    struct launcher *l = launcher_of(problem, TILE);
    int64_t workspace = -1;
    assert_ok(launcher_workspace(l, args, &workspace, err));
    assert_int_equal(workspace, 0);
    assert_ok(launcher_launch(l, args, err));
    launcher_free(l);
}

/* Compares exactly, so a write between the rows is also detected. */
static void compare(void)
{
    for (size_t i = 0; i < sizeof(out) / 4; i++) {
        if (out[i] != expected[i]) {
            fail_msg("element %zu is %g, expected %g", i, (double)out[i], (double)expected[i]);
        }
    }
}

#define FORWARD                                                                                    \
    "grouped_gemm mode=forward M=145 N=37 K=53 experts=5 topk=5 permute_x=true dtype_in=fp32"

static struct grouped_gemm_args forward_args(void)
{
    fill_all();
    struct grouped_gemm_args a = args_of();
    a.out_stride = N + GAP;
    for (int64_t e = 0, i = 0; e < E; e++) {
        for (int64_t end = i + sizes[e]; i < end; i++) {
            for (int64_t n = 0; n < N; n++) {
                float sum = 0;
                for (int64_t k = 0; k < K; k++) {
                    sum += x[gather[i] / TOPK * X_STRIDE + k] * w[e * W_EXPERT + n * W_STRIDE + k];
                }
                expected[i * (N + GAP) + n] = sum;
            }
        }
    }
    return a;
}

static void test_forward_strided(void **state)
{
    (void)state;
    struct grouped_gemm_args a = forward_args();
    run(FORWARD, &a);
    compare();
}

/* Sizes as PyTorch gives them: the experts' ends, with rows after the last end, which nobody
 * writes. */
static void test_forward_ends(void **state)
{
    (void)state;
    struct grouped_gemm_args a = forward_args();
    int64_t ends[E], end = 0;
    for (int64_t e = 0; e < E; e++) {
        ends[e] = end += sizes[e];
    }
    assert_int_equal(end, T);
    a.flags = GROUPED_GEMM_ENDS;
    a.m_sizes = ends;
    run(FORWARD, &a);
    compare();

    a = forward_args();
    a.flags = GROUPED_GEMM_ENDS;
    a.m_sizes = ends;
    ends[E - 1] -= 1;
    for (int64_t n = 0; n < N; n++) {
        expected[(T - 1) * (N + GAP) + n] = -999;
    }
    run(FORWARD, &a);
    compare();
}

/* A single expert has all rows: no target reads m_sizes. */
static void test_one_expert_has_all_rows(void **state)
{
    (void)state;
    fill_all();
    struct grouped_gemm_args a = args_of();
    const int64_t fewer = 3;
    a.m_sizes = &fewer;
    for (int64_t i = 0; i < T; i++) {
        for (int64_t n = 0; n < N; n++) {
            float sum = 0;
            for (int64_t k = 0; k < K; k++) {
                sum += x[i * X_STRIDE + k] * w[n * W_STRIDE + k];
            }
            expected[i * N + n] = sum;
        }
    }
    run("grouped_gemm mode=forward M=145 N=37 K=53 experts=1 topk=1 dtype_in=fp32", &a);
    compare();
}

/* A job holds the kernels of all its layers: each kernel stays valid when another is loaded. */
static void test_two_at_once(void **state)
{
    (void)state;
    struct grouped_gemm_args a = forward_args();
    struct launcher *first = launcher_of(FORWARD, TILE);
    struct launcher *second =
        launcher_of("grouped_gemm mode=dX M=145 N=37 K=53 experts=5 topk=5 dtype_in=fp32", TILE);
    assert_ok(launcher_launch(first, &a, err));
    compare();
    launcher_free(second);
    launcher_free(first);
}

static void test_dx_strided(void **state)
{
    (void)state;
    fill_all();
    struct grouped_gemm_args a = args_of();
    a.out_stride = K + GAP;
    for (int64_t e = 0, i = 0; e < E; e++) {
        for (int64_t end = i + sizes[e]; i < end; i++) {
            for (int64_t k = 0; k < K; k++) {
                float sum = 0;
                for (int64_t n = 0; n < N; n++) {
                    sum += dy[i * DY_STRIDE + n] * w[e * W_EXPERT + n * W_STRIDE + k];
                }
                expected[gather[i] * (K + GAP) + k] = sum;
            }
        }
    }
    run("grouped_gemm mode=dX M=145 N=37 K=53 experts=5 topk=5 permute_x=true dtype_in=fp32", &a);
    compare();
}

static void expect_dw(float begin)
{
    for (int64_t e = 0, start = 0; e < E; start += sizes[e++]) {
        for (int64_t n = 0; n < N; n++) {
            for (int64_t k = 0; k < K; k++) {
                float sum = begin;
                for (int64_t i = start; i < start + sizes[e]; i++) {
                    sum += dy[gather[i] * DY_STRIDE + n] * x[i * X_STRIDE + k];
                }
                expected[e * DW_EXPERT + n * DW_STRIDE + k] = sum;
            }
        }
    }
}

static void test_dw_strided(void **state)
{
    (void)state;
    const char *problem =
        "grouped_gemm mode=dW M=145 N=37 K=53 experts=5 topk=5 permute_y=true dtype_in=fp32";
    fill_all();
    struct grouped_gemm_args a = args_of();
    a.out_stride = DW_STRIDE;
    a.out_stride_expert = DW_EXPERT;
    expect_dw(0);
    run(problem, &a);
    compare();
    /* The launch's flag makes the kernel add to the output: each value is now twice as large. */
    for (size_t i = 0; i < sizeof(out) / 4; i++) {
        expected[i] = -999;
    }
    expect_dw(0);
    for (size_t i = 0; i < sizeof(out) / 4; i++) {
        expected[i] *= expected[i] == -999 ? 1 : 2;
    }
    a.flags = GROUPED_GEMM_ACCUMULATE;
    run(problem, &a);
    compare();
}

/* The problem is a bucket: a launch brings its own rows, also zero rows. */
static void test_other_rows(void **state)
{
    (void)state;
    struct launcher *l = launcher_of("grouped_gemm mode=forward M=4100 N=37 K=53 experts=5 topk=5 "
                                     "dtype_in=fp32",
                                     TILE);
    fill_all();
    struct grouped_gemm_args a = args_of();
    const int32_t few[E] = {0, 3, 0, 0, 2};
    a.m_sizes = few;
    a.m_sizes_dtype = DTYPE_INT32;
    a.rows = 5;
    for (int64_t i = 0; i < 5; i++) {
        int64_t e = i < 3 ? 1 : 4;
        for (int64_t n = 0; n < N; n++) {
            float sum = 0;
            for (int64_t k = 0; k < K; k++) {
                sum += x[i * X_STRIDE + k] * w[e * W_EXPERT + n * W_STRIDE + k];
            }
            expected[i * N + n] = sum;
        }
    }
    assert_ok(launcher_launch(l, &a, err));
    compare();
    a.rows = 0;
    a.x = NULL; /* an empty tensor has no address */
    a.out = NULL;
    assert_ok(launcher_launch(l, &a, err));
    launcher_free(l);
    /* dW without rows must be written as zeros. */
    l = launcher_of("grouped_gemm mode=dW M=145 N=37 K=53 experts=5 dtype_in=fp32", TILE);
    const int64_t none[E] = {0};
    fill_all();
    a = args_of();
    a.rows = 0;
    a.m_sizes = none;
    a.x = a.dy = NULL;
    for (int64_t i = 0; i < E * N * K; i++) {
        expected[i] = 0;
    }
    assert_ok(launcher_launch(l, &a, err));
    compare();
    launcher_free(l);
}

/* ---- roundings ------------------------------------------------------------------------------- */

static uint16_t bf16(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* 1 + 2^-8 rounds to 1 (a tie, to even), then times 1.5 is 1.5. With a single rounding: 1.5078. */
static void test_two_roundings(void **state)
{
    (void)state;
    struct launcher *l = launcher_of("gemm mode=forward M=2 N=1 K=2 permute_y=true "
                                     "fuse_mul_post=true",
                                     TILE);
    const uint16_t in[4] = {bf16(1), bf16(0x1p-8f), bf16(2), bf16(0)};
    const uint16_t one[2] = {bf16(1), bf16(1)};
    const int32_t swap[2] = {1, 0};
    /* the weights are in token order; the first weight rounds to 1 in bf16 */
    const float scale[2] = {1.00390625f, 1.5f};
    uint16_t result[2] = {0};
    struct grouped_gemm_args a = {.size = sizeof(a),
                                  .x = in,
                                  .w = one,
                                  .out = result,
                                  .gather_indices = swap,
                                  .gather_dtype = DTYPE_INT32,
                                  .topk_weights = scale,
                                  .weights_dtype = DTYPE_FP32,
                                  .rows = 2};
    assert_ok(launcher_launch(l, &a, err));
    assert_int_equal(result[1], bf16(1.5f));
    assert_int_equal(result[0], bf16(2));
    const uint16_t scale16[2] = {bf16(3), bf16(0.5f)}; /* weights of the input type */
    a.topk_weights = scale16;
    a.weights_dtype = DTYPE_BF16;
    assert_ok(launcher_launch(l, &a, err));
    assert_int_equal(result[1], bf16(0.5f));
    assert_int_equal(result[0], bf16(6));
    launcher_free(l);
}

/* ---- sizes of args --------------------------------------------------------------------------- */

static void test_args_size(void **state)
{
    (void)state;
    struct launcher *l = launcher_of("gemm mode=forward M=4 N=4 K=4 dtype_in=fp32", TILE);
    struct {
        struct grouped_gemm_args a;
        uint64_t more[4];
    } newer = {0};
    fill_all();
    newer.a =
        (struct grouped_gemm_args){.size = sizeof(newer), .x = x, .w = w, .out = out, .rows = 4};
    assert_ok(launcher_launch(l, &newer.a, err));
    newer.more[3] = 1;
    assert_fails(launcher_launch(l, &newer.a, err), ERROR_INVALID, "newer gemmd");
    newer.a.size = 8;
    assert_fails(launcher_launch(l, &newer.a, err), ERROR_INVALID, "args.size is 8");
    newer.a.size = 0;
    assert_fails(launcher_launch(l, &newer.a, err), ERROR_INVALID, "args.size is 0");
    assert_fails(launcher_launch(l, NULL, err), ERROR_INVALID, "NULL");
    launcher_free(l);
}

#define refuse(change, part)                                                                       \
    do {                                                                                           \
        struct grouped_gemm_args a = args_of();                                                    \
        change;                                                                                    \
        assert_fails(launcher_launch(l, &a, err), ERROR_INVALID, part);                            \
        int64_t bytes;                                                                             \
        assert_fails(launcher_workspace(l, &a, &bytes, err), ERROR_INVALID, part);                 \
    } while (0)

static void test_bad_args(void **state)
{
    (void)state;
    struct launcher *l = launcher_of("grouped_gemm mode=forward M=145 N=37 K=53 experts=5 topk=5 "
                                     "permute_y=true fuse_mul_post=true dtype_in=fp32",
                                     TILE);
    fill_all();
    refuse(a.x = NULL, "args.x is NULL");
    refuse(a.w = NULL, "args.w is NULL");
    refuse(a.out = NULL, "args.out is NULL");
    refuse(a.m_sizes = NULL, "args.m_sizes is NULL");
    refuse(a.gather_indices = NULL, "args.gather_indices is NULL");
    refuse(a.topk_weights = NULL, "args.topk_weights is NULL");
    refuse(a.rows = -5, "args.rows is -5");
    refuse(a.rows = 144, "multiple of topk 5");
    refuse(a.x_stride = K - 1, "args.x_stride is 52: rows would overlap");
    refuse(a.w_stride_expert = W_STRIDE, "args.w_stride_expert is 58");
    refuse(a.w_stride = INT64_C(1) << 40, "args.w_stride is 1099511627776: an expert's 37 rows");
    refuse(a.out_stride = -N, "args.out_stride is -37");
    refuse(a.m_sizes_dtype = DTYPE_FP32, "args.m_sizes_dtype is 3");
    refuse(a.gather_dtype = 0, "args.gather_dtype is 0");
    refuse(a.weights_dtype = DTYPE_BF16, "args.weights_dtype is 1");
    refuse(a.flags = 6, "args.flags is 0x6");
    struct grouped_gemm_args a = args_of();
    a.flags = GROUPED_GEMM_ACCUMULATE;
    assert_fails(launcher_launch(l, &a, err), ERROR_CONFLICT, "only dW");
    launcher_free(l);
}

/* ---- images and configs ---------------------------------------------------------------------- */

static void test_bad_images(void **state)
{
    (void)state;
    const char *problem = "gemm mode=forward M=4 N=4 K=4 dtype_in=fp32";
    struct problem p;
    struct record c, gpu;
    struct launcher *l;
    problem_of(&p, problem);
    config_of(&c, TILE);
    config_of(&gpu, "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 num_warps=4");
    struct image image = compile(problem, TILE);
    const struct family *f = &grouped_gemm_family;
    assert_fails(launcher_new(f, &p, &c, "#!/bin/sh\n", 10, NULL, &l, err), ERROR_INVALID,
                 "not an ELF file");
    assert_fails(launcher_new(f, &p, &c, image.data, 40, NULL, &l, err), ERROR_INVALID,
                 "not an ELF file");
    assert_fails(launcher_new(f, &p, &c, image.data, image.size / 2, NULL, &l, err), ERROR_INVALID,
                 "cut short");
    assert_fails(launcher_new(f, &p, &gpu, image.data, image.size, NULL, &l, err), ERROR_INVALID,
                 "unknown parameter \"num_warps\"");
    assert_null(l);
    Elf64_Ehdr *head = image.data;
    head->e_machine = EM_S390;
    assert_fails(launcher_new(f, &p, &c, image.data, image.size, NULL, &l, err), ERROR_INVALID,
                 "ELF machine 22");
    head->e_machine = cpu_launch_backend.elf_machine;
    head->e_type = ET_CORE;
    assert_fails(launcher_new(f, &p, &c, image.data, image.size, NULL, &l, err), ERROR_INVALID,
                 "cannot be loaded");
    image_deinit(&image);
    assert_null(launcher_free(NULL));
}

/* ---- several threads ------------------------------------------------------------------------- */

struct caller {
    struct launcher *l;
    float result[16 * 8];
};

static void *launch_often(void *arg)
{
    struct caller *c = arg;
    struct grouped_gemm_args a = {.size = sizeof(a), .x = x, .w = w, .out = c->result, .rows = 16};
    for (int i = 0; i < 50; i++) {
        if (launcher_launch(c->l, &a, NULL) != 0) {
            c->result[0] = NAN;
            break;
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    enum { CALLERS = 4 };
    struct launcher *l = launcher_of("gemm mode=forward M=16 N=8 K=20 dtype_in=fp32", TILE);
    struct caller *callers = calloc(CALLERS, sizeof(*callers));
    pthread_t threads[CALLERS];
    fill_all();
    for (int i = 0; i < CALLERS; i++) {
        callers[i].l = l;
        assert_int_equal(pthread_create(&threads[i], NULL, launch_often, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_memory_equal(callers[i].result, callers[0].result, sizeof(callers[0].result));
    }
    assert_false(isnan(callers[0].result[0]));
    free(callers);
    launcher_free(l);
}

static int setup(void **state)
{
    (void)state;
    families_register();
    assert_ok(compiler_open("cpu", &compiler, err));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    compiler->ops->close(compiler);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_strided), cmocka_unit_test(test_forward_ends),
        cmocka_unit_test(test_two_at_once),     cmocka_unit_test(test_dx_strided),
        cmocka_unit_test(test_dw_strided),      cmocka_unit_test(test_other_rows),
        cmocka_unit_test(test_two_roundings),   cmocka_unit_test(test_args_size),
        cmocka_unit_test(test_bad_args),        cmocka_unit_test(test_bad_images),
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_one_expert_has_all_rows),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
