/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of many problems. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/gemmd.h"
#include "client/table.h"
#include "tests/unit/client/fixture.h"

enum { MANY = 600 };

static void test_many_in_chunks(void **state)
{
    struct fake *f = *state;
    struct gemmd *g = fixture_open(f, 0);
    static struct newer_problem problems[MANY];
    static struct newer_answer answers[MANY];
    static int statuses[MANY];
    for (int i = 0; i < MANY; i++) {
        problems[i].old = small_problem();
        problems[i].old.m = i + 1;
        problems[i].old.size = sizeof(problems[i]);
        answers[i].old.size = sizeof(answers[i]);
    }
    problems[100].more = 1; /* a field that libgemmd does not know is set */
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

    int before = f->requests; /* the second call: all but two answers come from the table */
    problems[100].more = 0;
    assert_int_equal(gemmd_get_many(g, &problems[0].old, MANY, NULL, &answers[0].old, statuses, &e),
                     0);
    assert_int_equal(f->requests - before, 1);
    assert_int_equal(script.sizes[3], 2);
    assert_true(answers[0].old.local);
    assert_int_equal(statuses[100], 0);
}

static void test_many_long_problems(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
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
    struct gemmd_query q = GEMMD_QUERY_INIT;
    q.flags = GEMMD_NO_TABLE;
    assert_int_equal(gemmd_get_many(g, problems, N, &q, answers, statuses, &e), 0);
    assert_int_equal(script.n_sizes,
                     3); /* number of requests: 8 problems of this length fill one */
    for (int i = 0; i < N; i++) {
        assert_int_equal(statuses[i], 0);
    }
    free(text);
}

static void test_many_without_daemon(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = fixture_connect(f, 0);
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

/* A bad problem fails at any place of the array, and no other problem fails with it. */
static void test_many_with_a_bad_one(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
    int64_t rows[1] = {64};
    struct gemmd_error e;
    for (int bad = 0; bad < 3; bad++) {
        struct gemmd_problem problems[3] = {small_problem(), small_problem(), small_problem()};
        struct gemmd_answer answers[3] = {GEMMD_ANSWER_INIT, GEMMD_ANSWER_INIT, GEMMD_ANSWER_INIT};
        int statuses[3] = {7, 7, 7};
        problems[bad].routing = "uniform";
        problems[bad].rows_per_expert = rows;
        assert_int_equal(gemmd_get_many(g, problems, 3, NULL, answers, statuses, &e), 0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(statuses[i], i == bad ? GEMMD_CONFLICT : 0);
        }
        assert_non_null(strstr(answers[bad].note, "rows_per_expert"));
    }
    struct newer_problem newer = {.old = small_problem(), .more = 1};
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    int status = 7;
    newer.old.size = sizeof(newer);
    assert_int_equal(gemmd_get_many(g, &newer.old, 1, NULL, &a, &status, &e), 0);
    assert_int_equal(status, GEMMD_INVALID);
}

/* When the whole request fails, each status is its error code, and the error holds the message. */
static void test_many_that_fail_as_a_whole(void **state)
{
    struct gemmd *g = fixture_open(*state, 0);
    struct gemmd_problem problems[2] = {small_problem(), small_problem()};
    struct gemmd_answer answers[2] = {GEMMD_ANSWER_INIT, GEMMD_ANSWER_INIT};
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error e;
    int statuses[2] = {7, 7};
    q.deadline_ms = -1;
    assert_int_equal(gemmd_get_many(g, problems, 2, &q, answers, statuses, &e), GEMMD_INVALID);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(statuses[i], GEMMD_INVALID);
        assert_string_equal(answers[i].note, e.text);
        statuses[i] = 7;
    }
    problems[0].size = 3;
    assert_int_equal(gemmd_get_many(g, problems, 2, NULL, answers, statuses, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "_INIT"));
    assert_int_equal(statuses[1], GEMMD_INVALID);
    assert_string_equal(answers[1].note, e.text);
    problems[0] = small_problem();
    answers[0].size = 3; /* unknown layout */
    statuses[1] = 7;
    assert_int_equal(gemmd_get_many(g, problems, 2, NULL, answers, statuses, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "GEMMD_ANSWER_INIT"));
    assert_int_equal(statuses[0], GEMMD_INVALID);
    assert_int_equal(statuses[1], GEMMD_INVALID);
    assert_int_equal(answers[0].size, 3);
}

/* A field of the query that get_many has no parameter for is an error. */
static void test_many_refuse_fields_without_a_place(void **state)
{
    struct fake *f = *state;
    struct gemmd *g = fixture_open(f, 0);
    const struct {
        const char *name;
        struct gemmd_query q;
    } cases[] = {
        {"bucket", {.bucket = "exact"}},
        {"restrict_json", {.restrict_json = "{\"BLOCK_SIZE_M\": [16]}"}},
        {"restrict_json", {.restrict_json = "this is not JSON"}},
        {"configs_json", {.configs_json = "[]"}},
        {"strategy", {.strategy = "random"}},
        {"budget", {.budget = 4}},
        {"budget_ms", {.budget_ms = 4}},
        {"wall_ms", {.wall_ms = 4}},
        {"iters", {.iters = 4}},
        {"warmup", {.warmup = 4}},
        {"seed", {.seed = 4}},
        {"atol", {.atol = 1e-6}},
        {"rtol", {.rtol = 1e-6}},
        {"GEMMD_AGAIN", {.flags = GEMMD_AGAIN}},
        {"budget", {.budget = 4, .flags = GEMMD_OFFLINE}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gemmd_problem p = small_problem();
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        struct gemmd_query q = cases[i].q;
        struct gemmd_error e;
        int status = 7;
        q.size = sizeof(q);
        assert_int_equal(gemmd_get_many(g, &p, 1, &q, &a, &status, &e), GEMMD_INVALID);
        assert_int_equal(status, GEMMD_INVALID);
        assert_non_null(strstr(e.text, cases[i].name));
        assert_non_null(strstr(e.text, "gemmd_get"));
    }
    assert_int_equal(f->requests, 0);
}

/* The tests tell these problems apart by their M. */
static struct gemmd_problem problems[MANY];
static struct gemmd_answer answers[MANY];
static int statuses[MANY];

static void make_problems(void)
{
    for (int i = 0; i < MANY; i++) {
        problems[i] = small_problem();
        problems[i].m = 100 + i;
        answers[i] = (struct gemmd_answer)GEMMD_ANSWER_INIT;
    }
}

/* The daemon ends when it gets the second request; libgemmd had sent both before it read an
 * answer. */
static void die_on_second(struct fake *f, int fd, const struct rpc_message *m)
{
    if (atomic_load(&f->requests) == 2) {
        shutdown(fd, SHUT_RDWR);
    } else {
        script_answer(f, fd, m);
    }
}

static void test_many_over_a_restart(void **state)
{
    struct fake *f = *state;
    f->handler = die_on_second;
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_error e;
    make_problems();
    assert_int_equal(gemmd_get_many(g, problems, MANY, NULL, answers, statuses, &e), 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(statuses[i], 0);
        assert_int_equal(answers[i].generation, 100 + i);
    }
    assert_int_equal(f->connections, 2);
    assert_int_equal(f->requests, 4); /* libgemmd sent the lost request again */
}

/* The first request gets too few answers. The second request is already sent; libgemmd drops its
 * answer. */
static void answer_too_few(struct fake *f, int fd, const struct rpc_message *m)
{
    if (atomic_load(&f->requests) == 1) {
        struct wire_buf b = WIRE_BUF_NULL;
        rpc_put_result(&b, m->id);
        wire_put_map(&b, 1);
        wire_put_str(&b, "answers");
        wire_put_array(&b, 0);
        fake_send(fd, &b);
    } else {
        script_answer(f, fd, m);
    }
}

static void test_a_request_given_up_disturbs_no_later_one(void **state)
{
    struct fake *f = *state;
    f->handler = answer_too_few;
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_error e;
    make_problems();
    assert_int_equal(gemmd_get_many(g, problems, MANY, NULL, answers, statuses, &e),
                     GEMMD_MALFORMED);
    assert_int_equal(statuses[0], GEMMD_MALFORMED);
    assert_int_equal(statuses[MANY - 1], GEMMD_MALFORMED);
    assert_int_equal(gemmd_get_many(g, &problems[MANY - 1], 1, NULL, answers, statuses, &e), 0);
    assert_int_equal(answers[0].generation, 100 + MANY - 1);
    assert_int_equal(f->connections, 1);
}

static void refuse_second(struct fake *f, int fd, const struct rpc_message *m)
{
    if (atomic_load(&f->requests) == 2) {
        fake_error(fd, m->id, ERROR_DENIED, "not this one");
    } else {
        script_answer(f, fd, m);
    }
}

static void test_many_with_a_request_refused(void **state)
{
    struct fake *f = *state;
    f->handler = refuse_second;
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_error e;
    make_problems();
    assert_int_equal(gemmd_get_many(g, problems, MANY, NULL, answers, statuses, &e), GEMMD_DENIED);
    assert_string_equal(e.text, "not this one");
    assert_int_equal(statuses[0], 0);
    assert_int_equal(statuses[MANY - 1], GEMMD_DENIED);
}

/* ---- more than the table holds --------------------------------------------------------------- */

enum { BEYOND = 300, MORE = TABLE_MAX + BEYOND };
static struct gemmd_problem more_problems[MORE];
static struct gemmd_answer more_answers[MORE];
static int more_statuses[MORE];

/* A request whose first problem has at least this M gets defaults instead of measured answers. */
static int64_t guessed_from;

static void answer_measured_or_guessed(struct fake *f, int fd, const struct rpc_message *m)
{
    int64_t rows = 0;
    wire_get_int(wire_find(wire_at(wire_find(m->params, "problems"), 0), "M"), &rows);
    script.answer.tier = rows < guessed_from ? "exact" : "default";
    script.answer.source = rows < guessed_from ? "tuned" : "model";
    script.n_sizes = 0;
    script_answer(f, fd, m);
}

/* Returns how many problems of [from, from + n) the table answers. */
static int known_of(struct gemmd *g, int from, int n)
{
    struct gemmd_query q = GEMMD_QUERY_INIT;
    int known = 0;
    q.flags = GEMMD_OFFLINE;
    for (int i = from; i < from + n; i++) {
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        struct gemmd_error e;
        if (gemmd_get(g, &more_problems[i], &q, &a, &e) == 0 && strcmp(a.tier, "exact") == 0) {
            assert_int_equal(a.generation, 100 + i);
            assert_true(a.local);
            known++;
        }
    }
    return known;
}

static void get_more(struct gemmd *g)
{
    struct gemmd_error e;
    for (int i = 0; i < MORE; i++) {
        more_problems[i] = small_problem();
        more_problems[i].m = 100 + i;
        more_answers[i] = (struct gemmd_answer)GEMMD_ANSWER_INIT;
    }
    assert_int_equal(gemmd_get_many(g, more_problems, MORE, NULL, more_answers, more_statuses, &e),
                     0);
    for (int i = 0; i < MORE; i++) {
        assert_int_equal(more_statuses[i], 0);
        assert_int_equal(more_answers[i].generation, 100 + i);
    }
}

static void test_many_more_than_the_table_holds(void **state)
{
    struct fake *f = *state;
    f->handler = answer_measured_or_guessed;
    guessed_from = INT64_MAX;
    struct gemmd *g = fixture_open(f, 0);
    get_more(g);
    assert_int_equal(known_of(g, 0, TABLE_MAX), TABLE_MAX);
    assert_int_equal(known_of(g, TABLE_MAX, BEYOND), 0);
}

static void test_many_of_which_few_are_kept(void **state)
{
    struct fake *f = *state;
    f->handler = answer_measured_or_guessed;
    guessed_from = 100 + 2 * MANY_MAX;
    struct gemmd *g = fixture_open(f, 0);
    get_more(g);
    assert_int_equal(known_of(g, 0, 2 * MANY_MAX), 2 * MANY_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_many_in_chunks),
        FIXTURE_TEST(test_many_long_problems),
        FIXTURE_TEST(test_many_without_daemon),
        FIXTURE_TEST(test_many_with_a_bad_one),
        FIXTURE_TEST(test_many_that_fail_as_a_whole),
        FIXTURE_TEST(test_many_refuse_fields_without_a_place),
        FIXTURE_TEST(test_many_over_a_restart),
        FIXTURE_TEST(test_a_request_given_up_disturbs_no_later_one),
        FIXTURE_TEST(test_many_with_a_request_refused),
        FIXTURE_TEST(test_many_more_than_the_table_holds),
        FIXTURE_TEST(test_many_of_which_few_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
