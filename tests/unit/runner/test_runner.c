/* SPDX-License-Identifier: Apache-2.0 */
/* The whole runner in a forked child, with the test as gemmd: on the cpu device with real kernels,
 * and on the replay device for exact results and for failures. */
#include "harness.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runner/runner.h"

#define SMALL            "grouped_gemm mode=forward M=64 N=64 K=64 experts=4"
#define LARGE            "grouped_gemm mode=forward M=32768 N=1536 K=2048 experts=128 topk=8 permute_x=true"
#define SYNTHETIC        "replay:" TEST_DATA "/synthetic.jsonl"
#define HOPPER           "replay:" TEST_DATA "/synthetic-hopper.jsonl"
#define RECORDED         "replay:" TEST_DATA "/cpu-small.jsonl"
#define RECORDED_PROBLEM "grouped_gemm mode=forward M=128 N=128 K=128 experts=4"

static char *cache; /* the cache folder of all tests without their own cache */

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

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void start(struct child *c, const char *device)
{
    child_start(c, device, cache, (const char *const[]){"--compile-threads", "2", NULL});
}

static void must_work(const struct child *c)
{
    if (!c->answered || c->error.code) {
        fail_msg("no result: %s", c->error.text);
    }
}

static void must_fail(const struct child *c, int code, const char *sentence)
{
    assert_true(c->answered);
    if (c->error.code != code || !strstr(c->error.text, sentence)) {
        fail_msg("%s: %s", error_name(c->error.code), c->error.text);
    }
}

static void must_exit(int status, int code)
{
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code) {
        fail_msg("exit %d signal %d", WEXITSTATUS(status), WTERMSIG(status));
    }
}

static void faults(const char *folder, const char *lines)
{
    setenv("GEMMD_REPLAY_FAULTS", folder_file(folder, "faults.jsonl", lines), 1);
}

static void config_text(const struct record *config, char out[CONFIG_TEXT_MAX])
{
    record_format(config, out, CONFIG_TEXT_MAX);
}

/* Runs an order on a new runner; its messages stay in c until child_ended. */
static void run_order(struct child *c, const char *device, struct tune_order *o)
{
    start(c, device);
    child_tune(c, o);
    order_free(o);
}

/* The search takes candidates in the plan's order, whatever it observes. */
static void in_order(struct tune_order *o)
{
    snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "exhaustive");
}

/* The configs that a ranked search of LARGE would measure, the reference first. */
static uint32_t ranked_configs(struct record *out, uint32_t n)
{
    struct child c;
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = n;
    in_order(o);
    run_order(&c, SYNTHETIC, o);
    must_work(&c);
    uint32_t found = 0;
    for (uint32_t i = 0; i < c.n_trials && found < n; i++) {
        if (strcmp(c.trials[i].stage, "measure") == 0) {
            record_copy(&out[found++], &c.trials[i].config);
        }
    }
    child_end(&c);
    assert_int_equal(found, n);
    return found;
}

/* A recording in `folder` of LARGE in which each of these launches takes `us`. */
static const char *record_slow(const char *folder, const struct record configs[], uint32_t n,
                               double us)
{
    static char spec[600];
    char header[2048], text[CONFIG_TEXT_MAX];
    size_t size = sizeof(header) + (n + 1) * (CONFIG_TEXT_MAX + 100), at;
    char *lines = calloc(1, size);
    FILE *f = fopen(TEST_DATA "/synthetic.jsonl", "r");
    assert_non_null(fgets(header, sizeof(header), f));
    fclose(f);
    at = (size_t)snprintf(lines, size, "%s{\"problem\": \"%s\"}\n", header, LARGE);
    for (uint32_t i = 0; i < n; i++) {
        config_text(&configs[i], text);
        at += (size_t)snprintf(lines + at, size - at,
                               "{\"config\": \"%s\", \"samples_us\": [%.1f, %.1f]}\n", text,
                               us * (1 + 0.02 * i), us * (1.001 + 0.02 * i));
    }
    snprintf(spec, sizeof(spec), "replay:%s", folder_file(folder, "slow.jsonl", lines));
    free(lines);
    return spec;
}

/* ---- rules of every stream ------------------------------------------------------------------- */

static void check_best(const struct child *c)
{
    const struct tune_result *r = &c->result;
    const struct trial *best = NULL;
    for (uint32_t i = 0; i < c->n_trials; i++) { /* its last trial counts */
        const struct trial *t = &c->trials[i];
        if (record_equal(&t->config, &r->config) && strcmp(t->status, "ok") == 0) {
            best = t;
        }
    }
    assert_non_null(best);
    assert_true(best->time_us == r->time_us);
    assert_string_equal(best->module, r->module);
    assert_true(r->time_us > 0 && r->spread >= 0 && r->flops > 0 && r->bytes > 0);
    assert_true(r->device_ms > 0 && r->wall_ms >= 0);
}

/* A reference's turn in the finals, if any. */
static const struct trial *last_turn(const struct child *c, const struct trial *reference)
{
    const struct trial *turn = find_trial(c, &reference->config, "final");
    return turn ? turn : reference;
}

static void check_trials(const struct child *c, const struct tune_order *o)
{
    for (uint32_t i = 0; i < c->n_trials; i++) {
        const struct trial *t = &c->trials[i];
        assert_string_equal(t->key, o->key);
        assert_string_equal(t->stamp, o->stamp);
        assert_true(t->status[0] && t->stage[0] && t->family[0]);
        if (strcmp(t->status, "ok") == 0) {
            assert_true(t->samples_us.n > 0 && t->q25_us <= t->time_us && t->time_us <= t->q75_us);
            assert_int_equal(strlen(t->variant), HASH_HEX - 1);
        } else {
            assert_true(t->reason[0]);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(c->trials[k].stage, t->stage) == 0) {
                assert_false(record_equal(&c->trials[k].config, &t->config));
            }
        }
    }
}

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

/* ---- the cpu device -------------------------------------------------------------------------- */

static void test_cpu_from_job_to_best(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(SMALL);
    o->request.query.budget = 4;
    /* The test repeats the request to see that nothing compiles again. A learning strategy might
     * not repeat its choices. */
    strcpy(o->request.query.strategy, "random");
    start(&c, "cpu");
    child_tune(&c, o);
    must_work(&c);
    assert_true(c.has_hello && c.hello.build[0] && c.hello.pid == c.pid);
    assert_true(c.has_device && c.device.class[0]);
    check_trials(&c, o);
    check_best(&c);
    assert_int_equal(count_trials(&c, "measure", NULL), 4);
    assert_int_equal(c.module_before_trial, c.n_trials);
    assert_true(c.trials[0].reference && c.trials[0].ratio == 1);
    assert_true(c.trials[0].rel_norm > 0); /* verified */
    assert_true(c.result.reference_us == last_turn(&c, &c.trials[0])->time_us);
    assert_int_equal(c.result.measured, 4);
    assert_true(c.result.space > 4 && c.result.compile_ms > 0);
    for (int i = 0; i < 5; i++) {
        assert_true(c.attempted[i]);
    }
    assert_string_equal(c.progress.phase, "done");
    assert_int_equal(c.progress.done, 4);
    assert_int_equal(c.progress.total, 4);
    while (strcmp(c.last.stage, "idle") != 0) {
        assert_true(child_read(&c));
    }
    assert_int_equal(c.last.limit_ms, 0);
    /* A second job of the same process compiles nothing. */
    child_forget(&c);
    child_tune(&c, o);
    must_work(&c);
    for (uint32_t i = 0; i < c.n_trials; i++) {
        assert_true(c.trials[i].compile_ms == 0);
    }
    assert_true(c.result.compile_ms == 0);
    must_exit(child_end(&c), RUNNER_EXIT_OK);
    order_free(o);
}

static void test_cpu_given(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(SMALL);
    const char *bad = "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 vector_width=7";
    order_given(o, bad);
    order_given(o, "BLOCK_SIZE_M=16 BLOCK_SIZE_N=32 BLOCK_SIZE_K=64 vector_width=8 unroll_rows=4 "
                   "unroll_cols=1 GROUP_SIZE_M=1 transpose_w=true");
    start(&c, "cpu");
    child_tune(&c, o);
    must_work(&c);
    check_best(&c);
    assert_true(record_equal(&c.result.config, &o->request.configs[1]));
    assert_int_equal(c.result.space, 1);
    const struct trial *refused = find_trial(&c, &o->request.configs[0], NULL);
    assert_non_null(refused);
    assert_string_equal(refused->status, "invalid");
    assert_non_null(strstr(refused->reason, "vector_width"));
    assert_int_equal(count_trials(&c, "measure", NULL),
                     3); /* includes the reference, which gives the yardstick */
    order_free(o);
    o = order_new(SMALL);
    order_given(o, bad);
    child_tune(&c, o);
    must_fail(&c, ERROR_INVALID, "vector_width");
    order_free(o);
    o = order_new(SMALL);
    snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "given");
    child_tune(&c, o);
    must_fail(&c, ERROR_INVALID, "needs configs");
    order_free(o);
    child_end(&c);
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
    assert_true(n > 2 && n < 12); /* 50 ms to prepare */
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
    order_hint(o, "BLOCK_SIZE_M=3"); /* from elsewhere: passed over */
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
    must_fail(&c, ERROR_UNKNOWN_FIELD, "there are: ");
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

/* An order for all slow configs, with the trials of earlier orders. */
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
    assert_false(c.result.set_aside); /* no waiter */
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

/* Trials outside a restriction do not use up its budget. */
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
    assert_true(c.result.time_us > own_us); /* each target's times come from its own model */
    tune_target(&c, LARGE, "hopper");
    must_work(&c);
    check_targets(&c, true);
    assert_true(c.result.time_us < 1.1 * own_us);
    tune_target(&c, sums, ""); /* not of hopper */
    must_work(&c);
    check_targets(&c, false);
    tune_target(&c, sums, "hopper");
    must_fail(&c, ERROR_NO_CONFIG, "target hopper does not do this problem: accumulate");
    tune_target(&c, LARGE, "cutlass");
    must_fail(&c, ERROR_INVALID, "it has: hopper, portable");
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
    snprintf(variant[0], HASH_HEX, "%s", c.trials[0].variant); /* the reference */
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

/* ---- the conversation ------------------------------------------------------------------------ */

static void wait_trials(struct child *c, uint32_t n)
{
    while (c->n_trials < n && child_read(c)) {
    }
}

static void test_cancel_busy_ping(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(LARGE);
    setenv("GEMMD_REPLAY_SPEED", "1", 1); /* about 70 ms each */
    start(&c, SYNTHETIC);
    child_send_order(&c, o);
    wait_trials(&c, 2);
    child_send_order(&c, o);
    child_wait(&c);
    must_fail(&c, ERROR_BUSY, "job 1 is running");
    child_send_ping(&c, 9);
    child_wait(&c);
    assert_int_equal(c.error.code, 0);
    child_send_cancel(&c, 77); /* another job: no effect */
    wait_trials(&c, c.n_trials + 2);
    int64_t began = now_ms();
    child_send_cancel(&c, 1);
    child_wait(&c);
    must_fail(&c, ERROR_CANCELLED, "of 96 configs");
    assert_true(now_ms() - began < 5000);
    child_forget(&c); /* ready for the next order */
    o->request.query.budget = 2;
    o->job = 2;
    child_tune(&c, o);
    must_work(&c);
    unsetenv("GEMMD_REPLAY_SPEED");
    order_free(o);
    must_exit(child_end(&c), RUNNER_EXIT_OK);
}

static void test_end_of_the_socket_ends_a_job(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(LARGE);
    setenv("GEMMD_REPLAY_SPEED", "1", 1);
    start(&c, SYNTHETIC);
    child_send_order(&c, o);
    wait_trials(&c, 2);
    unsetenv("GEMMD_REPLAY_SPEED");
    int64_t began = now_ms();
    must_exit(child_end(&c), RUNNER_EXIT_OK);
    assert_true(now_ms() - began < 5000);
    order_free(o);
}

static void test_leaves_when_idle(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(SMALL);
    child_start(&c, SYNTHETIC, cache, (const char *const[]){"--linger-ms", "0", NULL});
    while (!c.has_hello) {
        assert_true(child_read(&c));
    }
    usleep(200 * 1000); /* gemmd waits for its database */
    assert_false(c.has_device);
    o->request.query.budget = 2;
    child_tune(&c, o);
    must_work(&c);
    while (child_read(&c)) {
    }
    assert_true(c.bye);
    must_exit(child_ended(&c), RUNNER_EXIT_OK);
    order_free(o);
}

static void test_bad_requests(void **state)
{
    (void)state;
    struct child c;
    start(&c, SYNTHETIC);
    const char unknown[] = "\x94\x00\x05\xa5"
                           "dance"
                           "\x80";
    child_send_raw(&c, unknown, sizeof(unknown) - 1);
    child_wait(&c);
    must_fail(&c, ERROR_UNKNOWN_METHOD, "\"dance\"");
    const char empty[] = "\x94\x00\x05\xa4"
                         "tune"
                         "\x80";
    child_send_raw(&c, empty, sizeof(empty) - 1);
    child_wait(&c);
    assert_true(c.error.code < 0 && c.error.text[0]);
    const char bomb[] = "\xdd\x20\x00\x00\x00";
    child_send_raw(&c, bomb, sizeof(bomb) - 1);
    while (child_read(&c)) {
    }
    must_exit(child_ended(&c), RUNNER_EXIT_PROTOCOL);
}

static void test_no_such_device(void **state)
{
    (void)state;
    struct child c;
    struct tune_order *o = order_new(SMALL);
    start(&c, "replay:/nonexistent.jsonl");
    child_tune(&c, o);
    must_fail(&c, ERROR_NO_DEVICE, "/nonexistent.jsonl");
    child_tune(&c, o); /* the runner accepts another order */
    must_fail(&c, ERROR_NO_DEVICE, "/nonexistent.jsonl");
    order_free(o);
    must_exit(child_end(&c), RUNNER_EXIT_OK);
}

static void test_usage(void **state)
{
    (void)state;
    struct child c;
    child_start(&c, "cpu", cache, (const char *const[]){"--linger-ms", "soon", NULL});
    assert_false(child_read(&c));
    must_exit(child_ended(&c), RUNNER_EXIT_USAGE);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Makes an order for LARGE's first six candidates, whatever they measure. */
static struct tune_order *order_first(void)
{
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 6;
    in_order(o);
    return o;
}

/* Finds the fastest candidate besides the reference; this candidate reaches every stage. */
static void find_contender(struct record *out)
{
    struct child c;
    struct tune_order *o = order_first();
    const struct trial *best = NULL;
    run_order(&c, SYNTHETIC, o);
    must_work(&c);
    for (uint32_t i = 0; i < c.n_trials; i++) {
        const struct trial *t = &c.trials[i];
        if (strcmp(t->stage, "measure") == 0 && strcmp(t->status, "ok") == 0 && !t->reference &&
            (!best || t->time_us < best->time_us)) {
            best = t;
        }
    }
    assert_non_null(best);
    record_copy(out, &best->config);
    child_end(&c);
}

/* A candidate of LARGE faults; the runner's messages are in c. */
static void run_faulty(struct child *c, char **folder, const char *fault, const char *stage,
                       const struct record *config, const char *const args[])
{
    char text[CONFIG_TEXT_MAX], line[1024];
    *folder = folder_make();
    config_text(config, text);
    snprintf(line, sizeof(line), "{\"config\": \"%s\", \"fault\": \"%s\", \"stage\": \"%s\"}\n",
             text, fault, stage);
    faults(*folder, line);
    child_start(c, SYNTHETIC, cache, args);
    unsetenv("GEMMD_REPLAY_FAULTS");
    struct tune_order *o = order_first();
    child_send_order(c, o);
    order_free(o);
}

static void test_crashes_name_their_candidate(void **state)
{
    (void)state;
    struct record contender;
    const char *const stages[] = {"load", "verify", "time"};
    find_contender(&contender);
    for (int i = 0; i < 3; i++) {
        struct child c;
        char *folder;
        run_faulty(&c, &folder, "crash", stages[i], &contender, NULL);
        child_wait(&c);
        assert_false(c.answered);
        assert_string_equal(c.last.stage, stages[i]);
        /* A load has no run-time parameters: its message may name another config of the variant. */
        assert_int_equal(record_int(&c.last.config, "BLOCK_SIZE_N", 0),
                         record_int(&contender, "BLOCK_SIZE_N", 1));
        assert_int_equal(strlen(c.last.variant), HASH_HEX - 1);
        assert_true(i < 1 || record_equal(&c.last.config, &contender));
        int status = child_ended(&c);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        folder_remove(folder);
    }
}

static void test_hang_is_announced_with_its_limit(void **state)
{
    (void)state;
    struct record contender;
    struct child c;
    char *folder;
    find_contender(&contender);
    run_faulty(&c, &folder, "hang", "verify", &contender,
               (const char *const[]){"--hang-limit-ms", "321", NULL});
    while (strcmp(c.last.stage, "verify") != 0 || !record_equal(&c.last.config, &contender)) {
        assert_true(child_read(&c));
    }
    assert_int_equal(c.last.limit_ms, 321);
    kill(c.pid, SIGKILL);
    while (child_read(&c)) {
    }
    assert_string_equal(c.last.stage, "verify");
    assert_true(WIFSIGNALED(child_ended(&c)));
    folder_remove(folder);
}

static void test_hung_compiler_costs_a_thread_only(void **state)
{
    (void)state;
    struct record contender;
    struct child c;
    char *folder;
    find_contender(&contender);
    run_faulty(&c, &folder, "hang", "compile", &contender,
               (const char *const[]){"--hang-limit-ms", "300", "--compile-threads", "2", NULL});
    child_wait(&c);
    must_work(&c);
    assert_true(count_trials(&c, "measure", "hung") >= 1);
    /* In any order of the model six candidates ran; some were perhaps stopped early. */
    assert_int_equal(count_trials(&c, "measure", "ok") + count_trials(&c, "measure", "aborted"), 6);
    while (child_read(&c)) {
    }
    assert_true(c.bye); /* the runner ends: threads in a hanging compiler do not keep it alive */
    must_exit(child_ended(&c), RUNNER_EXIT_OK);
    folder_remove(folder);
}

static void test_lost_device_ends_the_process(void **state)
{
    (void)state;
    struct record contender;
    struct child c;
    char *folder;
    find_contender(&contender);
    run_faulty(&c, &folder, "device_lost", "time", &contender, NULL);
    child_wait(&c);
    must_fail(&c, ERROR_DEVICE_LOST, "lost");
    const struct trial *t = find_trial(&c, &contender, "measure");
    assert_non_null(t);
    assert_string_equal(t->status, "device_lost");
    while (child_read(&c)) {
    }
    must_exit(child_ended(&c), RUNNER_EXIT_DEVICE_LOST);
    folder_remove(folder);
}

static void test_bad_candidates_lose(void **state)
{
    (void)state;
    const struct {
        const char *fault, *stage, *status;
    } cases[] = {
        {"wrong", "verify", "wrong_result"}, {"compile", "compile", "compile"},
        {"resource", "load", "resource"},    {"no_memory", "time", "no_memory"},
        {"no_memory", "load", "no_memory"},
    };
    struct record contender;
    find_contender(&contender);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct child c;
        char *folder;
        run_faulty(&c, &folder, cases[i].fault, cases[i].stage, &contender, NULL);
        child_wait(&c);
        must_work(&c);
        const struct trial *t = find_trial(&c, &contender, "measure");
        assert_non_null(t);
        assert_string_equal(t->status, cases[i].status);
        assert_true(t->reason[0]);
        assert_false(record_equal(&c.result.config, &contender));
        assert_int_equal(count_trials(&c, "measure", "ok") + count_trials(&c, "measure", "aborted"),
                         6); /* another candidate took the place of the failed one */
        child_end(&c);
        folder_remove(folder);
    }
}

static void test_the_default_may_fail_too(void **state)
{
    (void)state;
    struct record configs[1];
    struct child c;
    char *folder;
    ranked_configs(configs, 1);
    run_faulty(&c, &folder, "wrong", "verify", &configs[0], NULL);
    child_wait(&c);
    must_work(&c);
    assert_string_equal(c.trials[0].status, "wrong_result");
    assert_true(c.trials[1].reference);
    assert_true(c.result.reference_us == last_turn(&c, &c.trials[1])->time_us);
    child_end(&c);
    folder_remove(folder);
}

static void test_when_nothing_works(void **state)
{
    (void)state;
    struct child c;
    char *folder = folder_make();
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = 4;
    faults(folder, "{\"fault\": \"wrong\"}\n");
    start(&c, SYNTHETIC);
    child_tune(&c, o);
    must_fail(&c, ERROR_NO_CONFIG, "no config works (7 wrong_result); most common: ");
    assert_int_equal(c.progress.failed, 7);
    child_end(&c);
    faults(folder, "{\"fault\": \"no_memory\", \"stage\": \"prepare\"}\n");
    start(&c, SYNTHETIC);
    child_tune(&c, o);
    must_fail(&c, ERROR_NO_MEMORY, "no device memory");
    assert_int_equal(c.n_trials, 0);
    unsetenv("GEMMD_REPLAY_FAULTS");
    child_end(&c);
    order_free(o);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wall_time_ends_any_search),
        cmocka_unit_test(test_cpu_from_job_to_best),
        cmocka_unit_test(test_cpu_given),
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
        cmocka_unit_test(test_cancel_busy_ping),
        cmocka_unit_test(test_end_of_the_socket_ends_a_job),
        cmocka_unit_test(test_leaves_when_idle),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_no_such_device),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_crashes_name_their_candidate),
        cmocka_unit_test(test_hang_is_announced_with_its_limit),
        cmocka_unit_test(test_hung_compiler_costs_a_thread_only),
        cmocka_unit_test(test_lost_device_ends_the_process),
        cmocka_unit_test(test_bad_candidates_lose),
        cmocka_unit_test(test_the_default_may_fail_too),
        cmocka_unit_test(test_when_nothing_works),
    };
    return cmocka_run_group_tests(tests, make_cache, remove_cache);
}
