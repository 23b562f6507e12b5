/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a target, a set of kernels such as "hopper" or "portable": by the GPU's
 * architecture and the problem, or by a person. A problem and the rounded problem of its bucket get
 * the same target. A config belongs to a single target. */
#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/space.h"
#include "tests/unit/kernels/common.h"

#define MOE "grouped_gemm M=4096 N=1536 K=2048 experts=128 topk=8 "

static struct device_info hopper, ampere, cpu;

static const struct family_target *chosen(const char *problem, const struct device_info *info)
{
    struct problem p;
    const struct family_target *t;
    problem_of(&p, problem);
    assert_ok(family_target_choose(&grouped_gemm_family, &p, info, NULL, &t, err));
    return t;
}

/* ---- the device's own choice ---------------------------------------------------------------- */

static const struct {
    const char *problem;
    const struct family_target *target; /* on a Hopper GPU */
} problems[] = {
    {MOE "mode=forward", &grouped_gemm_hopper},
    {MOE "mode=forward permute_x=true", &grouped_gemm_hopper},
    {MOE "mode=forward permute_y=true fuse_mul_post=true", &grouped_gemm_hopper},
    {MOE "mode=dX permute_x=true dtype_in=fp16", &grouped_gemm_hopper},
    {MOE "mode=dW permute_y=true dtype_out=fp32 accumulate=true", &grouped_gemm_hopper},
    {MOE "mode=dW dtype_out=fp32", &grouped_gemm_hopper},
    {"gemm mode=forward M=1 N=8 K=8", &grouped_gemm_hopper},
    {"grouped_gemm mode=forward M=2048 N=1024 K=1024 experts=1024 topk=2", &grouped_gemm_hopper},
    {MOE "mode=dW accumulate=true", &grouped_gemm_cuda}, /* sums into bf16 */
    {"gemm mode=forward M=64 N=12 K=64",
     &grouped_gemm_cuda}, /* hopper refuses rows that TMA cannot read */
    {"gemm mode=forward M=64 N=64 K=64 dtype_in=fp32", &grouped_gemm_cuda},
    {MOE "mode=forward permute_x=true quant=fp8_block", &grouped_gemm_hopper_fp8},
    {MOE "mode=dX quant=fp8_row", &grouped_gemm_hopper_fp8},
    {MOE "mode=dW quant=fp8_block dtype_out=fp32 accumulate=true", &grouped_gemm_hopper_fp8},
};

static void test_by_architecture_and_problem(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        const struct family_target *t = chosen(problems[i].problem, &hopper);
        if (t != problems[i].target) {
            fail_msg("%s: %s", problems[i].problem, t->label);
        }
        assert_ptr_equal(chosen(problems[i].problem, &ampere), &grouped_gemm_cuda);
        assert_ptr_equal(chosen(problems[i].problem, &cpu), &grouped_gemm_cpu);
    }
}

/* A client has the true problem, the daemon its bucket. */
static void test_a_bucket_and_its_problem_have_the_same_target(void **state)
{
    (void)state;
    static const char *const modes[] = {"forward", "dX", "dW", "dW accumulate=true"};
    uint64_t random = 1;
    for (int i = 0; i < 2000; i++) {
        char text[160];
        struct problem p, bucket;
        const struct family_target *t, *of_bucket;
        snprintf(text, sizeof(text), "grouped_gemm M=%d N=%d K=%d experts=%d mode=%s",
                 (int)(random_next(&random) % 5000) + 1, (int)(random_next(&random) % 300) + 1,
                 (int)(random_next(&random) % 300) + 1, (int)(random_next(&random) % 1024) + 1,
                 modes[random_next(&random) % 4]);
        problem_of(&p, text);
        problem_bucket(&p, random_next(&random) % 2 ? BUCKET_SQRT2 : BUCKET_POW2, &bucket);
        assert_ok(family_target_choose(&grouped_gemm_family, &p, &hopper, NULL, &t, err));
        assert_ok(
            family_target_choose(&grouped_gemm_family, &bucket, &hopper, NULL, &of_bucket, err));
        if (t != of_bucket) {
            fail_msg("%s: %s, its bucket: %s", text, t->label, of_bucket->label);
        }
    }
}

/* A target that takes a problem has a legal default config for it. */
static void test_a_target_that_takes_a_problem_has_a_config(void **state)
{
    (void)state;
    const struct device_info *const devices[] = {&hopper, &ampere};
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        for (size_t d = 0; d < 2; d++) {
            struct problem p;
            struct record config;
            struct rejection why;
            struct error err = ERROR_NULL;
            problem_of(&p, problems[i].problem);
            const struct family_target *t = chosen(problems[i].problem, devices[d]);
            int r = t->choose(&p, devices[d], &config, &err);
            if (t->takes && (r || t->check(&p, &config, devices[d], &why))) {
                fail_msg("%s: %s", problems[i].problem, r ? err.text : why.text);
            }
        }
    }
}

/* The portable default is found without a look at every point of the space. The model rates it
 * within 1 % of the best point. */
static void test_the_portable_default(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        struct problem p;
        struct space s;
        struct record config;
        problem_of(&p, problems[i].problem);
        assert_ok(space_build(&s, &grouped_gemm_cuda, &p, &ampere, NULL, err));
        double best = 0;
        for (uint32_t n = 0; n < s.n; n++) {
            space_config(&s, n, &config);
            double us = grouped_gemm_cuda.predict(&p, &config, &ampere, NULL);
            best = n == 0 || us < best ? us : best;
        }
        int r = grouped_gemm_cuda.choose(&p, &ampere, &config, NULL);
        assert_int_equal(r, s.n ? 0 : ERROR_NO_CONFIG);
        if (r == 0 && grouped_gemm_cuda.predict(&p, &config, &ampere, NULL) > 1.01 * best) {
            fail_msg("%s: %g us, the best is %g", problems[i].problem,
                     grouped_gemm_cuda.predict(&p, &config, &ampere, NULL), best);
        }
        space_deinit(&s);
    }
}

/* ---- a forced choice ------------------------------------------------------------------------ */

static int forced(const char *problem, const struct device_info *info, const char *label,
                  const struct family_target **out, struct error *err)
{
    struct problem p;
    problem_of(&p, problem);
    return family_target_choose(&grouped_gemm_family, &p, info, label, out, err);
}

static void test_forced(void **state)
{
    (void)state;
    const struct family_target *t;
    const char *plain = problems[0].problem, *sums = MOE "mode=dW accumulate=true";
    assert_ok(forced(plain, &hopper, "portable", &t, err));
    assert_ptr_equal(t, &grouped_gemm_cuda);
    assert_ok(forced(plain, &hopper, "hopper", &t, err));
    assert_ptr_equal(t, &grouped_gemm_hopper);
    assert_ok(forced(plain, &hopper, "", &t, err)); /* no target */
    assert_ptr_equal(t, &grouped_gemm_hopper);
    assert_fails(forced(sums, &hopper, "hopper", &t, err), ERROR_NO_CONFIG,
                 "target hopper does not do this problem: accumulate with dtype_out bf16");
    assert_null(t);
    assert_fails(forced(plain, &hopper, "cutlass", &t, err), ERROR_INVALID,
                 "no target 'cutlass' of grouped_gemm for any sm_90a (sm_90a); it has: hopper, "
                 "hopper_fp8, portable");
    assert_fails(forced(plain, &ampere, "hopper", &t, err), ERROR_INVALID, "it has: portable");
    assert_fails(forced(plain, &cpu, "portable", &t, err), ERROR_INVALID, "it has: cpu");
    struct device_info old = ampere;
    old.cc_major = 7;
    assert_fails(forced(plain, &old, NULL, &t, err), ERROR_NO_CONFIG,
                 "has no kernels for any sm_80");
    assert_fails(forced(plain, &old, "portable", &t, err), ERROR_NO_CONFIG, "has no kernels for");
}

/* ---- the target of a config ----------------------------------------------------------------- */

static void test_configs_of_one_target(void **state)
{
    (void)state;
    const struct family_target *const both[] = {&grouped_gemm_hopper, &grouped_gemm_cuda};
    uint64_t random = 7;
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        for (size_t k = 0; k < 2; k++) {
            struct problem p;
            struct space s;
            struct record config;
            struct rejection why;
            problem_of(&p, problems[i].problem);
            assert_ok(space_build(&s, both[k], &p, &hopper, NULL, err));
            for (uint32_t n = 0; s.n > 0 && n < 200; n++) {
                space_config(&s, (uint32_t)(random_next(&random) % s.n), &config);
                assert_int_equal(both[1 - k]->check(&p, &config, &hopper, &why), 1);
                assert_ptr_equal(
                    family_target_of_config(&grouped_gemm_family, &p, &hopper, &config, &why),
                    both[k]);
            }
            space_deinit(&s);
        }
    }
}

static void test_nobodys_config(void **state)
{
    (void)state;
    struct problem p;
    struct record config;
    struct rejection why;
    problem_of(&p, problems[0].problem);
    config_of(&config, "BLOCK_SIZE_M=7 num_warps=3");
    assert_null(family_target_of_config(&grouped_gemm_family, &p, &hopper, &config, &why));
    assert_non_null(strstr(why.text, "hopper kernel")); /* the error message of the chosen target */
    assert_null(family_target_of_config(&grouped_gemm_family, &p, &ampere, &config, &why));
    assert_non_null(strstr(why.text, "portable kernel"));
    struct device_info old = ampere;
    old.cc_major = 7;
    assert_null(family_target_of_config(&grouped_gemm_family, &p, &old, &config, &why));
    assert_int_equal(why.code, ERROR_NO_CONFIG);
}

/* ---- stamps --------------------------------------------------------------------------------- */

static void test_stamps_name_theirs(void **state)
{
    (void)state;
    char stamps[2][STAMP_MAX], label[TARGET_MAX];
    family_stamp(&grouped_gemm_family, &grouped_gemm_hopper, &hopper, stamps[0]);
    family_stamp(&grouped_gemm_family, &grouped_gemm_cuda, &hopper, stamps[1]);
    assert_string_not_equal(stamps[0], stamps[1]);
    family_stamp_target(stamps[0], label);
    assert_string_equal(label, "hopper");
    family_stamp_target(stamps[1], label);
    assert_string_equal(label, "portable");
    family_stamp_target("", label);
    assert_string_equal(label, "");
    family_stamp_target("target=portable", label);
    assert_string_equal(label, "portable");
    family_stamp_target("src=1 target=a-name-that-is-much-too-long x", label);
    assert_string_equal(label, "a-name-that-is-");
}

static int setup(void **state)
{
    (void)state;
    families_register();
    cpu = cpu_like();
    assert_ok(arch_describe("sm_90a", &hopper, err));
    assert_ok(arch_describe("sm_80", &ampere, err));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_architecture_and_problem),
        cmocka_unit_test(test_a_bucket_and_its_problem_have_the_same_target),
        cmocka_unit_test(test_a_target_that_takes_a_problem_has_a_config),
        cmocka_unit_test(test_the_portable_default),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_configs_of_one_target),
        cmocka_unit_test(test_nobodys_config),
        cmocka_unit_test(test_stamps_name_theirs),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
