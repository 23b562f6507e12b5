/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analytic model of the target "hopper" is sane: finite everywhere, longer for more work, and
 * equal for a single config and for a whole space. model_eval measures its accuracy.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/model/model.h"
#include "kernels/space.h"
#include "tests/model/described.h"
#include "tests/unit/cuda/common.h"

static const struct device_info h200 = {H200_FIELDS};

static const char *const modes[] = {"forward", "dX", "dW"};

static double predict(const char *problem, const char *mode, const char *tile,
                      const struct device_info *info)
{
    static const char *const sides[] = {"MNK", "MKN", "NKM"}; /* rows, columns, reduction */
    char text[8192], config[256];
    int at = 0, r = 0, c = 0;
    snprintf(text, sizeof(text), "%s mode=%s", problem, mode);
    struct problem p = problem_of(text);
    struct record record;
    struct error err = ERROR_NULL;
    struct rejection why;
    assert_int_equal(sscanf(tile, "%dx%d %n", &r, &c, &at), 2);
    const char *side = sides[strcmp(mode, "dX") == 0 ? 1 : strcmp(mode, "dW") == 0 ? 2 : 0];
    snprintf(config, sizeof(config), "BLOCK_SIZE_%c=%d BLOCK_SIZE_%c=%d BLOCK_SIZE_%c=64 %s",
             side[0], r, side[1], c, side[2], tile + at);
    assert_int_equal(record_parse(&record, config, &err), 0);
    if (hopper_check(&p, &record, info, &why)) {
        fail_msg("%s: %s", config, why.text);
    }
    const double us = hopper_predict(&p, &record, info, NULL);
    if (!isfinite(us) || us <= 0) {
        fail_msg("%s: %s: %g us", text, config, us);
    }
    return us;
}

#define PINGPONG    "128x192 num_warps=12 schedule=pingpong num_stages=4 staging_buffers=1"
#define COOPERATIVE "128x256 num_warps=12 schedule=cooperative num_stages=3 staging_buffers=2"
#define SMALL       "64x64 num_warps=8 schedule=cooperative num_stages=8 staging_buffers=1"
static const char *const tiles[] = {PINGPONG, COOPERATIVE, SMALL};
enum { TILES = sizeof(tiles) / sizeof(tiles[0]), MODES = sizeof(modes) / sizeof(modes[0]) };

/* ---- more work takes longer ------------------------------------------------------------------ */

static void test_longer(void **state)
{
    (void)state;
    static const char *const sizes[][2] = {
        {"M=32768 N=1536 K=1024 experts=128 topk=8", "M=32768 N=1536 K=2048 experts=128 topk=8"},
        {"M=32768 N=1024 K=2048 experts=128 topk=8", "M=32768 N=2048 K=2048 experts=128 topk=8"},
        {"M=16384 N=1536 K=2048 experts=128 topk=8", "M=65536 N=1536 K=2048 experts=128 topk=8"},
        {"M=4096 N=4096 K=4096", "M=8192 N=4096 K=4096"},
        {"M=64 N=1536 K=2048 experts=8 topk=8", "M=64 N=1536 K=2048 experts=64 topk=8"},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int m = 0; m < MODES; m++) {
            for (int t = 0; t < TILES; t++) {
                const double less = predict(sizes[i][0], modes[m], tiles[t], &h200);
                const double more = predict(sizes[i][1], modes[m], tiles[t], &h200);
                if (!(more > less)) {
                    fail_msg("%s, %s, %s: %g us, less work %g", sizes[i][1], modes[m], tiles[t],
                             more, less);
                }
            }
        }
    }
}

/* The predicted time never falls as K grows from 64 to 8192. */
static void test_monotone_in_k(void **state)
{
    (void)state;
    for (int t = 0; t < TILES; t++) {
        double last = 0;
        for (int k = 64; k <= 8192; k += 64) {
            char text[128];
            snprintf(text, sizeof(text), "M=8192 N=2048 K=%d experts=16 topk=2", k);
            const double us = predict(text, "forward", tiles[t], &h200);
            if (us < last) {
                fail_msg("%s, %s: %g us after %g", text, tiles[t], us, last);
            }
            last = us;
        }
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A single row more than whole tiles adds a row of tiles. */
static void test_tails(void **state)
{
    (void)state;
    const char *whole = "M=1024 N=8192 K=8192 experts=4 topk=1 routing=\"rows:256,256,256,256\"";
    const char *cut = "M=1028 N=8192 K=8192 experts=4 topk=1 routing=\"rows:257,257,257,257\"";
    const char *one = "M=1024 N=8192 K=8192 experts=4 topk=1 routing=\"rows:1024,0,0,0\"";
    for (int m = 0; m < 2; m++) {
        const double us = predict(whole, modes[m], COOPERATIVE, &h200);
        assert_true(predict(cut, modes[m], COOPERATIVE, &h200) > 1.15 * us);
        assert_true(predict(one, modes[m], COOPERATIVE, &h200) < us); /* one W instead of four */
    }
}

/* The model and choose() must give finite results for these extreme problems. */
static void test_edges(void **state)
{
    (void)state;
    static const char *const edges[] = {
        "M=1 N=8 K=8",
        "M=1 N=8 K=8 experts=1 topk=1 routing=\"rows:1\"",
        "M=64 N=1536 K=2048 experts=1024 topk=1",
        "M=7 N=72 K=200 experts=7 topk=1 routing=\"rows:7,0,0,0,0,0,0\"",
        "M=300 N=584 K=328 experts=8 topk=2 routing=\"rows:130,0,63,0,1,64,0,42\"",
        "M=1073741824 N=8 K=8",
        "M=8192 N=65536 K=65536 experts=8 topk=2",
        "M=32768 N=1536 K=2048 experts=128 topk=8 routing=zipf:1.5",
        "M=32768 N=1536 K=2048 experts=128 topk=8 routing=zipf:8",
        "M=512 N=1536 K=2048 experts=128 topk=128",
    };
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        for (int m = 0; m < MODES; m++) {
            char text[256];
            struct record config;
            struct rejection why;
            struct error err = ERROR_NULL;
            for (int t = 0; t < TILES; t++) {
                predict(edges[i], modes[m], tiles[t], &h200);
            }
            snprintf(text, sizeof(text), "%s mode=%s", edges[i], modes[m]);
            struct problem p = problem_of(text);
            assert_int_equal(hopper_choose(&p, &h200, &config, &err), 0);
            assert_int_equal(hopper_check(&p, &config, &h200, &why), 0);
        }
    }
}

/* The analytic default has every param, with a value of the space, and a search would look at it: a
 * search knows it. */
static void test_choice_is_in_the_space(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "M=4096 N=1536 K=2048 experts=128 topk=8",
        "M=32768 N=1536 K=2048 experts=128 topk=8 permute_x=true",
        "M=131072 N=2048 K=768 experts=128 topk=8 permute_y=true",
        "M=16384 N=5760 K=2880 experts=32 topk=4",
        "M=4096 N=1536 K=2048 experts=128 topk=8 quant=fp8_block",
        "M=32768 N=1536 K=2048 experts=128 topk=8 quant=fp8_block",
        "M=16384 N=5760 K=2880 experts=32 topk=4 quant=fp8_row",
        "M=16 N=1024 K=1024 quant=fp8_block",
        "M=4096 N=6144 K=1024 quant=fp8_block",
    };
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]) * MODES; i++) {
        char text[256];
        struct record config;
        struct param params[PARAMS_MAX];
        struct error err = ERROR_NULL;
        struct rejection why;
        snprintf(text, sizeof(text), "%s mode=%s", problems[i / MODES], modes[i % MODES]);
        struct problem p = problem_of(text);
        const struct family_target *target = described_target(&p);
        const uint32_t n = target->params(&p, &h200, params);
        assert_int_equal(target->choose(&p, &h200, &config, &err), 0);
        assert_int_equal(config.n, n);
        if (record_int(&p.fields, "experts", 1) > 1 && target->worth(&p, &config, &h200, &why)) {
            fail_msg("%s: no search looks at its default: %s", problems[i / MODES], why.text);
        }
        for (uint32_t k = 0; k < n; k++) {
            struct value v;
            bool found = false;
            for (uint32_t j = 0; record_get(&config, params[k].name, &v) && j < params[k].n; j++) {
                found |= value_equal(&v, &params[k].values[j]);
            }
            if (!found) {
                fail_msg("%s: %s is not a value of the space", text, params[k].name);
            }
        }
    }
}

/* A problem cannot have M=0, but a workload's experts may all be empty. */
static void test_no_rows(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        char text[128];
        snprintf(text, sizeof(text), "M=8 N=512 K=512 experts=4 topk=1 mode=%s", modes[m]);
        struct problem p = problem_of(text);
        int32_t sizes[4] = {0};
        struct gemm_state rows = {.m_sizes = sizes};
        struct workload w = {.state = &rows};
        struct hopper_facts f;
        hopper_facts_init(&f, &p, &h200, &w);
        assert_int_equal(f.n_bins, 0);
        struct hopper_tile t = {.r = 128,
                                .c = 256,
                                .d = 64,
                                .consumers = 2,
                                .ksplit = 1,
                                .stages = 4,
                                .staging = 2,
                                .in_flight = 1,
                                .tma_store = true,
                                .group = 8};
        const double us = hopper_time(&f, &t, &hopper_h200);
        assert_true(isfinite(us) && us > 0 && us < 50);
    }
}

/* The expected rows of a profile add up to all rows, and vary as much as drawn rows. */
static void test_typical_rows(void **state)
{
    (void)state;
    static const char *const profiles[] = {
        "mode=dX M=32768 N=64 K=64 experts=128 topk=8",
        "mode=dX M=8 N=64 K=64 experts=128 topk=8",
        "mode=dX M=32768 N=64 K=64 experts=128 topk=8 routing=zipf:1.2",
        "mode=dX M=4096 N=64 K=64 experts=1 topk=1",
        "mode=dX M=1024 N=64 K=64 experts=8 topk=8",
    };
    for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++) {
        struct problem p = problem_of(profiles[i]);
        struct gemm v;
        int64_t rows[GEMM_EXPERTS_MAX], sum = 0;
        double square = 0;
        gemm_view(&p, &v);
        gemm_typical_rows(&v, rows);
        for (int64_t e = 0; e < v.experts; e++) {
            const double off = (double)rows[e] - (double)v.m / (double)v.experts;
            assert_true(rows[e] >= 0);
            sum += rows[e];
            square += off * off / (double)v.experts;
        }
        assert_int_equal(sum, v.m);
        if (i ==
            0) { /* 256 rows per expert, binomially distributed: the standard deviation is 15.5 */
            assert_true(square > 12 * 12 && square < 19 * 19);
        }
        if (i == 4) { /* each token goes to all */
            assert_true(square == 0);
        }
    }
}

/* ---- devices --------------------------------------------------------------------------------- */

static void test_slower_device(void **state)
{
    (void)state;
    struct device_info pcie = h200; /* a device with fewer, slower SMs and slower memory */
    pcie.sm_count = 114;
    pcie.peak_tflops = 450;
    pcie.peak_gbps = 1900;
    struct device_info unknown =
        h200; /* a device that does not report these rates counts as an H200 */
    unknown.peak_tflops = unknown.peak_gbps = 0;
    const char *large = "M=32768 N=8192 K=8192 experts=8 topk=2";
    const char *few = "M=64 N=4096 K=4096 experts=64 topk=1";
    for (int m = 0; m < MODES; m++) {
        const double us = predict(large, modes[m], COOPERATIVE, &h200);
        const double slower = predict(large, modes[m], COOPERATIVE, &pcie);
        assert_true(slower > 1.2 * us && slower < 2.5 * us);
        assert_true(predict(large, modes[m], COOPERATIVE, &unknown) == us);
        const double memory =
            predict(few, modes[m], COOPERATIVE, &pcie) / predict(few, modes[m], COOPERATIVE, &h200);
        assert_true(memory > 1.7 && memory < 2.6);
    }
}

/* ---- a whole space --------------------------------------------------------------------------- */

static void test_space(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "M=4096 N=1536 K=2048 experts=128 topk=8 mode=forward permute_x=true",
        "M=4096 N=1536 K=2048 experts=128 topk=8 mode=dX permute_x=true",
        "M=4096 N=1536 K=2048 experts=128 topk=8 mode=dW permute_y=true routing=zipf:1.1",
    };
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        struct problem p = problem_of(problems[i]);
        struct workload w;
        struct space s;
        struct error err = ERROR_NULL;
        const struct family_target *t = &grouped_gemm_hopper;
        assert_int_equal(gemm_workload_init(&w, &p, 1, &err), 0);
        assert_int_equal(space_build(&s, t, &p, &h200, NULL, &err), 0);
        assert_true(s.n > 500);
        double *us = calloc(s.n, sizeof(*us));
        assert_non_null(us);
        space_predict(&s, t, &p, &h200, &w, us);
        for (uint32_t k = 0; k < s.n; k++) {
            struct record config;
            space_config(&s, k, &config);
            if (us[k] != hopper_predict(&p, &config, &h200, &w)) {
                fail_msg("%s: point %u: %g", problems[i], k, us[k]);
            }
        }
        free(us);
        space_deinit(&s);
        gemm_workload_deinit(&w);
    }
}

int main(void)
{
    families_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longer),
        cmocka_unit_test(test_monotone_in_k),
        cmocka_unit_test(test_tails),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_typical_rows),
        cmocka_unit_test(test_slower_device),
        cmocka_unit_test(test_space),
        cmocka_unit_test(test_choice_is_in_the_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
