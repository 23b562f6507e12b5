/* SPDX-License-Identifier: Apache-2.0 */
/* The short notation of configs: every config of every space reads back, as a config of its own
 * target only, and fits a table of 100 columns. */
#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/notation.h"
#include "kernels/space.h"
#include "tests/unit/kernels/common.h"

#define MOE "grouped_gemm M=4096 N=768 K=2048 experts=128 topk=8 "

static const char *const problems[] = {
    MOE "mode=forward permute_x=true",
    MOE "mode=forward permute_y=true fuse_mul_post=true",
    MOE "mode=dX permute_y=true",
    MOE "mode=dX permute_x=true",
    MOE "mode=dW permute_x=true",
    "grouped_gemm mode=forward M=65536 N=2048 K=2048 experts=16",
    "gemm mode=forward M=512 N=1024 K=1024",
    "gemm mode=dW M=4096 N=4096 K=4096 dtype_out=fp32",
    MOE "mode=forward permute_x=true quant=fp8_block",
    MOE "mode=dW quant=fp8_row",
};

/* False for a target that has no kernels of the problem. */
static bool has_kernels(const struct family_target *t, const struct problem *p,
                        const struct device_info *info)
{
    struct rejection why;
    return !t->takes || t->takes(p, info, &why) == 0;
}

/* Columns that a table of 100 columns has for a config, beside KEY, MODE, M, N, K and TIME us. */
enum { CONFIG_COLUMNS = 56 };

static void assert_round_trip(const struct family_target *t, const struct problem *p,
                              const struct record *config, char text[NOTATION_MAX])
{
    struct record back;
    char fields[1024];
    record_format(config, fields, sizeof(fields));
    if (!notation_write(t, p, config, text)) {
        fail_msg("%s: %s has no short notation", t->label, fields);
    }
    assert_true(notation_is_short(text));
    assert_false(notation_is_short(fields));
    assert_ok(notation_read(&grouped_gemm_family, NULL, p, text, &back, err));
    if (!record_equal(&back, config)) {
        fail_msg("%s: %s reads back as another config", t->label, text);
    }
}

static void test_every_config_reads_back(void **state)
{
    (void)state;
    struct device_info cpu = cpu_like(), gpu;
    assert_ok(arch_describe("sm_90a", &gpu, err));
    enum { TARGETS = 4 };
    size_t longest[TARGETS] = {0};
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        struct problem p;
        problem_of(&p, problems[i]);
        for (int k = 0; grouped_gemm_family.targets[k]; k++) {
            const struct family_target *t = grouped_gemm_family.targets[k];
            struct space s;
            struct record config, other;
            char text[NOTATION_MAX];
            const struct device_info *info = strcmp(t->kind, "cpu") == 0 ? &cpu : &gpu;
            if (!has_kernels(t, &p, info)) {
                continue;
            }
            assert_ok(space_build(&s, t, &p, info, NULL, err));
            for (uint32_t at = 0; at < s.n; at++) {
                space_config(&s, at, &config);
                assert_round_trip(t, &p, &config, text);
                longest[k] = strlen(text) > longest[k] ? strlen(text) : longest[k];
            }
            for (uint32_t v = 0; s.n > 0 && t->variation && t->variation(&p, &config, v, &other);
                 v++) {
                assert_round_trip(t, &p, &other, text);
            }
            space_deinit(&s);
        }
    }
    for (int k = 0; k < TARGETS; k++) {
        assert_in_range(longest[k], 10, CONFIG_COLUMNS);
    }
}

static void test_the_analytic_default_is_short(void **state)
{
    (void)state;
    struct device_info cpu = cpu_like(), gpu;
    assert_ok(arch_describe("sm_90a", &gpu, err));
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        struct problem p;
        problem_of(&p, problems[i]);
        for (int k = 0; grouped_gemm_family.targets[k]; k++) {
            const struct family_target *t = grouped_gemm_family.targets[k];
            struct record config;
            char text[NOTATION_MAX];
            const struct device_info *info = strcmp(t->kind, "cpu") == 0 ? &cpu : &gpu;
            if (!has_kernels(t, &p, info)) {
                continue;
            }
            assert_ok(t->choose(&p, info, &config, err));
            assert_round_trip(t, &p, &config, text);
            assert_in_range(strlen(text), 10, CONFIG_COLUMNS);
        }
    }
}

static const struct {
    const char *problem, *text, *config;
} examples[] = {
    {MOE "mode=forward permute_x=true", "160x256 df s4 swap 2x1",
     "BLOCK_SIZE_M=160 BLOCK_SIZE_N=256 BLOCK_SIZE_K=64 num_warps=12 schedule=deferred "
     "num_stages=4 staging_buffers=1 in_flight=1 skip_rows=false swap_ab=true "
     "tile_scheduler=static cluster_shape_mn=2x1 NUM_KSPLIT=1 use_tma_load_x=false "
     "use_tma_load_w=true use_tma_store=true permute_copy=false GROUP_SIZE_M=1 raster=rows"},
    {MOE "mode=dW permute_x=true", "256x192 c2 s3 nb2 f0 skip size a8 -permute_copy", NULL},
    {MOE "mode=forward permute_x=true", "160x256 c2 s4 ef future=\"two words\"", NULL},
    {MOE "mode=dX", "128x64x32 w4 s3 gm8",
     "BLOCK_SIZE_M=128 BLOCK_SIZE_K=64 BLOCK_SIZE_N=32 num_warps=4 num_stages=3 GROUP_SIZE_M=8"},
    {"gemm mode=forward M=512 N=512 K=512", "64x64x256 v16 ur8 uc2 tw",
     "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=256 vector_width=16 unroll_rows=8 "
     "unroll_cols=2 transpose_w=true GROUP_SIZE_M=1"},
};

static void test_examples(void **state)
{
    (void)state;
    struct device_info gpu;
    assert_ok(arch_describe("sm_90a", &gpu, err));
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        struct problem p;
        struct record config, expected;
        char text[NOTATION_MAX] = "";
        problem_of(&p, examples[i].problem);
        assert_ok(notation_read(&grouped_gemm_family, NULL, &p, examples[i].text, &config, err));
        if (examples[i].config) {
            config_of(&expected, examples[i].config);
            assert_true(record_equal(&config, &expected));
        }
        for (int k = 0; grouped_gemm_family.targets[k] && !*text; k++) {
            if (has_kernels(grouped_gemm_family.targets[k], &p, &gpu) &&
                !notation_write(grouped_gemm_family.targets[k], &p, &config, text)) {
                text[0] = '\0';
            }
        }
        assert_string_equal(text, examples[i].text);
    }
}

static const struct {
    const char *text, *says;
} mistakes[] = {
    {"160x256 df s4 swapp", "\"swapp\" is no word of the target hopper: c1 c2 pp"},
    {"160x256 df swap", "a config of the target hopper needs num_stages (sN)"},
    {"160x256 df s4 s5", "the config gives num_stages twice"},
    {"160x256 df c2 s4", "the config gives num_warps twice"},
    {"160x256 df s4 num_stages=4", "the config gives num_stages twice"},
    {"160x256 df s4 s", "\"s\" is no word"},
    {"160x256 df s99999999999", "\"s99999999999\" is no word"},
    {"160x256 df s4 -unroll", "has no parameter unroll"},
    {"128x64x32 w4",
     "hopper needs num_warps (c1 c2 pp sg df sg1 df1), schedule (c1 c2 pp sg df sg1 df1 dyn), "
     "num_stages (sN); a config of the target portable needs num_stages (sN)"},
    {"64x64x64 v8", "a config of the target cpu needs unroll_rows (urN), unroll_cols (ucN)"},
    {"64x64x64 v8 ur4", "a config of the target cpu needs unroll_cols (ucN)"},
    {"64x64 v16 ur4 uc2", "64x64 lacks BLOCK_SIZE_K: a tile of the target cpu is BLOCK_SIZE_M x "},
    {"64x64x64 s v8", "\"s\" is no word of the target cpu: vN urN ucN tw gmN"},
};

static void test_mistakes_are_named(void **state)
{
    (void)state;
    struct problem p;
    struct record config;
    problem_of(&p, problems[0]);
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        struct error e = ERROR_NULL;
        assert_int_equal(
            notation_read(&grouped_gemm_family, NULL, &p, mistakes[i].text, &config, &e),
            ERROR_INVALID);
        if (!strstr(e.text, mistakes[i].says)) {
            fail_msg("%s: %s", mistakes[i].text, e.text);
        }
    }
    assert_fails(notation_read(NULL, NULL, &p, "64x64 s4", &config, err), ERROR_INVALID,
                 "which this op does not have");
    assert_fails(notation_read(&grouped_gemm_family, "made", &p, "64x64 s4", &config, err),
                 ERROR_INVALID, "which made does not have");
    static const char *const others[] = {"",
                                         "64",
                                         "x64",
                                         "64x",
                                         "64x64x",
                                         "64x64x64x64",
                                         "a64x64",
                                         "1234567890x64",
                                         "BLOCK_SIZE_M=64 64x64"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(notation_is_short(others[i]));
    }
}

/* Two targets whose notations share a text. */
static void test_a_text_of_two_targets_is_refused(void **state)
{
    (void)state;
    struct family_target other = grouped_gemm_cuda;
    static const struct notation_word words[] = {
        {"w%", "num_stages=%"}, {"s%", "num_warps=%"}, {"gm%", "GROUP_SIZE_M=%"}, {NULL, NULL}};
    other.label = "other";
    other.words = words;
    const struct family_target *const targets[] = {&grouped_gemm_cuda, &other, NULL};
    struct family two = grouped_gemm_family;
    two.targets = targets;
    struct problem p;
    struct record config;
    const char *text = "64x64x64 w4 s2 gm8";
    problem_of(&p, problems[0]);
    assert_fails(notation_read(&two, NULL, &p, text, &config, err), ERROR_INVALID,
                 "is a config of the target portable and of other: name the target");
    assert_ok(notation_read(&two, "other", &p, text, &config, err));
    assert_int_equal(record_int(&config, "num_stages", 0), 4);
    /* the same config in both notations is no ambiguity */
    assert_ok(notation_read(&two, NULL, &p, "64x64x64 w4 s4 gm8", &config, err));
}

int main(void)
{
    families_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_config_reads_back),
        cmocka_unit_test(test_the_analytic_default_is_short),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_a_text_of_two_targets_is_refused),
    };
    return cmocka_run_group_tests_name("notation", tests, NULL, NULL);
}
