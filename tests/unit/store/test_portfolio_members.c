/* SPDX-License-Identifier: Apache-2.0 */
/* Portfolios: every shape within the bound, no member too many, the same every time. */
#include <math.h>
#include <stdlib.h>

#include "store/portfolio.h"
#include "tests/unit/proto/common.h"

enum { MOST = 64 };

static struct portfolio_pair pairs[MOST * MOST];
static struct portfolio_choice choices[MOST], again[MOST];
static struct error err;

static uint32_t make(size_t n, uint32_t shapes, uint32_t configs, double bound)
{
    uint32_t members = 0;
    assert_int_equal(
        portfolio_choose_members(pairs, n, shapes, configs, bound, choices, &members, &err), 0);
    return members;
}

static void one_config_that_is_good_enough_for_all(void **state)
{
    (void)state;
    size_t n = 0;
    for (uint32_t s = 0; s < 4; s++) { /* each shape's own best, and config 4 that is 4 % slower */
        pairs[n++] = (struct portfolio_pair){s, s, 100};
        pairs[n++] = (struct portfolio_pair){s, 4, 104};
    }
    assert_int_equal(make(n, 4, 5, 0.05), 1);
    for (int s = 0; s < 4; s++) {
        assert_int_equal(choices[s].config, 4);
        assert_true(fabs(choices[s].regret - 0.04) < 1e-12);
    }
    assert_int_equal(make(n, 4, 5, 0.03), 4);
    assert_int_equal(make(n, 4, 5, 0), 4);
    for (int s = 0; s < 4; s++) {
        assert_int_equal(choices[s].config, s);
        assert_true(choices[s].regret == 0);
    }
}

/* An unmeasured config is no answer for a shape. */
static void what_was_not_measured_covers_nothing(void **state)
{
    (void)state;
    pairs[0] = (struct portfolio_pair){0, 0, 1};
    pairs[1] = (struct portfolio_pair){1, 1, 1};
    assert_int_equal(make(2, 2, 2, 1000), 2);
}

/* Greedy takes {0,1,2,3} first, then needs both other sets, which make the first superfluous. */
static void superfluous_members_are_dropped(void **state)
{
    (void)state;
    static const uint8_t sets[3][4] = {{1, 2, 3, 4}, {0, 1, 2}, {3, 4, 5}};
    size_t n = 0;
    for (uint32_t c = 0; c < 3; c++) {
        for (size_t i = 0; i < (c == 0 ? 4 : 3); i++) {
            pairs[n++] = (struct portfolio_pair){sets[c][i], c, 1};
        }
    }
    assert_int_equal(make(n, 6, 3, 0), 2);
    for (int s = 0; s < 6; s++) {
        assert_int_equal(choices[s].config, s < 3 ? 1 : 2);
    }
}

static void ties_go_to_the_smaller_regret_then_the_first(void **state)
{
    (void)state;
    pairs[0] = (struct portfolio_pair){0, 0, 104};
    pairs[1] = (struct portfolio_pair){0, 1, 102};
    pairs[2] = (struct portfolio_pair){0, 2, 100};
    pairs[3] = (struct portfolio_pair){0, 3, 100};
    assert_int_equal(make(4, 1, 4, 0.05), 1);
    assert_int_equal(choices[0].config, 2);
}

static int backwards(const void *a, const void *b)
{
    const struct portfolio_pair *x = a, *y = b;
    return x->shape != y->shape ? (x->shape < y->shape ? 1 : -1) : (x->config < y->config ? 1 : -1);
}

/* Portfolios of random times cover every shape within the bound, without a superfluous member. */
static void random_ones(void **state)
{
    (void)state;
    struct rng rng = {7};
    for (int round = 0; round < 200; round++) {
        uint32_t shapes = (uint32_t)rng_in(&rng, 1, 40), configs = (uint32_t)rng_in(&rng, 1, 30);
        double bound = (double)rng_in(&rng, 0, 20) / 100;
        size_t n = 0;
        for (uint32_t s = 0; s < shapes; s++) {
            uint32_t sure = (uint32_t)rng_in(&rng, 0, configs - 1);
            for (uint32_t c = 0; c < configs; c++) {
                if (c == sure || rng_in(&rng, 0, 2) == 0) {
                    pairs[n++] = (struct portfolio_pair){s, c, (double)rng_in(&rng, 100, 130)};
                }
            }
        }
        uint32_t members = make(n, shapes, configs, bound), seen[MOST] = {0}, used = 0;
        for (uint32_t s = 0; s < shapes; s++) {
            assert_true(choices[s].regret >= 0 && choices[s].regret <= bound);
            assert_true(choices[s].place < members);
            used += seen[choices[s].config]++ == 0;
        }
        assert_true(used <= members && members <= shapes && members <= configs);
        memcpy(again, choices, sizeof(again));
        qsort(pairs, n, sizeof(pairs[0]), backwards);
        assert_int_equal(make(n, shapes, configs, bound), members);
        for (uint32_t s = 0; s < shapes; s++) {
            assert_int_equal(choices[s].config, again[s].config);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_config_that_is_good_enough_for_all),
        cmocka_unit_test(what_was_not_measured_covers_nothing),
        cmocka_unit_test(superfluous_members_are_dropped),
        cmocka_unit_test(ties_go_to_the_smaller_regret_then_the_first),
        cmocka_unit_test(random_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
