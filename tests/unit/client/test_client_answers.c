/* SPDX-License-Identifier: Apache-2.0 */
/* Asking: what goes over the wire, what the table keeps, and what is answered without a daemon. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/gemmd.h"
#include "client/answer.h"
#include "client/table.h"
#include "tests/unit/client/fake.h"

enum { SLACK_MS = 300 }; /* of a deadline, on a loaded machine */

/* What the fake answers, and the params that it saw last, as JSON. */
struct script {
    struct fake_answer answer;
    char *seen;
    int delay_ms;
    int sizes[16], n_sizes; /* problems of each get_many */
};

static void remember(struct script *s, const struct rpc_message *m)
{
    struct error e;
    free(s->seen);
    s->seen = NULL;
    assert_int_equal(wire_to_json(m->params, &s->seen, &e), 0);
}

/* Every problem's answer says its own M; M = 13 is refused. */
static void answer_many(struct script *s, int fd, const struct rpc_message *m)
{
    const struct wire_obj *problems = wire_find(m->params, "problems");
    size_t n = wire_count(problems);
    s->sizes[s->n_sizes++] = (int)n;
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, m->id);
    wire_put_map(&b, 1);
    wire_put_str(&b, "answers");
    wire_put_array(&b, n);
    for (size_t i = 0; i < n; i++) {
        int64_t rows = 0;
        wire_get_int(wire_find(wire_at(problems, i), "M"), &rows);
        struct fake_answer a = s->answer;
        a.generation = rows;
        if (rows == 13) {
            wire_put_map(&b, 3);
            wire_put_kv_str(&b, "name", "conflict");
            wire_put_kv_str(&b, "message", "thirteen");
            wire_put_kv_bool(&b, "survives", true);
        } else {
            fake_put_answer(&b, &a);
        }
    }
    fake_send(fd, &b);
}

static void answer_by_script(struct fake *f, int fd, const struct rpc_message *m)
{
    struct script *s = f->ctx;
    remember(s, m);
    fake_sleep_ms(s->delay_ms);
    if (strcmp(m->method, "get_many") == 0) {
        answer_many(s, fd, m);
    } else {
        fake_answer(fd, m->id, &s->answer);
    }
}

static struct script script;

static int setup(void **state)
{
    struct fake *f = calloc(1, sizeof(*f));
    fake_path(f->path);
    script = (struct script){.answer = {.tier = "exact", .source = "tuned", .generation = 5}};
    f->ctx = &script;
    f->handler = answer_by_script;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fake *f = *state;
    fake_path_remove(f->path);
    free(f);
    free(script.seen);
    return 0;
}

static struct gemmd *open_to(const struct fake *f, bool lazy)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd_error e;
    struct gemmd *g = NULL;
    o.socket = f->path;
    o.device = "cpu";
    if ((lazy ? gemmd_open_lazy : gemmd_connect)(&g, &o, &e)) {
        fail_msg("%s", e.text);
    }
    return g;
}

static struct gemmd_problem small_problem(void)
{
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    p.m = 64;
    p.n = 128;
    p.k = 256;
    return p;
}

/* ---- over the wire -------------------------------------------------------------------------- */

static void test_plain_problem(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    assert_string_equal(script.seen, "{\"problem\":{\"op\":\"grouped_gemm\",\"mode\":\"forward\","
                                     "\"M\":64,\"N\":128,\"K\":256,\"experts\":1,\"topk\":1},"
                                     "\"wait\":\"tuned\"}");
    assert_int_equal(a.size, sizeof(a));
    assert_string_equal(a.tier, "exact");
    assert_string_equal(a.source, "tuned");
    assert_string_equal(a.config, "name=plain");
    assert_true(a.time_us == 12.5);
    assert_int_equal(a.generation, 5);
    assert_false(a.local);
    gemmd_close(g);
    fake_stop(f);
}

static void no_progress(void *ctx, const struct gemmd_progress *p)
{
    (void)ctx;
    (void)p;
}

static void test_full_query(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    p.mode = "dW";
    p.dtype_in = "fp16";
    p.dtype_out = "fp32";
    p.m = 64;
    p.n = p.k = 128;
    p.experts = 8;
    p.topk = 2;
    p.permute_y = p.accumulate = true;
    p.routing = "zipf:1.2";
    struct gemmd_query q = GEMMD_QUERY_INIT;
    q.wait = GEMMD_WAIT_NOW;
    q.flags = GEMMD_AGAIN;
    q.strategy = "random";
    q.budget = 7;
    q.budget_ms = 900;
    q.iters = 11;
    q.warmup = 2;
    q.atol = 0.25;
    q.rtol = 0.5;
    q.seed = 42;
    q.target = "portable";
    q.restrict_json = "{\"BLOCK_SIZE_M\":[64,128]}";
    q.configs_json = "[\"BLOCK_SIZE_M=64\"]";
    q.progress = no_progress;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    assert_int_equal(gemmd_tune(g, &p, &q, &a, &e), 0);
    assert_string_equal(
        script.seen,
        "{\"problem\":{\"op\":\"grouped_gemm\",\"mode\":\"dW\",\"dtype_in\":\"fp16\",\"dtype_out\":"
        "\"fp32\",\"M\":64,\"N\":128,\"K\":128,\"experts\":8,\"topk\":2,\"permute_y\":true,"
        "\"accumulate\":true,\"routing\":\"zipf:1.2\"},\"wait\":\"now\",\"progress\":true,"
        "\"again\":true,\"strategy\":\"random\",\"budget\":7,\"budget_ms\":900,\"iters\":11,"
        "\"warmup\":2,\"atol\":0.25,\"rtol\":0.5,\"seed\":42,\"target\":\"portable\",\"restrict\":"
        "{\"BLOCK_SIZE_M\":[64,128]},"
        "\"configs\":[\"BLOCK_SIZE_M=64\"]}");
    q.restrict_json = "{\"BLOCK_SIZE_M\":";
    assert_int_equal(gemmd_tune(g, &p, &q, &a, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "restrict_json"));
    gemmd_close(g);
    fake_stop(f);
}

static void test_rows_per_expert(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    int64_t rows[3] = {60, 0, 4};
    p.experts = 3;
    p.rows_per_expert = rows;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    assert_non_null(strstr(script.seen, "\"experts\":3,\"topk\":1,\"routing\":\"rows:60,0,4\"}"));
    int asked = f->requests;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    assert_true(a.local); /* the same rows: the table has it */
    assert_int_equal(f->requests, asked);
    rows[0] = 59;
    rows[1] = 1;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    assert_false(a.local);
    p.routing = "uniform";
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), GEMMD_CONFLICT);
    assert_non_null(strstr(e.text, "rows_per_expert"));
    p.routing = NULL;
    p.experts = 100000;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), GEMMD_INVALID);
    gemmd_close(g);
    fake_stop(f);
}

/* A caller compiled before there was rows_per_expert: its struct ends before it. */
static void test_problem_of_the_first_release(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    p.size = offsetof(struct gemmd_problem, rows_per_expert);
    p.rows_per_expert = (const int64_t *)1; /* not theirs: must not be read */
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    assert_null(strstr(script.seen, "routing"));
    gemmd_close(g);
    fake_stop(f);
}

static void test_text_problem(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    p.text = "custom:sort n=4096 stable=true kind=\"two words\" x=0.5";
    struct gemmd_query q = GEMMD_QUERY_INIT;
    q.wait = GEMMD_WAIT_CACHED;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    assert_int_equal(gemmd_get(g, &p, &q, &a, &e), 0);
    assert_string_equal(script.seen,
                        "{\"problem\":{\"op\":\"custom:sort\",\"kind\":\"two words\",\"n\":4096,"
                        "\"stable\":true,\"x\":0.5},\"wait\":\"cached\"}");
    const char *const bad[] = {"", "  ", "n=1 m=2", "custom:sort n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        p.text = bad[i];
        assert_int_equal(gemmd_get(g, &p, &q, &a, &e), GEMMD_INVALID);
    }
    gemmd_close(g);
    fake_stop(f);
}

/* The daemon is given a little less than we have, so that its answer is here in time. */
static void test_deadline_is_handed_on(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = small_problem();
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    q.deadline_ms = 1000;
    assert_int_equal(gemmd_get(g, &p, &q, &a, &e), 0);
    const char *told = strstr(script.seen, "\"deadline_ms\":");
    assert_non_null(told);
    int ms = atoi(told + strlen("\"deadline_ms\":"));
    assert_true(ms > 900 && ms < 1000);
    gemmd_close(g);
    fake_stop(f);
}

static void test_put(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = small_problem();
    struct gemmd_error e;
    p.text = "custom:sort n=1";
    assert_int_equal(gemmd_put(g, &p, "A=1 B=true", NAN, &e), 0);
    assert_string_equal(script.seen, "{\"problem\":{\"op\":\"custom:sort\",\"n\":1},"
                                     "\"config\":\"A=1 B=true\",\"time_us\":null}");
    assert_int_equal(gemmd_put(g, &p, NULL, 1, &e), GEMMD_INVALID);
    gemmd_close(g);
    fake_stop(f);
}

/* ---- sizes of structs ----------------------------------------------------------------------- */

struct newer_problem {
    struct gemmd_problem old;
    int64_t more;
};
struct newer_answer {
    struct gemmd_answer old;
    int64_t more;
};

static void test_struct_sizes(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_error e;
    struct newer_problem p = {.old = small_problem()};
    struct newer_answer a = {.old = GEMMD_ANSWER_INIT, .more = 77};
    p.old.size = sizeof(p);
    a.old.size = sizeof(a);
    assert_int_equal(gemmd_get(g, &p.old, NULL, &a.old, &e), 0);
    assert_int_equal(a.old.size, sizeof(a));
    assert_int_equal(a.more, 0); /* what this library does not know */
    p.more = 1;
    assert_int_equal(gemmd_get(g, &p.old, NULL, &a.old, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "update"));
    p.old.size = 0;
    assert_int_equal(gemmd_get(g, &p.old, NULL, &a.old, &e), GEMMD_INVALID);
    p.old.size = sizeof(p.old);
    a.old.size = 8;
    assert_int_equal(gemmd_get(g, &p.old, NULL, &a.old, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "GEMMD_ANSWER_INIT"));
    a.old.size = sizeof(a.old);
    struct gemmd_query q = GEMMD_QUERY_INIT;
    q.wait = (enum gemmd_wait)3;
    assert_int_equal(gemmd_get(g, &p.old, &q, &a.old, &e), GEMMD_INVALID);
    q = (struct gemmd_query)GEMMD_QUERY_INIT;
    q.deadline_ms = -1;
    assert_int_equal(gemmd_get(g, &p.old, &q, &a.old, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_get(g, NULL, NULL, &a.old, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_get(g, &p.old, NULL, NULL, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_get(NULL, &p.old, NULL, &a.old, NULL), GEMMD_INVALID);
    gemmd_close(g);
    fake_stop(f);
}

/* A caller that was compiled before `target` was added: its structs end there. */
static void test_older_callers(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = small_problem();
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    script.answer.stamp = "src=1 target=portable compiler=c";
    q.size = offsetof(struct gemmd_query, target);
    q.target = "not there"; /* behind the end: nobody may look */
    a.size = offsetof(struct gemmd_answer, target);
    snprintf(a.target, sizeof(a.target), "untouched");
    assert_int_equal(gemmd_get(g, &p, &q, &a, NULL), 0);
    assert_null(strstr(script.seen, "target"));
    assert_string_equal(a.target, "untouched");
    gemmd_close(g);
    fake_stop(f);
}

/* ---- targets -------------------------------------------------------------------------------- */

static void test_answers_name_their_target(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    q.flags = GEMMD_NO_TABLE;
    assert_int_equal(gemmd_get(g, &p, &q, &a, NULL), 0);
    assert_string_equal(a.target, ""); /* the stamp says nothing */
    script.answer.stamp = "src=0123 abi=1 target=hopper compiler=nvrtc 13.0";
    assert_int_equal(gemmd_get(g, &p, &q, &a, NULL), 0);
    assert_string_equal(a.target, "hopper");
    q.wait = GEMMD_WAIT_CACHED;
    q.target = "portable";
    int status;
    assert_int_equal(gemmd_get_many(g, &p, 1, &q, &a, &status, NULL), 0);
    assert_non_null(strstr(script.seen, "{\"target\":\"portable\",\"wait\":\"cached\""));
    gemmd_close(g);
    fake_stop(f);
}

static void test_fallback_of_a_target(void **state)
{
    struct fake *f = *state; /* nobody listens */
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error e;
    struct gemmd *g = open_to(f, true);
    p.dtype_in = "fp32";
    q.target = "cpu";
    assert_int_equal(gemmd_get(g, &p, &q, &a, &e), 0);
    assert_string_equal(a.target, "cpu");
    assert_string_equal(a.tier, "default");
    q.target = "portable"; /* the caller's mistake: no default of another kind instead */
    assert_int_equal(gemmd_get(g, &p, &q, &a, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "it has: cpu"));
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
    expect_space(NULL, NULL, NULL, "\"legal\":"); /* of this machine */
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

/* ---- the table ------------------------------------------------------------------------------ */

static void test_hit_needs_no_daemon(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT, b = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    fake_stop(f);
    assert_int_equal(gemmd_get(g, &p, NULL, &b, &e), 0);
    assert_true(b.local);
    assert_string_equal(b.config, a.config);
    assert_int_equal(b.generation, a.generation);
    p.dtype_in = "bf16"; /* says the same as the default */
    p.experts = 0;
    assert_int_equal(gemmd_get(g, &p, NULL, &b, &e), 0);
    p.permute_x = true;
    assert_int_equal(gemmd_get(g, &p, NULL, &b, &e), GEMMD_UNREACHABLE);
    gemmd_close(g);
}

static void test_what_the_table_keeps(void **state)
{
    static const struct {
        const char *tier, *source;
        bool kept;
    } cases[] = {{"exact", "tuned", true},     {"exact", "manual", true},
                 {"exact", "imported", false}, {"exact", "partial", false},
                 {"near", "tuned", false},     {"default", "model", false}};
    struct fake *f = *state;
    fake_start(f);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gemmd *g = open_to(f, false);
        struct gemmd_problem p = small_problem();
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        script.answer.tier = cases[i].tier;
        script.answer.source = cases[i].source;
        assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
        int before = f->requests;
        assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
        assert_int_equal(f->requests - before, cases[i].kept ? 0 : 1);
        gemmd_close(g);
    }
    fake_stop(f);
}

static void test_when_the_table_is_not_asked(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
    struct gemmd_query queries[7];
    for (int i = 0; i < 7; i++) {
        queries[i] = (struct gemmd_query)GEMMD_QUERY_INIT;
    }
    queries[0].flags = GEMMD_NO_TABLE;
    queries[1].flags = GEMMD_AGAIN;
    queries[2].atol = 1e-3; /* tighter than what it was verified with */
    queries[3].rtol = 1e-4;
    queries[4].restrict_json = "{\"A\":1}";
    queries[5].configs_json = "[\"A=1\"]";
    queries[6].target = "portable";
    for (int i = 0; i < 7; i++) {
        int before = f->requests;
        assert_int_equal(gemmd_get(g, &p, &queries[i], &a, NULL), 0);
        assert_false(a.local);
        assert_int_equal(f->requests - before, 1);
    }
    struct gemmd_query loose = GEMMD_QUERY_INIT;
    loose.atol = 0.1;
    loose.budget = 5;
    assert_int_equal(gemmd_get(g, &p, &loose, &a, NULL), 0);
    assert_true(a.local);
    /* What the caller has tuned anew replaces what was kept. */
    script.answer.generation = 6;
    assert_int_equal(gemmd_tune(g, &p, NULL, &a, NULL), 0);
    assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
    assert_true(a.local && a.generation == 6);
    gemmd_close(g);
    fake_stop(f);
}

static struct question asked(const struct gemmd_problem *p)
{
    struct question q;
    question_of(p, &q);
    return q;
}

static struct question question(int64_t i)
{
    struct gemmd_problem p = small_problem();
    p.m = i;
    return asked(&p);
}

static void test_table_is_bounded(void **state)
{
    (void)state;
    struct table t;
    struct gemmd_answer a = GEMMD_ANSWER_INIT, out = GEMMD_ANSWER_INIT;
    enum { PUT = 3 * TABLE_MAX };
    table_init(&t);
    for (int64_t i = 0; i < PUT; i++) {
        a.generation = i;
        memset(a.config, 'c', sizeof(a.config) - 1); /* of all lengths: memory is used again */
        a.config[i % (int64_t)sizeof(a.config)] = 0;
        const struct question q = question(i);
        table_put(&t, &q, &a);
    }
    for (int64_t i = 0; i < PUT; i++) {
        const struct question q = question(i);
        assert_int_equal(table_get(&t, &q, &out), i >= PUT - TABLE_MAX);
        if (i >= PUT - TABLE_MAX) {
            assert_int_equal(out.generation, i);
            assert_int_equal(strlen(out.config), i % (int64_t)sizeof(a.config));
            assert_true(out.local);
        }
    }
    table_deinit(&t);
}

static void test_a_word_more_is_another_question(void **state)
{
    (void)state;
    struct table t;
    struct gemmd_answer a = GEMMD_ANSWER_INIT, out = GEMMD_ANSWER_INIT;
    enum { N = 29 };
    struct gemmd_problem p[N];
    int64_t rows[3][2] = {{3, 5}, {5, 3}, {INT64_C(1) << 40, 3}}, all[GEMM_EXPERTS_MAX] = {0};
    char buffer[] = "forward", long_text[8192];
    memset(long_text, 'x', sizeof(long_text));
    long_text[sizeof(long_text) - 1] = 0;
    for (int i = 0; i < N; i++) {
        p[i] = small_problem();
    }
    p[1].mode = "dX", p[2].mode = "dW", p[3].dtype_in = "fp16", p[4].dtype_in = "fp32";
    p[5].dtype_out = "fp32", p[6].routing = "rows:1,2", p[7].routing = "rows:1,3";
    p[8].permute_x = p[9].permute_y = p[10].fuse_mul_post = p[11].accumulate = true;
    p[12].experts = 2, p[13].topk = 2, p[14].n++, p[15].k++, p[16].text = "a";
    p[17].text = "forward", p[18].text = "", p[19].mode = "forwards";
    for (int i = 20; i < 23; i++) {
        p[i].experts = 2;
        p[i].rows_per_expert = rows[i - 20];
    }
    p[23].experts = 300;
    p[23].rows_per_expert = all;
    p[24].routing = "zipf:1.2", p[25].routing = "zipf:1.25"; /* a word long, and longer */
    p[26].text = "forwards", p[27].text = "forwards and on", p[28].text = "forwards and oN";
    table_init(&t);
    for (int i = 0; i < N; i++) {
        const struct question q = asked(&p[i]);
        a.generation = i;
        assert_false(table_get(&t, &q, &out));
        table_put(&t, &q, &a);
    }
    p[0].mode = buffer; /* the text counts, not where it stands */
    for (int i = 0; i < N; i++) {
        const struct question q = asked(&p[i]);
        assert_true(table_get(&t, &q, &out));
        assert_int_equal(out.generation, i);
    }
    strcpy(buffer, "dX");
    struct question q = asked(&p[0]);
    assert_true(table_get(&t, &q, &out) && out.generation == 1);
    p[23].experts = GEMM_EXPERTS_MAX; /* neither are many experts' rows */
    q = asked(&p[23]);
    table_put(&t, &q, &a);
    assert_false(table_get(&t, &q, &out));
    p[0].text = long_text; /* is not kept, and does no harm */
    q = asked(&p[0]);
    table_put(&t, &q, &a);
    assert_false(table_get(&t, &q, &out));
    table_deinit(&t);
}

static void test_table_fills_structs_of_any_release(void **state)
{
    (void)state;
    struct {
        struct gemmd_answer answer;
        char more[24];
    } out;
    struct table t;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    const struct question q = question(7);
    strcpy(a.config, "A=1");
    strcpy(a.note, "a note");
    strcpy(a.target, "portable");
    strcpy(a.stamp, "a stamp");
    table_init(&t);
    table_put(&t, &q, &a);
    for (size_t size = ANSWER_SIZE_MIN; size <= sizeof(out); size += 8) {
        memset(&out, 0x55, sizeof(out));
        out.answer.size = size;
        assert_true(table_get(&t, &q, &out.answer));
        assert_int_equal(out.answer.size, size);
        assert_string_equal(out.answer.config, "A=1");
        assert_string_equal(out.answer.note, "a note");
        if (size >= sizeof(a)) {
            assert_string_equal(out.answer.stamp, "a stamp");
        }
        if (size >= sizeof(a)) {
            assert_string_equal(out.answer.target, "portable");
        }
        for (size_t i = size; i < sizeof(out); i++) {
            assert_int_equal(((const char *)&out)[i], 0x55);
        }
    }
    table_deinit(&t);
}

/* ---- without a daemon ----------------------------------------------------------------------- */

static void check_default(const struct gemmd_answer *a)
{
    assert_string_equal(a->tier, "default");
    assert_string_equal(a->source, "model");
    assert_string_equal(a->family, "grouped_gemm");
    assert_true(a->local);
    assert_non_null(strstr(a->config, "BLOCK_SIZE_M="));
    assert_true(isnan(a->time_us));
    assert_string_equal(a->module, "");
    assert_non_null(strstr(a->note, "analytic default"));
}

static void test_fallback_when_nobody_listens(void **state)
{
    struct fake *f = *state;
    struct gemmd *g = open_to(f, true);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    check_default(&a);
    p.n = 0; /* the caller's mistakes stay mistakes */
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "N"));
    p.text = "custom:sort n=1"; /* nothing is known of it here */
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
    fake_start(f);
    struct gemmd *g = open_to(f, false);
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
    /* A daemon that hangs costs one deadline a second, not one a call. */
    began = fake_ms();
    for (int i = 0; i < 20; i++) {
        assert_int_equal(gemmd_get(g, &p, &q, &a, &e), 0);
    }
    assert_true(fake_ms() - began < 20 * 150 / 2);
    q.flags = 0; /* who has no other way does try */
    assert_int_equal(gemmd_get(g, &p, &q, &a, &e), GEMMD_DEADLINE);
    gemmd_close(g);
    fake_stop(f);
}

static void refuse(struct fake *f, int fd, const struct rpc_message *m)
{
    fake_error(fd, m->id, *(int *)f->ctx, "the reason");
}

static void test_what_is_a_reason_to_fall_back(void **state)
{
    struct fake *f = *state;
    int code = 0;
    f->ctx = &code;
    f->handler = refuse;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    struct gemmd_problem p = small_problem();
    struct gemmd_query q = GEMMD_QUERY_INIT;
    q.flags = GEMMD_FALLBACK;
    for (code = GEMMD_INTERNAL; code >= GEMMD_QUARANTINED; code--) {
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        struct gemmd_error e;
        bool caller = code == GEMMD_INVALID || code == GEMMD_UNKNOWN_OP ||
                      code == GEMMD_UNKNOWN_FIELD || code == GEMMD_CONFLICT;
        assert_int_equal(gemmd_get(g, &p, &q, &a, &e), caller ? code : 0);
        if (!caller) {
            check_default(&a);
            assert_non_null(strstr(a.note, "the reason"));
        }
    }
    gemmd_close(g);
    fake_stop(f);
}

static void test_lazy_handle_finds_its_daemon(void **state)
{
    struct fake *f = *state;
    struct gemmd *g = open_to(f, true);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
    check_default(&a);
    fake_start(f);
    assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
    check_default(&a); /* within the second it does not try again */
    assert_int_equal(f->connections, 0);
    fake_sleep_ms(1050);
    assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
    assert_string_equal(a.tier, "exact");
    assert_false(a.local);
    gemmd_close(g);
    fake_stop(f);
}

/* ---- many ----------------------------------------------------------------------------------- */

enum { MANY = 600 };

static void test_many_in_chunks(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    static struct newer_problem problems[MANY];
    static struct newer_answer answers[MANY];
    static int statuses[MANY];
    for (int i = 0; i < MANY; i++) {
        problems[i].old = small_problem();
        problems[i].old.m = i + 1;
        problems[i].old.size = sizeof(problems[i]);
        answers[i].old.size = sizeof(answers[i]);
    }
    problems[100].more = 1; /* a field that we do not know */
    struct gemmd_error e;
    assert_int_equal(gemmd_get_many(g, &problems[0].old, MANY, NULL, &answers[0].old, statuses, &e),
                     0);
    assert_int_equal(script.n_sizes, 3);
    assert_int_equal(script.sizes[0], 256);
    assert_int_equal(script.sizes[1], 256);
    assert_int_equal(script.sizes[2], 87);
    for (int i = 0; i < MANY; i++) {
        int want = i == 100 ? GEMMD_INVALID : i + 1 == 13 ? GEMMD_CONFLICT : 0;
        assert_int_equal(statuses[i], want);
        assert_int_equal(answers[i].old.size, sizeof(answers[i]));
        if (want == 0) {
            assert_int_equal(answers[i].old.generation, i + 1);
        }
    }
    assert_string_equal(answers[12].old.note, "thirteen");
    assert_non_null(strstr(answers[100].old.note, "update"));
    assert_non_null(strstr(script.seen, "\"wait\":\"now\""));

    int before = f->requests; /* again: all but the two come from the table */
    problems[100].more = 0;
    assert_int_equal(gemmd_get_many(g, &problems[0].old, MANY, NULL, &answers[0].old, statuses, &e),
                     0);
    assert_int_equal(f->requests - before, 1);
    assert_int_equal(script.sizes[3], 2);
    assert_true(answers[0].old.local);
    assert_int_equal(statuses[100], 0);
    gemmd_close(g);
    fake_stop(f);
}

static void test_many_long_problems(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    enum { N = 20, LONG = 7000 };
    struct gemmd_problem problems[N];
    struct gemmd_answer answers[N];
    int statuses[N];
    char *text = malloc(LONG + 64);
    memcpy(text, "custom:x v=", 11);
    memset(text + 11, 'a', LONG);
    text[11 + LONG] = '\0';
    for (int i = 0; i < N; i++) {
        problems[i] = (struct gemmd_problem)GEMMD_PROBLEM_INIT;
        answers[i] = (struct gemmd_answer)GEMMD_ANSWER_INIT;
        problems[i].text = text;
    }
    struct gemmd_error e;
    assert_int_equal(gemmd_get_many(g, problems, N, NULL, answers, statuses, &e), 0);
    assert_int_equal(script.n_sizes, 3); /* 8 of them fill a request */
    for (int i = 0; i < N; i++) {
        assert_int_equal(statuses[i], 0);
    }
    free(text);
    gemmd_close(g);
    fake_stop(f);
}

static void test_many_without_daemon(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = open_to(f, false);
    fake_stop(f);
    struct gemmd_problem problems[3] = {small_problem(), small_problem(), small_problem()};
    struct gemmd_answer answers[3] = {GEMMD_ANSWER_INIT, GEMMD_ANSWER_INIT, GEMMD_ANSWER_INIT};
    int statuses[3];
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error e;
    problems[1].k = -1;
    assert_int_equal(gemmd_get_many(g, problems, 3, &q, answers, statuses, &e), GEMMD_UNREACHABLE);
    assert_int_equal(statuses[0], GEMMD_UNREACHABLE);
    assert_int_equal(statuses[2], GEMMD_UNREACHABLE);
    q.flags = GEMMD_FALLBACK;
    assert_int_equal(gemmd_get_many(g, problems, 3, &q, answers, statuses, &e), GEMMD_UNREACHABLE);
    assert_int_equal(statuses[0], 0);
    check_default(&answers[0]);
    assert_int_equal(statuses[1], GEMMD_INVALID);
    check_default(&answers[2]);
    problems[1].k = 128;
    assert_int_equal(gemmd_get_many(g, problems, 3, &q, answers, statuses, &e), 0);
    assert_int_equal(gemmd_get_many(g, NULL, 0, &q, NULL, NULL, &e), 0);
    assert_int_equal(gemmd_get_many(g, NULL, 3, &q, answers, statuses, &e), GEMMD_INVALID);
    gemmd_close(g);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_plain_problem),
        TEST(test_full_query),
        TEST(test_rows_per_expert),
        TEST(test_problem_of_the_first_release),
        TEST(test_text_problem),
        TEST(test_deadline_is_handed_on),
        TEST(test_put),
        TEST(test_struct_sizes),
        TEST(test_older_callers),
        TEST(test_answers_name_their_target),
        TEST(test_fallback_of_a_target),
        TEST(test_space_without_a_device),
        TEST(test_hit_needs_no_daemon),
        TEST(test_what_the_table_keeps),
        TEST(test_when_the_table_is_not_asked),
        TEST(test_table_is_bounded),
        TEST(test_a_word_more_is_another_question),
        TEST(test_table_fills_structs_of_any_release),
        TEST(test_fallback_when_nobody_listens),
        TEST(test_fallback_within_the_deadline),
        TEST(test_what_is_a_reason_to_fall_back),
        TEST(test_lazy_handle_finds_its_daemon),
        TEST(test_many_in_chunks),
        TEST(test_many_long_problems),
        TEST(test_many_without_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
