/* SPDX-License-Identifier: Apache-2.0 */
/* The list `portfolio`: groups, the evidence that counts, pages, and updates. */
#include <math.h>
#include <stdio.h>

#include "proto/limits.h"
#include "store/inner.h"
#include "tests/unit/store/fixture.h"

static struct error err;
static struct trial trial;
static struct best best;

static struct wire_doc *doc;
static struct wire_buf bytes;
static const struct wire_obj *rows;
static int64_t total;

static int list(struct store *s, const char *filter)
{
    static struct record r;
    wire_buf_clear(&bytes);
    assert_ok(record_parse(&r, filter, &err));
    int status = store_list(s, "portfolio", &r, RESPONSE_BYTES_MAX, &bytes, &total, &err);
    if (status == 0) {
        assert_ok(wire_decode(doc, bytes.data, bytes.len, &rows, &err));
    }
    return status;
}

static int64_t int_of(size_t row, const char *name)
{
    int64_t v = -1;
    assert_true(wire_get_int(wire_find(wire_at(rows, row), name), &v));
    return v;
}

static double regret_of(size_t row)
{
    double v = NAN;
    assert_true(wire_get_real(wire_find(wire_at(rows, row), "regret_percent"), &v));
    return v;
}

static int64_t config_of(size_t row)
{
    int64_t v = -1;
    const struct wire_obj *config = wire_find(wire_at(rows, row), "config");
    assert_true(wire_get_int(wire_find(config, "serial"), &v));
    return v;
}

static void add_trial(struct store *s, int key, int config, double ratio, const char *stamp)
{
    fixture_trial(&trial, 0, key, config);
    trial.ratio = ratio;
    snprintf(trial.stamp, sizeof(trial.stamp), "%s", stamp);
    assert_ok(store_add_trial(s, &trial, &err));
}

static void add_best(struct store *s, int key)
{
    fixture_best(&best, key, 0);
    assert_ok(store_publish(s, &best, &err));
}

/* Four shapes of a mode, each with its own best (config = key), and config 50: 4 % slower in three
 * shapes, 20 % in the last. */
static struct store *four_shapes(struct fixture *f)
{
    struct store *s = fixture_open(f);
    for (int key = 0; key < 12; key += 3) {
        add_best(s, key);
        add_trial(s, key, key + 1, 0.5, "now");
        add_trial(s, key, 50, key == 9 ? 0.6 : 0.52, "now");
    }
    return s;
}

static void few_configs_within_the_bound(void **state)
{
    struct store *s = four_shapes(*state);
    assert_ok(list(s, ""));
    assert_int_equal(total, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(int_of(i, "members"), 2);
        assert_int_equal(int_of(i, "shapes"), 4);
        assert_true(regret_of(i) <= 5);
        /* the member that serves most shapes comes first */
        assert_int_equal(int_of(i, "member"), i < 3 ? 1 : 2);
        assert_int_equal(config_of(i), i < 3 ? 50 : 10);
    }
    assert_true(fabs(regret_of(0) - 4) < 1e-9 && regret_of(3) == 0);
    assert_ok(list(s, "bound=25"));
    assert_int_equal(int_of(0, "members"), 1);
    assert_ok(list(s, "bound=0.5"));
    assert_int_equal(int_of(0, "members"), 4);
    store_close(s);
}

static void only_what_can_be_shared(void **state)
{
    struct store *s = four_shapes(*state);
    add_best(s, 1); /* another mode */
    add_trial(s, 1, 50, 0.5, "now");
    /* a trial of old code is neither a member nor the best of a shape */
    add_trial(s, 0, 60, 0.1, "before");
    /* the key has no answer, so the list cannot name its problem */
    add_trial(s, 77, 50, 0.1, "now");
    fixture_failed_trial(&trial, 0, 3, 61);
    assert_ok(store_add_trial(s, &trial, &err));
    assert_ok(list(s, "stamp=now mode=forward"));
    assert_int_equal(total, 4);
    assert_int_equal(int_of(0, "members"), 2);
    assert_ok(list(s, "stamp=before"));
    assert_int_equal(total, 1);
    assert_int_equal(config_of(0), 60);
    assert_ok(list(s, "mode=dX"));
    assert_int_equal(total, 1);
    assert_ok(list(s, "class=other"));
    assert_int_equal(total, 0);
    store_close(s);
}

static void the_newest_trial_counts(void **state)
{
    struct store *s = four_shapes(*state);
    assert_ok(list(s, ""));
    assert_int_equal(int_of(0, "members"), 2);
    add_trial(s, 9, 50, 0.51, "now"); /* measured again */
    assert_ok(list(s, ""));           /* a new trial of a config replaces the earlier trial */
    assert_int_equal(int_of(0, "members"), 1);
    int64_t removed;
    assert_ok(store_evict(s, best.key, &removed, &err)); /* the last key added: 9 */
    assert_ok(list(s, ""));
    assert_int_equal(total, 3);
    store_close(s);
}

/* A trial with a wrong checksum counts neither as a member nor as the best of a shape. */
static void damaged_trials_do_not_count(void **state)
{
    struct store *s = four_shapes(*state);
    assert_ok(db_exec(&s->db, "UPDATE trial SET ratio = 0.01 WHERE ratio = 0.52", &err));
    assert_ok(list(s, ""));
    assert_int_equal(total, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(int_of(i, "members"), 4); /* only each shape's own best is left */
        assert_true(config_of(i) != 50);
    }
    assert_ok(db_exec(&s->db, "UPDATE trial SET ratio = 0.01 WHERE ratio = 0.5", &err));
    assert_ok(list(s, ""));
    assert_int_equal(total, 1); /* ratio 0.6 is good */
    store_close(s);
}

static void pages_and_filters(void **state)
{
    struct store *s = four_shapes(*state);
    assert_ok(list(s, "limit=1 offset=3"));
    assert_int_equal(wire_count(rows), 1);
    assert_int_equal(total, 4);
    assert_int_equal(config_of(0), 10);
    assert_ok(list(s, "offset=9"));
    assert_int_equal(wire_count(rows), 0);
    assert_int_equal(list(s, "colour=red"), ERROR_UNKNOWN_FIELD);
    assert_says(err, "bound");
    assert_int_equal(list(s, "bound=-1"), ERROR_INVALID);
    assert_int_equal(list(s, "bound=much"), ERROR_INVALID);
    assert_int_equal(list(s, "offset=-1"), ERROR_INVALID);
    store_close(s);
}

static void nothing_known(void **state)
{
    struct store *s = fixture_open(*state);
    assert_ok(list(s, ""));
    assert_int_equal(total, 0);
    store_close(s);
}

static int setup(void **state)
{
    doc = wire_doc_new();
    return fixture_setup(state);
}

static int teardown(void **state)
{
    doc = wire_doc_free(doc);
    wire_buf_deinit(&bytes);
    return fixture_teardown(state);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(few_configs_within_the_bound),
        TEST(only_what_can_be_shared),
        TEST(the_newest_trial_counts),
        TEST(pages_and_filters),
        TEST(nothing_known),
        TEST(damaged_trials_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
