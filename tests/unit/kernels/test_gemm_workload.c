/* SPDX-License-Identifier: Apache-2.0 */
/* The workload of a grouped_gemm problem: the drawn routing, the checked rows, the buffers and
 * args; and the model's expectation. */
#include <math.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "tests/unit/kernels/common.h"

static const struct gemm_state *init(struct workload *w, const char *text, uint64_t seed)
{
    struct problem p;
    problem_of(&p, text);
    assert_ok(gemm_workload_init(w, &p, seed, err));
    return w->state;
}

/* gather must be the stable argsort of an assignment of rows to experts with these m_sizes. */
static void check_routing(const struct gemm_state *s)
{
    const struct gemm *v = &s->view;
    int64_t sum = 0;
    bool *seen = calloc((size_t)v->m, sizeof(*seen));
    for (int64_t e = 0; e < v->experts; e++) {
        assert_int_equal(s->start[e], sum);
        sum += s->m_sizes[e];
        for (int64_t i = s->start[e]; i < sum; i++) {
            assert_in_range(s->gather[i], 0, v->m - 1);
            assert_false(seen[s->gather[i]]);
            seen[s->gather[i]] = true;
            assert_true(i == s->start[e] || s->gather[i] > s->gather[i - 1]);
        }
    }
    assert_int_equal(sum, v->m);
    assert_int_equal(s->start[v->experts], v->m);
    free(seen);
}

/* No token goes to an expert twice. */
static void check_distinct(const struct gemm_state *s)
{
    const struct gemm *v = &s->view;
    for (int64_t e = 0; e < v->experts; e++) {
        for (int64_t i = s->start[e] + 1; i < s->start[e + 1]; i++) {
            assert_int_not_equal(s->gather[i] / v->topk, s->gather[i - 1] / v->topk);
        }
    }
}

static void test_uniform(void **state)
{
    (void)state;
    struct workload w;
    const struct gemm_state *s =
        init(&w, "grouped_gemm mode=forward M=32768 N=64 K=64 experts=128 topk=8", 7);
    check_routing(s);
    check_distinct(s);
    int equal = 0;
    for (int e = 0; e < 128; e++) {
        assert_in_range(s->m_sizes[e], 256 - 6 * 16, 256 + 6 * 16); /* six deviations */
        equal += s->m_sizes[e] == s->m_sizes[0];
    }
    assert_true(equal < 64); /* drawn, never all equal */
    gemm_workload_deinit(&w);
}

static void test_seed(void **state)
{
    (void)state;
    struct workload a, b, c;
    const char *text = "grouped_gemm mode=forward M=768 N=64 K=64 experts=16 topk=6 permute_x=true";
    const struct gemm_state *x = init(&a, text, 7), *y = init(&b, text, 7);
    const struct gemm_state *z = init(&c, text, 8);
    assert_memory_equal(x->gather, y->gather, 768 * sizeof(int32_t));
    assert_memory_not_equal(x->gather, z->gather, 768 * sizeof(int32_t));
    gemm_workload_deinit(&a);
    gemm_workload_deinit(&b);
    gemm_workload_deinit(&c);
    gemm_workload_deinit(&c); /* a second call has no effect */
}

static void test_zipf(void **state)
{
    (void)state;
    struct workload w;
    const struct gemm_state *s =
        init(&w, "grouped_gemm mode=dX M=8192 N=8 K=8 experts=64 topk=2 routing=zipf:1.2", 3);
    check_routing(s);
    check_distinct(s);
    assert_true(s->m_sizes[0] > 4 * s->m_sizes[15]);
    assert_true(s->m_sizes[0] <= 4096); /* the expert gets each token at most once */
    int64_t rows[64], sum = 0;
    gemm_expected_rows(&s->view, rows);
    for (int e = 0; e < 64; e++) {
        sum += rows[e];
        assert_true(e == 0 || rows[e] <= rows[e - 1] + 1);
    }
    assert_int_equal(sum, 8192);
    assert_true(llabs(rows[0] - s->m_sizes[0]) < 8192 / 10);
    gemm_workload_deinit(&w);
}

static void test_given_rows(void **state)
{
    (void)state;
    struct workload w;
    const struct gemm_state *s =
        init(&w,
             "grouped_gemm mode=dW M=145 N=8 K=8 experts=6 topk=5 permute_y=true "
             "routing=\"rows:0,1,15,64,65,0\"",
             1);
    check_routing(s);
    static const int32_t rows[] = {0, 1, 15, 64, 65, 0};
    assert_memory_equal(s->m_sizes, rows, sizeof(rows));
    int64_t expected[6];
    gemm_expected_rows(&s->view, expected);
    for (int e = 0; e < 6; e++) {
        assert_int_equal(expected[e], rows[e]);
    }
    assert_int_equal(w.check_terms, 65);
    gemm_workload_deinit(&w);
    init(&w, "grouped_gemm mode=dX M=145 N=24 K=40 experts=6", 1);
    assert_int_equal(w.check_terms, 24);
    gemm_workload_deinit(&w);
    init(&w, "grouped_gemm mode=forward M=145 N=24 K=40 experts=6", 1);
    assert_int_equal(w.check_terms, 40);
    gemm_workload_deinit(&w);
}

static bool is_checked(const struct gemm_state *s, const struct workload *w, int64_t row)
{
    for (uint32_t i = 0; i < w->n_checks; i++) {
        if (s->check_row[i] == row) {
            return true;
        }
    }
    return false;
}

static void check_places(const struct gemm_state *s, const struct workload *w)
{
    const struct gemm *v = &s->view;
    for (uint32_t i = 0; i < w->n_checks; i++) {
        int64_t row = s->check_row[i], e = s->check_expert[i];
        int64_t at = v->scatter ? s->gather[row] : row;
        assert_int_equal(w->check_at[i], at * v->out_cols);
        assert_in_range(w->check_at[i] + w->check_length, 1, w->buffers[w->output].count);
        if (v->mode == GEMM_DW) {
            assert_int_equal(e, row / v->n);
        } else {
            assert_in_range(row, s->start[e], s->start[e + 1] - 1);
        }
    }
}

/* With few experts, every expert's first and last row is checked. */
static void test_checks_small(void **state)
{
    (void)state;
    static const char *const more[] = {"mode=forward", "mode=forward permute_y=true",
                                       "mode=dX permute_x=true", "mode=dX permute_y=true",
                                       "mode=dW permute_x=true"};
    for (size_t m = 0; m < sizeof(more) / sizeof(more[0]); m++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "grouped_gemm %s M=145 N=24 K=40 experts=6 "
                 "routing=\"rows:0,1,15,64,65,0\"",
                 more[m]);
        struct workload w;
        const struct gemm_state *s = init(&w, text, 5);
        check_places(s, &w);
        for (int e = 0; e < 6; e++) {
            bool dw = s->view.mode == GEMM_DW; /* experts without rows have output, too */
            int64_t first = dw ? e * 24 : s->start[e];
            int64_t last = dw ? e * 24 + 23 : s->start[e + 1] - 1;
            if (dw || s->m_sizes[e]) {
                assert_true(is_checked(s, &w, first));
                assert_true(is_checked(s, &w, last));
            }
        }
        gemm_workload_deinit(&w);
    }
}

/* With many experts, a bounded number of rows is checked: always of the most and least loaded
 * experts, and in dW of an empty expert. */
static void test_checks_many(void **state)
{
    (void)state;
    static const char *const modes[] = {"forward", "dW"};
    for (size_t m = 0; m < 2; m++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "grouped_gemm mode=%s M=2000 N=16 K=16 experts=1024 topk=2 "
                 "routing=zipf:1",
                 modes[m]);
        struct workload w;
        const struct gemm_state *s = init(&w, text, 5);
        check_places(s, &w);
        assert_in_range(w.n_checks, 200, 512);
        int64_t most = 0, empty = -1;
        for (int e = 0; e < 1024; e++) {
            most = s->m_sizes[e] > s->m_sizes[most] ? e : most;
            empty = s->m_sizes[e] == 0 ? e : empty;
        }
        assert_true(empty >= 0);
        if (s->view.mode == GEMM_DW) {
            assert_true(is_checked(s, &w, most * 16));
            assert_true(is_checked(s, &w, empty * 16 + 15));
        } else {
            assert_true(is_checked(s, &w, s->start[most]));
            assert_true(is_checked(s, &w, s->start[most + 1] - 1));
        }
        gemm_workload_deinit(&w);
    }
}

/* When rows are long, fewer rows are checked, but at least 20. */
static void test_checks_bounded(void **state)
{
    (void)state;
    struct workload w;
    const struct gemm_state *s =
        init(&w, "grouped_gemm mode=forward M=8192 N=28672 K=4096 experts=8 topk=2", 5);
    check_places(s, &w);
    assert_in_range(w.n_checks, 20, 100);
    gemm_workload_deinit(&w);
    s = init(&w, "gemm mode=dX M=1 N=8 K=1048576", 5);
    assert_int_equal(w.n_checks, 1);
    gemm_workload_deinit(&w);
}

static const struct buffer *find(const struct workload *w, const char *name)
{
    for (uint32_t i = 0; i < w->n_buffers; i++) {
        if (strcmp(w->buffers[i].name, name) == 0) {
            return &w->buffers[i];
        }
    }
    return NULL;
}

static void test_buffers(void **state)
{
    (void)state;
    struct workload w;
    init(&w, "grouped_gemm mode=forward M=64 N=24 K=40 experts=4 topk=2 permute_x=true", 5);
    assert_int_equal(find(&w, "x")->count, 32 * 40); /* tokens */
    assert_int_equal(find(&w, "w")->count, 4 * 24 * 40);
    assert_int_equal(find(&w, "out")->count, 64 * 24);
    assert_int_equal(find(&w, "out")->init, BUFFER_OUTPUT);
    assert_int_equal(find(&w, "gather_indices")->count, 64);
    assert_null(find(&w, "dy"));
    assert_null(find(&w, "topk_weights"));
    gemm_workload_deinit(&w);
    init(&w,
         "grouped_gemm mode=forward M=64 N=24 K=40 experts=4 topk=2 permute_y=true "
         "fuse_mul_post=true",
         5);
    assert_int_equal(find(&w, "x")->count, 64 * 40);
    assert_int_equal(find(&w, "topk_weights")->dtype, DTYPE_FP32);
    gemm_workload_deinit(&w);
    init(&w,
         "grouped_gemm mode=dW M=64 N=24 K=40 experts=4 topk=2 permute_x=true accumulate=true "
         "dtype_out=fp32",
         5);
    assert_int_equal(find(&w, "x")->count, 32 * 40);
    assert_int_equal(find(&w, "dy")->count, 64 * 24);
    assert_int_equal(find(&w, "out")->count, 4 * 24 * 40);
    assert_int_equal(find(&w, "out")->dtype, DTYPE_FP32);
    assert_true(find(&w, "out")->accumulate);
    assert_null(find(&w, "w"));
    gemm_workload_deinit(&w);
}

static void test_work(void **state)
{
    (void)state;
    struct problem p;
    double flops, bytes;
    problem_of(&p, "gemm mode=forward M=100 N=24 K=40");
    gemm_work(&p, &flops, &bytes);
    assert_true(flops == 2.0 * 100 * 24 * 40);
    assert_true(bytes == 2.0 * (100 * 40 + 24 * 40 + 100 * 24));
    problem_of(&p, "grouped_gemm mode=dW M=100 N=24 K=40 experts=4 topk=2 permute_x=true "
                   "dtype_out=fp32 accumulate=true");
    gemm_work(&p, &flops, &bytes);
    assert_true(bytes == 2.0 * (100 * 24 + 50 * 40) + 4.0 * 2 * 4 * 24 * 40);
    /* W is read for the experts that have rows. */
    problem_of(&p, "grouped_gemm mode=dX M=10 N=24 K=40 experts=4 routing=\"rows:0,10,0,0\"");
    gemm_work(&p, &flops, &bytes);
    assert_true(bytes == 2.0 * (10 * 24 + 24 * 40 + 10 * 40));
}

static int64_t largest(const char *problem, uint64_t seed)
{
    struct workload w;
    const struct gemm_state *s = init(&w, problem, seed);
    int64_t most = 0;
    for (int64_t e = 0; e < s->view.experts; e++) {
        most = s->m_sizes[e] > most ? s->m_sizes[e] : most;
    }
    gemm_workload_deinit(&w);
    return most;
}

/* gemm_wary_seed picks a routing whose largest expert is larger than in most routings: of
 * eight drawn routings, the one with the second largest. */
static void test_wary_seed(void **state)
{
    (void)state;
    enum { SEEDS = 64 };
    static const char scout[] = "grouped_gemm mode=forward M=4096 N=64 K=64 experts=16 topk=1";
    struct problem p;
    problem_of(&p, scout);
    int above = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const uint64_t wary = gemm_wary_seed(&p, seed);
        assert_true(wary == gemm_wary_seed(&p, seed));
        const int64_t rows = largest(scout, wary);
        for (uint64_t other = 0; other < SEEDS; other++) {
            above += largest(scout, SEEDS + other) < rows;
        }
    }
    /* The second largest of eight routings exceeds another drawn routing with probability 7 / 9; a
     * routing drawn without gemm_wary_seed would do so in less than half of the cases. */
    assert_in_range(above, SEEDS * SEEDS * 0.65, SEEDS * SEEDS * 0.85);

    /* With given, equal or many rows gemm_wary_seed has no choice: it returns the seed. */
    problem_of(&p, "grouped_gemm mode=forward M=6 N=64 K=64 experts=2 topk=1 routing=\"rows:1,5\"");
    assert_true(gemm_wary_seed(&p, 3) == 3);
    problem_of(&p, "grouped_gemm mode=forward M=6 N=64 K=64 experts=2 topk=2");
    assert_true(gemm_wary_seed(&p, 3) == 3);
    problem_of(&p, "grouped_gemm mode=forward M=65536 N=64 K=64 experts=4 topk=1");
    assert_true(gemm_wary_seed(&p, 3) == 3);
}

static int asked;

static bool is_unwanted_at_last(void)
{
    return ++asked >= 2;
}

static void test_drawing_stops_when_the_rows_are_not_wanted(void **state)
{
    (void)state;
    static const char *const routings[] = {"uniform", "zipf:1.5"};
    struct workload w;
    struct problem p;
    host_work_unwanted = is_unwanted_at_last;
    for (int i = 0; i < 2; i++) {
        char text[160];
        snprintf(text, sizeof(text),
                 "grouped_gemm mode=forward M=16777216 N=8 K=8 experts=16 topk=1 routing=%s",
                 routings[i]);
        problem_of(&p, text);
        asked = 0;
        assert_fails(gemm_workload_init(&w, &p, 3, err), ERROR_CANCELLED, "prepared");
        assert_int_equal(
            asked,
            4); /* init asks if it may go on: twice while it draws, once in each later step */
    }
    host_work_unwanted = NULL;
}

static int setup(void **state)
{
    (void)state;
    families_register();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_zipf),
        cmocka_unit_test(test_given_rows),
        cmocka_unit_test(test_checks_small),
        cmocka_unit_test(test_checks_many),
        cmocka_unit_test(test_checks_bounded),
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_wary_seed),
        cmocka_unit_test(test_drawing_stops_when_the_rows_are_not_wanted),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
