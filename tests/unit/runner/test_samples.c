/* SPDX-License-Identifier: Apache-2.0 */
/* The number of samples: no more than the scatter requires, and enough for a winner. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runner/job_inner.h"

#define LANDSCAPES "replay:" TEST_LANDSCAPES "/"

/* ---- scatter --------------------------------------------------------------------------------- */

static void test_scatter_is_that_of_launches_within_visits(void **state)
{
    (void)state;
    struct scatter s = {0};
    const double fast[] = {99, 100, 101}, slow[] = {198, 200, 202};
    assert_true(isinf(scatter_of(&s)));
    for (int i = 0; i < 2; i++) {
        scatter_add(&s, fast, 3);
        assert_true(isinf(scatter_of(&s))); /* too few to say */
        scatter_add(&s, slow, 3);
    }
    assert_true(fabs(scatter_of(&s) - 0.01) < 1e-9); /* kernels differ: no scatter */
    scatter_add(&s, fast, 1);
    scatter_add(&s, fast, 0);
    assert_true(fabs(scatter_of(&s) - 0.01) < 1e-9);
}

/* ---- searches -------------------------------------------------------------------------------- */

static void search(struct child *c, const char *landscape, const char *problem)
{
    char spec[512];
    char *folder = folder_make();
    struct tune_order *o = order_new(problem);
    snprintf(spec, sizeof(spec), LANDSCAPES "%s.jsonl", landscape);
    child_start(c, spec, folder, NULL);
    child_tune(c, o);
    if (!c->answered || c->error.code) {
        fail_msg("no result: %s", c->error.text);
    }
    order_free(o);
    folder_remove(folder);
}

/* Counts the good trials of a stage with `least` to `most` samples. */
static uint32_t count_samples(const struct child *c, const char *stage, uint32_t least,
                              uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_trials; i++) {
        const struct trial *t = &c->trials[i];
        n += strcmp(t->stage, stage) == 0 && strcmp(t->status, "ok") == 0 &&
             t->samples_us.n >= least && t->samples_us.n <= most;
    }
    return n;
}

/* Launches take 2.6 ms with a scatter of 0.1 %. When the scatter is known, a single sample is
 * enough. */
static void test_long_launches_that_agree_are_few(void **state)
{
    (void)state;
    struct child c;
    search(&c, "mixtral-8x7b-gate_up-4096-forward",
           "grouped_gemm mode=forward M=8192 N=28672 K=4096 experts=8 topk=2 permute_x=true");
    uint32_t good = count_trials(&c, "measure", "ok");
    assert_int_equal(count_samples(&c, "measure", 1, 3), good);
    assert_in_range(count_samples(&c, "measure", 2, 3), 3, 6);
    assert_true(count_samples(&c, "measure", 1, 1) > good / 2);
    const struct trial *t = find_trial(&c, &c.result.config, "final");
    assert_non_null(t);
    assert_in_range(t->samples_us.n, SAMPLES_ENOUGH,
                    7); /* two rounds of four finalists, then the winner alone */
    assert_true(count_samples(&c, "final", 2, 4) > 0);
    child_end(&c);
}

/* Launches take 0.2 ms with a scatter of 1 %: a trial has as many samples as fit in 3 ms. */
static void test_short_launches_are_as_many_as_fit(void **state)
{
    (void)state;
    struct child c;
    search(&c, "qwen3-30b-a3b-gate_up-512-dW",
           "grouped_gemm mode=dW M=4096 N=1536 K=2048 experts=128 topk=8 permute_x=true");
    uint32_t good = count_trials(&c, "measure", "ok");
    assert_true(good > 10);
    assert_int_equal(count_samples(&c, "measure", 5, 7), good);
    child_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scatter_is_that_of_launches_within_visits),
        cmocka_unit_test(test_long_launches_that_agree_are_few),
        cmocka_unit_test(test_short_launches_are_as_many_as_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
