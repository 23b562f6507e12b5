/* SPDX-License-Identifier: Apache-2.0 */
/* A search in a forked runner, with the test as gemmd: budgets, hints, restrictions, ties, targets,
 * and a search that resumes. The replay device gives exact results. */
#include "orders.h"

/* ---- time ------------------------------------------------------------------------------------ */

/* With each of four strategies, a search begins no more work after its wall time, and has an
 * answer. A second search that gets the first search's trials measures other configs. */
static void test_wall_time_ends_any_search(void **state)
{
    (void)state;
    const char *const names[] = {"ranked", "exhaustive", "random", "genetic"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct child c, second;
        struct tune_order *o = order_new(SMALL);
        o->request.query.budget = 40;
        o->request.query.wall_ms = 1;
        snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "%s", names[i]);
        start(&c, SYNTHETIC);
        child_tune(&c, o);
        must_work(&c);
        uint32_t before = count_trials(&c, "measure", NULL);
        assert_true(before >= 1 && before < 40);
        order_done(o, c.trials, c.n_trials);
        o->request.query.wall_ms = 0;
        start(&second, SYNTHETIC);
        child_tune(&second, o);
        must_work(&second);
        assert_int_equal(
            count_trials(&second, "measure", "ok") + count_trials(&second, "measure", "aborted") +
                count_trials(&c, "measure", "ok") + count_trials(&c, "measure", "aborted"),
            40);
        for (uint32_t k = 0; k < c.n_trials; k++) {
            assert_null(find_trial(&second, &c.trials[k].config, "measure"));
        }
        child_end(&c);
        child_end(&second);
        order_free(o);
    }
}

/* ---- the search ------------------------------------------------------------------------------ */

static void test_same_seed_same_run(void **state)
{
    (void)state;
    struct child a, b;
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 12;
    snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "random");
    start(&a, SYNTHETIC);
    start(&b, SYNTHETIC);
    child_tune(&a, o);
    child_tune(&b, o);
    must_work(&a);
    must_work(&b);
    assert_int_equal(a.n_trials, b.n_trials);
    for (uint32_t i = 0; i < a.n_trials; i++) {
        assert_true(record_equal(&a.trials[i].config, &b.trials[i].config));
        assert_string_equal(a.trials[i].status, b.trials[i].status);
        assert_true(a.trials[i].time_us == b.trials[i].time_us);
    }
    check_trials(&a, o);
    check_best(&a);
    order_free(o);
    child_end(&a);
    child_end(&b);
}

static void test_budget_and_default_budget(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(LARGE);
    start(&c, SYNTHETIC);
    const int budgets[] = {1, 2, 0};
    /* without a budget the search stops by itself */
    const uint32_t least[] = {1, 2, 8}, most[] = {1, 2, 96};
    for (int i = 0; i < 3; i++) {
        child_forget(&c);
        o->request.query.budget = budgets[i];
        child_tune(&c, o);
        must_work(&c);
        assert_in_range(c.result.measured, least[i], most[i]);
        assert_int_equal(count_trials(&c, "measure", NULL), c.result.measured);
    }
    order_free(o);
    child_end(&c);
}

static void test_budget_ms(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget_ms = 100;
    run_order(&c, SYNTHETIC, o);
    must_work(&c);
    uint32_t n = count_trials(&c, "measure", NULL);
    assert_true(n > 2 && n < 12); /* preparing the problem takes 50 ms */
    child_end(&c);
}

static void test_the_best_of_a_recorded_landscape(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(RECORDED_PROBLEM);
    snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "exhaustive");
    run_order(&c, RECORDED, o);
    must_work(&c);
    assert_int_equal(c.result.space, count_trials(&c, "measure", NULL));
    check_best(&c);
    uint32_t aborted = 0;
    for (uint32_t i = 0; i < c.n_trials; i++) {
        const struct trial *t = &c.trials[i];
        if (strcmp(t->status, "ok") == 0 && strcmp(t->stage, "measure") == 0) {
            assert_true(c.result.time_us <= 1.05 * t->time_us);
        }
        if (strcmp(t->status, "aborted") == 0) {
            aborted++;
            assert_true(t->samples_us.n <= 2 && t->time_us > c.result.time_us);
        }
    }
    assert_true(aborted > 0);
    child_end(&c);
}

static void test_hints_come_first(void **state)
{
    (void)state;
    struct record configs[10];
    char text[CONFIG_TEXT_MAX];
    ranked_configs(configs, 10);
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 5;
    in_order(o);
    order_hint(o, "BLOCK_SIZE_M=3"); /* no config of the space: passed over */
    config_text(&configs[9], text);
    order_hint(o, text);
    config_text(&configs[8], text);
    order_hint(o, text);
    struct child c;
    run_order(&c, SYNTHETIC, o);
    must_work(&c);
    assert_int_equal(count_trials(&c, "measure", NULL), 5);
    assert_true(c.trials[0].reference);
    assert_true(record_equal(&c.trials[1].config, &configs[9]));
    assert_true(record_equal(&c.trials[2].config, &configs[8]));
    assert_true(record_equal(&c.trials[3].config, &configs[1]));
    child_end(&c);
}

/* The strategy itself would have proposed the hinted configs: each uses up one place of the
 * budget, not two. */
static void test_hints_from_the_front(void **state)
{
    (void)state;
    struct record configs[5];
    char text[CONFIG_TEXT_MAX];
    ranked_configs(configs, 5);
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 5;
    in_order(o);
    for (int i = 2; i >= 1; i--) {
        config_text(&configs[i], text);
        order_hint(o, text);
    }
    struct child c;
    run_order(&c, SYNTHETIC, o);
    must_work(&c);
    const uint32_t expected[] = {0, 2, 1, 3, 4};
    assert_int_equal(count_trials(&c, "measure", NULL), 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(record_equal(&c.trials[i].config, &configs[expected[i]]));
    }
    child_end(&c);
}

static void test_restricted(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 8;
    order_restrict(o, "num_stages", 2);
    start(&c, SYNTHETIC);
    child_tune(&c, o);
    must_work(&c);
    assert_int_equal(record_int(&c.result.config, "num_stages", 0), 2);
    for (uint32_t i = 0; i < c.n_trials; i++) {
        assert_true(c.trials[i].reference || record_int(&c.trials[i].config, "num_stages", 0) == 2);
    }
    order_free(o);
    o = order_new(LARGE);
    order_restrict(o, "num_stages", 77);
    child_tune(&c, o);
    must_fail(&c, ERROR_NO_CONFIG, "num_stages = 77 is not in the space, which has ");
    order_free(o);
    o = order_new(LARGE);
    order_restrict(o, "num_stage", 2);
    child_tune(&c, o);
    must_fail(&c, ERROR_UNKNOWN_FIELD, "these are: ");
    order_free(o);
    child_end(&c);
}

/* Of two equally fast configs the model's favourite wins, whichever was measured faster. */
static void test_ties_are_settled(void **state)
{
    (void)state;
    struct record configs[3];
    char text[2][CONFIG_TEXT_MAX], lines[4096], problem[512];
    ranked_configs(configs, 3);
    config_text(&configs[1], text[0]);
    config_text(&configs[2], text[1]);
    char *folder = folder_make(), spec[600];
    snprintf(problem, sizeof(problem), "%s", LARGE);
    FILE *f = fopen(TEST_DATA "/synthetic.jsonl", "r");
    char header[2048];
    assert_non_null(fgets(header, sizeof(header), f));
    fclose(f);
    snprintf(lines, sizeof(lines),
             "%s{\"problem\": \"%s\"}\n{\"config\": \"%s\", \"samples_us\": [100.2, 100.3]}\n"
             "{\"config\": \"%s\", \"samples_us\": [100.0, 100.1]}\n",
             header, problem, text[0], text[1]);
    snprintf(spec, sizeof(spec), "replay:%s", folder_file(folder, "tie.jsonl", lines));
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 4;
    struct child c;
    run_order(&c, spec, o);
    must_work(&c);
    assert_int_equal(count_trials(&c, "final", "ok"), 2);
    const struct trial *a = find_trial(&c, &configs[1], "final");
    const struct trial *b = find_trial(&c, &configs[2], "final");
    assert_true(b->time_us < a->time_us && a->predicted_us <= b->predicted_us);
    if (a->predicted_us < b->predicted_us || strcmp(text[0], text[1]) < 0) {
        assert_true(record_equal(&c.result.config, &configs[1]));
    } else {
        assert_true(record_equal(&c.result.config, &configs[2]));
    }
    /* The default was not recorded: the first config that worked is the reference. */
    assert_string_equal(c.trials[0].status, "not_found");
    assert_true(c.trials[1].reference && c.trials[1].ratio == 1);
    child_end(&c);
    folder_remove(folder);
}

enum { SLOW = 6 };
static const double SLOW_US = 2e6;

/* Makes an order for all slow configs, with the trials of earlier orders, which are in c. */
static struct tune_order *slow_order(const struct record configs[SLOW], const struct child *c)
{
    struct tune_order *o = order_new(LARGE);
    char text[CONFIG_TEXT_MAX];
    for (int i = 0; i < SLOW; i++) {
        config_text(&configs[i], text);
        order_given(o, text);
    }
    o->request.query.iters = 100000;
    if (c->n_trials) {
        order_done(o, c->trials, c->n_trials);
        o->spent_device_ms = c->result.device_ms;
        o->spent_ms = c->result.wall_ms;
    }
    return o;
}

static void test_a_long_search_gives_way_between_candidates_while_others_wait(void **state)
{
    (void)state;
    static struct record configs[SLOW];
    char *folder = folder_make();
    struct child c;
    unsigned n = 0;
    ranked_configs(configs, SLOW);
    start(&c, record_slow(folder, configs, SLOW, SLOW_US));
    do {
        const uint32_t before = count_trials(&c, "measure", "ok");
        struct tune_order *o = slow_order(configs, &c);
        child_send_contended(&c, o);
        child_wait(&c);
        order_free(o);
        must_work(&c);
        n += c.result.set_aside;
        assert_true(!c.result.set_aside || count_trials(&c, "measure", "ok") > before);
    } while (c.result.set_aside);
    assert_true(n >= 2 && n < SLOW);
    assert_int_equal(count_trials(&c, "measure", "ok"), SLOW); /* no config twice */
    assert_true(record_equal(&c.result.config, &configs[0]));
    struct tune_order *alone = slow_order(configs, &c);
    child_forget(&c);
    alone->n_done = 0;
    child_tune(&c, alone);
    must_work(&c);
    assert_false(c.result.set_aside); /* no other job waits */
    order_free(alone);
    child_end(&c);
    folder_remove(folder);
}

/* The model predicts a thousandth of the real time, so the limit of a hang must come from
 * earlier launches. */
static void test_a_hang_is_judged_by_what_launches_took_here(void **state)
{
    (void)state;
    static struct record configs[SLOW];
    char *folder = folder_make();
    struct child c;
    uint32_t seen = 0, attempts = 0;
    ranked_configs(configs, SLOW);
    start(&c, record_slow(folder, configs, SLOW, SLOW_US));
    struct tune_order *o = slow_order(configs, &c);
    child_send_order(&c, o);
    c.answered = false;
    while (!c.answered && child_read(&c)) {
        const bool measures =
            strcmp(c.last.stage, "verify") == 0 || strcmp(c.last.stage, "time") == 0;
        /* before the first launch no time is known */
        if (c.n_attempts > attempts && measures && seen++ > 0) {
            assert_true(c.last.limit_ms >= 10 * SLOW_US / 1e3);
        }
        attempts = c.n_attempts;
    }
    must_work(&c);
    assert_true(seen > 2 * SLOW && c.trials[0].predicted_us < SLOW_US / 100);
    order_free(o);
    child_end(&c);
    folder_remove(folder);
}

/* The default was not recorded, so the recording's own reference is the reference. Another seed
 * gives other noise. */
static void test_recorded_reference(void **state)
{
    (void)state;
    static const char config[] = "BLOCK_SIZE_K=64 BLOCK_SIZE_M=160 BLOCK_SIZE_N=256 GROUP_SIZE_M=8 "
                                 "NUM_KSPLIT=1 cluster_shape_mn=1x1 in_flight=1 "
                                 "num_stages=4 num_warps=12 permute_copy=false raster=rows "
                                 "schedule=cooperative skip_rows=false staging_buffers=1 "
                                 "swap_ab=true tile_scheduler=dynamic use_tma_load_w=true "
                                 "use_tma_load_x=false use_tma_store=true";
    struct record recorded;
    struct error err = ERROR_NULL;
    double us[2];
    assert_int_equal(record_parse(&recorded, config, &err), 0);
    for (int seed = 1; seed <= 2; seed++) {
        struct tune_order *o = order_new(LARGE);
        struct child c;
        o->request.query.budget = 4;
        o->request.query.seed = seed;
        run_order(&c, "replay:" TEST_LANDSCAPES "/qwen3-30b-a3b-gate_up-4096-forward.jsonl", o);
        must_work(&c);
        const struct trial *t = find_trial(&c, &recorded, "measure");
        assert_true(t && t->reference && t->ratio == 1);
        us[seed - 1] = t->time_us;
        child_end(&c);
    }
    assert_true(us[0] != us[1]);
}

/* ---- resuming -------------------------------------------------------------------------------- */

static void test_resume_measures_nothing_twice(void **state)
{
    (void)state;
    struct child first, second;
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 6;
    start(&first, SYNTHETIC);
    child_tune(&first, o);
    must_work(&first);
    uint32_t n = count_trials(&first, "measure", NULL);
    order_free(o);
    o = order_new(LARGE);
    o->request.query.budget = 10;
    order_done(o, first.trials, n);
    start(&second, SYNTHETIC);
    child_tune(&second, o);
    must_work(&second);
    assert_int_equal(count_trials(&second, "measure", NULL), 4);
    assert_int_equal(count_trials(&second, "reference", "ok"), 1);
    assert_int_equal(second.result.measured, 10);
    for (uint32_t i = 0; i < n; i++) {
        assert_null(find_trial(&second, &first.trials[i].config, "measure"));
    }
    assert_string_equal(second.trials[0].stage, "reference");
    assert_true(record_equal(&second.trials[0].config, &first.trials[0].config));
    check_best(&second); /* measured in this run, as every winner */
    /* All configs are measured: only the reference is measured again, and the earlier best in a
     * final, if it is another config. */
    child_forget(&second);
    o->request.query.budget = 6;
    child_tune(&second, o);
    must_work(&second);
    assert_int_equal(count_trials(&second, "measure", NULL), 0);
    assert_true(count_trials(&second, "final", "ok") >= 1 ||
                record_equal(&second.result.config, &second.trials[0].config));
    check_best(&second);
    order_free(o);
    child_end(&first);
    child_end(&second);
}

/* Trials of configs outside a restriction do not count in the restricted search's budget. */
static void test_resume_restricted(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 6;
    start(&c, SYNTHETIC);
    child_tune(&c, o);
    must_work(&c);
    struct tune_order *p = order_new(LARGE);
    p->request.query.budget = 6;
    order_restrict(p, "num_stages", 2);
    order_done(p, c.trials, c.n_trials);
    uint32_t old = 0;
    for (uint32_t i = 0; i < c.n_trials; i++) {
        old += strcmp(c.trials[i].stage, "measure") == 0 &&
               record_int(&c.trials[i].config, "num_stages", 0) == 2;
    }
    child_forget(&c);
    child_tune(&c, p);
    must_work(&c);
    assert_int_equal(record_int(&c.result.config, "num_stages", 0), 2);
    assert_int_equal(count_trials(&c, "measure", NULL), 6 - old);
    order_free(o);
    order_free(p);
    child_end(&c);
}

/* ---- targets --------------------------------------------------------------------------------- */

/* `schedule` is a parameter of the target hopper and of no other. */
static void check_targets(const struct child *c, bool hopper)
{
    assert_true(c->n_trials > 3);
    for (uint32_t i = 0; i < c->n_trials; i++) {
        const struct record *config = &c->trials[i].config;
        const char *status = c->trials[i].status;
        assert_true(strcmp(status, "ok") == 0 || strcmp(status, "aborted") == 0);
        assert_int_equal(record_text(config, "schedule", NULL) != NULL, hopper);
        assert_true(c->trials[i].predicted_us > 0);
    }
    assert_int_equal(record_text(&c->result.config, "schedule", NULL) != NULL, hopper);
}

static void tune_target(struct child *c, const char *problem, const char *target)
{
    struct tune_order *o = order_new(problem);
    o->request.query.budget = 8;
    snprintf(o->request.query.target, sizeof(o->request.query.target), "%s", target);
    child_forget(c);
    child_tune(c, o);
    order_free(o);
}

static void test_one_target_per_job(void **state)
{
    (void)state;
    struct child c;
    const char *sums = "grouped_gemm mode=dW M=512 N=512 K=512 experts=4 accumulate=true";
    start(&c, HOPPER);
    tune_target(&c, LARGE, "");
    must_work(&c);
    check_targets(&c, true);
    double own_us = c.result.time_us;
    tune_target(&c, LARGE, "portable");
    must_work(&c);
    check_targets(&c, false);
    assert_true(c.result.time_us > own_us); /* replayed times come from each target's own model */
    tune_target(&c, LARGE, "hopper");
    must_work(&c);
    check_targets(&c, true);
    assert_true(c.result.time_us < 1.1 * own_us);
    tune_target(&c, sums, ""); /* a problem that hopper does not take */
    must_work(&c);
    check_targets(&c, false);
    tune_target(&c, sums, "hopper");
    must_fail(&c, ERROR_NO_CONFIG, "target hopper does not do this problem: accumulate");
    tune_target(&c, LARGE, "cutlass");
    must_fail(&c, ERROR_INVALID, "it has: hopper, hopper_fp8, portable");
    must_exit(child_end(&c), RUNNER_EXIT_OK);
}

static void test_hints_of_another_target_are_passed_over(void **state)
{
    (void)state;
    struct child c;
    struct record portable[2];
    char text[CONFIG_TEXT_MAX];
    ranked_configs(portable, 2);
    config_text(&portable[1], text);
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 4;
    order_hint(o, text);
    run_order(&c, HOPPER, o);
    must_work(&c);
    check_targets(&c, true);
    child_end(&c);
}

static void test_failures_of_earlier_runs_are_done_too(void **state)
{
    (void)state;
    struct child c;
    struct record configs[3];
    ranked_configs(configs, 3);
    struct trial *failed = calloc(1, sizeof(*failed));
    record_copy(&failed->config, &configs[1]);
    snprintf(failed->status, sizeof(failed->status), "crashed");
    snprintf(failed->stage, sizeof(failed->stage), "measure");
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 4;
    order_done(o, failed, 1);
    free(failed);
    run_order(&c, SYNTHETIC, o);
    must_work(&c);
    assert_null(find_trial(&c, &configs[1], NULL));
    child_end(&c);
}

static void test_avoid(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 3;
    start(&c, SYNTHETIC);
    child_tune(&c, o);
    must_work(&c);
    char variant[2][HASH_HEX];
    snprintf(variant[0], HASH_HEX, "%s", c.trials[0].variant); /* trial 0 is the reference */
    snprintf(variant[1], HASH_HEX, "%s", c.trials[1].variant);
    order_avoid(o, variant[0]);
    order_avoid(o, variant[1]);
    o->request.query.budget = 12;
    child_forget(&c);
    child_tune(&c, o);
    must_work(&c);
    for (uint32_t i = 0; i < c.n_trials; i++) {
        assert_string_not_equal(c.trials[i].variant, variant[0]);
        assert_string_not_equal(c.trials[i].variant, variant[1]);
    }
    /* the first working config replaces the excluded reference */
    assert_true(c.trials[0].reference);
    char text[CONFIG_TEXT_MAX];
    struct record configs[1];
    ranked_configs(configs, 1);
    config_text(&configs[0], text);
    order_given(o, text);
    child_tune(&c, o);
    must_fail(&c, ERROR_QUARANTINED, "quarantine");
    order_free(o);
    child_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wall_time_ends_any_search),
        cmocka_unit_test(test_same_seed_same_run),
        cmocka_unit_test(test_budget_and_default_budget),
        cmocka_unit_test(test_budget_ms),
        cmocka_unit_test(test_the_best_of_a_recorded_landscape),
        cmocka_unit_test(test_hints_come_first),
        cmocka_unit_test(test_hints_from_the_front),
        cmocka_unit_test(test_restricted),
        cmocka_unit_test(test_ties_are_settled),
        cmocka_unit_test(test_a_long_search_gives_way_between_candidates_while_others_wait),
        cmocka_unit_test(test_a_hang_is_judged_by_what_launches_took_here),
        cmocka_unit_test(test_recorded_reference),
        cmocka_unit_test(test_resume_measures_nothing_twice),
        cmocka_unit_test(test_resume_restricted),
        cmocka_unit_test(test_one_target_per_job),
        cmocka_unit_test(test_hints_of_another_target_are_passed_over),
        cmocka_unit_test(test_failures_of_earlier_runs_are_done_too),
        cmocka_unit_test(test_avoid),
    };
    return cmocka_run_group_tests(tests, make_cache, remove_cache);
}
