/* SPDX-License-Identifier: Apache-2.0 */
/* Backups, integrity checks, read-only stores, and the size of the log. */
#include <stdio.h>
#include <unistd.h>

#include "store/inner.h"
#include "tests/unit/store/fixture.h"

static void backups(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    char path[128];
    fixture_fill(s);
    fixture_path(f, ".copy", path);
    assert_ok(store_backup(s, path, &err));
    assert_int_equal(store_backup(s, path, &err), ERROR_INVALID);
    assert_says(err, "it exists");
    assert_int_equal(store_backup(s, "/no/such/folder/x.db", &err), ERROR_IO);
    assert_says(err, "backup to /no/such/folder/x.db");
    char *longer = calloc(1, sizeof(f->dir) + 310);
    sprintf(longer, "%s/%0300d", f->dir, 1);
    assert_int_equal(store_backup(s, longer, &err), ERROR_IO);
    assert_says(err, "cannot write there: File name too long");
    assert_null(strstr(err.text, f->path));
    free(longer);
    store_close(s);
    strcpy(f->path, path);
    s = fixture_open(f);
    assert_int_equal(fixture_find_best(s, 5, b), 0);
    free(b);
    store_close(s);
}

static void checks_find_bad_rows(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    int64_t bad;
    fixture_fill(s);
    assert_ok(store_check(s, &bad, &err));
    assert_int_equal(bad, 0);
    assert_ok(db_exec(&s->db,
                      "UPDATE best SET time_us = 1 WHERE generation = 6;"
                      "UPDATE trial SET checksum = checksum + 1 WHERE id IN (3, 4);"
                      "UPDATE event SET uid = 0 WHERE id = 1",
                      &err));
    assert_ok(store_check(s, &bad, &err));
    assert_int_equal(bad, 4);
    assert_int_equal(f->notices, 4);
    /* key 5 has the sixth row, which is bad */
    assert_int_equal(fixture_find_best(s, 5, b), STORE_MISS);
    assert_int_equal(f->notices, 4); /* a bad row gives a single notice */
    assert_ok(store_check(s, &bad, &err));
    assert_int_equal(bad, 4);
    assert_int_equal(f->notices, 4);
    assert_string_equal(f->kind, "corrupt_row");
    assert_false(store_damaged(s));
    free(b);
    store_close(s);
}

/* When a key's current row is bad, the store must not return the key's older row. */
static void a_bad_best_is_a_miss(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    for (int i = 0; i < 2; i++) {
        fixture_best(b, 1, i);
        assert_ok(store_publish(s, b, &err));
    }
    assert_ok(db_exec(&s->db,
                      "UPDATE best SET config = replace(config, '64', '65') WHERE"
                      " generation = 2",
                      &err));
    assert_int_equal(fixture_find_best(s, 1, b), STORE_MISS);
    free(b);
    store_close(s);
}

/* A row with a right checksum but an invalid key was written so: the file is not damaged. */
static void a_row_without_a_proper_key_is_left_out(void **state)
{
    static const char *const keys[] = {"abcdef", "", "ABCDEF0123456789ABCDEF0123456789"};
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    struct store_stats stats;
    int64_t bad;
    fixture_best(b, 5, 1);
    assert_ok(store_publish(s, b, &err));
    for (int i = 0; i < 3; i++) {
        snprintf(b->key, sizeof(b->key), "%s", keys[i]);
        assert_ok(store_publish(s, b, &err));
    }
    store_close(s);
    s = fixture_open(f);
    assert_int_equal(fixture_find_best(s, 5, b), 0);
    assert_false(store_damaged(s));
    assert_int_equal(f->notices, 3);
    assert_string_equal(f->kind, "corrupt_row");
    assert_ok(store_check(s, &bad, &err));
    assert_int_equal(bad, 3);
    assert_ok(store_repair(s, &err));
    assert_int_equal(fixture_find_best(s, 5, b), 0);
    assert_ok(store_stats(s, &stats, &err));
    assert_int_equal(stats.bests, 1);
    free(b);
    store_close(s);
}

static void read_only_reads(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f), *reader;
    struct store_options o = fixture_options(f);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    struct event e = {0};
    fixture_fill(s);
    o.flags = STORE_READ_ONLY;
    assert_ok(store_open(&o, &reader, &err)); /* beside the writer */
    assert_int_equal(fixture_find_best(reader, 5, b), 0);
    assert_int_equal(store_add_event(reader, &e, &err), ERROR_STORE);
    assert_says(err, "it is read-only");
    store_close(reader);
    store_close(s);
    assert_ok(store_open(&o, &reader, &err)); /* a reader also works after the upkeep */
    assert_int_equal(fixture_find_best(reader, 5, b), 0);
    store_close(reader);
    free(b);
}

static void wal_is_put_back_when_idle(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct store_stats before, after;
    struct trial *t = calloc(1, sizeof(*t));
    for (int i = 0; i < 3000; i++) {
        fixture_trial(t, 0, i % 7, i);
        if (i % 100 == 0) {
            assert_ok(store_begin(s, &err));
        }
        assert_ok(store_add_trial(s, t, &err));
        if (i % 100 == 99) {
            assert_ok(store_commit(s, &err));
        }
    }
    assert_ok(store_stats(s, &before, &err));
    assert_true(before.wal_bytes > 1 << 20);
    assert_ok(store_tidy(s, &err));
    assert_ok(store_stats(s, &after, &err));
    assert_int_equal(after.wal_bytes, 0);
    assert_int_equal(after.trials, 3000);
    char wal[128];
    fixture_path(f, "-wal", wal);
    store_close(s);
    assert_int_equal(access(wal, F_OK), 0); /* kept for readers */
    free(t);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(backups),         T(checks_find_bad_rows),      T(a_bad_best_is_a_miss),
        T(read_only_reads), T(wal_is_put_back_when_idle), T(a_row_without_a_proper_key_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
