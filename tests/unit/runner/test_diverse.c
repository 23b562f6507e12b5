/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a search: the model's best first, and soon a candidate of each group of similar
 * points. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "runner/strategy/plan.h"

enum { N = 6000 };

static struct space_point points[N];
static struct ranked sorted[N], order[N];

static void arrange(uint32_t n)
{
    struct error err = ERROR_NULL;
    memcpy(order, sorted, n * sizeof(order[0]));
    assert_int_equal(diverse_order(points, order, n, &err), 0);
}

/* Asserts that every point occurs once in the order, with its own prediction. */
static void assert_permutation(uint32_t n)
{
    static bool seen[N];
    memset(seen, 0, sizeof(seen));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t point = order[i].point;
        assert_true(point < n && !seen[point]);
        seen[point] = true;
        assert_true(order[i].predicted == sorted[point].predicted);
    }
}

/* Makes `groups` tiles with `each` variants. Tiles differ in the first three parameters, variants
 * in the last two. Variant i of a tile is predicted to take the tile's `start` + i x `step`. */
static uint32_t make_groups(uint32_t groups, uint32_t each, const double start[], double step)
{
    memset(points, 0, sizeof(points));
    for (uint32_t i = 0; i < groups * each; i++) {
        uint32_t group = i / each, variant = i % each;
        memset(points[i].at, (int)group, 3);
        points[i].at[PARAMS_MAX - 2] = (uint8_t)(variant / 32);
        points[i].at[PARAMS_MAX - 1] = (uint8_t)(variant % 32);
        sorted[i] = (struct ranked){start[group] + step * variant, i};
    }
    return groups * each;
}

static void test_every_group_early(void **state)
{
    (void)state;
    const double start[] = {100, 102, 104};
    uint32_t n = make_groups(3, 40, start, 0.01);
    bool seen[3] = {0};
    arrange(n);
    for (int i = 0; i < 6; i++) {
        seen[order[i].point / 40] = true;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
    assert_int_equal(order[0].point, 0);
    assert_permutation(n);
}

/* The order adds 2 % to a point's time for each similar point before it. So a tile that is 5 %
 * slower comes after three points of the best tile: 100, 102.01, 104.02; 106.03 exceeds 105. */
static void test_the_price_of_being_alike(void **state)
{
    (void)state;
    const double start[] = {100, 105};
    const uint32_t expected[] = {0, 1, 2, 40, 3, 41};
    arrange(make_groups(2, 40, start, 0.01));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(order[i].point, expected[i]);
    }
}

/* Two points that differ in two parameters are alike, in three parameters they are not. The
 * place of the parameters does not matter. */
static void test_what_is_alike(void **state)
{
    (void)state;
    for (uint32_t at = 0; at + 3 <= PARAMS_MAX; at++) {
        memset(points, 0, sizeof(points));
        for (uint32_t i = 0; i < 3; i++) {
            sorted[i] = (struct ranked){100 + i * 0.1, i};
            points[i].at[at] = (uint8_t)i;
            points[i].at[at + 1] = (uint8_t)(i * 15);
        }
        arrange(3);
        assert_int_equal(order[1].point, 1); /* points 1 and 2 are like point 0 */
        points[2].at[at + 2] = PARAM_VALUES_MAX - 1;
        arrange(3);
        assert_int_equal(order[1].point, 2);
        assert_int_equal(order[2].point, 1);
    }
}

static void test_ties_keep_their_order(void **state)
{
    (void)state;
    const double start[] = {100};
    uint32_t n = make_groups(1, 300, start, 0);
    arrange(n);
    assert_memory_equal(order, sorted, n * sizeof(order[0]));
}

static void test_far_slower_ones_wait(void **state)
{
    (void)state;
    const double start[] = {100, 159, 161, INFINITY};
    uint32_t n = make_groups(4, 40, start, 0.01);
    arrange(n);
    assert_permutation(n);
    for (uint32_t i = 80; i < n; i++) {
        assert_int_equal(order[i].point, i); /* these points come last, in the order of the space */
    }
    bool mixed = false;
    for (uint32_t i = 0; i < 40; i++) {
        mixed |= order[i].point >= 40;
    }
    assert_true(mixed);
}

/* The model predicts no time: the points keep the order of the space. */
static void test_nothing_predicted(void **state)
{
    (void)state;
    const double start[] = {INFINITY, INFINITY};
    uint32_t n = make_groups(2, 10, start, 0);
    arrange(n);
    assert_memory_equal(order, sorted, n * sizeof(order[0]));
}

static void test_many(void **state)
{
    (void)state;
    static struct ranked first[N];
    memset(points, 0, sizeof(points));
    uint64_t seed = 7;
    for (uint32_t i = 0; i < N; i++) {
        sorted[i] = (struct ranked){100 + i * 0.005, i};
        for (uint32_t k = 0; k < PARAMS_MAX; k++) {
            points[i].at[k] = (uint8_t)(random_unit(&seed) * (k % 4 ? 1.2 : 6));
        }
    }
    arrange(N);
    memcpy(first, order, sizeof(order));
    assert_int_equal(order[0].point, 0);
    assert_permutation(N);
    for (uint32_t i = DIVERSE_CHOICES + 1; i < N; i++) {
        /* the remaining points keep the order of the space */
        assert_true(order[i].point > order[i - 1].point);
    }
    for (uint32_t i = 0; i < DIVERSE_CHOICES; i++) {
        assert_true(order[i].point < DIVERSE_FROM);
    }
    arrange(N);
    assert_memory_equal(order, first, sizeof(order));
}

static void test_few(void **state)
{
    (void)state;
    const double start[] = {100, 101};
    for (uint32_t n = 0; n <= 2; n++) {
        make_groups(2, 1, start, 0);
        arrange(n);
        assert_memory_equal(order, sorted, n * sizeof(order[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_group_early),
        cmocka_unit_test(test_the_price_of_being_alike),
        cmocka_unit_test(test_what_is_alike),
        cmocka_unit_test(test_ties_keep_their_order),
        cmocka_unit_test(test_far_slower_ones_wait),
        cmocka_unit_test(test_nothing_predicted),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
