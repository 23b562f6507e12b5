/* SPDX-License-Identifier: Apache-2.0 */
/* Many asks at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "client/gemmd.h"
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
    assert_int_equal(gemmd_get_many(g, problems, N, NULL, answers, statuses, &e), 0);
    assert_int_equal(script.n_sizes, 3); /* 8 of them fill a request */
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

/* Told apart by their M. */
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

/* The daemon goes when it has the second request, which was sent before the first was read. */
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
    assert_int_equal(f->requests, 4); /* the lost one came again */
}

/* Too few answers to the first request; the second, which was under way, is answered in vain. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_many_in_chunks),
        FIXTURE_TEST(test_many_long_problems),
        FIXTURE_TEST(test_many_without_daemon),
        FIXTURE_TEST(test_many_over_a_restart),
        FIXTURE_TEST(test_a_request_given_up_disturbs_no_later_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
