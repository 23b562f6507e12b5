/* SPDX-License-Identifier: Apache-2.0 */
/* Earlier results in a search: the key's earlier best is measured and defended (gate.c) unless it
 * cannot run. The same seed gives the same run. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/family.h"
#include "runner/runner.h"

#define PROBLEM   "grouped_gemm mode=forward M=256 N=256 K=256 experts=4 topk=2"
#define SYNTHETIC "replay:" TEST_DATA "/synthetic.jsonl"

static const char *const strategies[] = {"ranked", "exhaustive", "random", "genetic"};
enum { STRATEGIES = sizeof(strategies) / sizeof(strategies[0]), BUDGET = 40 };

static char *cache;

static int make_cache(void **state)
{
    (void)state;
    cache = folder_make();
    return 0;
}

static int remove_cache(void **state)
{
    (void)state;
    folder_remove(cache);
    return 0;
}

static struct tune_order *order(const char *strategy, int64_t seed)
{
    struct tune_order *o = order_new(PROBLEM);
    o->request.query.budget = BUDGET;
    o->request.query.seed = seed;
    snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "%s", strategy);
    return o;
}

static void run(struct child *c, struct tune_order *o)
{
    child_start(c, SYNTHETIC, cache, (const char *const[]){"--compile-threads", "2", NULL});
    child_tune(c, o);
    if (!c->answered || c->error.code) {
        fail_msg("no result: %s", c->error.text);
    }
    order_free(o);
}

/* ---- the former best ------------------------------------------------------------------------- */

/* Runs a first search: *best becomes its winner, *worst its slowest working config. */
static void first_search(struct trial *best, struct trial *worst)
{
    struct child c;
    run(&c, order("exhaustive", 3));
    *best = *find_trial(&c, &c.result.config, NULL);
    *worst = *best;
    assert_string_equal(c.result.gate, "");
    for (uint32_t i = 0; i < c.n_trials; i++) {
        bool measured =
            strcmp(c.trials[i].status, "ok") == 0 || strcmp(c.trials[i].status, "aborted") == 0;
        if (measured && c.trials[i].time_us > worst->time_us) {
            *worst = c.trials[i];
        }
    }
    child_end(&c);
}

static struct tune_order *defend(const struct record *former, double min_gain)
{
    struct tune_order *o = order("ranked", 3);
    record_copy(&o->former, former);
    o->min_gain = min_gain;
    return o;
}

static void test_the_former_best_is_measured_in_full_and_stays_within_the_margin(void **state)
{
    (void)state;
    struct trial best, worst;
    struct child c;
    first_search(&best, &worst);
    run(&c, defend(&worst.config, 100)); /* min_gain of 100 %: no config saves all time */
    assert_true(record_equal(&c.result.config, &worst.config));
    assert_non_null(strstr(c.result.gate, "stays"));
    const struct trial *t = find_trial(&c, &worst.config, "measure");
    assert_string_equal(t->status, "ok"); /* never stopped early */
    t = find_trial(&c, &worst.config, "final");
    assert_non_null(t);
    assert_string_equal(t->reason, c.result.gate);
    assert_true(t->samples_us.n >= 4 * 2); /* measured in all rounds of the finals */
    assert_int_equal(count_trials(&c, "measure", NULL), BUDGET);
    child_end(&c);
    run(&c, defend(&worst.config, 1));
    assert_false(record_equal(&c.result.config, &worst.config));
    assert_non_null(strstr(c.result.gate, "replaces"));
    child_end(&c);
}

static void must_be_replaced(struct child *c, const struct record *former, const char *why)
{
    assert_false(record_equal(&c->result.config, former));
    assert_null(find_trial(c, former, NULL));
    if (!strstr(c->result.gate, "cannot run any more") || !strstr(c->result.gate, why)) {
        fail_msg("'%s' does not speak of %s", c->result.gate, why);
    }
    const struct trial *t = find_trial(c, &c->result.config, "final");
    assert_non_null(t);
    assert_string_equal(t->reason, c->result.gate);
    child_end(c);
}

static void test_one_that_cannot_run_defends_nothing(void **state)
{
    (void)state;
    struct trial best, worst;
    struct child c;
    struct error err;
    first_search(&best, &worst);
    struct tune_order *o = defend(&best.config, 100);
    order_avoid(o, best.variant);
    run(&c, o);
    must_be_replaced(&c, &best.config, "quarantine shows why");

    struct record illegal;
    assert_int_equal(record_parse(&illegal,
                                  "BLOCK_SIZE_M=512 BLOCK_SIZE_N=512 BLOCK_SIZE_K=256 "
                                  "GROUP_SIZE_M=8 num_stages=5 num_warps=4",
                                  &err),
                     0);
    run(&c, defend(&illegal, 100));
    must_be_replaced(&c, &illegal, "");
}

static void test_a_long_reason_is_cut_behind_a_word(void **state)
{
    (void)state;
    struct record unknown;
    struct child c;
    struct error err;
    struct rejection why;
    assert_int_equal(record_parse(&unknown, "BLOCK_SIZE_M=64 no_parameter=1", &err), 0);
    run(&c, defend(&unknown, 100));
    struct tune_order *o = order_new(PROBLEM);
    const struct family_target *t =
        family_target_find(family_find("grouped_gemm"), &c.device, "portable");
    assert_true(t->check(&o->request.problem, &unknown, &c.device, &why) != 0);
    order_free(o);

    char said[GATE_TEXT_MAX];
    strcpy(said, strstr(c.result.gate, ": ") + strlen(": "));
    size_t n = strlen(said) - strlen("...");
    assert_string_equal(said + n, "...");
    assert_true(strlen(why.text) > n && why.text[n] == ' ');
    said[n] = '\0';
    must_be_replaced(&c, &unknown, said);
    why.text[n] = '\0';
    assert_string_equal(said, why.text);
}

/* ---- results of an earlier run --------------------------------------------------------------- */

/* An earlier run ended after it had measured its reference: its ratios were measured while other
 * programs loaded the device differently. */
static void test_a_ratio_of_another_load_wins_nothing(void **state)
{
    (void)state;
    struct trial best, done[2];
    struct child c;
    first_search(&best, &done[1]);
    run(&c, order("ranked", 3));
    done[0] = c.trials[0];
    assert_true(done[0].reference);
    child_end(&c);
    snprintf(done[1].status, sizeof(done[1].status), "ok");
    done[1].ratio = 0.01; /* a wrong ratio: the config is the slowest */
    struct tune_order *o = order("ranked", 3);
    order_done(o, done, 2);
    run(&c, o);
    assert_true(count_trials(&c, "measure", "aborted") == count_trials(&c, "measure", NULL));
    assert_non_null(find_trial(&c, &done[1].config, "final"));
    assert_false(record_equal(&c.result.config, &done[1].config));
    for (uint32_t i = 0; i < c.n_trials; i++) {
        const struct trial *t = &c.trials[i];
        assert_true(!isfinite(t->time_us) || c.result.time_us <= 1.03 * t->time_us);
    }
    child_end(&c);
}

/* ---- the yardstick --------------------------------------------------------------------------- */

/* Ratios of finals are to the reference's time in the same finals, not to its first measurement. */
static void test_a_final_compares_with_the_reference_of_its_rounds(void **state)
{
    (void)state;
    struct child c;
    run(&c, order("ranked", 3));
    assert_true(c.trials[0].reference);
    struct record reference = c.trials[0].config;
    child_end(&c);
    run(&c, defend(&reference, 0)); /* the reference defends, so it is a finalist */
    const struct trial *first = find_trial(&c, &reference, "measure");
    const struct trial *turn = find_trial(&c, &reference, "final");
    assert_true(turn && turn->reference && turn->time_us != first->time_us); /* differ by noise */
    assert_true(turn->ratio == 1 && first->ratio == 1);
    const struct trial *winner = find_trial(&c, &c.result.config, "final");
    assert_true(winner != turn && winner->ratio == winner->time_us / turn->time_us);
    assert_true(c.result.reference_us == turn->time_us);
    child_end(&c);
}

/* Finalists are at most six configs within 3 % of the best; the winner is within 0.3 % of the
 * fastest. A winner that no config comes near needs no final. */
static void test_the_fastest_finalist_wins_within_a_tie(void **state)
{
    (void)state;
    int with_finals = 0;
    for (int seed = 1; seed <= 8; seed++) {
        struct child c;
        int finalists = 0;
        double best = INFINITY;
        run(&c, order("random", seed));
        for (uint32_t i = 0; i < c.n_trials; i++) {
            const struct trial *t = &c.trials[i];
            if (strcmp(t->stage, "final") == 0 && strcmp(t->status, "ok") == 0) {
                finalists++;
                best = t->ratio < best ? t->ratio : best;
                assert_non_null(find_trial(&c, &t->config, "measure"));
            }
        }
        const struct trial *winner =
            find_trial(&c, &c.result.config, finalists ? "final" : "measure");
        assert_true(finalists <= 6 && winner && c.result.time_us == winner->time_us);
        assert_true(!finalists || winner->ratio <= best * 1.003);
        with_finals += finalists > 1;
        child_end(&c);
    }
    assert_true(with_finals >= 2);
}

/* ---- the same seed --------------------------------------------------------------------------- */

static bool same_trials(const struct child *a, const struct child *b)
{
    bool same = a->n_trials == b->n_trials;
    for (uint32_t i = 0; same && i < a->n_trials; i++) {
        const struct trial *x = &a->trials[i], *y = &b->trials[i];
        same = record_equal(&x->config, &y->config) && strcmp(x->stage, y->stage) == 0 &&
               strcmp(x->status, y->status) == 0 &&
               (x->time_us == y->time_us || strcmp(x->status, "ok") != 0);
    }
    return same;
}

/* Runs with an empty cache: modules that exist would be measured sooner. */
static void run_anew(struct child *c, struct tune_order *o)
{
    folder_remove(cache);
    cache = folder_make();
    run(c, o);
}

/* Two runs with the same seed have the same trials in the same order, with the same times. */
static void test_the_same_seed_is_the_same_run(void **state)
{
    (void)state;
    for (int i = 0; i < STRATEGIES; i++) {
        struct child a, b;
        run_anew(&a, order(strategies[i], 11));
        run_anew(&b, order(strategies[i], 11));
        assert_true(a.n_trials >= BUDGET);
        assert_true(same_trials(&a, &b));
        assert_true(record_equal(&a.result.config, &b.result.config));
        assert_true(a.result.time_us == b.result.time_us);
        child_end(&a);
        child_end(&b);
    }
}

/* With another seed random strategies draw differently: so the comparison above can fail. */
static void test_another_seed_is_another_run(void **state)
{
    (void)state;
    for (int i = 2; i < STRATEGIES; i++) {
        struct child a, b;
        run_anew(&a, order(strategies[i], 11));
        run_anew(&b, order(strategies[i], 12));
        assert_false(same_trials(&a, &b));
        child_end(&a);
        child_end(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_former_best_is_measured_in_full_and_stays_within_the_margin),
        cmocka_unit_test(test_one_that_cannot_run_defends_nothing),
        cmocka_unit_test(test_a_long_reason_is_cut_behind_a_word),
        cmocka_unit_test(test_a_ratio_of_another_load_wins_nothing),
        cmocka_unit_test(test_a_final_compares_with_the_reference_of_its_rounds),
        cmocka_unit_test(test_the_fastest_finalist_wins_within_a_tie),
        cmocka_unit_test(test_the_same_seed_is_the_same_run),
        cmocka_unit_test(test_another_seed_is_another_run),
    };
    return cmocka_run_group_tests(tests, make_cache, remove_cache);
}
