/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The family quantise on the CPU: the op's sentences, and kernels against the reference, which must
 * agree in every bit, special values included.
 */
#include <math.h>

#include "kernels/families/quantise/quantise.h"
#include "kernels/space.h"
#include "tests/unit/kernels/family_cpu.h"

/* ---- the op ---------------------------------------------------------------------------------- */

static void test_op(void **state)
{
    (void)state;
    struct problem p, same;
    assert_fails(problem_parse(&p, "quantise mode=rows M=8 K=40", err), ERROR_INVALID,
                 "multiple of 16");
    assert_fails(problem_parse(&p, "quantise mode=turn M=8 K=48", err), ERROR_INVALID,
                 "rows, columns, both, weights or whole_rows");
    assert_fails(problem_parse(&p, "quantise mode=weights M=96 K=48 experts=4", err), ERROR_INVALID,
                 "M = experts * N");
    assert_fails(problem_parse(&p, "quantise mode=weights M=64 K=48 permute_x=true", err),
                 ERROR_CONFLICT, "only rows of tokens");
    assert_fails(problem_parse(&p, "quantise mode=both M=9 K=48 topk=2 permute_x=true", err),
                 ERROR_INVALID, "tokens * topk");
    assert_fails(problem_parse(&p, "quantise mode=rows M=1073741824 K=2048", err), ERROR_INVALID,
                 "2^40");
    problem_of(&p, "quantise mode=rows M=9 K=48 experts=7 topk=2");
    problem_of(&same, "quantise mode=rows M=9 K=48");
    assert_true(record_equal(&p.fields, &same.fields));
}

static void test_buckets(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "quantise mode=both M=1000 K=1040 experts=8 topk=4 permute_x=true",
        "quantise mode=weights M=1008 K=1040 experts=3",
        "quantise mode=rows M=1073741824 K=1024",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (int scheme = BUCKET_EXACT; scheme <= BUCKET_SQRT2; scheme++) {
            struct problem p, bucket, again, made;
            problem_of(&p, texts[i]);
            problem_bucket(&p, (enum bucket_scheme)scheme, &bucket);
            assert_ok(problem_make(&made, "quantise", &bucket.fields, err));
            assert_true(record_equal(&bucket.fields, &made.fields));
            problem_bucket(&bucket, (enum bucket_scheme)scheme, &again);
            assert_true(record_equal(&bucket.fields, &again.fields));
            assert_true(record_int(&bucket.fields, "M", 0) >= record_int(&p.fields, "M", 0));
        }
    }
}

/* A workload draws at most 2^22 special values: none where a row has more. */
static void test_long_rows(void **state)
{
    (void)state;
    struct workload w;
    struct problem p;
    problem_of(&p, "quantise mode=rows M=300 K=1048576");
    assert_ok(quantise_family.workload_init(&w, &p, 1, err));
    assert_int_equal(w.buffers[QUANTISE_X].host_count, 1 << 22);
    quantise_family.workload_deinit(&w);
    problem_of(&p, "quantise mode=both M=3 K=16777216");
    assert_ok(quantise_family.workload_init(&w, &p, 1, err));
    assert_int_equal(w.buffers[QUANTISE_X].host_count, 0);
    assert_true(w.n_checks > 100);
    quantise_family.workload_deinit(&w);
}

/* ---- verified kernels ------------------------------------------------------------------------ */

/* Compiles a variant, from another source unless `source` is NULL, and verifies it. */
static void verify(const struct problem *p, const struct record *config, const char *source,
                   struct verdict *out)
{
    struct variant v;
    struct image image;
    struct kernel *k;
    struct prepared *w;
    struct rejection why;
    struct tolerance generous = {.atol = 100, .rtol = 1, .rel_norm = 10}; /* must not matter */
    assert_ok(cpu_find_target(p)->variant(p, config, device->info.arch, &v, err));
    struct variant other = v;
    other.source = source ? source : v.source;
    assert_ok(compiler->ops->compile(compiler, &other, &image, err));
    assert_ok(device->ops->load(device, &image, &v, &k, &why, err));
    assert_ok(device->ops->prepare(device, family_of_problem(p), p, 7, &w, err));
    assert_ok(device->ops->verify(device, w, k, config, &generous, out, err));
    device->ops->release(device, w);
    device->ops->unload(device, k);
    image_deinit(&image);
}

static void test_bitwise(void **state)
{
    (void)state;
    static const struct {
        const char *problem, *config; /* config NULL: the default */
    } cases[] = {
        {"mode=rows M=300 K=1200", NULL},
        {"mode=rows M=300 K=1200 scale_type=pow2 topk=3 permute_x=true",
         "TILE_ROWS=1 TILE_COLS=128"},
        {"mode=rows M=1 K=16", NULL},
        {"mode=columns M=700 K=1040 experts=5 scale_type=pow2", NULL},
        {"mode=columns M=384 K=144", "TILE_ROWS=128 TILE_COLS=512"},
        {"mode=both M=1201 K=1040 experts=4", NULL},
        {"mode=both M=2000 K=272 experts=9 topk=2 permute_x=true", "TILE_ROWS=128 TILE_COLS=2048"},
        {"mode=both M=3 K=16 experts=8 scale_type=pow2", NULL},
        {"mode=weights M=816 K=1040 experts=3", NULL},
        {"mode=weights M=16 K=16 scale_type=pow2", "TILE_ROWS=128 TILE_COLS=512"},
        {"mode=whole_rows M=300 K=1200", NULL},
        {"mode=whole_rows M=300 K=1040 scale_type=pow2 topk=3 permute_x=true", "TILE_ROWS=32"},
        {"mode=whole_rows M=1 K=16", "TILE_ROWS=1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[160];
        struct problem p;
        struct record config;
        struct verdict verdict;
        snprintf(text, sizeof(text), "quantise %s", cases[i].problem);
        problem_of(&p, text);
        if (cases[i].config) {
            config_of(&config, cases[i].config);
        } else {
            assert_ok(cpu_find_target(&p)->choose(&p, &device->info, &config, err));
        }
        verify(&p, &config, NULL, &verdict);
        if (!verdict.right || verdict.max_error != 0) {
            fail_msg("%s: %s", cases[i].problem, verdict.text);
        }
    }
}

/* 0xff marks unwritten bytes: no scale has this byte. */
static void test_scales_differ_from_poison(void **state)
{
    (void)state;
    for (uint32_t amax = 1; amax < 0x7f80; amax++) {
        const uint32_t bits = amax << 16;
        float size, eps = 1e-12f;
        uint8_t bytes[2][4];
        memcpy(&size, &bits, sizeof(size));
        size /= 448;
        eps /= 448;
        memcpy(bytes[0], &size, sizeof(size));
        memcpy(bytes[1], &eps, sizeof(eps));
        for (int i = 0; i < 8 && size >= 0x1p-126f; i++) {
            assert_true(bytes[i / 4][i % 4] != 0xff);
        }
    }
}

/* Replaces the first `from` of the kernel's source. Owned by the caller. */
static char *broken_source(const char *from, const char *to)
{
    const char *at = strstr(quantise_cpu_source, from);
    if (!at) {
        fail_msg("the source has no \"%s\"", from);
    }
    const size_t before = (size_t)(at - quantise_cpu_source), size = strlen(quantise_cpu_source);
    char *out = malloc(size + strlen(to) + 1);
    memcpy(out, quantise_cpu_source, before);
    sprintf(out + before, "%s%s", to, at + strlen(from));
    return out;
}

static void test_faults_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *problem, *said;
    } faults[] = {
        {"size < 0x7f80", "size <= 0x7f80", "mode=rows M=256 K=1200", "(scales, "},
        {"size >= 0x43e00000u ? 0x7eu : normal", "normal", "mode=rows M=256 K=1200", "(q, "},
        {"size > 0x7f800000u ? 0x7fu", "size > 0x7f800000u ? 0xffu", "mode=rows M=256 K=1200",
         "not written"},
        {"+ 0x7fffffu)", "+ 0x800000u)", "mode=rows M=256 K=1200 scale_type=pow2", "(scales, "},
        {"/ 448.0f", "* (1 / 448.0f)", "mode=rows M=256 K=1200", "(scales, "},
        {"turned[c][r] : 0", "turned[c][r] : 1", "mode=columns M=700 K=160 experts=5", "(q_t, "},
        {"(mantissa >> by & 1u)", "1", "mode=rows M=256 K=1200", "(q, "},
        {"t->at / BLOCK * p->scales_t_stride", "0", "mode=both M=700 K=160 experts=5",
         "not written"},
        {"c < c1; c++)\n        amax = finite",
         "c < c0 + BLOCK && c < c1; c++)\n        amax = finite", "mode=whole_rows M=256 K=1200",
         "(scales, "},
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        char text[160], *source = broken_source(faults[i].from, faults[i].to);
        struct problem p;
        struct record config;
        struct verdict verdict;
        snprintf(text, sizeof(text), "quantise %s", faults[i].problem);
        problem_of(&p, text);
        assert_ok(cpu_find_target(&p)->choose(&p, &device->info, &config, err));
        verify(&p, &config, source, &verdict);
        if (verdict.right || !strstr(verdict.text, faults[i].said)) {
            fail_msg("%s: \"%s\"", faults[i].to, verdict.text);
        }
        free(source);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static uint16_t bf16(double value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

/* Values whose bytes are known by hand; gaps between rows stay as they are. */
static void test_known_values(void **state)
{
    (void)state;
    static const struct {
        double x;
        float eps, scale;
        uint8_t q;
    } known[] = {
        {448, 1e-12f, 1, 0x7e},
        {-448, 1e-12f, 1, 0xfe},
        {0, 448, 1, 0},
        {-0.0, 448, 1, 0x80},
        {NAN, 448, 1, 0x7f},
        {-INFINITY, 448, 1, 0xfe},
        {INFINITY, 0, 1, 0x7e},
        {0, 0, 1, 0},
        {0x1p-110, 0, 0x1p-110f / 448, 0x7e},
        {0x1p-133, 0, 1, 0},
        {1e-28, 1e-12f, 1e-12f / 448, 0},
        {0x1.fep127, 1e-12f, 0x1.fep127f / 448, 0x7e},
        {1, 448, 1, 0x38},
        {0x1p-9, 448, 1, 1},
        {0x1.8p-10, 448, 1, 1},
        {0x1p-10, 448, 1, 0},
    };
    enum { KNOWN = sizeof(known) / sizeof(known[0]) };
    struct launcher *launchers[2];
    cpu_open_launcher("quantise mode=rows M=2 K=16", &launchers[0]);
    cpu_open_launcher("quantise mode=whole_rows M=2 K=16", &launchers[1]);
    for (size_t j = 0; j < 2 * KNOWN; j++) {
        const size_t i = j % KNOWN;
        _Alignas(16) uint16_t x[2][24] = {{0}};
        _Alignas(16) uint8_t q[2][32];
        float scales[2] = {-1, -1};
        memset(q, 0x55, sizeof(q));
        x[1][3] = bf16(known[i].x);
        struct quantise_args a = {.size = sizeof(a),
                                  .x = x,
                                  .q = q,
                                  .scales = scales,
                                  .x_stride = 24,
                                  .q_stride = 32,
                                  .eps = known[i].eps,
                                  .rows = 2};
        assert_ok(launcher_launch(launchers[j / KNOWN], &a, err));
        if (q[1][3] != known[i].q || scales[1] != known[i].scale) {
            fail_msg("%g: q %02x, scale %g", known[i].x, q[1][3], (double)scales[1]);
        }
        assert_int_equal(q[1][16], 0x55);
        assert_int_equal(q[1][4], 0);
    }
    launcher_free(launchers[0]);
    launcher_free(launchers[1]);
}

static void test_args(void **state)
{
    (void)state;
    static _Alignas(16) uint16_t x[256][16];
    static _Alignas(16) uint8_t q[256 * 16], q_t[16][512];
    static float scales[256], scales_t[4][16];
    static int64_t ends[2] = {130, 256};
    struct launcher *l;
    cpu_open_launcher("quantise mode=both M=256 K=16 experts=2", &l);
    const struct quantise_args good = {.size = sizeof(good),
                                       .flags = QUANTISE_ENDS,
                                       .x = x,
                                       .q = q,
                                       .scales = scales,
                                       .q_t = q_t,
                                       .scales_t = scales_t,
                                       .padded = 384,
                                       .q_t_stride = 512,
                                       .m_sizes = ends,
                                       .m_sizes_dtype = DTYPE_INT64,
                                       .gather_dtype = DTYPE_INT32,
                                       .rows = 256};
    struct quantise_args a = good;
    for (int i = 0; i < 256; i++) {
        x[i][2] = bf16(i == 129 ? 448 : 1);
    }
    memset(q_t, 0x55, sizeof(q_t));
    assert_ok(launcher_launch(l, &a, err));
    assert_int_equal(q_t[2][128], 0x38); /* row 128: the expert's second block has 448 in row 129 */
    assert_int_equal(q_t[2][129], 0x7e);
    assert_int_equal(q_t[2][130], 0);
    assert_int_equal(q_t[2][256], 0x7e); /* row 130, the second expert's first */
    assert_int_equal(q_t[2][384], 0x55);
    assert_true(scales_t[1][2] == 1);
#define REFUSED(change, code, text)                                                                \
    do {                                                                                           \
        a = good;                                                                                  \
        change;                                                                                    \
        assert_fails(launcher_launch(l, &a, err), code, text);                                     \
    } while (0)
    REFUSED(a.size = 8, ERROR_INVALID, "args.size is 8");
    REFUSED(a.flags = 6, ERROR_INVALID, "args.flags");
    REFUSED(a.x = NULL, ERROR_INVALID, "args.x is NULL");
    REFUSED(a.q = q + 8, ERROR_INVALID, "args.q is");
    REFUSED(a.q_t = NULL, ERROR_INVALID, "args.q_t is NULL");
    REFUSED(a.m_sizes_dtype = DTYPE_FP32, ERROR_INVALID, "args.m_sizes");
    REFUSED(a.padded = 300, ERROR_INVALID, "multiple of 128");
    REFUSED(a.x_stride = 12, ERROR_INVALID, "args.x_stride is 12");
    REFUSED(a.q_t_stride = 256, ERROR_INVALID, "args.q_t_stride is 256");
    REFUSED(a.scales_row_stride = 1, ERROR_INVALID, "overlap");
    const int64_t too_large = (INT64_C(1) << 40) + 128;
    REFUSED(a.padded = a.q_t_stride = too_large, ERROR_INVALID, "args.padded is 1099511627904");
    REFUSED(a.padded = a.q_t_stride = INT64_MAX / 128 * 128, ERROR_INVALID, "args.padded is");
    REFUSED(a.x_stride = INT64_C(1) << 62, ERROR_INVALID, "at most 2^40");
    REFUSED(a.q_stride = too_large, ERROR_INVALID, "args.q_stride is 1099511627904");
    REFUSED(a.q_t_stride = too_large, ERROR_INVALID, "args.q_t_stride is 1099511627904");
    REFUSED(a.scales_t_stride = INT64_MAX, ERROR_INVALID, "args.scales_t_stride is");
    REFUSED(a.scales_row_stride = a.scales_block_stride = INT64_C(1) << 62, ERROR_INVALID, "2^40");
    REFUSED(a.eps = NAN, ERROR_INVALID, "args.eps");
    REFUSED(a.rows = -1, ERROR_INVALID, "args.rows is -1");
    REFUSED(a.eps = -1, ERROR_INVALID, "args.eps");
    a = good;
    a.rows = 0;
    a.x = NULL;
    assert_ok(launcher_launch(l, &a, err));
    launcher_free(l);
}

/* Wrong sizes of experts are cut to the rows of x: `given` acts as `cut`, and nothing is written
 * outside the tensors. */
static void test_wrong_sizes_are_cut(void **state)
{
    (void)state;
    enum { ROWS = 256, FIRST = 1024, ALL = 3 * 1024 };
    static const struct {
        uint32_t flags;
        int64_t given[4], cut[4];
    } cases[] = {
        {0, {130, 400, 9, 0}, {130, 126, 0, 0}},
        {0, {-512, 768, 0, 0}, {0, 256, 0, 0}},
        {0, {100, INT64_MAX, INT64_MAX, 1}, {100, 156, 0, 0}},
        {QUANTISE_ENDS, {200, 100, 240, 300}, {200, 0, 56, 0}},
        {QUANTISE_ENDS, {50, INT64_MIN, INT64_MAX, 60}, {50, 206, 0, 0}}, /* differences overflow */
    };
    static _Alignas(16) uint16_t x[ALL][16];
    static struct outputs {
        _Alignas(16) uint8_t q[ALL][16];
        float scales[ALL];
        _Alignas(16) uint8_t q_t[16][768];
        float scales_t[6][16];
    } out, expected;
    struct launcher *l;
    cpu_open_launcher("quantise mode=both M=256 K=16 experts=4", &l);
    for (int i = 0; i < ALL; i++) {
        x[i][2] = bf16(i);
    }
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        const bool cut = i % 2 == 0;
        struct quantise_args a = {.size = sizeof(a),
                                  .flags = cut ? 0 : cases[i / 2].flags,
                                  .x = x[FIRST],
                                  .q = out.q[FIRST],
                                  .scales = out.scales + FIRST,
                                  .q_t = out.q_t,
                                  .scales_t = out.scales_t,
                                  .padded = 768,
                                  .m_sizes = cut ? cases[i / 2].cut : cases[i / 2].given,
                                  .m_sizes_dtype = DTYPE_INT64,
                                  .gather_dtype = DTYPE_INT32,
                                  .rows = ROWS};
        memset(&out, 0x55, sizeof(out));
        assert_ok(launcher_launch(l, &a, err));
        if (cut) {
            memcpy(&expected, &out, sizeof(out));
        } else {
            assert_memory_equal(&out, &expected, sizeof(out));
        }
    }
    launcher_free(l);
}

/* ---- configs --------------------------------------------------------------------------------- */

static void test_configs(void **state)
{
    (void)state;
    struct problem p;
    struct space s;
    struct record config;
    struct rejection why;
    problem_of(&p, "quantise mode=rows M=64 K=256");
    const struct family_target *t = cpu_find_target(&p);
    assert_ok(space_build(&s, t, &p, &device->info, NULL, err));
    assert_int_equal(s.n, 12);
    space_deinit(&s);
    static const char *const bad[][2] = {
        {"TILE_ROWS=8", "TILE_COLS is missing"},
        {"TILE_ROWS=9 TILE_COLS=128", "TILE_ROWS=9: the cpu kernel takes 1 8 32 128"},
        {"TILE_ROWS=8 TILE_COLS=128 warps=2", "unknown parameter \"warps\"; known: TILE_ROWS"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        config_of(&config, bad[i][0]);
        assert_int_equal(t->check(&p, &config, &device->info, &why), 1);
        assert_non_null(strstr(why.text, bad[i][1]));
    }
}

/* The cuda target has a legal default for each mode and GPU; configs beyond its limits are refused.
 */
static void test_cuda_configs(void **state)
{
    (void)state;
    static const char *const modes[] = {"whole_rows", "rows", "columns", "both", "weights"};
    static const int archs[][2] = {{8, 0}, {8, 6}, {8, 9}, {9, 0}, {12, 0}};
    struct problem p;
    struct record config;
    struct rejection why;
    struct device_info info = {.kind = "cuda", .sm_count = 132, .smem_per_sm = 100 << 10};
    for (size_t i = 0; i < 5 * sizeof(archs) / sizeof(archs[0]); i++) {
        char text[96];
        struct space s;
        info.cc_major = archs[i / 5][0];
        info.cc_minor = archs[i / 5][1];
        snprintf(text, sizeof(text), "quantise M=4096 K=512 experts=8 mode=%s", modes[i % 5]);
        problem_of(&p, text);
        assert_ok(quantise_cuda.choose(&p, &info, &config, err));
        if (quantise_cuda.check(&p, &config, &info, &why)) {
            fail_msg("%s, sm_%d%d: %s", text, info.cc_major, info.cc_minor, why.text);
        }
        assert_ok(space_build(&s, &quantise_cuda, &p, &info, NULL, err));
        assert_true(s.n >= 32);
        assert_true(quantise_cuda.predict(&p, &config, &info, NULL) > 0);
        space_deinit(&s);
    }
    static const char *const bad[][2] = {
        {"ROWS_PER_THREAD=8 MIN_BLOCKS=4 prefetch=true", "need about 136 registers"},
        {"ROWS_PER_THREAD=4 MIN_BLOCKS=4 prefetch=false", "2048 threads, an SM has 1536"},
        {"ROWS_PER_THREAD=2 MIN_BLOCKS=1 prefetch=false", "takes 4 8"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[160];
        snprintf(text, sizeof(text), "TILE_ROWS=128 GROUP_SIZE_M=1 stream=false %s", bad[i][0]);
        config_of(&config, text);
        assert_int_equal(quantise_cuda.check(&p, &config, &info, &why), 1);
        if (!strstr(why.text, bad[i][1])) {
            fail_msg("%s: %s", text, why.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_op),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_bitwise),
        cmocka_unit_test(test_faults_are_found),
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_args),
        cmocka_unit_test(test_wrong_sizes_are_cut),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_scales_differ_from_poison),
        cmocka_unit_test(test_configs),
        cmocka_unit_test(test_cuda_configs),
    };
    return cmocka_run_group_tests(tests, cpu_setup, cpu_teardown);
}
