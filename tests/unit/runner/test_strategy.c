/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/space.h"
#include "runner/strategy/strategy.h"

enum { N = 40 };

/* A space with a single parameter, of `n` points: candidate i is point[i]. */
static const struct grid *make_grid(const uint32_t point[], uint32_t n)
{
    static struct space_point points[N];
    static struct space space = {.n_params = 1, .points = points};
    static struct grid grid;
    space.params[0] = (struct param){.name = "num_stages", .n = N};
    space.n = n;
    for (uint32_t i = 0; i < N; i++) {
        points[i].at[0] = (uint8_t)i;
    }
    grid_deinit(&grid);
    assert_int_equal(grid_init(&grid, &space, point, n, NULL), 0);
    return &grid;
}

static struct strategy *open_strategy(const char *name, uint32_t n, uint32_t budget, uint64_t seed)
{
    static double predicted[N];
    static uint32_t point[N];
    for (uint32_t i = 0; i < N; i++) {
        predicted[i] = 10 + i;
        point[i] = i;
    }
    struct strategy_setup setup = {.n = n,
                                   .predicted_us = predicted,
                                   .grid = make_grid(point, n),
                                   .budget = budget,
                                   .seed = seed};
    struct strategy *s;
    struct error err;
    assert_int_equal(strategy_open(name, &setup, &s, &err), 0);
    return s;
}

static void observe(struct strategy *s, uint32_t c, bool ok)
{
    strategy_observe(s, c, &(struct observation){.ok = ok, .score = 1});
}

/* Takes proposals until the end, and observes each at once. Returns the count. */
static uint32_t walk(struct strategy *s, uint32_t order[N], bool ok)
{
    uint32_t n = 0;
    while (s->ops->propose(s, &order[n]) == 0) {
        observe(s, order[n++], ok);
    }
    return n;
}

static void test_names(void **state)
{
    (void)state;
    struct strategy *s;
    struct error err;
    assert_int_equal(strategy_open("simulated_annealing", &(struct strategy_setup){0}, &s, &err),
                     ERROR_INVALID);
    s = open_strategy("", N, 5, 1);
    assert_ptr_equal(s->ops, &ranked_strategy);
    strategy_close(s);
}

static void test_never_twice_and_budget(void **state)
{
    (void)state;
    const struct {
        const char *name;
        uint32_t budget, expected;
    } cases[] = {
        {"ranked", 7, 7},     {"ranked", 100, N},   {"random", 7, 7}, {"genetic", 9, 9},
        {"exhaustive", 0, N}, {"exhaustive", 5, 5}, {"given", 0, N},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct strategy *s = open_strategy(cases[i].name, N, cases[i].budget, 1);
        uint32_t order[N + 1], n = walk(s, order, true);
        bool seen[N] = {0};
        assert_int_equal(n, cases[i].expected);
        for (uint32_t k = 0; k < n; k++) {
            assert_true(order[k] < N && !seen[order[k]]);
            seen[order[k]] = true;
        }
        assert_int_equal(s->ops->propose(s, order), STRATEGY_DONE);
        strategy_close(s);
    }
}

static void test_exhaustive_is_in_order(void **state)
{
    (void)state;
    struct strategy *s = open_strategy("exhaustive", N, N, 9);
    uint32_t order[N + 1];
    assert_int_equal(walk(s, order, true), N);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(order[i], i);
    }
    strategy_close(s);
}

static void test_random_is_its_seed(void **state)
{
    (void)state;
    uint32_t a[N + 1], b[N + 1], c[N + 1];
    struct strategy *s = open_strategy("random", N, N, 5);
    walk(s, a, true);
    strategy_close(s);
    s = open_strategy("random", N, N, 5);
    walk(s, b, true);
    strategy_close(s);
    s = open_strategy("random", N, N, 6);
    walk(s, c, true);
    strategy_close(s);
    assert_memory_equal(a, b, N * sizeof(a[0]));
    assert_memory_not_equal(a, c, N * sizeof(a[0]));
}

/* Measured device parameters change the model's ranks, but not the configs that a seed draws. */
static void test_random_is_of_the_space(void **state)
{
    (void)state;
    uint32_t found[2][N + 1];
    for (uint32_t ranking = 0; ranking < 2; ranking++) {
        uint32_t point[N];
        double predicted[N];
        for (uint32_t i = 0; i < N; i++) {
            point[i] = ranking == 0 ? i : (i * 7 + 3) % N;
            predicted[i] = 10 + i;
        }
        struct strategy_setup setup = {
            .n = N, .predicted_us = predicted, .budget = 9, .seed = 5, .grid = make_grid(point, N)};
        struct strategy *s;
        struct error err;
        assert_int_equal(strategy_open("random", &setup, &s, &err), 0);
        assert_int_equal(walk(s, found[ranking], true), 9);
        for (uint32_t i = 0; i < 9; i++) {
            found[ranking][i] = point[found[ranking][i]];
        }
        strategy_close(s);
    }
    assert_memory_equal(found[0], found[1], 9 * sizeof(found[0][0]));
}

/* All candidates fail: each proposal returns its budget once, then the search ends. */
static void test_failures_are_given_back_once(void **state)
{
    (void)state;
    struct strategy *s = open_strategy("ranked", N, 6, 1);
    uint32_t order[N + 1];
    assert_int_equal(walk(s, order, false), 12);
    strategy_close(s);
}

static void test_waits_while_a_proposal_may_fail(void **state)
{
    (void)state;
    struct strategy *s = open_strategy("exhaustive", N, 3, 1);
    uint32_t c[3], more;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s->ops->propose(s, &c[i]), 0);
    }
    assert_int_equal(s->ops->propose(s, &more), STRATEGY_WAIT);
    observe(s, c[2], true); /* out of order */
    assert_int_equal(s->ops->propose(s, &more), STRATEGY_WAIT);
    observe(s, c[0], false);
    assert_int_equal(s->ops->propose(s, &more), 0);
    assert_int_equal(more, 3);
    observe(s, c[1], true);
    observe(s, more, true);
    assert_int_equal(s->ops->propose(s, &more), STRATEGY_DONE);
    strategy_close(s);
}

/* A strategy also observes configs that it did not propose: hints, and trials of earlier runs. They
 * take nothing from its budget. */
static void test_what_was_not_proposed_is_passed_over_for_free(void **state)
{
    (void)state;
    struct strategy *s = open_strategy("exhaustive", N, 3, 1);
    observe(s, 0, true);
    observe(s, 2, false);
    uint32_t order[N + 1];
    assert_int_equal(walk(s, order, true), 3);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 3);
    assert_int_equal(order[2], 4);
    strategy_close(s);
}

static void test_what_is_coming_is_not_proposed(void **state)
{
    (void)state;
    const char *names[] = {"ranked", "random", "genetic", "exhaustive", "given"};
    const uint32_t coming[] = {4, 0, UINT32_MAX}, point[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const double predicted[] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct strategy *s;
        struct strategy_setup setup = {.n = 8,
                                       .predicted_us = predicted,
                                       .grid = make_grid(point, 8),
                                       .budget = 5,
                                       .coming = coming,
                                       .n_coming = 3};
        assert_int_equal(strategy_open(names[i], &setup, &s, NULL), 0);
        uint32_t order[N + 1], n = walk(s, order, true);
        assert_int_equal(n, 5);
        for (uint32_t k = 0; k < n; k++) {
            assert_true(order[k] != 4 && order[k] != 0);
        }
        observe(s, 4, false); /* later: returns no budget */
        assert_int_equal(s->ops->propose(s, order), STRATEGY_DONE);
        strategy_close(s);
    }
}

static void test_nothing(void **state)
{
    (void)state;
    const char *const names[] = {"ranked", "exhaustive", "random", "genetic", "given"};
    for (int i = 0; i < 5; i++) {
        uint32_t c;
        struct strategy *s = open_strategy(names[i], 0, 5, 1);
        assert_int_equal(s->ops->propose(s, &c), STRATEGY_DONE);
        strategy_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_never_twice_and_budget),
        cmocka_unit_test(test_exhaustive_is_in_order),
        cmocka_unit_test(test_random_is_its_seed),
        cmocka_unit_test(test_random_is_of_the_space),
        cmocka_unit_test(test_failures_are_given_back_once),
        cmocka_unit_test(test_waits_while_a_proposal_may_fail),
        cmocka_unit_test(test_what_was_not_proposed_is_passed_over_for_free),
        cmocka_unit_test(test_what_is_coming_is_not_proposed),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
