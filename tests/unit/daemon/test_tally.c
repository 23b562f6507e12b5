/* SPDX-License-Identifier: Apache-2.0 */
/* Tallies stay within their limits, and lose no answer. */
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "daemon/base/tally.h"

/* Sums over the rows of all pages. */
struct sums {
    int64_t answers, exact, rows, jobs, without_job, without_key;
    char last_job[SERVED_JOB_MAX];
};

static void add_rows(struct sums *sums, const struct wire_buf *maps, uint32_t n)
{
    struct wire_doc *doc = wire_doc_new();
    WIRE_BUF_AUTO list = WIRE_BUF_NULL;
    const struct wire_obj *rows;
    struct error err = ERROR_NULL;
    struct served_row row;
    wire_put_array(&list, n);
    wire_put_raw(&list, maps->data, maps->len);
    assert_ok(wire_decode(doc, list.data, list.len, &rows, &err), &err);
    for (size_t i = 0; i < n; i++) {
        assert_ok(schema_decode(&served_row_schema, SCHEMA_STRICT, wire_at(rows, i), &row, &err),
                  &err);
        const bool is_exact = strcmp(row.tier, "exact") == 0;
        sums->rows++;
        sums->answers += row.answers;
        sums->exact += is_exact ? row.answers : 0;
        sums->jobs += strcmp(row.job, sums->last_job) != 0;
        sums->without_job += row.job[0] ? 0 : row.answers;
        sums->without_key += row.key[0] || is_exact ? 0 : row.answers;
        memcpy(sums->last_job, row.job, sizeof(row.job));
    }
    wire_doc_free(doc);
}

static struct sums pack_all(struct tallies *t)
{
    struct sums sums = {.last_job = "none yet"};
    for (uint32_t n = 1; n > 0;) {
        WIRE_BUF_AUTO page = WIRE_BUF_NULL;
        n = tallies_pack_page(t, 1000, 1800000000, &page);
        assert_in_range(n, 0, TALLY_PAGE_ROWS);
        add_rows(&sums, &page, n);
    }
    assert_int_equal(t->n, 0);
    assert_true(list_empty(&t->all));
    return sums;
}

static void count_key(struct tallies *t, struct tally *x, int i)
{
    char key[HASH_HEX];
    struct record problem;
    record_init(&problem);
    record_put_int(&problem, "M", i);
    snprintf(key, sizeof(key), "%032x", i);
    tally_count(t, x,
                &(struct tally_answer){.key = key,
                                       .tier = "default",
                                       .op = "grouped_gemm",
                                       .problem = &problem,
                                       .answers = 1,
                                       .first_s = i,
                                       .last_s = i});
}

static void a_user_with_many_jobs_takes_no_room_of_another(void **state)
{
    (void)state;
    struct tallies t;
    char job[32];
    tallies_init(&t);
    for (int i = 0; i < 1000; i++) {
        snprintf(job, sizeof(job), "slurm:%d", i);
        tally_count_exact(tallies_find(&t, 7, job, 1), 1, 2);
    }
    assert_int_equal(t.n, TALLY_USER_JOBS + 1);
    assert_true(t.is_crowded);
    struct tally *other = tallies_find(&t, 8, "slurm:1", 1);
    assert_string_equal(other->job, "slurm:1");
    assert_ptr_equal(tallies_find(&t, 8, "slurm:1", 1), other);
    struct sums sums = pack_all(&t);
    assert_int_equal(sums.exact, 1000);
    assert_int_equal(sums.without_job, 1000 - TALLY_USER_JOBS);
    assert_false(t.is_crowded);
    tallies_deinit(&t);
}

static void all_users_together_have_a_limit(void **state)
{
    (void)state;
    struct tallies t;
    char job[32];
    tallies_init(&t);
    for (unsigned i = 0; i < 20 * TALLY_USER_JOBS; i++) {
        snprintf(job, sizeof(job), "slurm:%u", i);
        tally_count_exact(tallies_find(&t, i % 20, job, 1), 1, 2);
    }
    assert_in_range(t.n, TALLY_JOBS, TALLY_JOBS + 20);
    assert_int_equal(pack_all(&t).exact, 20 * TALLY_USER_JOBS);
    tallies_deinit(&t);
}

static void keys_beyond_the_limit_are_counted_without_a_name(void **state)
{
    (void)state;
    struct tallies t;
    tallies_init(&t);
    struct tally *x = tallies_find(&t, 7, "slurm:1", 1);
    for (int i = 0; i < 5 * TALLY_SUMS; i++) {
        count_key(&t, x, i % (2 * TALLY_SUMS));
    }
    struct sums sums = pack_all(&t);
    assert_int_equal(sums.answers, 5 * TALLY_SUMS);
    assert_int_equal(sums.without_key, 2 * TALLY_SUMS);
    assert_int_equal(sums.rows, TALLY_SUMS + 1);
    tallies_deinit(&t);
}

static void rows_come_in_pages(void **state)
{
    (void)state;
    struct tallies t;
    char job[32];
    tallies_init(&t);
    for (int i = 0; i < 10; i++) {
        snprintf(job, sizeof(job), "slurm:%d", i);
        struct tally *x = tallies_find(&t, 7, job, 1);
        tally_count_exact(x, 3, 2);
        for (int k = 0; k < 100; k++) {
            count_key(&t, x, k);
        }
    }
    struct sums sums = pack_all(&t);
    assert_int_equal(sums.rows, 10 * 101);
    assert_int_equal(sums.answers, 10 * 103);
    assert_int_equal(sums.jobs, 10);
    tallies_deinit(&t);
}

static void a_problem_of_many_bytes_is_counted_without_a_name(void **state)
{
    (void)state;
    struct tallies t;
    struct record problem;
    char text[TALLY_SUM_BYTES + 1];
    tallies_init(&t);
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    record_init(&problem);
    record_put_text(&problem, "routing", text);
    struct tally *x = tallies_find(&t, 7, "slurm:1", 1);
    tally_count(&t, x,
                &(struct tally_answer){.key = "0123",
                                       .tier = "near",
                                       .op = "grouped_gemm",
                                       .problem = &problem,
                                       .answers = 2});
    struct sums sums = pack_all(&t);
    assert_int_equal(sums.without_key, 2);
    tallies_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_user_with_many_jobs_takes_no_room_of_another),
        cmocka_unit_test(all_users_together_have_a_limit),
        cmocka_unit_test(keys_beyond_the_limit_are_counted_without_a_name),
        cmocka_unit_test(rows_come_in_pages),
        cmocka_unit_test(a_problem_of_many_bytes_is_counted_without_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
