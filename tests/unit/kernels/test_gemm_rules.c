/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of every target: known names, agreement of a config's flags with the problem, and the
 * manual prune table of the modes, all 3 x 2 x 2 x 16 combinations. */
#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "tests/unit/kernels/common.h"

static const char *const known[] = {"BLOCK_SIZE_M", "num_warps", NULL};
static const char *const modes[] = {"forward", "dX", "dW"};

static struct gemm view_of(const char *mode, bool x, bool y)
{
    static struct problem p; /* views borrow its routing */
    char text[160];
    snprintf(text, sizeof(text),
             "grouped_gemm mode=%s M=64 N=64 K=64 experts=8 topk=2 permute_x=%s permute_y=%s", mode,
             x ? "true" : "false", y ? "true" : "false");
    problem_of(&p, text);
    struct gemm v;
    gemm_view(&p, &v);
    return v;
}

static int rules(const struct gemm *v, const char *config, struct rejection *why)
{
    struct record r;
    config_of(&r, config);
    return gemm_rules_check(v, &r, known, NULL, why);
}

static void reject(const struct gemm *v, const char *config, int code, const char *rule,
                   const char *part)
{
    struct rejection why;
    if (!rules(v, config, &why) || why.code != code || strcmp(why.rule, rule) != 0 ||
        !strstr(why.text, part)) {
        fail_msg("\"%s\": got %d %s \"%s\", expected %d %s \"%s\"", config, why.code, why.rule,
                 why.text, code, rule, part);
    }
}

/* The prune table, written down apart from the code: true if a config that permutes x or y may not
 * have these TMA loads and stores. */
static bool pruned(const char *mode, bool x, bool y, bool load_x, bool load_dy, bool store)
{
    if (x && y) {
        return true;
    }
    if (strcmp(mode, "forward") == 0) {
        return (load_x && x) || (store && y);
    }
    if (strcmp(mode, "dX") == 0) {
        return (load_dy && y) || (store && x);
    }
    return (load_dy && y) || (load_x && x); /* in dW the flag `store` prunes no config */
}

static void test_prune_table(void **state)
{
    (void)state;
    for (size_t m = 0; m < 3; m++) {
        for (unsigned bits = 0; bits < 64; bits++) {
            bool x = bits & 1, y = bits & 2, load_x = bits & 4, load_w = bits & 8;
            bool load_dy = bits & 16, store = bits & 32;
            char config[256];
            snprintf(
                config, sizeof(config),
                "BLOCK_SIZE_M=64 permute_x=%s permute_y=%s use_tma_load_x=%s use_tma_load_w=%s "
                "use_tma_load_dy=%s use_tma_store=%s",
                x ? "true" : "false", y ? "true" : "false", load_x ? "true" : "false",
                load_w ? "true" : "false", load_dy ? "true" : "false", store ? "true" : "false");
            /* No problem has both permutes, so this view has one at most. The rules judge a
             * config with both before they look at the problem. */
            struct gemm v = view_of(modes[m], x, y && !x);
            struct rejection why;
            assert_int_equal(rules(&v, config, &why),
                             pruned(modes[m], x, y, load_x, load_dy, store));
        }
    }
}

static void test_sentences(void **state)
{
    (void)state;
    struct gemm first = view_of("forward", true, false);
    struct gemm second = view_of("dX", false, true);
    reject(&first, "use_tma_load_x=true", ERROR_CONFLICT, "tma_load_x_excludes_permute_x",
           "gather");
    reject(&second, "use_tma_load_dy=true", ERROR_CONFLICT, "tma_load_dy_excludes_permute_y",
           "mode dX");
    first = view_of("dX", true, false);
    reject(&first, "use_tma_store=true", ERROR_CONFLICT, "tma_store_excludes_permute_x", "scatter");
    reject(&first, "permute_x=true permute_y=true", ERROR_CONFLICT, "both_permutes", "none both");
    reject(&first, "permute_x=false", ERROR_CONFLICT, "flags_agree",
           "config says permute_x=false, but the problem has permute_x=true");
    reject(&first, "fuse_mul_post=true", ERROR_CONFLICT, "flags_agree", "fuse_mul_post");
    reject(&first, "BLOCK_SIZE_Z=64", ERROR_INVALID, "unknown_parameter",
           "unknown parameter \"BLOCK_SIZE_Z\"; known: BLOCK_SIZE_M num_warps permute_x");
    reject(&first, "permute_x=1", ERROR_INVALID, "flag_type", "true or false");
}

static void test_no_tma(void **state)
{
    (void)state;
    struct gemm v = view_of("dX", false, false);
    struct record r;
    struct rejection why;
    config_of(&r, "use_tma_load_x=false use_tma_store=False flatten=True");
    assert_int_equal(gemm_rules_check(&v, &r, known, "portable", &why), 0);
    config_of(&r, "use_tma_store=true");
    assert_int_equal(gemm_rules_check(&v, &r, known, "portable", &why), 1);
    assert_int_equal(why.code, ERROR_INVALID);
    assert_non_null(strstr(why.text, "use_tma_store=true: the portable kernel has no TMA"));
}

static void test_rows_16_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *problem;
        const char *part;
    } rows[] = {
        {"grouped_gemm mode=forward M=64 N=64 K=64", NULL},
        {"grouped_gemm mode=forward M=3 N=8 K=8", NULL},
        {"grouped_gemm mode=forward M=64 N=63 K=64", "N is 63, not a multiple of 8"},
        {"grouped_gemm mode=dW M=64 N=64 K=60", "K is 60, not a multiple of 8"},
        {"grouped_gemm mode=dW M=64 N=64 K=60 dtype_in=fp32", NULL},
        {"grouped_gemm mode=dW M=64 N=62 K=60 dtype_in=fp32", "N is 62, not a multiple of 4"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct problem p;
        struct gemm v;
        struct rejection why = {0};
        problem_of(&p, rows[i].problem);
        gemm_view(&p, &v);
        assert_int_equal(gemm_rules_rows_16(&v, &why), rows[i].part != NULL);
        assert_true(!rows[i].part || strstr(why.text, rows[i].part));
    }
}

static int setup(void **state)
{
    (void)state;
    families_register();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prune_table),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_no_tma),
        cmocka_unit_test(test_rows_16_bytes),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
