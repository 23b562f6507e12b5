/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions of the minimum-improvement gate, and the texts that explain them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runner/job_inner.h"

enum { FORMER = 3, OTHER = 7, ROUNDS = 5 };

struct decision {
    const char *name;
    uint32_t winner;
    /* time of the other config in the median round, in which the former best takes 100 us; 0: no
     * other config came near */
    double other_us;
    bool former_failed, keeps;
    const char *says;
};

static const struct decision decisions[] = {
    {"clearly faster", OTHER, 97, false, false,
     "replaces the former best: 3.00 % faster in the same finals (more than 1 %)"},
    {"not by enough", OTHER, 99.5, false, true,
     "the former best stays: the winner was 0.50 % faster in the same finals, not faster by more "
     "than 1 %"},
    {"a winner by its mean", OTHER, 102, false, true,
     "the former best stays: the winner was 2.00 % slower in the same finals, not faster by more "
     "than 1 %"},
    {"won again", FORMER, 102, false, true,
     "the former best stays: it won again; the next was 2.00 % slower"},
    {"won by what decides, not in the median round", FORMER, 99.5, false, true,
     "the former best stays: it won again; the next was 0.50 % faster, which is noise of the "
     "finals"},
    {"alone", FORMER, 0, false, true, "the former best stays: nothing else came near it"},
    {"failed", OTHER, 105, true, false, "replaces the former best, which failed in this run"},
};

static void test_decisions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(decisions) / sizeof(decisions[0]); i++) {
        const struct decision *v = &decisions[i];
        const struct tune_order order = {.min_gain = 1};
        struct job job = {.order = &order, .former = FORMER};
        /* Drift affects both configs: each round has another speed, and a round is disturbed. */
        const double drift[ROUNDS] = {1, 1.3, 0.7, 1.1, 0.9};
        double other[ROUNDS], former[ROUNDS];
        for (int r = 0; r < ROUNDS; r++) {
            other[r] = v->other_us * drift[r] * (r == 1 ? 2 : 1);
            former[r] = 100 * drift[r];
        }
        print_message("%s\n", v->name);
        assert_int_equal(gate_keeps(&job, v->winner, v->other_us > 0 ? other : NULL,
                                    v->former_failed ? NULL : former, ROUNDS),
                         v->keeps);
        assert_string_equal(job.gate, v->says);
    }
}

static void test_without_a_former_best_nothing_is_kept(void **state)
{
    (void)state;
    const struct tune_order order = {.min_gain = 1};
    struct job job = {.order = &order, .former = PLAN_NONE};
    const double us[] = {100};
    assert_false(gate_keeps(&job, OTHER, us, us, 1));
    assert_string_equal(job.gate, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions),
        cmocka_unit_test(test_without_a_former_best_nothing_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
