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

/* Four shapes of a mode, each with its own best (config = key), and config 50: slower than the best
 * by 4 % in three shapes, 20 % in the last. */
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

/* The best config of a batch-invariant problem is slow elsewhere, and other configs are illegal
 * there. */
static void batch_invariant_problems_are_a_group(void **state)
{
    struct store *s = four_shapes(*state);
    fixture_best(&best, 12, 0);
    record_put_bool(&best.problem, "batch_invariant", true);
    assert_ok(store_publish(s, &best, &err));
    add_trial(s, 12, 50, 0.5, "now");
    assert_ok(list(s, ""));
    assert_int_equal(total, 5);
    for (size_t i = 0; i < 5; i++) {
        const bool restricted = int_of(i, "batch_invariant");
        assert_int_equal(int_of(i, "shapes"), restricted ? 1 : 4);
        assert_int_equal(restricted, i == 4);
    }
    store_close(s);
}

static void only_what_can_be_shared(void **state)
{
    struct store *s = four_shapes(*state);
    add_best(s, 1); /* a key of another mode */
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

/* ---- members --------------------------------------------------------------------------------- */

enum { MOST = 40 };

/* Returns the serial number of config `i`. The configs' texts have the order of these numbers. */
static int serial_of(int i)
{
    return 100 + 12 * i;
}

struct pair {
    int shape, config;
    double time;
};

/* Lists the portfolio of these pairs in a new database. Rows come in the order of keys, so each
 * row's shape is found by its key. */
static void make(struct fixture *f, const struct pair *pairs, size_t n, const char *filter)
{
    struct store *s = fixture_open(f);
    bool known[MOST] = {false};
    assert_ok(store_begin(s, &err));
    assert_ok(db_exec(&s->db, "DELETE FROM best; DELETE FROM trial", &err));
    for (size_t i = 0; i < n; i++) {
        if (!known[pairs[i].shape]) {
            add_best(s, 3 * pairs[i].shape); /* a mode */
        }
        known[pairs[i].shape] = true;
        add_trial(s, 3 * pairs[i].shape, serial_of(pairs[i].config), pairs[i].time, "now");
    }
    assert_ok(store_commit(s, &err));
    assert_ok(list(s, filter));
    store_close(s);
}

static size_t row_of(int shape)
{
    char key[HASH_HEX], text[HASH_HEX];
    fixture_best(&best, 3 * shape, 0);
    snprintf(key, sizeof(key), "%s", best.key);
    for (size_t i = 0; i < wire_count(rows); i++) {
        assert_true(wire_copy_str(wire_find(wire_at(rows, i), "key"), text, sizeof(text)));
        if (strcmp(text, key) == 0) {
            return i;
        }
    }
    fail_msg("shape %d has no row", shape);
    return 0;
}

static int64_t config_of_shape(int shape)
{
    return (config_of(row_of(shape)) - serial_of(0)) / 12;
}

static void one_config_that_is_good_enough_for_all(void **state)
{
    struct pair pairs[8];
    for (int s = 0; s < 4; s++) { /* each shape's own best, and config 4 that is 4 % slower */
        pairs[2 * s] = (struct pair){s, s, 100};
        pairs[2 * s + 1] = (struct pair){s, 4, 104};
    }
    make(*state, pairs, 8, "bound=5");
    assert_int_equal(int_of(0, "members"), 1);
    for (int s = 0; s < 4; s++) {
        assert_int_equal(config_of_shape(s), 4);
        assert_true(fabs(regret_of(row_of(s)) - 4) < 1e-9);
    }
    make(*state, pairs, 8, "bound=3");
    assert_int_equal(int_of(0, "members"), 4);
    make(*state, pairs, 8, "bound=0");
    for (int s = 0; s < 4; s++) {
        assert_int_equal(config_of_shape(s), s);
        assert_true(regret_of(row_of(s)) == 0);
    }
}

static void an_unmeasured_config_is_no_answer_for_a_shape(void **state)
{
    static const struct pair pairs[] = {{0, 0, 1}, {1, 1, 1}};
    make(*state, pairs, 2, "bound=1000");
    assert_int_equal(int_of(0, "members"), 2);
}

/* The greedy choice takes config 0 first, which is best for four shapes. Shapes 0 and 5 then need
 * configs 1 and 2, which make config 0 superfluous. */
static void superfluous_members_are_dropped(void **state)
{
    static const struct pair pairs[] = {{1, 0, 1}, {2, 0, 1}, {3, 0, 1}, {4, 0, 1}, {0, 1, 1},
                                        {1, 1, 1}, {2, 1, 1}, {3, 2, 1}, {4, 2, 1}, {5, 2, 1}};
    make(*state, pairs, 10, "bound=0");
    for (int s = 0; s < 6; s++) {
        assert_int_equal(int_of(row_of(s), "members"), 2);
        assert_int_equal(int_of(row_of(s), "member"), s < 3 ? 1 : 2);
        assert_int_equal(config_of_shape(s), s < 3 ? 1 : 2);
    }
}

static void ties_go_to_the_smaller_regret_then_the_first(void **state)
{
    static const struct pair pairs[] = {{0, 0, 104}, {0, 1, 102}, {0, 3, 100}, {0, 2, 100}};
    make(*state, pairs, 4, "bound=5");
    assert_int_equal(int_of(0, "members"), 1);
    assert_int_equal(config_of_shape(0), 2);
}

/* low..high, both included */
static int draw(unsigned *seed, int low, int high)
{
    *seed = *seed * 1103515245 + 12345;
    return low + (int)(*seed >> 16) % (high - low + 1);
}

/* Portfolios of random times cover every shape within the bound, without a superfluous member, and
 * do not depend on the order of measurements. */
static void random_portfolios_cover_every_shape(void **state)
{
    static struct pair pairs[MOST * MOST], reversed[MOST * MOST];
    unsigned seed = 7;
    for (int round = 0; round < 12; round++) {
        int shapes = draw(&seed, 1, 20), configs = draw(&seed, 1, 15);
        int bound = draw(&seed, 0, 20);
        char filter[32];
        size_t n = 0;
        for (int s = 0; s < shapes; s++) {
            int sure = draw(&seed, 0, configs - 1);
            for (int c = 0; c < configs; c++) {
                if (c == sure || draw(&seed, 0, 2) == 0) {
                    pairs[n++] = (struct pair){s, c, draw(&seed, 100, 130)};
                }
            }
        }
        for (size_t i = 0; i < n; i++) {
            reversed[i] = pairs[n - 1 - i];
        }
        snprintf(filter, sizeof(filter), "bound=%d", bound);
        make(*state, pairs, n, filter);
        int64_t members = int_of(0, "members"), chosen[MOST], seen[MOST] = {0}, used = 0;
        for (int s = 0; s < shapes; s++) {
            size_t row = row_of(s);
            assert_true(regret_of(row) >= 0 && regret_of(row) <= bound + 1e-9);
            assert_in_range(int_of(row, "member"), 1, members);
            chosen[s] = config_of_shape(s);
            used += seen[chosen[s]]++ == 0;
        }
        assert_int_equal(used, members);
        make(*state, reversed, n, filter);
        for (int s = 0; s < shapes; s++) {
            assert_int_equal(config_of_shape(s), chosen[s]);
        }
    }
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
        TEST(batch_invariant_problems_are_a_group),
        TEST(only_what_can_be_shared),
        TEST(the_newest_trial_counts),
        TEST(pages_and_filters),
        TEST(nothing_known),
        TEST(damaged_trials_do_not_count),
        TEST(one_config_that_is_good_enough_for_all),
        TEST(an_unmeasured_config_is_no_answer_for_a_shape),
        TEST(superfluous_members_are_dropped),
        TEST(ties_go_to_the_smaller_regret_then_the_first),
        TEST(random_portfolios_cover_every_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
