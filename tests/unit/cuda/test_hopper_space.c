/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The space of the target "hopper": all configs that have won a measurement, enough variants for
 * every kind of problem, and none of the legal configs that the space's rules exclude as not worth
 * a measurement. A person can still restrict the space to excluded legal configs.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/host/hopper.h"
#include "kernels/space.h"
#include "tests/unit/cuda/common.h"

static const struct device_info h200 = {H200_FIELDS};

#define QWEN "M=32768 N=1536 K=2048 experts=128 topk=8"

static struct problem qwen(const char *mode)
{
    char text[256];
    snprintf(text, sizeof(text), QWEN " %s", mode);
    return problem_of(text);
}

/* Makes a config from a name such as "128x192 pp s4 nb1 f0 skip" (tests/gpu/hopper/cases.c). */
static struct record variant_of(const struct problem *p, const char *text)
{
    struct gemm v;
    struct record r;
    int rows, cols, stages, buffers, used;
    char schedule[8];
    gemm_view(p, &v);
    assert_int_equal(
        sscanf(text, "%dx%d %7s s%d nb%d%n", &rows, &cols, schedule, &stages, &buffers, &used), 5);
    const char *rest = text + used;
    record_init(&r);
    record_put_int(&r, v.mode == GEMM_DW ? "BLOCK_SIZE_N" : "BLOCK_SIZE_M", rows);
    record_put_int(&r, v.mode == GEMM_FORWARD ? "BLOCK_SIZE_N" : "BLOCK_SIZE_K", cols);
    record_put_int(&r,
                   v.mode == GEMM_FORWARD ? "BLOCK_SIZE_K"
                   : v.mode == GEMM_DX    ? "BLOCK_SIZE_N"
                                          : "BLOCK_SIZE_M",
                   HOPPER_DEPTH);
    record_put_int(&r, "num_warps", strcmp(schedule, "c1") == 0 || strstr(rest, "w8") ? 8 : 12);
    record_put_text(&r, "schedule",
                    strcmp(schedule, "pp") == 0   ? "pingpong"
                    : strcmp(schedule, "sg") == 0 ? "staggered"
                    : strcmp(schedule, "df") == 0 ? "deferred"
                                                  : "cooperative");
    record_put_int(&r, "num_stages", stages);
    record_put_int(&r, "staging_buffers", buffers);
    record_put_int(&r, "in_flight", strstr(rest, "f0") ? 0 : 1);
    record_put_bool(&r, "skip_rows", strstr(rest, "skip"));
    record_put_bool(&r, "use_tma_store", !v.scatter && !strstr(rest, "direct"));
    if (v.mode != GEMM_DW) {
        record_put_bool(&r, "swap_ab", strstr(rest, "swap"));
        record_put_text(&r, "tile_scheduler", strstr(rest, "dyn") ? "dynamic" : "static");
    }
    if (strstr(rest, " 2x1")) {
        record_put_text(&r, "cluster_shape_mn", "2x1");
    }
    if (strstr(rest, "copy")) {
        record_put_bool(&r, "permute_copy", true);
    }
    return r;
}

/* Returns 0 if the space has the config, 1 with the reason in *why otherwise. The config must be
 * legal. */
static int worth(const char *mode, const char *text, struct rejection *why)
{
    struct problem p = qwen(mode);
    struct record config = variant_of(&p, text);
    if (hopper_check(&p, &config, &h200, why)) {
        fail_msg("%s, %s is not legal: %s", mode, text, why->text);
    }
    return hopper_worth(&p, &config, &h200, why);
}

/* ---- inside the space ----------------------------------------------------------------------- */

/* Each config was the fastest or at most 2 % slower, for a layer with 512, 4096 or 16384 tokens or
 * for a dense product. Configs with deferred stores, or with thread blocks that share an operand,
 * won with TMA stores; the table names stores by threads ("direct"), which are no slower. */
static void test_winners(void **state)
{
    (void)state;
    static const char *const winners[][2] = {
        {"mode=forward", "160x128 pp s5 nb2 swap"},
        {"mode=forward", "160x256 c2 s4 nb1 swap dyn"},
        {"mode=forward", "160x256 c2 s4 nb1 f0 swap"},
        {"mode=forward", "192x256 c2 s3 nb2 swap dyn"},
        {"mode=forward", "64x256 c2 s5 nb1 swap"},
        {"mode=forward", "64x192 pp s5 nb2"},
        {"mode=forward", "64x128 c1 s8 nb2"},
        {"mode=forward", "64x256 c1 s5 nb1"},
        {"mode=forward", "128x256 c2 s4 nb2"},
        {"mode=forward", "128x256 c2 s4 nb2 f0"},
        {"mode=forward", "128x192 pp s4 nb1 f0"},
        {"mode=forward", "256x192 c2 s3 nb1"},
        {"mode=forward", "256x192 c2 s3 nb1 skip dyn"},
        {"mode=forward permute_x=true", "160x256 c2 s4 nb1 swap dyn"},
        {"mode=forward permute_x=true", "192x256 c2 s3 nb2 swap dyn copy"},
        {"mode=forward permute_x=true", "64x192 pp s5 nb2"},
        {"mode=forward permute_x=true", "64x128 c1 s8 nb2 copy"},
        {"mode=forward permute_x=true", "128x256 c2 s4 nb2 f0 copy"},
        {"mode=forward permute_x=true", "256x192 c2 s3 nb1 copy"},
        {"mode=forward permute_y=true", "192x256 c2 s3 nb1 swap dyn"},
        {"mode=forward permute_y=true", "64x128 c1 s8 nb1"},
        {"mode=dX", "192x128 pp s4 nb2 swap"},
        {"mode=dX", "256x128 c2 s4 nb2 swap dyn"},
        {"mode=dX", "64x256 pp s4 nb2"},
        {"mode=dX", "128x256 c2 s3 nb4"},
        {"mode=dX permute_x=true", "192x256 c2 s3 nb1 swap"},
        {"mode=dX permute_x=true", "128x256 c2 s4 nb1"},
        {"mode=dX permute_y=true", "160x256 c2 s4 nb1 f0 swap"},
        {"mode=dX permute_y=true", "192x256 c2 s3 nb2 swap dyn copy"},
        {"mode=dX permute_y=true", "64x256 c1 s5 nb1"},
        {"mode=dW", "128x128 pp s5 nb2 skip"},
        {"mode=dW", "256x128 c2 s4 nb1 skip"},
        {"mode=dW", "128x192 pp s4 nb1"},
        {"mode=dW", "192x128 pp s4 nb1"},
        {"mode=dW permute_x=true", "256x192 c2 s3 nb1"},
        {"mode=dW permute_x=true", "256x128 c2 s4 nb1 skip copy"},
        {"mode=dW permute_x=true", "128x192 pp s4 nb1 skip"},
        {"mode=dW permute_y=true", "64x256 pp s4 nb2"},
        {"mode=forward", "256x128 sg s4 nb2 f0"},
        {"mode=forward", "256x192 sg s3 nb2 f0 skip dyn"},
        {"mode=dX", "256x192 sg s3 nb2 skip dyn"},
        {"mode=dW", "256x192 sg s3 nb2 f0"},
        {"mode=forward", "160x256 df s4 nb1 f0 swap dyn direct 2x1"},
        {"mode=forward", "192x256 c2 s3 nb1 swap direct 2x1"},
        {"mode=forward", "160x256 c2 s4 nb1 f0 swap dyn direct 2x1"},
        {"mode=forward permute_x=true", "144x256 df s4 nb1 f0 swap direct 2x1"},
        {"mode=forward permute_x=true", "192x256 c2 s3 nb1 f0 swap dyn copy direct 2x1"},
        {"mode=forward permute_x=true", "160x256 df s4 nb1 f0 swap dyn copy direct 2x1"},
        {"mode=forward permute_y=true", "160x256 c2 s4 nb1 f0 swap dyn 2x1"},
        {"mode=dX", "160x256 c2 s4 nb1 f0 swap dyn direct 2x1"},
        {"mode=dX permute_y=true", "192x256 c2 s3 nb1 f0 swap dyn copy direct 2x1"},
        {"mode=dX permute_y=true", "160x256 df s4 nb1 f0 swap dyn direct 2x1"},
    };
    struct rejection why;
    for (size_t i = 0; i < sizeof(winners) / sizeof(winners[0]); i++) {
        if (worth(winners[i][0], winners[i][1], &why)) {
            fail_msg("%s, %s: %s: %s", winners[i][0], winners[i][1], why.rule, why.text);
        }
    }
}

/* The target's parameters, with only the first value of each run-time parameter: building such
 * spaces takes a thirtieth of the time. */
static uint32_t compiled_params(const struct problem *p, const struct device_info *info,
                                struct param out[PARAMS_MAX])
{
    const uint32_t n = grouped_gemm_hopper.params(p, info, out);
    for (uint32_t i = 0; i < n; i++) {
        out[i].n = out[i].run_time ? 1 : out[i].n;
    }
    return n;
}

static int build_compiled(struct space *s, const struct problem *p, const struct request *request)
{
    static struct family_target compiled; /* spaces keep a pointer */
    struct error err = ERROR_NULL;
    compiled = grouped_gemm_hopper;
    compiled.params = compiled_params;
    return space_build(s, &compiled, p, &h200, request, &err);
}

/* The default is in the space, and the space is large enough for a search. */
static void test_enough(void **state)
{
    (void)state;
    static const char *const modes[] = {
        "mode=forward",
        "mode=forward permute_x=true",
        "mode=forward permute_y=true",
        "mode=forward permute_y=true fuse_mul_post=true",
        "mode=dX",
        "mode=dX permute_x=true",
        "mode=dX permute_y=true",
        "mode=dW",
        "mode=dW permute_x=true",
        "mode=dW dtype_out=fp32",
    };
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct problem p = qwen(modes[i]);
        struct record config;
        struct rejection why;
        struct space s;
        struct error err = ERROR_NULL;
        assert_int_equal(hopper_choose(&p, &h200, &config, &err), 0);
        if (hopper_worth(&p, &config, &h200, &why)) {
            fail_msg("%s: the default: %s", modes[i], why.text);
        }
        assert_int_equal(build_compiled(&s, &p, NULL), 0);
        if (s.n < 250 || s.n > 600) {
            fail_msg("%s: %u variants", modes[i], s.n);
        }
        space_deinit(&s);
    }
}

static bool shares(const char *layer, const char *mode)
{
    char text[256];
    struct record config;
    struct error err = ERROR_NULL;
    snprintf(text, sizeof(text), "%s mode=%s", layer, mode);
    const struct problem p = problem_of(text);
    assert_int_equal(hopper_choose(&p, &h200, &config, &err), 0);
    return strcmp(record_text(&config, "cluster_shape_mn", ""), "2x1") == 0;
}

/* The default is a pair of thread blocks with shared weights exactly where pairs took less time
 * than single thread blocks. */
static void test_default_pairs(void **state)
{
    (void)state;
    assert_true(shares(QWEN, "forward") && shares(QWEN, "dX") && !shares(QWEN, "dW"));
    assert_true(shares("M=8192 N=28672 K=4096 experts=8 topk=2", "forward"));
    const char *const few = "M=4096 N=1536 K=2048 experts=128 topk=8";
    assert_false(shares(few, "forward") || shares(few, "dX") || shares(few, "dW"));
    assert_false(shares("M=256 N=1024 K=1024 experts=1 topk=1", "forward"));
}

/* ---- outside the space ---------------------------------------------------------------------- */

static void test_unworthy(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"mode=forward", "128x64 c1 s5 nb2", "one_consumer_tall"},
        {"mode=forward permute_y=true", "192x128 pp s4 nb1", "tall_unswapped"},
        {"mode=forward", "128x128 pp s5 nb2 swap", "swapped_tile"},
        {"mode=dX", "32x128 c1 s8 nb2 swap", "swapped_tile"},
        {"mode=dW", "256x64 c1 s3 nb1", "one_consumer_tall"},
        {"mode=forward", "256x128 c2 s4 nb1", "tall_unswapped"},
        {"mode=dW", "256x64 pp s3 nb1", "tall_and_narrow"},
        {"mode=dX", "64x256 pp s3 nb4", "staging_in_turns"},
        {"mode=forward", "64x128 c1 s6 nb2", "stages_given_away"},
        {"mode=forward", "64x128 c1 s4 nb2 f0", "departures"},
        {"mode=forward", "128x192 pp s4 nb1 f0 skip", "departures"},
        {"mode=forward", "128x128 c2 s6 nb1 direct f0 skip", "departures"},
        {"mode=forward permute_x=true", "128x256 c2 s3 nb2 f0 copy", "departures"},
        {"mode=forward", "256x64 sg s4 nb2", "staggered_small"},
        {"mode=dW", "128x192 sg s4 nb1 w8", "staggered_small"},
        {"mode=forward", "256x128 sg s3 nb4", "staggered_usual"},
        {"mode=forward", "256x128 sg s4 nb1 direct", "staggered_usual"},
        {"mode=dX", "256x192 sg s3 nb2 skip", "staggered_usual"},
        {"mode=dW", "256x192 sg s3 nb2 skip", "staggered_usual"},
        {"mode=forward", "128x256 df s4 nb2 swap", "deferred_tile"},
        {"mode=forward", "144x256 c2 s4 nb1 swap", "swapped_tile"},
        {"mode=dX", "160x256 df s3 nb2 swap", "deferred_usual"},
        {"mode=dX", "160x256 df s4 nb1 swap", "deferred_usual"},
        {"mode=dX", "160x256 df s4 nb1 f0 swap dyn 2x1", "deferred_usual"},
        {"mode=dX", "144x256 df s4 nb1 swap dyn direct", "deferred_usual"},
        {"mode=forward", "160x128 pp s5 nb1 swap 2x1", "paired_tile"},
        {"mode=forward", "192x128 c2 s5 nb1 swap 2x1", "swapped_tile"},
        {"mode=dX", "128x256 c2 s4 nb2 swap 2x1", "paired_tile"},
        {"mode=dX", "160x256 c2 s3 nb4 swap 2x1", "paired_usual"},
        {"mode=forward", "192x256 c2 s3 nb2 swap 2x1", "paired_usual"},
        {"mode=dX", "160x256 c2 s4 nb1 f0 swap dyn 2x1", "paired_usual"},
    };
    struct rejection why;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (!worth(cases[i][0], cases[i][1], &why)) {
            fail_msg("%s, %s is in the space", cases[i][0], cases[i][1]);
        }
        assert_string_equal(why.rule, cases[i][2]);
        assert_true(why.text[0]);
    }
    /* six stages are in the space where stores and buffers cannot be chosen */
    assert_int_equal(worth("mode=dX permute_x=true", "64x128 c1 s6 nb1", &why), 0);
}

struct counted {
    const char *problem;
    uint32_t n; /* variants */
};

static void count_variants(const char *tunable, const char *word, const struct counted *cases,
                           size_t n)
{
    struct restriction only = {.n = 1, .values = {VALUE_OF_TEXT(word)}};
    const struct request request = {.n_restrict = 1, .restrict_ = &only};
    snprintf(only.name, sizeof(only.name), "%s", tunable);
    for (size_t i = 0; i < n; i++) {
        char text[256];
        struct space s;
        snprintf(text, sizeof(text), "N=1536 K=2048 %s", cases[i].problem);
        struct problem p = problem_of(text);
        assert_int_equal(build_compiled(&s, &p, &request), 0);
        if (s.n != cases[i].n) {
            fail_msg("%s: %u variants, not %u", cases[i].problem, s.n, cases[i].n);
        }
        space_deinit(&s);
    }
}

/* The space has tiles of 256 rows only where an expert fills several such tiles. */
static void test_staggered(void **state)
{
    (void)state;
    static const struct counted cases[] = {
        {"M=131072 experts=128 topk=8 mode=forward", 12},
        {"M=131072 experts=128 topk=8 mode=dX", 12},
        {"M=131072 experts=128 topk=8 mode=dW", 4},
        {"M=1024 mode=forward", 12},
        {"M=131064 experts=128 topk=8 mode=forward", 0},
        {"M=131064 experts=128 topk=8 mode=dW", 0},
        {"M=1016 mode=forward", 0},
    };
    count_variants("schedule", "staggered", cases, sizeof(cases) / sizeof(cases[0]));
}

/* The space has deferred stores only where experts have some rows, but not many. */
static void test_deferred(void **state)
{
    (void)state;
    static const struct counted cases[] = {
        {"M=32768 experts=128 topk=8 mode=forward", 14},
        {"M=32768 experts=128 topk=8 mode=forward permute_x=true",
         26}, /* gathered, or copied before */
        {"M=32768 experts=128 topk=8 mode=forward permute_y=true", 14},
        {"M=16384 experts=128 topk=8 mode=dX", 6}, /* all without clusters */
        {"M=16376 experts=128 topk=8 mode=dX", 0},
        {"M=131064 experts=128 topk=8 mode=dX", 14},
        {"M=131072 experts=128 topk=8 mode=forward", 0},
        {"M=32768 experts=128 topk=8 mode=dW", 0},
        {"M=256 mode=forward", 0},
    };
    count_variants("schedule", "deferred", cases, sizeof(cases) / sizeof(cases[0]));
}

/* The space has pairs of thread blocks only if most experts have two tiles of rows; in a dense
 * product the single expert needs several. */
static void test_paired(void **state)
{
    (void)state;
    static const struct counted cases[] = {
        {"M=24576 experts=128 topk=8 mode=forward", 16},
        {"M=24576 experts=128 topk=8 mode=dX permute_y=true", 30}, /* gathered, or copied before */
        {"M=24568 experts=128 topk=8 mode=forward", 0},
        {"M=131072 experts=128 topk=8 mode=dX", 8}, /* none with schedule=deferred */
        {"M=32768 experts=128 topk=8 mode=dW", 0},
        {"M=1024 mode=forward", 12},
        {"M=1016 mode=forward", 0},
    };
    count_variants("cluster_shape_mn", "2x1", cases, sizeof(cases) / sizeof(cases[0]));
}

/* ---- split sums ----------------------------------------------------------------------------- */

static struct record split_of(const struct problem *p, const char *text, int parts)
{
    struct record config = variant_of(p, text);
    record_put_bool(&config, "use_tma_store", false);
    record_put_int(&config, "NUM_KSPLIT", parts);
    return config;
}

/* The space has split sums only where tiles are fewer than SMs: here 64 rows have 16 tiles of 64
 * x 64. */
static void test_split(void **state)
{
    (void)state;
    static const struct {
        int rows;
        const char *tile;
        int parts;
        const char *rule; /* NULL: in the space */
        int depth;        /* 0: 1024 */
    } cases[] = {
        {16, "64x64 c1 s12 nb1", 8, NULL, 8192},
        {16, "64x64 c1 s12 nb1", 8, "stages_idle", 4096},
        {16, "64x64 c1 s4 nb1", 8, NULL, 8192},
        {16, "64x64 c1 s3 nb1", 8, NULL},
        {16, "64x64 c1 s8 nb1", 8, "stages_idle"},
        {16, "64x64 c1 s4 nb1", 4, NULL},
        {16, "64x64 c1 s8 nb1", 2, NULL},
        {16, "64x64 c1 s4 nb1", 2, NULL},
        {64, "64x128 c1 s3 nb1", 8, NULL},
        {256, "64x64 c1 s4 nb1", 4, NULL},
        {256, "64x64 c1 s8 nb1", 8, "split_enough"},
        {512, "128x128 c2 s5 nb1", 2, NULL},
        {1024, "64x64 c1 s8 nb1", 2, "split_enough"},
        {64, "128x192 c2 s3 nb1", 2, "split_tile"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[128];
        struct problem p;
        struct rejection why;
        struct error err = ERROR_NULL;
        snprintf(text, sizeof(text), "grouped_gemm mode=forward M=%d N=1024 K=%d", cases[i].rows,
                 cases[i].depth ? cases[i].depth : 1024);
        assert_int_equal(problem_parse(&p, text, &err), 0);
        struct record config = split_of(&p, cases[i].tile, cases[i].parts);
        if (hopper_check(&p, &config, &h200, &why)) {
            fail_msg("%s is not legal: %s", cases[i].tile, why.text);
        }
        if (hopper_worth(&p, &config, &h200, &why) != (cases[i].rule != NULL)) {
            fail_msg("%d rows, %s, %d: %s", cases[i].rows, cases[i].tile, cases[i].parts,
                     cases[i].rule ? "in the space" : why.text);
        }
        if (cases[i].rule) {
            assert_string_equal(why.rule, cases[i].rule);
        }
    }
}

/* A short sum is not split into parts of only one block. The space of a large problem has no split
 * sums. */
static void test_split_not(void **state)
{
    (void)state;
    struct problem p;
    struct rejection why;
    struct error err = ERROR_NULL;
    assert_int_equal(problem_parse(&p, "grouped_gemm mode=dX M=16 N=512 K=1024", &err), 0);
    struct record config = split_of(&p, "64x64 c1 s8 nb1", 8);
    assert_int_equal(hopper_check(&p, &config, &h200, &why), 0);
    assert_int_equal(hopper_worth(&p, &config, &h200, &why), 1);
    assert_string_equal(why.rule, "split_short");

    struct param params[PARAMS_MAX];
    p = qwen("mode=forward");
    const uint32_t n = hopper_tunables(&p, &h200, params);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(strcmp(params[i].name, "NUM_KSPLIT") != 0 || params[i].n == 1);
    }
}

static uint64_t dropped_by(const struct space *s, const char *rule)
{
    for (uint32_t i = 0; i < s->n_rules; i++) {
        if (strcmp(s->rules[i].rule, rule) == 0) {
            return s->rules[i].dropped;
        }
    }
    return 0;
}

static void test_restricted(void **state)
{
    (void)state;
    struct restriction all[] = {
        {"GROUP_SIZE_M", 1, {VALUE_OF_INT(1)}},
        {"raster", 1, {VALUE_OF_TEXT("rows")}},
        {"BLOCK_SIZE_M", 1, {VALUE_OF_INT(128)}},
        {"num_warps", 1, {VALUE_OF_INT(8)}},
    };
    struct request request = {.n_restrict = 3, .restrict_ = all};
    struct problem p = qwen("mode=forward");
    struct space s;
    struct error err = ERROR_NULL;
    assert_int_equal(space_build(&s, &grouped_gemm_hopper, &p, &h200, &request, &err), 0);
    assert_true(s.n > 0 && dropped_by(&s, "departures") > 0);
    uint64_t raw = s.raw;
    space_deinit(&s);

    all[2].values[0].integer = 256;
    request.n_restrict = 4;
    assert_int_equal(space_build(&s, &grouped_gemm_hopper, &p, &h200, &request, &err), 0);
    assert_true(s.n > 0); /* the space's rules would drop every config, so they drop none */
    assert_int_equal(dropped_by(&s, "one_consumer_tall"), 0);
    assert_int_equal(s.raw, raw);
    uint64_t sum = s.n;
    for (uint32_t i = 0; i < s.n_rules; i++) {
        sum += s.rules[i].dropped;
    }
    assert_int_equal(sum, s.raw);
    space_deinit(&s);
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
        cmocka_unit_test(test_winners),       cmocka_unit_test(test_enough),
        cmocka_unit_test(test_default_pairs), cmocka_unit_test(test_unworthy),
        cmocka_unit_test(test_staggered),     cmocka_unit_test(test_deferred),
        cmocka_unit_test(test_paired),        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_not),     cmocka_unit_test(test_restricted),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
