/* SPDX-License-Identifier: Apache-2.0 */
/* The target "portable": legal configs, the error messages for illegal configs, the space, the
 * analytic default, the compile-time part, and the planned launches. No GPU, no CUDA. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/grouped_gemm/portable/portable.h"
#include "kernels/space.h"
#include "tests/unit/cuda/common.h"

static const struct device_info h200 = {H200_FIELDS, .clock_khz = 1980000};
static const struct device_info a40 = {
    .kind = "cuda",
    .name = "NVIDIA A40",
    .arch = "sm_86",
    .sm_count = 84,
    .cc_major = 8,
    .cc_minor = 6,
    .smem_optin = 101376,
    .smem_per_sm = 102400,
    .regs_per_block = 65536,
    .warp_size = 32,
    .l2_bytes = 6 << 20,
    .clock_khz = 1740000,
    .peak_tflops = 120,
    .peak_gbps = 600,
};

#define QWEN "M=32768 N=1536 K=2048 experts=128 topk=8"

#define GOOD                                                                                       \
    "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 num_warps=8 num_stages=3 GROUP_SIZE_M=8"

/* ---- legality ------------------------------------------------------------------------------- */

struct refusal {
    const char *problem, *config;
    int code;
    const char *rule, *words;
};

static void test_check(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {"mode=forward " QWEN, "BLOCK_SIZE_M=128", ERROR_INVALID, "missing_parameter",
         "BLOCK_SIZE_N"},
        {"mode=forward " QWEN, GOOD " waves=2", ERROR_INVALID, "unknown_parameter", "waves"},
        {"mode=forward " QWEN, GOOD " NUM_KSPLIT=2", ERROR_INVALID, "parameter_value", "only 1"},
        {"mode=forward " QWEN, GOOD " permute_x=true", ERROR_CONFLICT, "flags_agree", "permute_x"},
        {"mode=forward " QWEN, GOOD " use_tma_load_w=true", ERROR_INVALID, "no_tma",
         "use_tma_load_w"},
        {"mode=forward dtype_in=fp32 " QWEN, GOOD, ERROR_INVALID, "dtype_in", "bf16 and fp16"},
        {"mode=forward M=64 N=100 K=64", GOOD, ERROR_INVALID, "rows_16_bytes", "N is 100"},
        {"mode=dX M=64 N=64 K=36", GOOD, ERROR_INVALID, "rows_16_bytes", "K is 36"},
        {"mode=forward " QWEN,
         "BLOCK_SIZE_M=96 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 num_warps=8 num_stages=3 GROUP_SIZE_M=8",
         ERROR_INVALID, "parameter_value", "BLOCK_SIZE_M=96"},
        {"mode=forward " QWEN,
         "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=256 num_warps=8 num_stages=3 "
         "GROUP_SIZE_M=8",
         ERROR_INVALID, "parameter_value", "sums over"},
        {"mode=dX " QWEN,
         "BLOCK_SIZE_M=128 BLOCK_SIZE_N=256 BLOCK_SIZE_K=64 num_warps=8 num_stages=3 "
         "GROUP_SIZE_M=8",
         ERROR_INVALID, "parameter_value", "BLOCK_SIZE_N=256"},
        {"mode=dW " QWEN,
         "BLOCK_SIZE_M=16 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 num_warps=8 num_stages=3 GROUP_SIZE_M=8",
         ERROR_INVALID, "parameter_value", "BLOCK_SIZE_M=16"},
        {"mode=forward " QWEN,
         "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 num_warps=6 num_stages=3 "
         "GROUP_SIZE_M=8",
         ERROR_INVALID, "parameter_value", "4 or 8"},
        {"mode=forward " QWEN,
         "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 num_warps=8 num_stages=1 "
         "GROUP_SIZE_M=8",
         ERROR_INVALID, "parameter_value", "2 to 8"},
        {"mode=forward " QWEN,
         "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 num_warps=8 num_stages=x "
         "GROUP_SIZE_M=8",
         ERROR_INVALID, "parameter_value", "num_stages=x"},
        {"mode=forward " QWEN,
         "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 num_warps=8 num_stages=3 "
         "GROUP_SIZE_M=0",
         ERROR_INVALID, "parameter_value", "GROUP_SIZE_M=0"},
        {"mode=forward " QWEN,
         "BLOCK_SIZE_M=16 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 num_warps=8 num_stages=3 GROUP_SIZE_M=8",
         ERROR_INVALID, "warp_tile", "16 x 64"},
        {"mode=forward quant=fp8_block " QWEN,
         "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=32 num_warps=8 num_stages=3 "
         "GROUP_SIZE_M=8",
         ERROR_INVALID, "parameter_value", "64 or 128"},
        /* two sets of sums: 256 registers of a thread; fp8_row has one set */
        {"mode=forward quant=fp8_block " QWEN,
         "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 num_warps=4 num_stages=3 "
         "GROUP_SIZE_M=8",
         ERROR_RESOURCE, "registers", "more warps or a smaller tile"},
    };
    struct rejection why;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct refusal *f = &refusals[i];
        struct problem p = problem_of(f->problem);
        struct record config = config_of(f->config);
        assert_int_equal(portable_check(&p, &config, &h200, &why), 1);
        assert_int_equal(why.code, f->code);
        assert_string_equal(why.rule, f->rule);
        if (!strstr(why.text, f->words)) {
            fail_msg("\"%s\" is not in: %s", f->words, why.text);
        }
    }
    static const char *const modes[] = {"mode=forward " QWEN,
                                        "mode=forward dtype_in=fp16 permute_y=true " QWEN,
                                        "mode=forward M=8 N=8 K=8"};
    struct record good = config_of(GOOD " NUM_KSPLIT=1 use_tma_store=false flatten=true");
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct problem p = problem_of(modes[i]);
        assert_int_equal(portable_check(&p, &good, &h200, &why), 0);
    }
}

/* The bytes of shared memory are exact: stages x (tiles of A and B) + 4 x (2 x experts + 1). */
static void test_limits(void **state)
{
    (void)state;
    struct problem p = problem_of("mode=forward " QWEN);
    struct record config = config_of(GOOD);
    struct device_info info = h200;
    struct rejection why;
    const int64_t need = 3 * (128 + 128) * 64 * 2 + 4 * (2 * 128 + 1);
    info.smem_optin = need;
    assert_int_equal(portable_check(&p, &config, &info, &why), 0);
    info.smem_optin = need - 1;
    assert_int_equal(portable_check(&p, &config, &info, &why), 1);
    assert_int_equal(why.code, ERROR_RESOURCE);
    assert_string_equal(why.resource, "shared_memory");
    assert_int_equal(why.required, need);
    assert_int_equal(why.limit, need - 1);
    config = config_of("BLOCK_SIZE_M=256 BLOCK_SIZE_N=256 BLOCK_SIZE_K=32 num_warps=8 num_stages=2 "
                       "GROUP_SIZE_M=8");
    assert_int_equal(portable_check(&p, &config, &h200, &why), 1);
    assert_int_equal(why.code, ERROR_RESOURCE);
    assert_string_equal(why.resource, "registers");
    assert_int_equal(why.limit, 255);
    assert_true(why.required > 255);
}

/* ---- the space and the default -------------------------------------------------------------- */

static const char *const problems[] = {
    "mode=forward " QWEN,
    "mode=forward permute_x=true M=8 N=1536 K=2048 experts=128 topk=8",
    "mode=dX permute_y=true " QWEN,
    "mode=dW permute_x=true " QWEN,
    "mode=dW dtype_out=fp32 M=65536 N=8 K=8",
    "mode=forward M=8192 N=8192 K=8192",
    "mode=forward M=1 N=8 K=8",
    "mode=dX M=16384 N=16384 K=5120 experts=16",
    "mode=dW M=16384 N=16384 K=5120 experts=16 routing=zipf:1.2",
    "mode=forward permute_y=true fuse_mul_post=true M=6144 N=7168 K=2048 experts=1024 topk=6",
};

static void test_space(void **state)
{
    (void)state;
    const struct device_info *devices[] = {&h200, &a40};
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        for (size_t d = 0; d < 2; d++) {
            struct problem p = problem_of(problems[i]);
            struct error err = ERROR_NULL;
            struct rejection why;
            struct record config;
            struct space s;
            assert_int_equal(space_build(&s, &grouped_gemm_cuda, &p, devices[d], NULL, &err), 0);
            assert_in_range(s.n, 200, 900);
            for (uint32_t j = 0; j < s.n; j += 7) {
                space_config(&s, j, &config);
                double us = portable_predict(&p, &config, devices[d], NULL);
                assert_true(us > 0 && isfinite(us));
            }
            space_deinit(&s);
            assert_int_equal(portable_choose(&p, devices[d], &config, &err), 0);
            assert_int_equal(portable_check(&p, &config, devices[d], &why), 0);
        }
    }
}

/* Basic expectations of a model. */
static void test_predict(void **state)
{
    (void)state;
    struct problem large = problem_of("mode=forward M=32768 N=8192 K=8192");
    struct problem few = problem_of("mode=forward M=128 N=1536 K=2048 experts=128");
    struct record wide = config_of(GOOD);
    struct record narrow = config_of("BLOCK_SIZE_M=16 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 num_warps=4 "
                                     "num_stages=4 GROUP_SIZE_M=8");
    struct record ungrouped = config_of("BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 "
                                        "num_warps=8 num_stages=3 GROUP_SIZE_M=1");
    double flops, bytes;
    gemm_work(&large, &flops, &bytes);
    assert_true(portable_predict(&large, &wide, &h200, NULL) > flops / 788e6);
    assert_true(portable_predict(&large, &wide, &h200, NULL) <
                portable_predict(&large, &narrow, &h200, NULL));
    assert_true(portable_predict(&few, &narrow, &h200, NULL) <=
                portable_predict(&few, &wide, &h200, NULL));
    assert_true(portable_predict(&large, &wide, &h200, NULL) <=
                portable_predict(&large, &ungrouped, &h200, NULL));
    assert_true(portable_predict(&large, &wide, &h200, NULL) <
                portable_predict(&large, &wide, &a40, NULL));
}

static void test_no_config(void **state)
{
    (void)state;
    struct problem p = problem_of("mode=forward dtype_in=fp32 " QWEN);
    struct record config;
    struct error err = ERROR_NULL;
    assert_int_equal(portable_choose(&p, &h200, &config, &err), ERROR_NO_CONFIG);
    assert_non_null(strstr(err.text, "bf16 and fp16"));
    struct device_info old = h200;
    old.cc_major = 7;
    assert_false(grouped_gemm_cuda.supports(&old));
    assert_true(grouped_gemm_cuda.supports(&a40));
}

/* ---- variants ------------------------------------------------------------------------------- */

static void options_of(const char *problem, const char *config, char out[OPTIONS_MAX])
{
    struct problem p = problem_of(problem);
    struct record c = config_of(config);
    struct error err = ERROR_NULL;
    struct variant v;
    assert_int_equal(portable_variant(&p, &c, "sm_90a", &v, &err), 0);
    assert_string_equal(v.family, "grouped_gemm");
    assert_string_equal(v.kind, "cuda");
    assert_string_equal(v.arch, "sm_90a");
    assert_true(strlen(v.source_hash) == HASH_HEX - 1);
    memcpy(out, v.options, OPTIONS_MAX);
}

/* A compiled variant serves problems of every size, and every GROUP_SIZE_M. */
static void test_variant(void **state)
{
    (void)state;
    static char a[OPTIONS_MAX], b[OPTIONS_MAX];
    options_of("mode=forward " QWEN, GOOD, a);
    options_of("mode=forward M=640 N=88 K=4096 experts=7 topk=2", GOOD, b);
    assert_string_equal(a, b);
    options_of("mode=forward " QWEN,
               "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 num_warps=8 num_stages=3 "
               "GROUP_SIZE_M=1",
               b);
    assert_string_equal(a, b);
    static const char *const others[] = {
        "mode=forward permute_x=true " QWEN, "mode=forward permute_y=true " QWEN,
        "mode=forward permute_y=true fuse_mul_post=true " QWEN, "mode=forward dtype_in=fp16 " QWEN};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        options_of(others[i], GOOD, b);
        assert_string_not_equal(a, b);
    }
}

/* ---- launches ------------------------------------------------------------------------------- */

static struct grouped_gemm_args args_of(int64_t rows)
{
    return (struct grouped_gemm_args){.size = sizeof(struct grouped_gemm_args),
                                      .x = (void *)0x10000,
                                      .w = (void *)0x20000,
                                      .dy = (void *)0x30000,
                                      .out = (void *)0x40000,
                                      .m_sizes = (void *)0x50000,
                                      .m_sizes_dtype = DTYPE_INT32,
                                      .rows = rows};
}

static int plan(const char *problem, const char *config, const struct grouped_gemm_args *args,
                struct launch_plan *out, struct error *err)
{
    struct problem p = problem_of(problem);
    struct record c = config_of(config);
    *err = ERROR_NULL;
    return portable_plan(&p, &c, &h200, args, out, err);
}

static void test_plan(void **state)
{
    (void)state;
    static struct launch_plan out;
    struct error err;
    struct grouped_gemm_args args = args_of(32768);
    assert_int_equal(plan("mode=forward " QWEN, GOOD, &args, &out, &err), 0);
    assert_int_equal(out.n, 1);
    assert_int_equal(out.workspace_bytes, 0);
    assert_int_equal(out.steps[0].block[0], 256);
    /* a persistent grid has as many thread blocks as the GPU holds */
    assert_int_equal(out.steps[0].grid[0], 132);
    assert_int_equal(out.steps[0].smem_bytes, 3 * 256 * 64 * 2 + 4 * 257);
    args.sms = 100; /* or as many as the SMs hold that the caller grants */
    assert_int_equal(plan("mode=forward " QWEN, GOOD, &args, &out, &err), 0);
    assert_int_equal(out.steps[0].grid[0], 100);
    args = args_of(8);
    assert_int_equal(
        plan("mode=forward M=8 N=1536 K=2048 experts=128 topk=8", GOOD, &args, &out, &err), 0);
    assert_int_equal(out.steps[0].grid[0], 8 * 12); /* 8 rows have at most 8 row tiles */
    args.m_sizes = (void *)0x50002;                 /* not read with one expert */
    assert_int_equal(plan("mode=forward M=8 N=1536 K=2048", GOOD, &args, &out, &err), 0);
    args = args_of(0);
    args.x = args.w = args.out = NULL;
    assert_int_equal(plan("mode=forward " QWEN, GOOD, &args, &out, &err), 0);
    assert_int_equal(out.n, 0);
    args = args_of(0); /* dW still writes its zeros */
    assert_int_equal(plan("mode=dW " QWEN,
                          "BLOCK_SIZE_M=64 BLOCK_SIZE_N=128 BLOCK_SIZE_K=128 num_warps=8 "
                          "num_stages=3 GROUP_SIZE_M=1",
                          &args, &out, &err),
                     0);
    assert_int_equal(out.n, 1);
    assert_int_equal(out.steps[0].grid[0], 132);
}

static void test_plan_refuses(void **state)
{
    (void)state;
    static struct launch_plan out;
    struct error err;
    struct grouped_gemm_args args = args_of(32768);
    args.out = (void *)0x40008;
    assert_int_equal(plan("mode=forward " QWEN, GOOD, &args, &out, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "args.out"));
    args = args_of(32768);
    args.x_stride = 2052;
    assert_int_equal(plan("mode=forward " QWEN, GOOD, &args, &out, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "x_stride"));
    args = args_of(32768);
    args.m_sizes = (void *)0x50002;
    assert_int_equal(plan("mode=forward " QWEN, GOOD, &args, &out, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "m_sizes"));
    /* 2^26 x 2^25 tiles */
    args = args_of(1 << 30);
    assert_int_equal(plan("mode=dX M=1024 N=8 K=1073741824",
                          "BLOCK_SIZE_M=16 BLOCK_SIZE_N=32 BLOCK_SIZE_K=128 num_warps=4 "
                          "num_stages=2 GROUP_SIZE_M=1",
                          &args, &out, &err),
                     ERROR_RESOURCE);
    assert_non_null(strstr(err.text, "tiles"));
}

/* ---- how many tiles ------------------------------------------------------------------------- */

static int64_t tiles_of(const int64_t *rows, int64_t experts, int64_t height)
{
    int64_t n = 0;
    for (int64_t e = 0; e < experts; e++) {
        n += (rows[e] + height - 1) / height;
    }
    return n;
}

static void test_no_routing_has_more_tiles_than_are_counted(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int i = 0; i < 2000; i++) {
        int64_t experts = 1 + (int64_t)(random_next(&random) % 9), total = 0, rows[9] = {0};
        int64_t height = 16 + (int64_t)(random_next(&random) % 113);
        /* many tiles: an expert has up to two rows more than whole tiles */
        for (int64_t e = 0; e < experts; e++) {
            rows[e] =
                (int64_t)(random_next(&random) % 4) * height + (int64_t)(random_next(&random) % 3);
            total += rows[e];
        }
        struct gemm v = {.mode = GEMM_FORWARD, .experts = experts, .out_cols = 100};
        int64_t most = cuda_tiles_most(&v, total, height, 64);
        assert_in_range(2 * tiles_of(rows, experts, height), 0, most);
        assert_in_range(most, 0, 2 * (total / height + experts));
    }
    struct gemm w = {.mode = GEMM_DW, .experts = 3, .n = 65, .out_cols = 64};
    assert_int_equal(cuda_tiles_most(&w, 0, 64, 64), 6);
    struct gemm y = {.mode = GEMM_DX, .experts = 8, .out_cols = 64};
    assert_int_equal(cuda_tiles_most(&y, 0, 64, 64), 0);
    assert_int_equal(cuda_tiles_most(&y, 3, 64, 64), 3);
    assert_int_equal(cuda_tiles_most(&y, 64 + 8, 64, 64), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_space),
        cmocka_unit_test(test_predict),
        cmocka_unit_test(test_no_config),
        cmocka_unit_test(test_variant),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_plan_refuses),
        cmocka_unit_test(test_no_routing_has_more_tiles_than_are_counted),
    };
    families_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
