/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to jobs: sums, evidence, limits. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "store/inner.h"
#include "tests/unit/store/fixture.h"

enum { NOW = 1800000000, DAY = 24 * 3600 };

static void fill(struct served_row *row, int uid, const char *job, const char *tier, int64_t last_s)
{
    memset(row, 0, sizeof(*row));
    row->uid = uid;
    snprintf(row->job, sizeof(row->job), "%s", job);
    snprintf(row->tier, sizeof(row->tier), "%s", tier);
    record_init(&row->problem);
    record_init(&row->config);
    row->answers = 1;
    row->first_s = last_s - 10;
    row->last_s = last_s;
}

/* Adds the same row n times in one call; with `numbered`, of n different keys. */
static int add(struct store *s, struct served_row *row, int n, bool numbered, struct error *err)
{
    WIRE_BUF_AUTO rows = WIRE_BUF_NULL;
    struct wire_doc *doc = wire_doc_new();
    const struct wire_obj *list;
    wire_put_array(&rows, (size_t)n);
    for (int i = 0; i < n; i++) {
        if (numbered) {
            fixture_key(i, row->key);
        }
        schema_encode(&rows, &served_row_schema, row);
    }
    assert_int_equal(wire_decode(doc, rows.data, rows.len, &list, err), 0);
    int r = store_add_served(s, list, err);
    wire_doc_free(doc);
    return r;
}

static void answers_to_one_job_are_summed(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct served_row row;
    int64_t bad = -1;
    fill(&row, 7, "slurm:1", "exact", NOW);
    assert_ok(add(s, &row, 3, false, &err));
    fill(&row, 7, "slurm:1", "exact", NOW - 100);
    assert_ok(add(s, &row, 1, false, &err));
    fill(&row, 7, "slurm:1", "default", NOW);
    fixture_key(1, row.key);
    assert_ok(add(s, &row, 2, false, &err));
    record_put_int(&row.config, "num_stages", 3); /* another config is another row */
    assert_ok(add(s, &row, 1, false, &err));
    fill(&row, 8, "slurm:1", "exact", NOW); /* another user's job of this name */
    assert_ok(add(s, &row, 1, false, &err));
    store_close(s);
    s = fixture_open(*state);
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM served"), 4);
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM job"), 2);
    assert_int_equal(
        fixture_count(s, "SELECT exact * 100 + defaults * 10 + keys FROM job WHERE uid = 7"), 431);
    assert_int_equal(
        fixture_count(s, "SELECT first_s FROM served WHERE tier = 'exact' AND uid = 7"), NOW - 110);
    assert_int_equal(fixture_count(s, "SELECT last_s FROM served WHERE tier = 'exact' AND uid = 7"),
                     NOW);
    assert_ok(store_check(s, &bad, &err));
    assert_int_equal(bad, 0);
    store_close(s);
}

static double evidence(struct store *s, const char *column)
{
    struct error err = ERROR_NULL;
    DB_STMT_AUTO *st = NULL;
    char sql[128];
    snprintf(sql, sizeof(sql), "SELECT %s FROM served_evidence", column);
    assert_ok(db_query(&s->db, &st, &err, sql, ""));
    assert_int_equal(db_step(&s->db, st, &err), DB_ROW);
    return sqlite3_column_type(st, 0) == SQLITE_NULL ? NAN : sqlite3_column_double(st, 0);
}

/* The loss follows from the ratio of a trial of the same config and stamp, else, for the tier
 * default, from the reference kernel. */
static void a_loss_needs_two_measurements(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct served_row row;
    struct best *b = calloc(1, sizeof(*b));
    struct trial *t = calloc(1, sizeof(*t));
    fixture_trial(t, 0, 5, 2);
    t->ratio = 0.8;
    t->status[0] = '\0';
    snprintf(t->status, sizeof(t->status), "ok");
    fill(&row, 7, "slurm:1", "default", NOW);
    fixture_key(5, row.key);
    record_copy(&row.config, &t->config);
    assert_ok(add(s, &row, 1, false, &err));
    assert_true(isnan(evidence(s, "best_us")) && isnan(evidence(s, "lost_us")));

    fixture_best(b, 5, 1);
    b->time_us = 50;
    b->reference_us = 100;
    snprintf(t->stamp, sizeof(t->stamp), "%s", b->stamp);
    assert_ok(store_publish(s, b, &err));
    assert_float_equal(evidence(s, "lost_us"), 50, 1e-9); /* the default is the reference kernel */
    assert_ok(store_add_trial(s, t, &err));
    assert_float_equal(evidence(s, "served_us"), 80, 1e-9);
    assert_float_equal(evidence(s, "lost_us"), 30, 1e-9);

    /* of the tier near, without a trial of its own stamp, nothing is known */
    assert_ok(
        db_exec(&s->db, "UPDATE trial SET stamp = 'other'; UPDATE served SET tier = 'near'", &err));
    assert_float_equal(evidence(s, "best_us"), 50, 1e-9);
    assert_true(isnan(evidence(s, "lost_us")));
    store_close(s);
    free(b);
    free(t);
}

static void old_rows_and_rows_beyond_the_limits_go(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct served_row row;
    fill(&row, 8, "slurm:8", "default", NOW - 31 * DAY);
    assert_ok(add(s, &row, 64, true, &err));
    fill(&row, 9, "slurm:9", "default", NOW - DAY);
    assert_ok(add(s, &row, 10, true, &err));
    for (int i = 0; i < 17; i++) { /* user 7 has a quarter of the rows */
        char job[32];
        snprintf(job, sizeof(job), "slurm:%d", i);
        fill(&row, 7, job, "default", NOW + i);
        assert_ok(add(s, &row, 256, true, &err));
    }
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM served WHERE uid = 8"), 0);
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM served WHERE uid = 9"), 10);
    assert_in_range(fixture_count(s, "SELECT count(*) FROM served WHERE uid = 7"),
                    STORE_SERVED_MAX / 4, STORE_SERVED_MAX / 4 + 63);
    assert_in_range(fixture_count(s, "SELECT count(*) FROM served WHERE job = 'slurm:0'"), 0, 63);
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM served WHERE job = 'slurm:16'"), 256);
    store_close(s);
}

static void a_bad_row_in_a_list_adds_nothing(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct wire_doc *doc = wire_doc_new();
    struct served_row row;
    const struct wire_obj *list;
    WIRE_BUF_AUTO rows = WIRE_BUF_NULL;
    fill(&row, 7, "slurm:1", "exact", NOW);
    wire_put_array(&rows, 2);
    schema_encode(&rows, &served_row_schema, &row);
    wire_put_map(&rows, 1);
    wire_put_kv_str(&rows, "answers", "many");
    assert_int_equal(wire_decode(doc, rows.data, rows.len, &list, &err), 0);
    assert_int_equal(store_add_served(s, list, &err), ERROR_INVALID);
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM served"), 0);
    wire_doc_free(doc);
    store_close(s);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(answers_to_one_job_are_summed),
        T(a_loss_needs_two_measurements),
        T(old_rows_and_rows_beyond_the_limits_go),
        T(a_bad_row_in_a_list_adds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
