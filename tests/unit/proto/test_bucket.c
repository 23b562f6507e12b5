/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding, against its definition and its promises, over random sizes. */
#include "tests/unit/proto/common.h"

static int64_t class_of(int64_t n)
{
    int64_t c = n & -n;
    return c < 128 ? c : 128;
}

static void test_pow2_examples(void **state)
{
    (void)state;
    static const int64_t cases[][2] = {
        {1, 1},
        {2, 2},
        {3, 3},
        {5, 7},
        {6, 6},
        {7, 7},
        {8, 8},
        {9, 15},
        {64, 64},
        {96, 96},
        {1000, 1016},
        {1024, 1024},
        {1025, 2047},
        {1408, 2048},
        {768, 1024},
        {2880, 4032},
        {11008, 16384},
        {GEMM_SIZE_MAX, GEMM_SIZE_MAX},
        {GEMM_SIZE_MAX - 8, GEMM_SIZE_MAX - 8},
        {GEMM_SIZE_MAX / 2 + 1, GEMM_SIZE_MAX - 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(bucket_pow2(cases[i][0]), cases[i][1]);
    }
    /* bucket_pow2 keeps illegal sizes: other code refuses them */
    assert_int_equal(bucket_pow2(0), 0);
    assert_int_equal(bucket_pow2(-5), -5);
    assert_true(bucket_pow2(INT64_C(1) << 40) == INT64_C(1) << 40);
}

static void test_pow2_promises(void **state)
{
    (void)state;
    struct rng rng = {1};
    for (int i = 0; i < 300000; i++) {
        int64_t n = rng_size(&rng, GEMM_SIZE_MAX);
        int64_t up = bucket_pow2(n);
        assert_true(up >= n && up < 2 * n && up <= GEMM_SIZE_MAX);
        assert_true(class_of(up) == class_of(n));
        assert_true(bucket_pow2(up) == up);
        int64_t next = n + 2 * class_of(n) * rng_in(&rng, 0, 100); /* of the same class */
        if (next <= GEMM_SIZE_MAX && class_of(next) == class_of(n)) {
            assert_true(bucket_pow2(next) >= up);
        }
    }
}

static void test_pow2_rows(void **state)
{
    (void)state;
    struct rng rng = {2};
    assert_int_equal(bucket_pow2_rows(32768, 8), 32768);
    assert_int_equal(bucket_pow2_rows(6 * 1000, 6), 6 * 1024);
    assert_int_equal(bucket_pow2_rows(1, 1), 1);
    assert_int_equal(bucket_pow2_rows(GEMM_SIZE_MAX, 1), GEMM_SIZE_MAX);
    for (int i = 0; i < 300000; i++) {
        int64_t topk = rng_next(&rng) & 1 ? rng_in(&rng, 1, 10) : rng_in(&rng, 1, GEMM_TOPK_MAX);
        int64_t rows = topk * rng_size(&rng, GEMM_SIZE_MAX / topk);
        int64_t up = bucket_pow2_rows(rows, topk);
        assert_true(up >= rows && up < 2 * rows && up <= GEMM_SIZE_MAX && up % topk == 0);
        assert_true(bucket_pow2_rows(up, topk) == up);
        int64_t next = rows + topk * rng_in(&rng, 0, 1000);
        assert_true(next > GEMM_SIZE_MAX || bucket_pow2_rows(next, topk) >= up);
    }
}

/* ---- sqrt2 ----------------------------------------------------------------------------------- */

__extension__ typedef unsigned __int128 wide;

static int64_t isqrt(wide n)
{
    wide root = 0;
    for (wide bit = (wide)1 << 62; bit > 0; bit >>= 1) {
        if ((root + bit) * (root + bit) <= n) {
            root += bit;
        }
    }
    return (int64_t)root;
}

/* Rounds rows by the definition of the scheme sqrt2, word for word: floor(experts * 2^(i/2)) =
 * isqrt(experts^2 * 2^i). */
static int64_t by_definition(int64_t rows, int64_t experts, int64_t topk)
{
    for (int i = -60;; i++) {
        wide square = (wide)experts * (wide)experts;
        int64_t m = isqrt(i >= 0 ? square << i : square >> -i);
        int64_t rounded = (m + topk - 1) / topk * topk;
        if (rounded >= rows) {
            return rounded <= GEMM_SIZE_MAX ? rounded : rows;
        }
    }
}

static void test_sqrt2_examples(void **state)
{
    (void)state;
    /* With 128 experts and topk 8, 4096 tokens are 256 rows per expert: a step, not rounded up. */
    assert_int_equal(bucket_sqrt2_rows(32768, 128, 8), 32768);
    /* 46340 = 128 * 2^8.5, rounded up to a multiple of 8 */
    assert_int_equal(bucket_sqrt2_rows(32776, 128, 8), 46344);
    assert_int_equal(bucket_sqrt2_rows(6, 64, 6), 6);
    assert_int_equal(bucket_sqrt2_rows(4096 * 6, 64, 6), 32772);
    assert_int_equal(bucket_sqrt2_rows(1, 1, 1), 1);
    assert_int_equal(bucket_sqrt2_rows(3, 1, 1), 4);
    assert_int_equal(bucket_sqrt2_rows(1000, 1, 1), 1024);
    assert_int_equal(bucket_sqrt2_rows(1, 1024, 1), 1);
    assert_int_equal(bucket_sqrt2_rows(GEMM_SIZE_MAX, 1024, 1), GEMM_SIZE_MAX);
}

static void test_sqrt2_definition(void **state)
{
    (void)state;
    struct rng rng = {3};
    for (int64_t experts = 1; experts <= 70; experts++) {
        for (int64_t tokens = 1; tokens <= 64; tokens++) {
            assert_int_equal(bucket_sqrt2_rows(6 * tokens, experts, 6),
                             by_definition(6 * tokens, experts, 6));
        }
    }
    for (int i = 0; i < 30000; i++) {
        int64_t topk = rng_in(&rng, 1, rng_next(&rng) & 1 ? 8 : GEMM_TOPK_MAX);
        int64_t experts = rng_size(&rng, GEMM_EXPERTS_MAX);
        int64_t rows = topk * rng_size(&rng, GEMM_SIZE_MAX / topk);
        assert_int_equal(bucket_sqrt2_rows(rows, experts, topk),
                         by_definition(rows, experts, topk));
    }
}

/* Checks each step, and the rows just above it: there a wrong last bit of sqrt(2) would show. */
static void test_sqrt2_edges(void **state)
{
    (void)state;
    for (int64_t experts = 1; experts <= GEMM_EXPERTS_MAX; experts += experts < 64 ? 1 : 61) {
        int64_t rows = 1;
        while (rows < GEMM_SIZE_MAX / 2) {
            int64_t step = bucket_sqrt2_rows(rows, experts, 1);
            assert_int_equal(step, by_definition(rows, experts, 1));
            assert_int_equal(bucket_sqrt2_rows(step, experts, 1), step);
            rows = step + 1;
        }
    }
}

static void test_sqrt2_promises(void **state)
{
    (void)state;
    struct rng rng = {4};
    for (int i = 0; i < 300000; i++) {
        int64_t topk = i % 3 == 0 ? 6 : rng_in(&rng, 1, GEMM_TOPK_MAX);
        int64_t experts = rng_in(&rng, 1, GEMM_EXPERTS_MAX);
        int64_t rows = topk * rng_size(&rng, GEMM_SIZE_MAX / topk);
        int64_t up = bucket_sqrt2_rows(rows, experts, topk);
        assert_true(up >= rows && up <= GEMM_SIZE_MAX && up % topk == 0);
        assert_true(bucket_sqrt2_rows(up, experts, topk) == up);
        int64_t next = rows + topk * rng_in(&rng, 0, 1000);
        assert_true(next > GEMM_SIZE_MAX || bucket_sqrt2_rows(next, experts, topk) >= up);
        if (rows > 100 * experts &&
            rows > 100 * topk) { /* where steps are fine, rounding adds less than 45 % */
            assert_true(up * 100 < rows * 145);
        }
    }
}

/* ---- of problems ----------------------------------------------------------------------------- */

static void test_schemes(void **state)
{
    (void)state;
    enum bucket_scheme s;
    struct error err;
    for (int i = BUCKET_EXACT; i <= BUCKET_SQRT2; i++) {
        assert_ok(err, bucket_scheme_parse(bucket_scheme_name((enum bucket_scheme)i), &s, &err));
        assert_int_equal(s, i);
    }
    assert_error(err, ERROR_INVALID, "exact, pow2 or sqrt2", bucket_scheme_parse("log", &s, &err));
}

static void test_problems(void **state)
{
    (void)state;
    static struct problem p, b, c;
    struct error err;
    test_ops_set();
    assert_ok(err,
              problem_parse(&p, "grouped_gemm mode=dW M=6006 N=1000 K=96 experts=64 topk=6", &err));
    problem_bucket(&p, BUCKET_EXACT, &b);
    assert_true(record_equal(&p.fields, &b.fields));
    problem_bucket(&p, BUCKET_SQRT2, &b);
    assert_int_equal(record_int(&b.fields, "M", 0), by_definition(6006, 64, 6));
    assert_int_equal(record_int(&b.fields, "N", 0), 1000);
    problem_bucket(&p, BUCKET_POW2, &b);
    assert_int_equal(record_int(&b.fields, "M", 0), 6 * 1024);
    assert_int_equal(record_int(&b.fields, "N", 0), 1016);
    assert_int_equal(record_int(&b.fields, "K", 0), 96);
    assert_string_equal(b.op_name, "grouped_gemm");
    problem_bucket(&b, BUCKET_POW2, &c);
    assert_true(record_equal(&b.fields, &c.fields));
    problem_bucket(&p, BUCKET_POW2, &p); /* in place */
    assert_true(record_equal(&p.fields, &c.fields));
    assert_ok(err, problem_parse(&p, "custom:x M=1000 N=3", &err));
    problem_bucket(&p, BUCKET_POW2, &b); /* a custom op's sizes are not rounded */
    assert_true(record_equal(&p.fields, &b.fields));
    assert_string_equal(b.op_name, "custom:x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pow2_examples),    cmocka_unit_test(test_pow2_promises),
        cmocka_unit_test(test_pow2_rows),        cmocka_unit_test(test_sqrt2_examples),
        cmocka_unit_test(test_sqrt2_definition), cmocka_unit_test(test_sqrt2_edges),
        cmocka_unit_test(test_sqrt2_promises),   cmocka_unit_test(test_schemes),
        cmocka_unit_test(test_problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
