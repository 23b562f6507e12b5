/* SPDX-License-Identifier: Apache-2.0 */
/* libgemmd's table of received answers: its contents, its use, and its bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "client/gemmd.h"
#include "client/answer.h"
#include "client/table.h"
#include "tests/unit/client/fixture.h"

static void test_hit_needs_no_daemon(void **state)
{
    struct fake *f = *state;
    fake_start(f);
    struct gemmd *g = fixture_connect(f, 0);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT, b = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, &e), 0);
    fake_stop(f);
    assert_int_equal(gemmd_get(g, &p, NULL, &b, &e), 0);
    assert_true(b.local);
    assert_string_equal(b.config, a.config);
    assert_int_equal(b.generation, a.generation);
    p.dtype_in = "bf16"; /* the same problem: bf16 is the default */
    p.experts = 0;
    assert_int_equal(gemmd_get(g, &p, NULL, &b, &e), 0);
    p.permute_x = true;
    assert_int_equal(gemmd_get(g, &p, NULL, &b, &e), GEMMD_UNREACHABLE);
    gemmd_close(g);
}

static void test_answers_that_the_table_keeps(void **state)
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
        struct gemmd *g = fixture_connect(f, 0);
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
    struct gemmd *g = fixture_open(f, 0);
    struct gemmd_problem p = small_problem();
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
    struct gemmd_query queries[7];
    for (int i = 0; i < 7; i++) {
        queries[i] = (struct gemmd_query)GEMMD_QUERY_INIT;
    }
    queries[0].flags = GEMMD_NO_TABLE;
    queries[1].flags = GEMMD_AGAIN;
    queries[2].atol = 1e-3; /* tighter than the verification */
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
    /* A new tuning by the caller replaces the kept answer. */
    script.answer.generation = 6;
    assert_int_equal(gemmd_tune(g, &p, NULL, &a, NULL), 0);
    assert_int_equal(gemmd_get(g, &p, NULL, &a, NULL), 0);
    assert_true(a.local && a.generation == 6);
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
        /* configs of all lengths: the table reuses memory of removed answers */
        memset(a.config, 'c', sizeof(a.config) - 1);
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
    enum { N = 32 };
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
    p[24].routing = "zipf:1.2", p[25].routing = "zipf:1.25"; /* 8 bytes, and one byte more */
    p[26].text = "forwards", p[27].text = "forwards and on", p[28].text = "forwards and oN";
    p[29].batch_invariant = true;
    p[30].quant = "fp8_block", p[31].quant = "fp8_row";
    table_init(&t);
    for (int i = 0; i < N; i++) {
        const struct question q = asked(&p[i]);
        a.generation = i;
        assert_false(table_get(&t, &q, &out));
        table_put(&t, &q, &a);
    }
    p[0].mode = buffer; /* the table compares the text, not its address */
    for (int i = 0; i < N; i++) {
        const struct question q = asked(&p[i]);
        assert_true(table_get(&t, &q, &out));
        assert_int_equal(out.generation, i);
    }
    p[29].size = offsetof(struct gemmd_problem, batch_invariant); /* an older caller's struct */
    struct question q = asked(&p[29]);
    assert_true(table_get(&t, &q, &out) && out.generation == 0);
    p[30].quant = "none";
    q = asked(&p[30]);
    assert_true(table_get(&t, &q, &out) && out.generation == 0);
    strcpy(buffer, "dX");
    q = asked(&p[0]);
    assert_true(table_get(&t, &q, &out) && out.generation == 1);
    p[23].experts = GEMM_EXPERTS_MAX;
    p[0].text = long_text;
    for (int i = 0; i < 24; i += 23) {
        q = asked(&p[i]);
        assert_false(table_get(&t, &q, &out));
        table_put(&t, &q, &a);
        assert_true(table_get(&t, &q, &out));
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_hit_needs_no_daemon),
        FIXTURE_TEST(test_answers_that_the_table_keeps),
        FIXTURE_TEST(test_when_the_table_is_not_asked),
        FIXTURE_TEST(test_table_is_bounded),
        FIXTURE_TEST(test_a_word_more_is_another_question),
        FIXTURE_TEST(test_table_fills_structs_of_any_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
