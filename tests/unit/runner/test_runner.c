/* SPDX-License-Identifier: Apache-2.0 */
/* The whole runner in a forked child, with the test as gemmd: on the cpu device with real kernels,
 * and on the replay device for exact results and for failures. */
#include "orders.h"

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
                     3); /* includes the reference kernel, the base of ratios */
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
    setenv("GEMMD_REPLAY_SPEED", "1", 1); /* a trial takes about 70 ms */
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

/* Starts a search of LARGE in which `config` has this fault at this stage. The runner's messages
 * come into c. */
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
    /* Six candidates ran, whatever order the model gives; some were perhaps stopped early. */
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
        cmocka_unit_test(test_cpu_from_job_to_best),
        cmocka_unit_test(test_cpu_given),
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
