/* SPDX-License-Identifier: Apache-2.0 */
/* Answers without a daemon: the analytic default, and spaces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/gemmd.h"
#include "tests/unit/client/fixture.h"

static void test_fallback_without_a_daemon(void **state)
{
    struct fake *f = *state;
    struct gemmd *g = fixture_open_lazy(f);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    check_default(&a);
    p.n = 0; /* a wrong problem is an error: no default answers it */
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "N"));
    p.text = "custom:sort n=1"; /* only a daemon knows custom ops */
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), GEMMD_UNREACHABLE);
    p.text = "gemm mode=dX M=64 N=128 K=256";
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    check_default(&a);
    assert_int_equal(gemmd_tune(g, &p, NULL, &a, &e), GEMMD_UNREACHABLE);
    gemmd_close(g);
}

static void test_fallback_within_the_deadline(void **state)
{
    struct fake *f = *state;
    script.delay_ms = 1000;
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_problem p = small_problem();
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    q.deadline_ms = 150;
    q.flags = GEMMD_FALLBACK;
    double began = fake_ms();
    assert_int_equal(gemmd_get(g, &p, &q, &a, &e), 0);
    double took = fake_ms() - began;
    check_default(&a);
    assert_true(took >= 149 && took < 150 + SLACK_MS);
    /* Calls wait for a hanging daemon once a second; other calls return the default at once. */
    began = fake_ms();
    for (int i = 0; i < 20; i++) {
        assert_int_equal(gemmd_get(g, &p, &q, &a, &e), 0);
    }
    assert_true(fake_ms() - began < 20 * 150 / 2);
    q.flags = 0; /* a caller without a fallback waits for the deadline */
    assert_int_equal(gemmd_get(g, &p, &q, &a, &e), GEMMD_DEADLINE);
}

static void refuse(struct fake *f, int fd, const struct rpc_message *m)
{
    fake_error(fd, m->id, *(int *)f->ctx, "the reason");
}

static bool is_callers(int code)
{
    return code == GEMMD_INVALID || code == GEMMD_UNKNOWN_OP || code == GEMMD_UNKNOWN_FIELD ||
           code == GEMMD_CONFLICT;
}

/* True: the code means that no allowed config works. */
static bool is_verdict(int code)
{
    return code == GEMMD_NO_CONFIG || code == GEMMD_COMPILE || code == GEMMD_RESOURCE ||
           code == GEMMD_WRONG_RESULT || code == GEMMD_HUNG || code == GEMMD_CRASHED ||
           code == GEMMD_QUARANTINED;
}

/* The daemon refuses with `code`. is_fault: the caller gets this error; otherwise the default,
 * with the reason in its note. */
static void expect_default_or(struct gemmd *g, const struct gemmd_query *q, int code, bool is_fault)
{
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    assert_int_equal(gemmd_get(g, &p, q, &a, &e), is_fault ? code : 0);
    if (is_fault) {
        assert_string_equal(e.text, "the reason");
    } else {
        check_default(&a);
        assert_non_null(strstr(a.note, "the reason"));
    }
}

static void test_reasons_to_fall_back(void **state)
{
    struct fake *f = *state;
    int code = 0;
    f->ctx = &code;
    f->handler = refuse;
    /* a call that gets `busy` until its deadline fails with `busy` */
    struct gemmd *g = fixture_open(f, 100);
    struct gemmd_query q = GEMMD_QUERY_INIT, restricted, listed;
    q.flags = GEMMD_FALLBACK;
    restricted = listed = q;
    restricted.restrict_json = "{\"BLOCK_SIZE_M\": [32, 64]}";
    listed.configs_json = "[\"BLOCK_SIZE_M=64\"]";
    for (code = GEMMD_INTERNAL; code >= GEMMD_QUARANTINED; code--) {
        bool is_mistake = is_callers(code), is_fault = is_mistake || is_verdict(code);
        expect_default_or(g, &q, code, is_mistake || code == GEMMD_QUARANTINED);
        expect_default_or(g, &restricted, code, is_fault);
        expect_default_or(g, &listed, code, is_fault);
    }
}

/* gemmd_get_many gives no default on `quarantined`, as gemmd_get gives none: the daemon has
 * tried all other answers. */
static void test_no_default_that_is_in_quarantine(void **state)
{
    struct fake *f = *state;
    int code = GEMMD_QUARANTINED, status = 1;
    f->ctx = &code;
    f->handler = refuse;
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_problem p = small_problem();
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    q.flags = GEMMD_FALLBACK;
    assert_int_equal(gemmd_get_many(g, &p, 1, &q, &a, &status, NULL), GEMMD_QUARANTINED);
    assert_int_equal(status, GEMMD_QUARANTINED);
    assert_string_equal(a.note, "the reason");
    code = GEMMD_CRASHED;
    assert_int_equal(gemmd_get_many(g, &p, 1, &q, &a, &status, NULL), 0);
    check_default(&a);
}

/* No daemon can be reached: callers with a fallback get the default each time, other callers get
 * the reason. */
static void expect_no_way(struct gemmd *g, int code, const char *why)
{
    for (int i = 0; i < 2; i++) {
        struct gemmd_problem p = small_problem();
        struct gemmd_answer a = GEMMD_ANSWER_INIT, many = GEMMD_ANSWER_INIT;
        struct gemmd_error e;
        int status = 1;
        fake_sleep_ms(i * 1050); /* after a second libgemmd tries again to connect */
        assert_int_equal(gemmd_get_many(g, &p, 1, NULL, &many, &status, &e), 0);
        assert_int_equal(status, 0);
        check_default(&many);
        assert_non_null(strstr(many.note, why));
        assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
        check_default(&a);
        assert_int_equal(call(g, "status", 0, &e), code);
        assert_non_null(strstr(e.text, why));
    }
    gemmd_close(g);
}

static void test_fallback_when_the_socket_cannot_be(void **state)
{
    struct fake *f = *state;
    struct gemmd_options o = options_for(f, 0);
    struct gemmd_error e;
    struct gemmd *g;
    char path[200];
    memset(path, 'a', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    o.socket = NULL;
    setenv("GEMMD_SOCKET", path, 1);
    assert_int_equal(gemmd_open_lazy(&g, &o, &e), 0);
    expect_no_way(g, GEMMD_INVALID, "the socket path is 199 bytes long");
    unsetenv("GEMMD_SOCKET");
}

/* A caller's mistake: the default of another device is no answer, with or without a daemon. */
static void test_no_default_of_a_misspelled_device(void **state)
{
    struct gemmd_options o = options_for(*state, 0);
    struct gemmd_problem p = small_problem();
    struct gemmd_query offline = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    struct gemmd *g;
    const char *specs[] = {"abacus", "cpux", "tpu:0"};
    offline.flags = GEMMD_OFFLINE;
    o.socket = NULL;
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        int status = 0;
        o.device = specs[i];
        assert_int_equal(gemmd_open_lazy(&g, &o, &e), 0);
        assert_int_equal(gemmd_get(g, &p, &offline, &a, &e), GEMMD_INVALID);
        assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), GEMMD_INVALID);
        assert_non_null(strstr(e.text, specs[i]));
        assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), GEMMD_INVALID); /* again within 1 s */
        gemmd_get_many(g, &p, 1, NULL, &a, &status, &e);
        assert_int_equal(status, GEMMD_INVALID);
        gemmd_close(g);
    }
    o.device = "replay-nobody"; /* the name is valid, but no such device is known */
    assert_int_equal(gemmd_open_lazy(&g, &o, &e), 0);
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    check_default(&a);
    gemmd_close(g);
}

/* The daemon refuses `hello`, as when the database was lost and the pinned generation is
 * missing. */
static void test_fallback_when_hello_is_refused(void **state)
{
    struct fake *f = *state;
    int code = GEMMD_INVALID;
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    f->handler = refuse;
    f->ctx = &code;
    f->mute = true;
    fake_start(f);
    expect_no_way(fixture_open_lazy(f), code, "the reason");
    fake_stop(f);
    f->mute = false; /* next: the connected daemon is replaced */
    fake_start(f);
    struct gemmd *g = fixture_connect(f, 0);
    fake_stop(f);
    f->mute = true;
    fake_start(f);
    q.flags = GEMMD_FALLBACK;
    assert_int_equal(gemmd_get(g, &p, &q, &a, NULL), 0);
    check_default(&a);
    assert_non_null(strstr(a.note, "the reason"));
    gemmd_close(g);
    fake_stop(f);
}

static void test_lazy_handle_finds_its_daemon(void **state)
{
    struct fake *f = *state;
    struct gemmd *g = fixture_open_lazy(f);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
    check_default(&a);
    fake_start(f);
    assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
    check_default(&a); /* libgemmd makes no new attempt within the second */
    assert_int_equal(f->connections, 0);
    fake_sleep_ms(1050);
    assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
    assert_string_equal(a.tier, "exact");
    assert_false(a.local);
    gemmd_close(g);
    fake_stop(f);
}

static void test_fallback_of_a_target(void **state)
{
    struct fake *f = *state; /* no daemon listens */
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error e;
    struct gemmd *g = fixture_open_lazy(f);
    p.dtype_in = "fp32";
    q.target = "cpu";
    assert_int_equal(gemmd_get(g, &p, &q, &a, &e), 0);
    assert_string_equal(a.target, "cpu");
    assert_string_equal(a.tier, "default");
    /* a wrong target is an error: the default of another target is no answer */
    q.target = "portable";
    assert_int_equal(gemmd_get(g, &p, &q, &a, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "it has: cpu"));
    gemmd_close(g);
}

/* Asks with a restriction to some configs. `part`: text that the default's config must contain;
 * NULL: the restriction excludes the default, and the note must say so. */
static void expect_within(struct gemmd *g, const char *restrict_json, const char *configs_json,
                          const char *part)
{
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error e;
    q.restrict_json = restrict_json;
    q.configs_json = configs_json;
    if (gemmd_get(g, &p, &q, &a, &e)) {
        fail_msg("%s", e.text);
    }
    check_default(&a);
    if (!strstr(a.note, "not what is allowed") != !!part || (part && !strstr(a.config, part))) {
        fail_msg("%s: %s", a.config, a.note);
    }
}

/* Writes `config` with another value of one of its parameters. */
static void set_value(char *out, size_t size, const char *config, const char *name,
                      const char *value)
{
    const char *at = strstr(config, name);
    assert_non_null(at);
    snprintf(out, size, "%.*s%s%s%s", (int)(at - config), config, name, value,
             at + strcspn(at, " "));
}

static void expect_mistake(struct gemmd *g, const char *restrict_json, const char *configs_json,
                           int code)
{
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    q.restrict_json = restrict_json;
    q.configs_json = configs_json;
    assert_int_equal(gemmd_get(g, &p, &q, &a, NULL), code);
}

static void test_fallback_is_an_allowed_config(void **state)
{
    struct fake *f = *state; /* no daemon listens */
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    char usual[600], own[700], others[800], other[600] = "";
    struct gemmd *g = fixture_open_lazy(f);
    assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
    snprintf(usual, sizeof(usual), "%s", a.config);
    snprintf(own, sizeof(own), "[\"%s\"]", usual);
    snprintf(others, sizeof(others), "[\"BLOCK_SIZE_M=7\", \"%s\"]", usual);
    expect_within(g, NULL, own, usual);
    expect_within(g, NULL, others, usual);
    expect_within(g, NULL, "[{\"BLOCK_SIZE_M\": 7}]", NULL);
    expect_within(g, "{\"BLOCK_SIZE_M\": [7, 9]}", NULL, NULL);
    expect_within(g, "{}", NULL, usual);
    expect_within(g, "{\"BLOCK_SIZE_M\": 7}", own, NULL);
    const char *size = strstr(usual, "BLOCK_SIZE_M=64 ") ? "32" : "64";
    char restrict_json[64], part[32];
    snprintf(restrict_json, sizeof(restrict_json), "{\"BLOCK_SIZE_M\": [7, %s]}", size);
    snprintf(part, sizeof(part), "BLOCK_SIZE_M=%s ", size);
    expect_within(g, restrict_json, NULL, part);
    set_value(other, sizeof(other), usual, "BLOCK_SIZE_M=", size);
    snprintf(others, sizeof(others), "[\"%s\"]", other);
    expect_within(g, NULL, others, other);
    expect_mistake(g, "{", NULL, GEMMD_INVALID);
    expect_mistake(g, "[]", NULL, GEMMD_INVALID);
    expect_mistake(g, NULL, "[7]", GEMMD_INVALID);
    gemmd_close(g);
}

static char *space_of(const char *device, const char *target, const char *restrict_json)
{
    struct gemmd_problem p = small_problem();
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error e;
    char *json = NULL;
    q.target = target;
    q.restrict_json = restrict_json;
    if (gemmd_space(device, &p, &q, &json, &e)) {
        fail_msg("%s", e.text);
    }
    return json;
}

static void expect_space(const char *device, const char *target, const char *restrict_json,
                         const char *part)
{
    char *json = space_of(device, target, restrict_json);
    if (!strstr(json, part)) {
        fail_msg("no %s in %s", part, json);
    }
    gemmd_free(json);
}

static void test_space_without_a_device(void **state)
{
    (void)state;
    struct gemmd_problem p = small_problem();
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error e;
    char *json = NULL;
    expect_space("cuda:sm_90a", NULL, NULL, "{\"target\":\"hopper\",\"device\":\"any sm_90a\"");
    expect_space("cuda:sm_90a", "portable", NULL, "{\"target\":\"portable\"");
    expect_space("cuda:sm_80", NULL, NULL, "{\"target\":\"portable\"");
    expect_space("cpu", NULL, NULL, "{\"target\":\"cpu\"");
    expect_space(NULL, NULL, NULL, "\"legal\":"); /* the space of this machine's device */
    expect_space("cuda:sm_80", NULL, "{\"num_warps\":4}", "\"restricted\":");
    q.target = "hopper";
    assert_int_equal(gemmd_space("cuda:sm_80", &p, &q, &json, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "it has: portable"));
    assert_null(json);
    assert_int_equal(gemmd_space("cuda:sm_1", &p, NULL, &json, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "sm_90a"));
    assert_int_equal(gemmd_space("abacus", &p, NULL, &json, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_space("cpu", &p, NULL, NULL, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_space("cpu", NULL, NULL, &json, &e), GEMMD_INVALID);
    q = (struct gemmd_query)GEMMD_QUERY_INIT;
    q.restrict_json = "{";
    assert_int_equal(gemmd_space("cpu", &p, &q, &json, &e), GEMMD_INVALID);
    p.text = "custom:x a=1";
    assert_int_equal(gemmd_space("cpu", &p, NULL, &json, &e), GEMMD_NO_CONFIG);
    p.text = NULL;
    p.k = -1;
    assert_int_equal(gemmd_space("cpu", &p, NULL, &json, NULL), GEMMD_INVALID);
}

static void test_the_example_in_the_error_message_is_a_problem(void **state)
{
    (void)state;
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    struct gemmd_error e;
    char *json = NULL, example[ERROR_TEXT_MAX];
    p.text = "M=4096 N=1024 K=1024";
    assert_int_equal(gemmd_space("cpu", &p, NULL, &json, &e), GEMMD_INVALID);
    assert_int_equal(
        sscanf(e.text, "a problem's text begins with its op, as in \"%511[^\"]", example), 1);
    p.text = example;
    assert_int_equal(gemmd_space("cpu", &p, NULL, &json, &e), 0);
    gemmd_free(json);
}

static void test_the_short_notation_of_configs(void **state)
{
    (void)state;
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    struct gemmd_error e;
    char *text, *config;
    p.text = "gemm mode=forward M=512 N=512 K=512";
    assert_int_equal(gemmd_config_expand(&p, NULL, "64x64x256 v16 ur8 uc2 tw", &config, &e), 0);
    assert_string_equal(config, "BLOCK_SIZE_K=256 BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 GROUP_SIZE_M=1 "
                                "transpose_w=true unroll_cols=2 unroll_rows=8 vector_width=16");
    assert_int_equal(gemmd_config_shorten(&p, "cpu", config, &text, &e), 0);
    assert_string_equal(text, "64x64x256 v16 ur8 uc2 tw");
    gemmd_free(text);
    assert_int_equal(gemmd_config_shorten(&p, "hopper", config, &text, &e), 0);
    assert_null(text); /* a config of another target */
    gemmd_free(config);
    assert_int_equal(gemmd_config_expand(&p, "hopper", "64x64x256 v16", &config, &e),
                     GEMMD_INVALID);
    assert_non_null(strstr(e.text, "\"v16\" is no word of the target hopper"));
    assert_int_equal(gemmd_config_expand(&p, NULL, "anything else", &config, &e), 0);
    assert_string_equal(config, "anything else");
    gemmd_free(config);
    p.text = "custom:sort n=1";
    assert_int_equal(gemmd_config_shorten(&p, NULL, "BLOCK=64", &text, &e), 0);
    assert_null(text);
    assert_int_equal(gemmd_config_expand(&p, NULL, "64x64 s4", &config, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_config_expand(&p, NULL, NULL, &config, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_config_shorten(&p, NULL, NULL, &text, &e), GEMMD_INVALID);
}

static void test_the_exactness_of_configs(void **state)
{
    (void)state;
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    struct gemmd_exactness exact = GEMMD_EXACTNESS_INIT;
    struct gemmd_error e;
    const char *config = "BLOCK_SIZE_K=256 BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 transpose_w=false";
    p.m = p.n = p.k = 512;
    assert_int_equal(gemmd_config_exactness(&p, "cpu", config, &exact, &e), 0);
    assert_true(exact.runs && exact.batches);
    assert_string_equal(exact.order, "16 lanes, blocks of 256");
    assert_int_equal(gemmd_config_exactness(&p, "another", config, &exact, &e), 0);
    assert_true(!exact.runs && !exact.batches && !*exact.order);
    p.mode = "dW";
    assert_int_equal(gemmd_config_exactness(&p, "cpu", config, &exact, &e), 0);
    assert_true(exact.runs && !exact.batches && !*exact.order);
    p.text = "custom:sort n=1";
    assert_int_equal(gemmd_config_exactness(&p, "cpu", config, &exact, &e), 0);
    assert_true(!exact.runs && !exact.batches);
    assert_int_equal(gemmd_config_exactness(&p, NULL, config, &exact, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_config_exactness(&p, "cpu", "=", &exact, &e), GEMMD_INVALID);
    exact.size = 0;
    assert_int_equal(gemmd_config_exactness(&p, "cpu", config, &exact, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "gemmd_exactness has size 0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_fallback_without_a_daemon),
        FIXTURE_TEST(test_fallback_within_the_deadline),
        FIXTURE_TEST(test_reasons_to_fall_back),
        FIXTURE_TEST(test_no_default_that_is_in_quarantine),
        FIXTURE_TEST(test_fallback_when_the_socket_cannot_be),
        FIXTURE_TEST(test_no_default_of_a_misspelled_device),
        FIXTURE_TEST(test_fallback_when_hello_is_refused),
        FIXTURE_TEST(test_lazy_handle_finds_its_daemon),
        FIXTURE_TEST(test_fallback_of_a_target),
        FIXTURE_TEST(test_fallback_is_an_allowed_config),
        FIXTURE_TEST(test_space_without_a_device),
        cmocka_unit_test(test_the_example_in_the_error_message_is_a_problem),
        cmocka_unit_test(test_the_short_notation_of_configs),
        cmocka_unit_test(test_the_exactness_of_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
