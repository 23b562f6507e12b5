/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/family.h"
#include "kernels/launch_order.h"

/* The SMs of an H200 on which thread blocks ran, without clusters and in clusters of two. The GPCs
 * have 16 or 18 SMs; eight SMs of the first GPC have the highest numbers. */
enum { SMS = 132 };
static const int32_t single[SMS] = {
    128, 129, 130, 131, 124, 125, 126, 127, 0,   1,   16, 17,  32,  33,  48,  49,  2,   3,   18,
    19,  34,  35,  50,  51,  64,  65,  78,  79,  92,  93, 106, 107, 4,   5,   20,  21,  36,  37,
    52,  53,  66,  67,  80,  81,  94,  95,  108, 109, 6,  7,   22,  23,  38,  39,  54,  55,  68,
    69,  82,  83,  96,  97,  110, 111, 8,   9,   24,  25, 40,  41,  56,  57,  70,  71,  84,  85,
    98,  99,  112, 113, 10,  11,  26,  27,  42,  43,  58, 59,  72,  73,  86,  87,  100, 101, 114,
    115, 12,  13,  28,  29,  44,  45,  60,  61,  74,  75, 88,  89,  102, 103, 116, 117, 120, 121,
    14,  15,  30,  31,  46,  47,  62,  63,  76,  77,  90, 91,  104, 105, 118, 119, 122, 123};

static void paired_of(int32_t paired[SMS])
{
    static const int32_t first[] = {126, 127, 128, 129, 130, 131, 124, 125};
    for (int i = 0; i < SMS; i++) {
        paired[i] = i < 8 ? first[i] : i - 8;
    }
}

static void test_h200(void **state)
{
    (void)state;
    int32_t paired[SMS];
    struct launch_order order;
    bool seen[SMS / 2] = {false};
    paired_of(paired);
    assert_true(launch_order_make(single, paired, SMS, &order));
    assert_int_equal(order.n, SMS / 2);
    for (int i = 0; i < SMS / 2; i++) {
        assert_true(order.place[i] < SMS / 2 && !seen[order.place[i]]);
        seen[order.place[i]] = true;
        /* the two blocks of a cluster run on SMs 2 n and 2 n + 1 */
        assert_true(single[2 * order.place[i]] / 2 == paired[2 * i] / 2);
    }
    assert_int_equal(order.place[4], 4);  /* this cluster is on SMs 0 and 1 */
    assert_int_equal(order.place[5], 8);  /* on SMs 2 and 3, the next group */
    assert_int_equal(order.place[12], 5); /* on SMs 16 and 17, in the group of SMs 0 and 1 */
}

/* The order stays unknown when other programs had some of the SMs, or the device is another. */
static void test_not_known(void **state)
{
    (void)state;
    int32_t other[SMS], paired[SMS];
    struct launch_order order = {.n = 1};
    paired_of(paired);
    for (int i = 0; i < SMS; i++) {
        other[i] = single[i];
    }
    other[17] = other[3]; /* an SM had two blocks, another had no block */
    assert_false(launch_order_make(other, paired, SMS, &order));
    assert_int_equal(order.n, 0);
    assert_false(launch_order_make(single, other, SMS, &order));
    other[17] = SMS;
    assert_false(launch_order_make(other, paired, SMS, &order));
    other[17] = -1;
    assert_false(launch_order_make(other, paired, SMS, &order));
    for (int i = 0; i < SMS; i++) {
        other[i] = (i + 1) % SMS; /* each cluster has SMs of two pairs */
    }
    assert_false(launch_order_make(single, other, SMS, &order));
    assert_false(launch_order_make(single, paired, SMS - 1, &order));
    assert_false(launch_order_make(single, paired, LAUNCH_ORDER_SMS_MAX + 2, &order));
}

static void test_launches(void **state)
{
    (void)state;
    const struct launch_order order = {.n = 66}, none = {0};
    static struct launch l = {.cluster = {2, 1, 1}, .grid = {132, 1, 1}, .order_at = 64};
    assert_true(launch_is_ordered(&l, &order));
    assert_false(launch_is_ordered(&l, &none));
    l.grid[0] = 130; /* with fewer clusters some places would stay empty */
    assert_false(launch_is_ordered(&l, &order));
    l.grid[0] = 132;
    l.order_at = 0;
    assert_false(launch_is_ordered(&l, &order));
    l.order_at = 64;
    l.cluster[0] = 4;
    assert_false(launch_is_ordered(&l, &order));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_h200),
                                       cmocka_unit_test(test_not_known),
                                       cmocka_unit_test(test_launches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
