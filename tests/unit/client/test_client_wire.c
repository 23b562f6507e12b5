/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and answers on the wire, for callers compiled with an older, this or a newer gemmd.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/gemmd.h"
#include "proto/message.h"
#include "tests/unit/client/fixture.h"

/* struct answer and struct gemmd_answer have fields of the same sizes. */
#define SAME_SIZE(name)                                                                            \
    _Static_assert(sizeof(((struct gemmd_answer *)0)->name) == sizeof(((struct answer *)0)->name), \
                   #name);
#define SAME_INT  SAME_SIZE
#define SAME_REAL SAME_SIZE
#define SAME_FLAG SAME_SIZE
#define SAME_TEXT SAME_SIZE
#define SAME_RECORD(name)
#define SAME(type, kind, name, n) SAME_##kind(name)
ANSWER_FIELDS(SAME, )

static void test_plain_problem(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
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
}

static void no_progress(void *ctx, const struct gemmd_progress *p)
{
    (void)ctx;
    (void)p;
}

static void test_full_query(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
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
}

static void test_rows_per_expert(void **state)
{
    struct fake *f = *state;
    struct gemmd *g = fixture_open(f, 0);
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
    assert_true(a.local); /* the table has the answer for the same rows */
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
}

/* A caller compiled before rows_per_expert was added: its struct ends before this field. */
static void test_problem_of_the_first_release(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    p.size = offsetof(struct gemmd_problem, rows_per_expert);
    /* this memory belongs to the caller: libgemmd must not read it */
    p.rows_per_expert = (const int64_t *)1;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    assert_null(strstr(script.seen, "routing"));
}

static void test_text_problem(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
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
}

/* The daemon gets a little less time than the caller, so that its answer arrives in time. */
static void test_deadline_is_handed_on(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
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
}

static void test_put(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
    struct gemmd_problem p = small_problem();
    struct gemmd_error e;
    p.text = "custom:sort n=1";
    assert_int_equal(gemmd_put(g, &p, "A=1 B=true", NAN, &e), 0);
    assert_string_equal(script.seen, "{\"problem\":{\"op\":\"custom:sort\",\"n\":1},"
                                     "\"config\":\"A=1 B=true\",\"time_us\":null}");
    assert_int_equal(gemmd_put(g, &p, NULL, 1, &e), GEMMD_INVALID);
    p.text = "custom:sort n=1 op=gemm"; /* a map must not have a field twice */
    assert_int_equal(gemmd_put(g, &p, "A=1", 1, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "op= is given twice"));
}

/* ---- sizes of structs ----------------------------------------------------------------------- */

static void test_struct_sizes(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
    struct gemmd_error e;
    struct newer_problem p = {.old = small_problem()};
    struct newer_answer a = {.old = GEMMD_ANSWER_INIT, .more = 77};
    p.old.size = sizeof(p);
    a.old.size = sizeof(a);
    assert_int_equal(gemmd_get(g, &p.old, NULL, &a.old, &e), 0);
    assert_int_equal(a.old.size, sizeof(a));
    assert_int_equal(a.more, 0); /* unknown to this library */
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
    q.wait = (enum gemmd_wait)4;
    assert_int_equal(gemmd_get(g, &p.old, &q, &a.old, &e), GEMMD_INVALID);
    q = (struct gemmd_query)GEMMD_QUERY_INIT;
    q.deadline_ms = -1;
    assert_int_equal(gemmd_get(g, &p.old, &q, &a.old, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_get(g, NULL, NULL, &a.old, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_get(g, &p.old, NULL, NULL, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_get(NULL, &p.old, NULL, &a.old, NULL), GEMMD_INVALID);
}

/* Structs of options and acquires of a newer gemmd.h end with a field unknown to libgemmd. */
static void test_newer_options(void **state)
{
    struct fake *f = *state;
    struct gemmd *g = fixture_open(f, 0), *other = NULL;
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    enum gemmd_outcome outcome;
    struct {
        struct gemmd_options old;
        int64_t more;
    } o = {options_for(f, 0), 1};
    struct {
        struct gemmd_acquire old;
        int64_t more;
    } q = {GEMMD_ACQUIRE_INIT, 1};
    o.old.size = sizeof(o);
    q.old.size = sizeof(q);
    p.text = "custom:mine n=1";
    assert_int_equal(gemmd_connect(&other, &o.old, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "update"));
    o.more = 0;
    assert_int_equal(gemmd_connect(&other, &o.old, &e), 0);
    gemmd_close(other);
    assert_int_equal(gemmd_acquire(g, &p, &q.old, &outcome, &a, NULL, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "update"));
    q.old.size = 3;
    assert_int_equal(gemmd_acquire(g, &p, &q.old, &outcome, &a, NULL, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "GEMMD_ACQUIRE_INIT"));
    assert_int_equal(f->requests, 0);
}

static void answer_strangely(struct fake *f, int fd, const struct rpc_message *m)
{
    struct wire_buf b = WIRE_BUF_NULL;
    (void)f;
    rpc_put_result(&b, m->id);
    wire_put_map(&b, 1);
    wire_put_kv_str(&b, "outcome", "perhaps");
    fake_send(fd, &b);
}

static void test_invalid_acquires(void **state)
{
    struct fake *f = *state;
    f->handler = answer_strangely;
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    struct gemmd_acquire q = GEMMD_ACQUIRE_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    enum gemmd_outcome outcome;
    char *json = NULL;
    p.text = "custom:mine n=1";
    q.deadline_ms = -1;
    assert_int_equal(gemmd_acquire(g, &p, &q, &outcome, &a, NULL, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "deadline_ms is -1"));
    assert_int_equal(gemmd_call(g, "tune", NULL, -1, &json, NULL, NULL, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "deadline_ms is -1"));
    assert_int_equal(f->requests, 0);
    q.deadline_ms = 0;
    assert_int_equal(gemmd_acquire(g, &p, &q, &outcome, &a, &json, &e), GEMMD_MALFORMED);
    assert_null(json);
}

static void give_a_lease(struct fake *f, int fd, const struct rpc_message *m)
{
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, m->id);
    wire_put_map(&b, *(int *)f->ctx);
    wire_put_kv_str(&b, "outcome", "lease");
    if (*(int *)f->ctx > 1) {
        wire_put_kv_int(&b, "known", 3);
    }
    fake_send(fd, &b);
}

/* The daemon's answer to an acquire may lack the list of configs with known results: the JSON text
 * that gemmd_acquire returns is an array nevertheless. */
static void test_known_configs_are_an_array(void **state)
{
    struct fake *f = *state;
    int fields;
    f->ctx = &fields;
    f->handler = give_a_lease;
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    p.text = "custom:mine n=1";
    for (fields = 1; fields <= 2; fields++) {
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        enum gemmd_outcome outcome = GEMMD_HIT;
        char *json = NULL;
        assert_int_equal(gemmd_acquire(g, &p, NULL, &outcome, &a, &json, NULL), 0);
        assert_int_equal(outcome, GEMMD_LEASE);
        assert_string_equal(json, "[]");
        gemmd_free(json);
    }
}

/* A caller compiled before `target` was added: its structs end before this field. */
static void test_older_callers(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
    struct gemmd_problem p = small_problem();
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    script.answer.stamp = "src=1 target=portable compiler=c";
    q.size = offsetof(struct gemmd_query, target);
    q.target = "not there"; /* this member lies beyond the given size: libgemmd must not read it */
    a.size = offsetof(struct gemmd_answer, target);
    snprintf(a.target, sizeof(a.target), "untouched");
    assert_int_equal(gemmd_get(g, &p, &q, &a, NULL), 0);
    assert_null(strstr(script.seen, "target"));
    assert_string_equal(a.target, "untouched");
}

static void test_answers_name_their_target(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
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
}

/* ---- configs -------------------------------------------------------------------------------- */

struct pair {
    const char *name,
        *text; /* NULL: the value is `number`; "nil", "true": nil, true; else the text */
    double number;
};

static void put_value(struct wire_buf *b, const struct pair *p)
{
    if (!p->text && p->number == (double)(int64_t)p->number) {
        wire_put_int(b, (int64_t)p->number);
    } else if (!p->text) {
        wire_put_real(b, p->number);
    } else if (strcmp(p->text, "nil") == 0) {
        wire_put_nil(b);
    } else if (strcmp(p->text, "true") == 0) {
        wire_put_bool(b, true);
    } else {
        wire_put_str(b, p->text);
    }
}

static void answer_with_config(struct fake *f, int fd, const struct rpc_message *m)
{
    const struct pair *pairs = f->ctx;
    size_t n = 0;
    while (pairs[n].name) {
        n++;
    }
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, m->id);
    wire_put_map(&b, 2);
    wire_put_kv_str(&b, "tier", "near");
    wire_put_str(&b, "config");
    wire_put_map(&b, n);
    for (size_t i = 0; i < n; i++) {
        wire_put_str(&b, pairs[i].name);
        put_value(&b, &pairs[i]);
    }
    fake_send(fd, &b);
}

/* libgemmd writes the fields of a config straight into a line if they come sorted, else by way of a
 * record: the line is the same. */
static void test_configs_become_a_line(void **state)
{
    static char letters[600];
    memset(letters, 'x', sizeof(letters) - 1);
    static const struct {
        struct pair pairs[5];
        const char *line; /* NULL: unreadable */
    } cases[] = {
        {{{0}}, ""},
        {{{"A", NULL, 1}, {"B", "true", 0}, {"C", "2x1", 0}}, "A=1 B=true C=2x1"},
        {{{"C", "2x1", 0}, {"A", NULL, -7}, {"B", NULL, 1e15}}, "A=-7 B=1000000000000000 C=2x1"},
        {{{"A", "two words", 0}, {"AB", "", 0}, {"B", "64", 0}},
         "A=\"two words\" AB=\"\" B=\"64\""},
        {{{"A", NULL, 0.5}, {"B", "nil", 0}, {"C", NULL, 2}}, "A=0.5 C=2"},
        {{{"A", "k\xc3\xa4se", 0}, {"B", NULL, 1}}, "A=k\xc3\xa4se B=1"},
        {{{"a.b:c", NULL, 1}, {"a_b", NULL, 2}}, "a.b:c=1 a_b=2"},
        {{{"A", NULL, 1}, {"A", NULL, 2}}, NULL},
        {{{"two words", NULL, 1}}, NULL},
        {{{"", NULL, 1}}, NULL},
        {{{"A", letters, 0}}, NULL}, /* the text is too long for struct gemmd_answer */
    };
    struct fake *f = *state;
    f->handler = answer_with_config;
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_problem p = small_problem();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        struct gemmd_error e;
        f->ctx = (void *)(uintptr_t)cases[i].pairs;
        int r = gemmd_get(g, &p, NULL, &a, &e);
        if ((r == 0) != (cases[i].line != NULL)) {
            fail_msg("case %zu: %d (%s)", i, r, e.text);
        }
        assert_string_equal(a.config, cases[i].line ? cases[i].line : "");
    }
}

/* The fields that the fake puts into its answer. */
struct parts {
    const char *tier, *config; /* NULL: the map lacks the field; "": the field is nil */
};

static void put_part(struct wire_buf *b, const char *name, const char *value)
{
    wire_put_str(b, name);
    if (*value) {
        wire_put_str(b, value);
    } else {
        wire_put_nil(b);
    }
}

static void answer_parts(struct fake *f, int fd, const struct rpc_message *m)
{
    const struct parts *p = f->ctx;
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, m->id);
    wire_put_map(&b, 1 + (p->tier != NULL) + (p->config != NULL));
    wire_put_kv_str(&b, "source", "tuned");
    if (p->tier) {
        put_part(&b, "tier", p->tier);
    }
    if (p->config) {
        put_part(&b, "config", p->config);
    }
    fake_send(fd, &b);
}

/* The daemon sent an invalid answer, which is not the caller's fault: callers with a fallback get
 * the default. */
static void test_answers_that_cannot_be_read(void **state)
{
    static const struct parts cases[] = {
        {"exact", NULL}, {"exact", ""}, {"exact", "BLOCK_SIZE_M=64"}, {NULL, NULL}, {"", NULL},
    };
    struct fake *f = *state;
    f->handler = answer_parts;
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_problem p = small_problem();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gemmd_query q = GEMMD_QUERY_INIT;
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        struct gemmd_error e;
        f->ctx = (void *)(uintptr_t)&cases[i];
        assert_int_equal(gemmd_get(g, &p, &q, &a, &e), GEMMD_MALFORMED);
        assert_non_null(strstr(e.text, "gemmd's answer cannot be read"));
        q.flags = GEMMD_FALLBACK;
        assert_int_equal(gemmd_get(g, &p, &q, &a, &e), 0);
        assert_string_equal(a.tier, "default");
        assert_true(a.config[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_plain_problem),
        FIXTURE_TEST(test_full_query),
        FIXTURE_TEST(test_rows_per_expert),
        FIXTURE_TEST(test_problem_of_the_first_release),
        FIXTURE_TEST(test_text_problem),
        FIXTURE_TEST(test_deadline_is_handed_on),
        FIXTURE_TEST(test_put),
        FIXTURE_TEST(test_struct_sizes),
        FIXTURE_TEST(test_newer_options),
        FIXTURE_TEST(test_invalid_acquires),
        FIXTURE_TEST(test_known_configs_are_an_array),
        FIXTURE_TEST(test_older_callers),
        FIXTURE_TEST(test_answers_name_their_target),
        FIXTURE_TEST(test_configs_become_a_line),
        FIXTURE_TEST(test_answers_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
