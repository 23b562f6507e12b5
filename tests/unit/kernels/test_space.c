/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces: the legal configs in order, the reasons of dropped configs, restrictions. Every config
 * must pass check() again and give a variant, a prediction, and a plan. */
#include <math.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/space.h"
#include "proto/hash.h"
#include "tests/unit/kernels/common.h"

static const char *const problems[] = {
    "grouped_gemm mode=forward M=4096 N=768 K=2048 experts=128 topk=8 permute_x=true",
    "grouped_gemm mode=dX M=4096 N=768 K=2048 experts=128 topk=8 permute_y=true",
    "grouped_gemm mode=dW M=4096 N=768 K=2048 experts=128 topk=8 permute_x=true",
    "gemm mode=forward M=33 N=65 K=7 dtype_in=fp32",
};

static uint64_t dropped(const struct space *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_rules; i++) {
        sum += s->rules[i].dropped;
    }
    return sum;
}

static void test_every_config(void **state)
{
    (void)state;
    struct device_info info = cpu_like();
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        struct problem p;
        struct space s;
        struct rejection why;
        struct record config, last;
        problem_of(&p, problems[i]);
        assert_ok(space_build(&s, &grouped_gemm_cpu, &p, &info, NULL, err));
        assert_in_range(s.n, 100, 1000);
        assert_int_equal(s.n + dropped(&s), s.raw);
        record_init(&last);
        for (uint32_t at = 0; at < s.n; at++) {
            struct variant v;
            space_config(&s, at, &config);
            assert_int_equal(grouped_gemm_cpu.check(&p, &config, &info, &why), 0);
            assert_ok(grouped_gemm_cpu.variant(&p, &config, "x86_64", &v, err));
            double us = grouped_gemm_cpu.predict(&p, &config, &info, NULL);
            assert_true(isfinite(us) && us > 0);
            assert_false(record_equal(&config, &last));
            record_copy(&last, &config);
        }
        space_deinit(&s);
        space_deinit(&s);
    }
}

/* A changed run-time parameter keeps the variant; any other change makes another variant. */
static void test_variant_identity(void **state)
{
    (void)state;
    struct device_info info = cpu_like();
    struct problem p;
    struct space s;
    problem_of(&p, problems[0]);
    assert_ok(space_build(&s, &grouped_gemm_cpu, &p, &info, NULL, err));
    char first[HASH_HEX], other[HASH_HEX];
    struct record config;
    struct variant v;
    space_config(&s, 0, &config);
    assert_ok(grouped_gemm_cpu.variant(&p, &config, "x86_64", &v, err));
    variant_hash(&v, "cc 12", first);
    variant_hash(&v, "cc 13", other);
    assert_string_not_equal(first, other);
    for (uint32_t i = 0; i < s.n_params; i++) {
        struct record changed = config;
        assert_ok(record_set(&changed, s.params[i].name, s.params[i].values[1], err));
        assert_ok(grouped_gemm_cpu.variant(&p, &changed, "x86_64", &v, err));
        variant_hash(&v, "cc 12", other);
        assert_int_equal(strcmp(first, other) == 0, s.params[i].run_time);
    }
    space_deinit(&s);
    /* A module serves every size and number of experts. */
    problem_of(&p, "grouped_gemm mode=forward M=6 N=10 K=12 experts=3 topk=2 permute_x=true");
    assert_ok(grouped_gemm_cpu.variant(&p, &config, "x86_64", &v, err));
    variant_hash(&v, "cc 12", other);
    assert_string_equal(first, other);
}

static void test_restriction(void **state)
{
    (void)state;
    struct device_info info = cpu_like();
    struct problem p;
    struct space all, some;
    struct restriction block = {.name = "BLOCK_SIZE_M", .n = 1, .values = {VALUE_OF_INT(64)}};
    const struct request request = {.n_restrict = 1, .restrict_ = &block};
    problem_of(&p, problems[1]);
    assert_ok(space_build(&all, &grouped_gemm_cpu, &p, &info, NULL, err));
    assert_ok(space_build(&some, &grouped_gemm_cpu, &p, &info, &request, err));
    assert_true(some.n > 0 && some.n < all.n);
    assert_int_equal(some.raw, all.raw);
    assert_string_equal(some.rules[0].rule, "restricted");
    for (uint32_t i = 0; i < some.n; i++) {
        struct record config;
        space_config(&some, i, &config);
        assert_int_equal(record_int(&config, "BLOCK_SIZE_M", 0), 64);
    }
    space_deinit(&some);
    block.values[0].integer = 63; /* this value is unknown: the space is empty, which is no error */
    assert_ok(space_build(&some, &grouped_gemm_cpu, &p, &info, &request, err));
    assert_int_equal(some.n, 0);
    assert_int_equal(some.raw, all.raw);
    space_deinit(&some);
    space_deinit(&all);
}

/* A space is built in parts: the counts of the parts add up to those of the whole space. */
static void test_in_parts(void **state)
{
    (void)state;
    struct device_info info = cpu_like();
    struct problem p;
    struct space whole, parts;
    struct error err;
    problem_of(&p, problems[0]);
    const struct space_setup setup = {.target = &grouped_gemm_cpu, .problem = &p, .info = &info};
    assert_int_equal(space_build(&whole, &grouped_gemm_cpu, &p, &info, NULL, &err), 0);
    for (int keep = 0; keep < 2; keep++) {
        int r, turns = 0;
        assert_int_equal(space_begin(&parts, &setup, keep, &err), 0);
        while ((r = space_more(&parts, 7, &err)) == SPACE_MORE) {
            turns++;
        }
        assert_int_equal(r, 0);
        assert_int_equal(space_more(&parts, 7, &err), 0); /* a complete space does not change */
        assert_in_range(turns, whole.n / 7, (whole.raw - 1) / 7);
        assert_int_equal(parts.raw, whole.raw);
        assert_int_equal(parts.n, whole.n);
        assert_int_equal(parts.variants, whole.variants);
        assert_int_equal(parts.settings, whole.settings);
        assert_int_equal(parts.n_rules, whole.n_rules);
        assert_int_equal(parts.points != NULL, keep);
        if (keep) {
            assert_memory_equal(parts.points, whole.points, whole.n * sizeof(*whole.points));
        }
        space_deinit(&parts);
    }
    space_deinit(&whole);
}

/* The target whose space is built point by point: all parameters count as compile-time, and no rule
 * refuses more than one point (rejection.settled_by). */
static const struct family_target *plain_target;

static uint32_t plain_params(const struct problem *p, const struct device_info *info,
                             struct param out[PARAMS_MAX])
{
    const uint32_t n = plain_target->params(p, info, out);
    for (uint32_t i = 0; i < n; i++) {
        out[i].run_time = false;
    }
    return n;
}

static int plain_check(const struct problem *p, const struct record *config,
                       const struct device_info *info, struct rejection *why)
{
    const int r = plain_target->check(p, config, info, why);
    why->settled_by = NULL;
    return r;
}

static struct family_target plain(const struct family_target *t)
{
    struct family_target out = *t;
    plain_target = t;
    out.params = plain_params;
    out.check = plain_check;
    return out;
}

static uint32_t variants_of(const struct space *s, const struct space *with_run_time)
{
    uint32_t n = 0, compiled = 0;
    while (!with_run_time->params[compiled].run_time) {
        compiled++;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        n += i == 0 || memcmp(s->points[i].at, s->points[i - 1].at, compiled) != 0;
    }
    return n;
}

/* The space skips a variant if its first run-time setting is illegal. When a rule that looked only
 * at the first tunables refuses a point, the space skips all points with these values. No target's
 * rules may make a skipped point legal.
 * GEMMD_TEST_PROBLEMS limits the test to the last problems: sanitizers make whole spaces slow. */
static void test_nothing_legal_is_passed_over(void **state)
{
    (void)state;
    const char *few = getenv("GEMMD_TEST_PROBLEMS");
    size_t all = sizeof(problems) / sizeof(problems[0]), first = few ? all - (size_t)atoi(few) : 0;
    assert_true(first < all);
    struct device_info cpu = cpu_like(), gpu;
    assert_ok(arch_describe("sm_90a", &gpu, err));
    for (size_t i = first; i < all; i++) {
        for (const struct family_target *const *t = grouped_gemm_family.targets; *t; t++) {
            const struct device_info *info = strcmp((*t)->kind, "cpu") == 0 ? &cpu : &gpu;
            struct problem p;
            struct space quick, whole;
            problem_of(&p, problems[i]);
            assert_ok(space_build(&quick, *t, &p, info, NULL, err));
            const struct family_target each = plain(*t);
            assert_ok(space_build(&whole, &each, &p, info, NULL, err));
            assert_int_equal(quick.raw, whole.raw);
            assert_int_equal(quick.n, whole.n);
            assert_int_equal(quick.unworthy, whole.unworthy);
            assert_int_equal(quick.variants, variants_of(&whole, &quick));
            assert_int_equal(quick.n_rules, whole.n_rules);
            assert_int_equal(dropped(&quick), dropped(&whole));
            assert_int_equal(quick.n + dropped(&quick), quick.raw);
            if (quick.n > 0) {
                assert_memory_equal(quick.points, whole.points, quick.n * sizeof(*quick.points));
            }
            space_deinit(&quick);
            space_deinit(&whole);
        }
    }
}

/* A space with a run-time tunable in the middle: shape is A x R x B, and B=2 allows a single
 * setting of R. */
static uint32_t made_params(const struct problem *p, const struct device_info *info,
                            struct param out[PARAMS_MAX])
{
    (void)p;
    (void)info;
    out[0] = (struct param){.name = "A", .n = 2, .values = {VALUE_OF_INT(1), VALUE_OF_INT(2)}};
    out[1] = (struct param){.name = "R",
                            .run_time = true,
                            .n = 3,
                            .values = {VALUE_OF_INT(1), VALUE_OF_INT(2), VALUE_OF_INT(3)}};
    out[2] = (struct param){.name = "B", .n = 2, .values = {VALUE_OF_INT(1), VALUE_OF_INT(2)}};
    return 3;
}

static int made_check(const struct problem *p, const struct record *config,
                      const struct device_info *info, struct rejection *why)
{
    (void)p;
    (void)info;
    int64_t a = record_int(config, "A", 0), b = record_int(config, "B", 0),
            r = record_int(config, "R", 0);
    if (a == 2 && b == 1) {
        return rejection_set(why, ERROR_INVALID, "no_21", "A=2 with B=1, where R=%d", (int)r);
    }
    return b == 2 && r != 1 ? rejection_set(why, ERROR_INVALID, "r_1", "R=%d", (int)r) : 0;
}

static void test_what_is_counted(void **state)
{
    (void)state;
    const struct family_target made = {
        .kind = "cpu", .label = "made", .params = made_params, .check = made_check};
    struct device_info info = cpu_like();
    struct problem p;
    struct space s;
    problem_of(&p, problems[0]);
    assert_ok(space_build(&s, &made, &p, &info, NULL, err));
    assert_string_equal(s.params[0].name, "A");
    assert_string_equal(s.params[1].name, "B");
    assert_string_equal(s.params[2].name, "R"); /* run time: last */
    assert_int_equal(s.raw, 12);
    assert_int_equal(s.n, 5); /* 3 configs of A=1 B=1, and 1 each of A=1 B=2 and A=2 B=2 */
    assert_int_equal(s.variants, 3);
    assert_int_equal(s.settings, 3);
    assert_int_equal(s.n_rules, 2);
    assert_string_equal(s.rules[0].rule, "r_1");
    assert_int_equal(s.rules[0].dropped, 4);
    assert_string_equal(s.rules[0].text, "R=2"); /* the text of the first dropped point */
    assert_string_equal(s.rules[1].rule, "no_21");
    assert_int_equal(s.rules[1].dropped, 3);
    assert_string_equal(s.rules[1].text, "A=2 with B=1, where R=1");
    space_deinit(&s);
}

static void test_packed(void **state)
{
    (void)state;
    struct device_info info;
    struct problem p;
    struct space s;
    struct error err;
    struct wire_buf b = WIRE_BUF_NULL;
    struct wire_doc *doc = wire_doc_new();
    const struct wire_obj *map, *targets;
    bool takes = true;
    char text[200];
    assert_int_equal(arch_describe("sm_90a", &info, &err), 0);
    problem_of(&p, "grouped_gemm mode=dW M=64 N=64 K=64 experts=4 accumulate=true");
    assert_int_equal(space_build(&s, &grouped_gemm_cuda, &p, &info, NULL, &err), 0);
    space_pack(&b, &s, &grouped_gemm_family);
    assert_int_equal(wire_decode(doc, b.data, b.len, &map, &err), 0);
    assert_true(wire_copy_str(wire_find(map, "target"), text, sizeof(text)));
    assert_string_equal(text, "portable");
    int64_t legal = 0, searched = 0, variants = 0, settings = 0;
    assert_true(wire_get_int(wire_find(map, "legal"), &legal) && legal == s.n);
    assert_true(wire_get_int(wire_find(map, "searched"), &searched) && searched == s.n);
    assert_true(wire_get_int(wire_find(map, "variants"), &variants));
    assert_true(wire_get_int(wire_find(map, "settings"), &settings));
    assert_int_equal(variants * settings, legal); /* GROUP_SIZE_M makes no config illegal */
    assert_int_equal(wire_count(wire_find(map, "dropped")), s.n_rules);
    assert_int_equal(wire_count(wire_find(map, "reasons")), s.n_rules);
    targets = wire_find(map, "targets");
    assert_int_equal(wire_count(targets), 3);
    assert_true(wire_copy_str(wire_find(wire_at(targets, 0), "name"), text, sizeof(text)));
    assert_string_equal(text, "hopper");
    assert_true(wire_get_bool(wire_find(wire_at(targets, 0), "takes"), &takes) && !takes);
    assert_true(wire_copy_str(wire_find(wire_at(targets, 0), "why"), text, sizeof(text)));
    assert_non_null(strstr(text, "fp32"));
    assert_null(wire_find(wire_at(targets, 2), "why"));
    space_deinit(&s);
    wire_doc_free(doc);
    wire_buf_deinit(&b);
}

static void test_small_cache(void **state)
{
    (void)state;
    struct device_info info = cpu_like();
    struct problem p;
    struct space s;
    info.smem_optin = 64 * 1024;
    problem_of(&p, problems[2]);
    assert_ok(space_build(&s, &grouped_gemm_cpu, &p, &info, NULL, err));
    assert_true(s.n > 0);
    bool found = false;
    for (uint32_t i = 0; i < s.n_rules; i++) {
        found = found || (strcmp(s.rules[i].rule, "cache") == 0 && s.rules[i].dropped > 0);
    }
    assert_true(found);
    space_deinit(&s);
}

static void expect_rejection(const char *problem, const char *config_text, int code,
                             const char *part)
{
    struct device_info info = cpu_like();
    struct problem p;
    struct record config;
    struct rejection why;
    problem_of(&p, problem);
    config_of(&config, config_text);
    if (!grouped_gemm_cpu.check(&p, &config, &info, &why) || why.code != code ||
        !strstr(why.text, part)) {
        fail_msg("\"%s\": got %d \"%s\", expected %d \"%s\"", config_text, why.code, why.text, code,
                 part);
    }
}

static void test_rejections(void **state)
{
    (void)state;
    const char *p = problems[0];
#define TILE "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 "
    expect_rejection(p, "BLOCK_SIZE_M=64", ERROR_INVALID, "BLOCK_SIZE_N is missing");
    expect_rejection(p, "BLOCK_SIZE_M=1000 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64", ERROR_INVALID,
                     "1 to 512");
    expect_rejection(p, TILE "vector_width=12", ERROR_INVALID, "4, 8 or 16");
    expect_rejection(p, TILE "unroll_rows=true", ERROR_INVALID, "unroll_rows=true");
    expect_rejection(p, TILE "unroll_rows=7", ERROR_INVALID, "not a multiple of unroll_rows 7");
    expect_rejection(p, "BLOCK_SIZE_M=64 BLOCK_SIZE_N=8 BLOCK_SIZE_K=64 vector_width=16",
                     ERROR_INVALID, "16 columns held");
    expect_rejection(p, TILE "transpose_w=3", ERROR_INVALID, "transpose_w must be");
    expect_rejection(problems[1], TILE "transpose_w=true", ERROR_INVALID, "mode forward");
    expect_rejection(p, TILE "unroll_rows=16 unroll_cols=2", ERROR_RESOURCE, "at most 24");
    expect_rejection(p, "BLOCK_SIZE_M=512 BLOCK_SIZE_N=512 BLOCK_SIZE_K=512", ERROR_RESOURCE,
                     "L2 cache");
    expect_rejection(p, TILE "num_warps=4", ERROR_INVALID, "unknown parameter \"num_warps\"");
    expect_rejection(p, TILE "use_tma_load_x=true", ERROR_CONFLICT, "exclude each other");
    expect_rejection(p, TILE "use_tma_load_w=true", ERROR_INVALID, "cpu kernel has no TMA");
    expect_rejection(p, TILE "permute_x=false", ERROR_CONFLICT, "permute_x");
}

static void test_choose(void **state)
{
    (void)state;
    static const int64_t caches[] = {32 * 1024, 256 * 1024, 2 * 1024 * 1024};
    for (size_t c = 0; c < 3; c++) {
        for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
            struct device_info info = cpu_like();
            struct problem p;
            struct record config;
            struct rejection why;
            info.smem_optin = caches[c];
            problem_of(&p, problems[i]);
            assert_ok(grouped_gemm_cpu.choose(&p, &info, &config, err));
            assert_int_equal(grouped_gemm_cpu.check(&p, &config, &info, &why), 0);
        }
    }
    struct device_info tiny = cpu_like();
    struct problem p;
    struct record config;
    tiny.smem_optin = 100;
    problem_of(&p, problems[0]);
    assert_fails(grouped_gemm_cpu.choose(&p, &tiny, &config, err), ERROR_NO_CONFIG, "L2 cache");
}

/* The model predicts more time for more rows, and less for a wide vector than for a narrow one. */
static void test_predict(void **state)
{
    (void)state;
    struct device_info info = cpu_like();
    struct record wide, narrow;
    config_of(&wide,
              "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 vector_width=16 unroll_cols=2");
    config_of(&narrow,
              "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 vector_width=4 unroll_cols=1");
    static const char *const modes[] = {"forward", "dX", "dW"};
    for (size_t m = 0; m < 3; m++) {
        double before = 0;
        for (int rows = 64; rows <= 65536; rows *= 4) {
            char text[128];
            struct problem p;
            snprintf(text, sizeof(text), "grouped_gemm mode=%s M=%d N=512 K=512 experts=8 topk=2",
                     modes[m], rows);
            problem_of(&p, text);
            double us = grouped_gemm_cpu.predict(&p, &wide, &info, NULL);
            assert_true(us > before);
            assert_true(us < grouped_gemm_cpu.predict(&p, &narrow, &info, NULL));
            before = us;
        }
    }
}

static void test_stamp(void **state)
{
    (void)state;
    struct device_info info = cpu_like();
    char stamp[STAMP_MAX];
    snprintf(info.compiler, sizeof(info.compiler), "cc 12.2.0");
    family_stamp(&grouped_gemm_family, &grouped_gemm_cpu, &info, stamp);
    assert_memory_equal(stamp, "src=", 4);
    assert_non_null(strstr(stamp, " abi=1 target=cpu compiler=cc 12.2.0"));
    assert_ptr_equal(family_target_find(&grouped_gemm_family, &info, NULL), &grouped_gemm_cpu);
    assert_null(family_target_find(&grouped_gemm_family, &info, "hopper"));
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
        cmocka_unit_test(test_every_config), cmocka_unit_test(test_variant_identity),
        cmocka_unit_test(test_restriction),  cmocka_unit_test(test_small_cache),
        cmocka_unit_test(test_in_parts),     cmocka_unit_test(test_what_is_counted),
        cmocka_unit_test(test_packed),       cmocka_unit_test(test_nothing_legal_is_passed_over),
        cmocka_unit_test(test_rejections),   cmocka_unit_test(test_choose),
        cmocka_unit_test(test_predict),      cmocka_unit_test(test_stamp),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
