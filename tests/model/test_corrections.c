/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The corrections that the model of the target "hopper" learns from landscapes: they apply where
 * they should, a known error is found, and the committed corrections are learnt from the committed
 * landscapes.
 *
 *   test_corrections FOLDER...
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/family.h"
#include "tests/model/learn.h"

static int n_folders;
static char **folders;
static struct lectures lectures;
static struct hopper_corrections lessons;

static int open_all(void **state)
{
    (void)state;
    for (int i = 0; i < n_folders; i++) {
        assert_true(lectures_add(&lectures, folders[i]));
    }
    assert_true(lectures.n >= 40);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    lectures_close(&lectures);
    hopper_corrections_used = &hopper_corrections_h200;
    return 0;
}

/* A config has at most one trait of each group. Traits are in rising order, below HOPPER_TRAITS. */
static void test_traits(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < lectures.n; i++) {
        const struct lecture *l = &lectures.all[i];
        for (uint32_t k = 0; k < l->n; k++) {
            uint16_t traits[HOPPER_TRAITS_MOST];
            uint32_t n = hopper_traits(&l->facts, &l->tiles[k], traits);
            assert_in_range(n, 10, HOPPER_TRAITS_MOST);
            for (uint32_t t = 0; t < n; t++) {
                assert_true(traits[t] < HOPPER_TRAITS);
                assert_true(t == 0 || traits[t] > traits[t - 1]);
            }
        }
    }
}

static struct lecture *find(const char *name)
{
    for (uint32_t i = 0; i < lectures.n; i++) {
        if (strcmp(lectures.all[i].name, name) == 0) {
            return &lectures.all[i];
        }
    }
    fail_msg("there is no landscape %s", name);
    return NULL;
}

static uint32_t last_trait(const struct hopper_facts *f, const struct hopper_tile *t)
{
    uint16_t traits[HOPPER_TRAITS_MOST];
    return traits[hopper_traits(f, t, traits) - 1];
}

/* If columns straddle 256 bytes, a tile's time is learnt separately for gathered rows and rows in
 * order; otherwise together. */
static void test_straddling(void **state)
{
    (void)state;
    const struct lecture *l = find("gpt-oss-20b-down-512-dW");
    struct hopper_facts f = l->facts;
    struct hopper_tile gathered = l->tiles[0], in_order = l->tiles[0];
    gathered.gather = true;
    in_order.gather = false;
    assert_int_not_equal(last_trait(&f, &gathered), last_trait(&f, &in_order));
    f.v.k = 2944; /* 5,888 bytes: 23 times 256 */
    assert_int_equal(last_trait(&f, &gathered), last_trait(&f, &in_order));
}

static bool is_corrected(const struct hopper_facts *f, const struct lecture *l)
{
    bool any = false;
    for (uint32_t k = 0; k < l->n; k++) {
        any =
            any || hopper_expected(f, &l->tiles[k]) != hopper_time(f, &l->tiles[k], hopper_fitted);
    }
    return any;
}

/* The corrections do not apply to problems with many rows of an expert, to dense products, or
 * without learnt corrections: then the predicted time is hopper_time()'s. */
static void test_where(void **state)
{
    (void)state;
    const struct lecture *l = find("qwen3-30b-a3b-gate_up-4096-dW");
    hopper_corrections_used = &hopper_corrections_h200;
    struct hopper_facts f = l->facts;
    assert_true(is_corrected(&f, l));
    f.v.m *= 4; /* 1024 rows per expert */
    assert_true(is_corrected(&f, l));
    f.v.m *= 2;
    assert_false(is_corrected(&f, l));
    f = l->facts;
    f.v.m = 512;
    f.v.experts = 1;
    assert_false(is_corrected(&f, l));
    hopper_corrections_used = NULL;
    assert_false(is_corrected(&l->facts, l));
}

/* Times of tiles with four stages are made a tenth longer than the model says. Corrections learnt
 * from other language models' landscapes predict this. */
static void test_known_error(void **state)
{
    (void)state;
    struct lectures made = {.n = lectures.n};
    const char *weights = "qwen3-30b-a3b";
    made.all = calloc(made.n, sizeof(*made.all));
    assert_non_null(made.all);
    for (uint32_t i = 0; i < made.n; i++) {
        struct lecture *l = &made.all[i];
        *l = lectures.all[i];
        l->us = calloc(l->n, sizeof(*l->us));
        assert_non_null(l->us);
        for (uint32_t k = 0; k < l->n; k++) {
            l->us[k] = hopper_time(&l->facts, &l->tiles[k], hopper_fitted) *
                       (l->tiles[k].stages == 4 ? 1.1 : 1);
        }
    }
    assert_true(learn(&made, weights, &lessons));
    hopper_corrections_used = &lessons;
    for (uint32_t i = 0; i < made.n; i++) {
        const struct lecture *l = &made.all[i];
        double with = 0, without = 0;
        uint32_t n_with = 0, n_without = 0;
        for (uint32_t k = 0; strncmp(l->name, weights, strlen(weights)) == 0 && k < l->n; k++) {
            double by = log(hopper_expected(&l->facts, &l->tiles[k]) /
                            hopper_time(&l->facts, &l->tiles[k], hopper_fitted));
            bool four = l->tiles[k].stages == 4;
            with += four ? by : 0;
            without += four ? 0 : by;
            n_with += four;
            n_without += !four;
        }
        if (n_with > 0 && n_without > 0) {
            const double found = with / n_with - without / n_without;
            if (fabs(found - log(1.1)) > 0.02) {
                fail_msg("%s: %.3f", l->name, found);
            }
        }
        free(l->us);
    }
    free(made.all);
}

/* Returns the config that is expected to be fastest, and marks it, so that the next call returns
 * another. */
static uint32_t take_fastest(double *expected, uint32_t n)
{
    uint32_t least = 0;
    for (uint32_t k = 1; k < n; k++) {
        least = expected[k] < expected[least] ? k : least;
    }
    expected[least] = INFINITY;
    return least;
}

/* For a recorded problem with permute_copy: how much slower than the best such config is the best
 * of the eight that the corrections expect to be fastest when rows need no gathering. Negative: no
 * config has permute_copy. */
static double miss_without_gather(const struct lecture *l)
{
    struct hopper_facts f = l->facts;
    double *expected = calloc(l->n, sizeof(*expected)), *us = calloc(l->n, sizeof(*us));
    double best = INFINITY, found = INFINITY;
    uint32_t n = 0;
    assert_true(expected && us);
    f.v.permute_x = f.v.permute_y = f.v.gather_x = f.v.gather_dy = false;
    f.v.x_rows = f.v.m;
    for (uint32_t k = 0; k < l->n; k++) {
        struct hopper_tile t = l->tiles[k];
        if (t.permute_copy) {
            t.permute_copy = false;
            expected[n] = hopper_expected(&f, &t);
            us[n] = l->us[k];
            best = fmin(best, us[n++]);
        }
    }
    for (uint32_t i = 0; i < 8 && i < n; i++) {
        found = fmin(found, us[take_fastest(expected, n)]);
    }
    free(expected);
    free(us);
    return n > 0 ? found / best - 1 : -1;
}

/* Times of gathering kernels say nothing about kernels without gather. Corrections of the latter
 * are learnt from kernels with permute_copy, which read rows in order. (Configs chosen by gathering
 * kernels' times were 3.4 per cent slower than the best.) */
static void test_without_gather(void **state)
{
    (void)state;
    double sum = 0;
    int n = 0;
    hopper_corrections_used = &hopper_corrections_h200;
    for (uint32_t i = 0; i < lectures.n; i++) {
        const double miss = miss_without_gather(&lectures.all[i]);
        sum += fmax(miss, 0);
        n += miss >= 0;
    }
    assert_true(n >= 30);
    if (sum / n > 0.015) {
        fail_msg("%d problems miss %.2f per cent in the mean", n, 100 * sum / n);
    }
}

/* The committed corrections differ a little from the learnt ones: `teach` writes five digits, and
 * another machine adds up in another order. */
static void test_committed(void **state)
{
    (void)state;
    assert_true(learn(&lectures, NULL, &lessons));
    for (int mode = 0; mode < HOPPER_MODES; mode++) {
        for (uint32_t t = 0; t < HOPPER_TRAITS; t++) {
            for (int a = 0; a < HOPPER_ASPECTS; a++) {
                float now = lessons.by[mode][t][a], then = hopper_corrections_h200.by[mode][t][a];
                if (fabsf(now - then) > 1e-4f) {
                    fail_msg("trait %u of mode %d: %g, committed is %g: run tests/model/refit.py",
                             t, mode, (double)now, (double)then);
                }
            }
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traits),         cmocka_unit_test(test_straddling),
        cmocka_unit_test(test_where),          cmocka_unit_test(test_known_error),
        cmocka_unit_test(test_without_gather), cmocka_unit_test(test_committed),
    };
    n_folders = argc - 1;
    folders = argv + 1;
    families_register();
    return cmocka_run_group_tests(tests, open_all, close_all);
}
