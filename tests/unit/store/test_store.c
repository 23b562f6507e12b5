/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that go into the store come out again. */
#include <math.h>
#include <stdio.h>

#include "store/inner.h"
#include "tests/unit/store/fixture.h"

struct seen {
    int n;
    struct best last;
    char key[HASH_HEX]; /* the key that `last` must have; "": any key */
    bool sorted;
    int64_t before;
};

static int see(void *ctx, const struct best *b)
{
    struct seen *seen = ctx;
    seen->sorted = seen->n == 0 || (seen->sorted && seen->before > b->generation);
    if (!seen->key[0] || strcmp(seen->key, b->key) == 0) {
        seen->last = *b;
    }
    seen->before = b->generation;
    seen->n++;
    return 0;
}

static void columns_are_the_fields(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    for (int t = 0; t < TABLES; t++) {
        const struct schema *schema = tables[t].schema;
        char sql[128];
        snprintf(sql, sizeof(sql),
                 "SELECT name FROM pragma_table_info('%s') ORDER BY name = 'checksum', cid",
                 tables[t].name);
        sqlite3_stmt *st = NULL;
        assert_ok(db_query(&s->db, &st, &err, sql, ""));
        for (size_t i = 0; i <= schema->n; i++) {
            assert_int_equal(db_step(&s->db, st, &err), DB_ROW);
            assert_string_equal((const char *)sqlite3_column_text(st, 0),
                                i < schema->n ? row_column(&schema->fields[i]) : "checksum");
        }
        assert_int_equal(db_step(&s->db, st, &err), 0);
        db_stmt_done(&st);
    }
    store_close(s);
}

static void settings_are_made(void **state)
{
    static const struct {
        const char *sql;
        int64_t value;
    } rows[] = {
        {"PRAGMA synchronous", 2},
        {"PRAGMA foreign_keys", 1},
        {"PRAGMA mmap_size", 0},
        {"PRAGMA journal_size_limit", 4194304},
        {"PRAGMA user_version", STORE_SCHEMA_VERSION},
        {"PRAGMA application_id", 0x67656d6d},
        {"SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND"
         " NOT strict AND name NOT LIKE 'sqlite_%'",
         0},
        {"PRAGMA auto_vacuum", 0},
        {"PRAGMA page_size", 4096},
        {"SELECT journal_mode = 'wal' FROM pragma_journal_mode", 1},
    };
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t v;
        assert_ok(db_int(&s->db, rows[i].sql, &v, &err));
        if (v != rows[i].value) {
            fail_msg("%s: %lld", rows[i].sql, (long long)v);
        }
    }
    store_close(s);
}

static void bests_survive_reopening(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct best *in = calloc(1, sizeof(*in)), *out = calloc(1, sizeof(*out));
    for (int i = 0; i < 50; i++) {
        fixture_best(in, i % 20, i);
        assert_ok(store_publish(s, in, &err));
        assert_int_equal(in->generation, i + 1);
    }
    store_close(s);
    s = fixture_open(f);
    struct seen *seen = calloc(1, sizeof(*seen));
    assert_ok(fixture_each_best(s, see, seen, &err));
    assert_int_equal(seen->n, 20);
    assert_true(seen->sorted);
    free(seen);
    assert_int_equal(fixture_find_best(s, 3, out), 0);
    fixture_best(in, 3, 43); /* the last row published for key 3 */
    in->generation = 44;
    in->created_s = out->created_s;
    assert_true(fixture_equal(&best_schema, in, out));
    assert_int_equal(f->notices, 0);
    store_close(s);
    free(in);
    free(out);
}

static int stop_at_second(void *ctx, const struct best *b)
{
    (void)b;
    return ++*(int *)ctx == 2;
}

static void each_best_stops_when_told(void **state)
{
    struct store *s = fixture_open(*state);
    fixture_fill(s);
    int n = 0;
    assert_int_equal(fixture_each_best(s, stop_at_second, &n, NULL), 0);
    assert_int_equal(n, 2);
    store_close(s);
}

static void bests_by_page(void **state)
{
    enum { KEYS = 20, ROWS = 50, IN_PAGE = 8 };
    struct store *s = fixture_open(*state);
    struct store_load *l;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best)), *page = calloc(IN_PAGE, sizeof(*page));
    for (int i = 0; i < ROWS; i++) {
        fixture_best(best, i % KEYS, i);
        assert_ok(store_publish(s, best, &err));
    }
    uint32_t n;
    int64_t seen = 0;
    assert_ok(store_load_begin(s, &l, &err));
    fixture_best(best, 3, 1); /* this row is newer than the load, which leaves it out */
    assert_ok(store_publish(s, best, &err));
    do { /* each page has the current row of its keys, and no older row */
        assert_ok(store_load_page(l, page, IN_PAGE, &n, &err));
        for (uint32_t i = 0; i < n; i++, seen++) {
            assert_int_equal(page[i].generation, ROWS - seen);
            assert_ok(store_load_find(l, page[i].key, best, &err));
            assert_true(fixture_equal(&best_schema, best, &page[i]));
        }
    } while (n > 0);
    assert_int_equal(seen, KEYS);
    assert_int_equal(store_load_find(l, "no such key", best, &err), STORE_MISS);
    assert_null(store_load_end(l));
    store_close(s);
    free(best);
    free(page);
}

static void values_at_the_edges(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct trial *in = calloc(1, sizeof(*in)), *out;
    uint32_t n;
    fixture_trial(in, 0, 1, 1);
    in->time_us = -0.0;
    in->ratio = INFINITY;
    in->q25_us = 5e-324;
    in->q75_us = 1.7976931348623157e308;
    in->predicted_us = 3; /* a whole number in a REAL column */
    in->required = INT64_MIN;
    in->limit_value = INT64_MAX;
    memset(in->reason, 'x', sizeof(in->reason) - 1);
    strcpy(in->resource, "caf\xc3\xa9 '\"; --");
    in->samples_us.n = SAMPLES_MAX;
    for (int i = 0; i < SAMPLES_MAX; i++) {
        in->samples_us.v[i] = 1.0 / (i + 3);
    }
    char text[RECORD_TEXT_MAX - 64];
    memset(text, '\x01', sizeof(text));
    text[sizeof(text) - 1] = 0;
    record_put_text(&in->config, "cache_modifier", text);
    assert_ok(store_add_trial(s, in, &err));
    assert_ok(store_trials_of(s, in->key, in->stamp, &out, &n, &err));
    assert_int_equal(n, 1);
    assert_true(fixture_equal(&trial_schema, in, out));
    free(out);
    free(in);
    store_close(s);
}

static void publish_stamped(struct store *s, int key, const char *source, const char *stamp)
{
    struct best *b = calloc(1, sizeof(*b));
    struct error err = ERROR_NULL;
    fixture_best(b, key, key);
    snprintf(b->source, sizeof(b->source), "%s", source);
    snprintf(b->stamp, sizeof(b->stamp), "%s", stamp);
    assert_ok(store_publish(s, b, &err));
    free(b);
}

static int64_t count_stale(struct store *s, const char *where)
{
    char sql[256];
    int64_t n = -1;
    struct error err = ERROR_NULL;
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM stale WHERE %s", where);
    assert_ok(db_int(&s->db, sql, &n, &err));
    return n;
}

/* Two targets of a family serve a class: the newest stamp of one target does not outdate the
 * other's rows. */
static void stale_is_older_than_its_targets_newest(void **state)
{
    struct store *s = fixture_open(*state);
    publish_stamped(s, 0, "tuned", "src=a1 abi=1 target=hopper compiler=nvrtc 13.0");
    publish_stamped(s, 1, "tuned", "src=b1 abi=1 target=portable compiler=nvrtc 13.0");
    assert_int_equal(count_stale(s, "true"), 0);
    publish_stamped(s, 2, "imported", "src=a0 abi=1 target=hopper compiler=nvrtc 12.8");
    assert_int_equal(count_stale(s, "source = 'imported' AND target = 'hopper'"), 1);
    assert_int_equal(count_stale(s, "true"), 1);
    publish_stamped(s, 3, "tuned", "src=a2 abi=1 target=hopper compiler=nvrtc 13.0");
    publish_stamped(s, 4, "tuned", "src=b1 abi=1 target=portable compiler=nvrtc 13.0");
    assert_int_equal(count_stale(s, "target = 'hopper' AND newest_stamp LIKE 'src=a2 %'"), 2);
    assert_int_equal(count_stale(s, "true"), 2);
    publish_stamped(s, 5, "tuned", "a stamp without a target");
    publish_stamped(s, 6, "tuned", "a newer one");
    assert_int_equal(count_stale(s, "target = '' AND newest_stamp = 'a newer one'"), 1);
    store_close(s);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(columns_are_the_fields),
        T(settings_are_made),
        T(bests_survive_reopening),
        T(each_best_stops_when_told),
        T(bests_by_page),
        T(values_at_the_edges),
        T(stale_is_older_than_its_targets_newest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
