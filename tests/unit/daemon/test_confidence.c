/* SPDX-License-Identifier: Apache-2.0 */
/* The doubts that lower the confidence of an answer: each alone, and several together. */
#include <math.h>

#include "common.h"
#include "daemon/cache/answer.h"

enum { DAY = 86400, NOW = 1795225315 };

static struct answer answer;
static struct best best;
static struct trial trial;
static struct run run;
static struct device_info device;
static struct evidence e;
static struct confidence c;

/* An answer without doubts. */
static int setup(void **state)
{
    (void)state;
    answer_init(&answer);
    strcpy(answer.tier, "exact");
    answer.saved = true;
    best = (struct best){.time_us = 80,
                         .spread = 0.01,
                         .reference_us = 100,
                         .measured = 48,
                         .created_s = NOW - 3 * DAY};
    strcpy(best.source, "tuned");
    trial = (struct trial){.samples_us.n = 20};
    run = (struct run){.id = 1};
    strcpy(run.driver, "580.1");
    strcpy(device.driver, "580.1");
    e = (struct evidence){.answer = &answer,
                          .best = &best,
                          .trial = &trial,
                          .run = &run,
                          .device = &device,
                          .now_s = NOW};
    return 0;
}

static void expect(const char *level, const char *words)
{
    confidence_judge(&c, &e);
    assert_string_equal(c.level, level);
    if (words) {
        assert_true(c.n >= 1);
        if (!strstr(c.doubts[0], words)) {
            fail_msg("'%s' has no '%s'", c.doubts[0], words);
        }
    } else {
        assert_int_equal(c.n, 0);
    }
}

static void no_answer_is_not_doubted(void **state)
{
    (void)state;
    answer_init(&answer);
    e = (struct evidence){.answer = &answer, .device = &device, .kept_only = true, .now_s = NOW};
    expect("none", NULL);
}

static void an_answer_without_doubts_has_high_confidence(void **state)
{
    (void)state;
    expect("high", NULL);
    best.spread = best.reference_us = NAN; /* an unknown value raises no doubt */
    expect("high", NULL);
}

static void one_doubt_each(void **state)
{
    best.measured = 7;
    expect("medium", "only 7 configs");
    setup(state);
    best.spread = 0.051;
    expect("medium", "spread by 5.1 %");
    setup(state);
    best.reference_us = 79;
    expect("medium", "analytic default was faster");
    setup(state);
    best.created_s = NOW - 181 * (int64_t)DAY;
    expect("medium", "181 days old");
    setup(state);
    strcpy(best.doubt, "the GPU was throttled (thermal) at 90 C and 900 MHz");
    expect("medium", "throttled (thermal)");
    setup(state);
    trial.samples_us.n = 4;
    expect("medium", "timed 4 times");
    setup(state);
    strcpy(device.driver, "590.2");
    expect("medium", "driver 580.1, and this is 590.2");
    setup(state);
    answer.saved = false;
    expect("medium", "in memory only");
    setup(state);
    e.quarantined = true;
    expect("medium", "at another key");
    setup(state);
    e.trial = NULL;
    e.run = NULL;
    expect("medium", "no longer kept");
}

static void doubts_add_up(void **state)
{
    (void)state;
    best.measured = 2;
    best.spread = 0.2;
    expect("low", "only 2 configs");
    assert_int_equal(c.n, 2);
}

/* `why`, notes and lists use the same confidence. A row whose note already has the reason
 * still has a low confidence, and the reason is not repeated. */
static void a_row_that_is_low_says_so_and_stays_low(void **state)
{
    (void)state;
    char says[DOUBT_MAX];
    assert_false(confidence_is_low(&best, says));
    assert_string_equal(says, "");
    strcpy(best.doubt, "the GPU was throttled (thermal) at 90 C and 900 MHz");
    assert_false(confidence_is_low(&best, says)); /* a single doubt */
    assert_string_equal(says, best.doubt);
    best.spread = 0.06;
    for (int i = 0; i < 3; i++) {
        assert_true(confidence_is_low(&best, says));
        assert_ptr_equal(strstr(says, CONFIDENCE_LOW), says);
        assert_non_null(strstr(says, "spread by 6.0 %"));
        assert_non_null(strstr(says, "throttled"));
        assert_null(strstr(says + 1, CONFIDENCE_LOW));
        strcpy(best.doubt, says);
    }
    expect("low", "spread by 6.0 %");
    setup(state);
    best.spread = 2.56; /* a single grave doubt */
    expect("low", "spread by 256.0 %");
    assert_true(confidence_is_low(&best, says));
}

static void a_note_ends_with_a_whole_clause(void **state)
{
    (void)state;
    char says[DOUBT_MAX];
    best.measured = 3;
    best.spread = 0.051;
    best.reference_us = best.time_us / 2;
    assert_true(confidence_is_low(&best, says));
    assert_string_equal(says,
                        CONFIDENCE_LOW "only 3 configs were measured for this key; its "
                                       "samples spread by 5.1 %: something disturbed the device");
}

/* A pin has high confidence although only one config was measured: a person chose this config. */
static void a_pin_is_not_a_short_search(void **state)
{
    (void)state;
    strcpy(best.source, "manual");
    best.measured = 1;
    expect("high", NULL);
}

static void lower_tiers(void **state)
{
    (void)state;
    strcpy(answer.tier, "near");
    expect("low", "not measured for this problem");
    strcpy(answer.tier, "default");
    expect("none", "nothing is measured");
    setup(state);
    e.kept_only = true;
    e.trial = NULL;
    expect("medium", "witness");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(no_answer_is_not_doubted, setup),
        cmocka_unit_test_setup(an_answer_without_doubts_has_high_confidence, setup),
        cmocka_unit_test_setup(one_doubt_each, setup),
        cmocka_unit_test_setup(doubts_add_up, setup),
        cmocka_unit_test_setup(a_row_that_is_low_says_so_and_stays_low, setup),
        cmocka_unit_test_setup(a_note_ends_with_a_whole_clause, setup),
        cmocka_unit_test_setup(a_pin_is_not_a_short_search, setup),
        cmocka_unit_test_setup(lower_tiers, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
