/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual host of a recorded device: the effect of compilers on a search's clock and trials. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/replay/replay.h"
#include "runner/compilers.h"

#define RECORDED TEST_LANDSCAPES "/mixtral-8x7b-gate_up-4096-forward.jsonl"

static double want(struct lanes *l, uint32_t variant, double ms, double now_ms)
{
    char hash[HASH_HEX];
    snprintf(hash, sizeof(hash), "%032x", variant);
    return lanes_want(l, hash, ms, now_ms);
}

static void test_as_many_compile_as_there_are(void **state)
{
    (void)state;
    struct lanes l = {0};
    for (uint32_t i = 0; i < LANES; i++) {
        assert_true(want(&l, i, 100 + i, 50) == 150 + i);
    }
    assert_true(want(&l, LANES, 30, 60) == 150 + 30);     /* begins when the first lane is done */
    assert_true(want(&l, LANES + 1, 30, 60) == 151 + 30); /* begins when the second lane is done */
    assert_true(want(&l, 3, 100, 900) == 153);            /* this variant was compiled before */
    /* the cache has this variant: no lane compiles */
    assert_true(want(&l, LANES + 2, 0, 70) == 70);
    free(l.builds);
}

static void test_waiting_is_time(void **state)
{
    (void)state;
    struct lanes l = {0};
    lanes_wait(&l, 250, lanes_now(&l, NULL));
    assert_true(lanes_now(&l, NULL) == 250);
    lanes_wait(&l, 200, lanes_now(&l, NULL)); /* 200 has passed */
    assert_true(lanes_now(&l, NULL) == 250);
}

static void tune(struct child *c, const char *problem, const char *cache)
{
    struct tune_order *o = order_new(problem);
    o->request.query.seed = 1;
    child_start(c, "replay:" RECORDED, cache, NULL);
    child_tune(c, o);
    assert_int_equal(c->error.code, 0);
    order_free(o);
}

/* The reference compiles twice as long as the other candidates, so they are measured first. Each
 * trial still gets its ratio to the reference. */
static void test_candidates_before_the_reference_get_a_ratio(void **state)
{
    (void)state;
    struct error err = ERROR_NULL;
    struct landscape *l;
    struct child c;
    char problem[1024], *cache = folder_make();
    assert_int_equal(landscape_load("replay:" RECORDED, &l, &err), 0);
    problem_format(&l->problems[0].problem, problem, sizeof(problem));
    landscape_free(l);
    tune(&c, problem, cache);
    const double cold_ms = c.result.wall_ms;
    const struct trial *reference = NULL;
    uint32_t sooner = 0; /* compiled */
    for (uint32_t i = 0; i < c.n_trials; i++) {
        const struct trial *t = &c.trials[i];
        reference = t->reference && !reference ? t : reference;
        assert_non_null(reference); /* the first reported trial */
        sooner += t->compile_ms > 0 && t->compile_ms < reference->compile_ms / 2;
        if (strcmp(t->stage, "measure") == 0) {
            assert_true(fabs(t->ratio - t->time_us / reference->time_us) < 1e-6);
        }
    }
    const double compile_ms = reference->compile_ms;
    assert_true(c.n_trials > 10 && sooner > 1);
    child_end(&c);
    tune(&c, problem, cache);
    assert_true(cold_ms > compile_ms && c.result.wall_ms < cold_ms);
    child_end(&c);
    folder_remove(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_many_compile_as_there_are),
        cmocka_unit_test(test_waiting_is_time),
        cmocka_unit_test(test_candidates_before_the_reference_get_a_ratio),
    };
    families_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
