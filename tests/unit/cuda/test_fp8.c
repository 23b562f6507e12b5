/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of the target hopper_fp8: which problems and configs it takes, the errors of
 * others, defaults, predicted times, and the arguments of a launch. */
#include "tests/unit/cuda/common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/fp8/fp8.h"
#include "kernels/families/grouped_gemm/hopper/host/params.h"
#define TARGET grouped_gemm_hopper_fp8

static const struct device_info h200 = {H200_FIELDS};

/* Problems that no fp8 kernel takes, and a word of the reason. */
static void test_refused_problems(void **state)
{
    (void)state;
    static const char *const all[][2] = {
        {"mode=forward M=64 N=64 K=64", "quant=none"},
        {"mode=forward M=64 N=64 K=24 quant=fp8_block", "multiple of 16"},
        {"mode=dX M=64 N=24 K=64 quant=fp8_block", "multiple of 16"},
        {"mode=forward M=64 N=20 K=64 quant=fp8_row", "multiple of 8"},
        {"mode=dW M=64 N=64 K=20 quant=fp8_block", "multiple of 8"},
        {"mode=dW M=64 N=64 K=64 quant=fp8_block accumulate=true", "fp32"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct problem p;
        struct rejection why = {0};
        struct error err = ERROR_NULL;
        char whole[256];
        snprintf(whole, sizeof(whole), "grouped_gemm %s", all[i][0]);
        if (problem_parse(&p, whole, &err)) {
            continue; /* the op refuses it for every kernel */
        }
        assert_int_equal(TARGET.takes(&p, &h200, &why), 1);
        if (!strstr(why.text, all[i][1])) {
            fail_msg("%s: \"%s\" says nothing of %s", all[i][0], why.text, all[i][1]);
        }
    }
}

#define USUAL "schedule=cooperative num_warps=12 num_stages=3 BLOCK_SIZE_K=128 "

static void test_refused_configs(void **state)
{
    (void)state;
    static const char *const all[][2] = {
        {USUAL "BLOCK_SIZE_M=256 BLOCK_SIZE_N=192", "registers"},
        {USUAL "BLOCK_SIZE_M=128 BLOCK_SIZE_N=96", "BLOCK_SIZE_N=96"},
        {USUAL "BLOCK_SIZE_M=64 BLOCK_SIZE_N=128", "rows_per_warpgroup"},
        {USUAL "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 swap_ab=true skip_rows=true", "swap_ab"},
        {USUAL "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 pingpong=1", "pingpong"},
        {USUAL "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 staging_buffers=2 use_tma_store=false",
         "staging_buffers"},
        {"schedule=pingpong num_warps=12 num_stages=3 BLOCK_SIZE_K=128 BLOCK_SIZE_M=128 "
         "BLOCK_SIZE_N=128",
         "schedule=pingpong"},
        {"schedule=cooperative num_warps=12 num_stages=3 BLOCK_SIZE_K=64 BLOCK_SIZE_M=128 "
         "BLOCK_SIZE_N=128",
         "BLOCK_SIZE_K=64"},
        {"schedule=cooperative num_warps=12 num_stages=8 BLOCK_SIZE_K=128 BLOCK_SIZE_M=256 "
         "BLOCK_SIZE_N=128",
         "shared memory"},
    };
    const struct problem p =
        problem_of("mode=forward M=4096 N=4096 K=4096 experts=8 quant=fp8_block");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct record config;
        struct rejection why = {0};
        struct error err = ERROR_NULL;
        assert_int_equal(record_parse(&config, all[i][0], &err), 0);
        assert_int_equal(TARGET.check(&p, &config, &h200, &why), 1);
        if (!strstr(why.text, all[i][1]) && !strstr(why.rule, all[i][1])) {
            fail_msg("%s: \"%s\" (%s) says nothing of %s", all[i][0], why.text, why.rule,
                     all[i][1]);
        }
    }
}

/* Tiles of 32 columns: which problems and configs have them, and where a search looks at them. */
static void test_narrow_tiles(void **state)
{
    (void)state;
#define NARROW "schedule=cooperative num_warps=8 num_stages=8 BLOCK_SIZE_M=64 "
#define COLS   "BLOCK_SIZE_N=32 BLOCK_SIZE_K=128 use_tma_store=false"
    static const struct {
        const char *problem, *config;
        const char *illegal, *unworthy; /* the rule, or a word of its text; NULL: none */
    } cases[] = {
        {"mode=forward M=64 N=1024 K=1024 quant=fp8_block", NARROW COLS, NULL, NULL},
        {"mode=forward M=64 N=1024 K=1024 quant=fp8_row permute_y=true", NARROW COLS, NULL, NULL},
        {"mode=dX M=64 N=1024 K=1024 quant=fp8_block",
         NARROW "BLOCK_SIZE_K=32 BLOCK_SIZE_N=128 use_tma_store=false", NULL, NULL},
        {"mode=forward M=64 N=1024 K=1024 quant=fp8_block",
         NARROW "BLOCK_SIZE_N=32 BLOCK_SIZE_K=128", "narrow_cols", NULL},
        {"mode=forward M=64 N=1024 K=1024 quant=fp8_block",
         NARROW "BLOCK_SIZE_N=96 BLOCK_SIZE_K=128 use_tma_store=false", "narrow_cols", NULL},
        {"mode=forward M=64 N=1024 K=1024 quant=fp8_block", NARROW COLS " swap_ab=true",
         "BLOCK_SIZE_N=32", NULL},
        {"mode=forward M=64 N=1024 K=1024 quant=fp8_block experts=8", NARROW COLS, "one expert",
         NULL},
        {"mode=forward M=64 N=1024 K=1024 quant=fp8_block permute_x=true",
         NARROW COLS " use_tma_load_x=false", "in order", NULL},
        {"mode=dW M=64 N=1024 K=1024 quant=fp8_block",
         "schedule=cooperative num_warps=8 num_stages=8 BLOCK_SIZE_M=128 BLOCK_SIZE_N=64 "
         "BLOCK_SIZE_K=32 use_tma_store=false",
         "BLOCK_SIZE_K=32", NULL},
        {"mode=forward M=512 N=1024 K=1024 quant=fp8_block",
         "schedule=cooperative num_warps=12 num_stages=5 BLOCK_SIZE_M=256 " COLS, NULL,
         "narrow_tall"},
        {"mode=forward M=512 N=4096 K=1024 quant=fp8_block", NARROW COLS, NULL, "narrow_enough"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct problem p = problem_of(cases[i].problem);
        struct record config;
        struct rejection why = {0};
        struct error err = ERROR_NULL;
        assert_int_equal(record_parse(&config, cases[i].config, &err), 0);
        const char *rule = cases[i].illegal;
        int r = TARGET.check(&p, &config, &h200, &why);
        if (r == 0 && !rule) {
            rule = cases[i].unworthy;
            r = fp8_worth(&p, &config, &h200, &why);
        }
        if (r != (rule != NULL) ||
            (rule && !strstr(why.text, rule) && strcmp(why.rule, rule) != 0)) {
            fail_msg("%s | %s: %d, \"%s\" (%s)", cases[i].problem, cases[i].config, r, why.text,
                     why.rule);
        }
    }
}

static const char *const problems[] = {
    "mode=forward M=65536 N=1536 K=2048 experts=128 topk=8 quant=fp8_block",
    "mode=forward M=16384 N=4096 K=7168 experts=32 topk=8 permute_x=true quant=fp8_block",
    "mode=forward M=16384 N=4096 K=7168 experts=32 topk=8 permute_y=true quant=fp8_row",
    "mode=dX M=8192 N=28672 K=4096 experts=8 topk=2 quant=fp8_block",
    "mode=dX M=8192 N=5760 K=2880 experts=32 permute_x=true quant=fp8_row",
    "mode=dW M=16384 N=4096 K=7168 experts=32 quant=fp8_block dtype_out=fp32 accumulate=true",
    "mode=dW M=512 N=576 K=192 experts=32 quant=fp8_row",
    "mode=forward M=16 N=1024 K=1024 quant=fp8_block",
    "mode=forward M=4096 N=7168 K=16384 quant=fp8_block",
    "mode=forward M=1 N=106496 K=16384 quant=fp8_block",
};
enum { PROBLEMS = sizeof(problems) / sizeof(problems[0]) };

/* The default is legal, in the space's order of magnitude, and takes longer for more work. */
static void test_defaults(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        struct record config;
        struct rejection why;
        struct error err = ERROR_NULL;
        double flops, bytes;
        const struct problem p = problem_of(problems[i]);
        if (TARGET.takes(&p, &h200, &why)) {
            fail_msg("%s: %s", problems[i], why.text);
        }
        assert_int_equal(TARGET.choose(&p, &h200, &config, &err), 0);
        if (TARGET.check(&p, &config, &h200, &why)) {
            fail_msg("%s: the default is not legal: %s", problems[i], why.text);
        }
        const double us = TARGET.predict(&p, &config, &h200, NULL);
        gemm_work(&p, &flops, &bytes);
        const double floor = fmax(flops / 1979e6, bytes / 4.8e6);
        if (!(us > floor && us < 20 * (floor + 10))) {
            fail_msg("%s: %g us predicted, the floor is %g us", problems[i], us, floor);
        }
        if (getenv("GEMMD_TEST_SHOW")) {
            char text[1024];
            record_format(&config, text, sizeof(text));
            printf("%s\n  %.1f us, floor %.1f us, %s\n", problems[i], us, floor, text);
        }
    }
}

/* Scales of a launch: dX reads dy's and w's; strides in bytes. The twin's rows are half as long. */
static void test_plan(void **state)
{
    (void)state;
    struct record config;
    struct error err = ERROR_NULL;
    static struct launch_plan plan;
    static char memory[1 << 16] __attribute__((aligned(256)));
    const struct problem p = problem_of("mode=dX M=256 N=256 K=384 experts=2 quant=fp8_block");
    assert_int_equal(TARGET.choose(&p, &h200, &config, &err), 0);
    int32_t sizes[2] = {100, 156};
    struct grouped_gemm_args a = {.size = sizeof(a),
                                  .dy = memory,
                                  .w = memory,
                                  .out = memory,
                                  .m_sizes = sizes,
                                  .m_sizes_dtype = DTYPE_INT32,
                                  .rows = 256,
                                  .dy_scale = memory + 64,
                                  .w_scale = memory + 128,
                                  .workspace = memory,
                                  .workspace_bytes = sizeof(memory)};
    if (TARGET.plan(&p, &config, &h200, &a, &plan, &err)) {
        fail_msg("%s", err.text);
    }
    struct hopper_params params;
    const struct launch *l = &plan.steps[plan.n - 1];
    memcpy(&params, l->params, sizeof(params));
    assert_ptr_equal(params.scales.a.data, memory + 64);
    assert_int_equal(params.scales.a.row, 4);
    assert_int_equal(params.scales.a.block, 256 * 4);
    assert_ptr_equal(params.scales.b.data, memory + 128);
    assert_int_equal(params.scales.b.row, 4);       /* w's scales lie [N / 128][K / 128] */
    assert_int_equal(params.scales.b.block, 3 * 4); /* a block of the sum is one of N */
    assert_int_equal(params.scales.b.expert, 2 * 3 * 4);
    assert_int_equal(params.depth, 128);
    assert_int_equal(params.tile_cols, 384);
    a.dy_scale = NULL;
    assert_int_equal(TARGET.plan(&p, &config, &h200, &a, &plan, &err), ERROR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_problems), cmocka_unit_test(test_refused_configs),
        cmocka_unit_test(test_narrow_tiles), cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_plan)};
    families_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
