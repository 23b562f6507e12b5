/* SPDX-License-Identifier: Apache-2.0 */
/* The local ledger loads bests page by page, and finds single bests during the load. */
#include "tests/unit/ledger/rig.h"

static void loads_in_pages(void **state)
{
    struct bench b;
    struct error err = ERROR_NULL;
    fill_bests(*state, MANY);
    assert_ok(begin(&b, *state, &err));
    load_all(&b);
    assert_int_equal(b.loaded, MANY);
    assert_int_equal(b.pages, (MANY + LOAD_PAGE - 1) / LOAD_PAGE);
    end(&b);
}

static void finds_one(void **state)
{
    struct bench b;
    struct error err = ERROR_NULL;
    char key[HASH_HEX];
    fill_bests(*state, MANY);
    assert_ok(begin(&b, *state, &err));
    CALL_OK(&b, load, true, on_load, NULL);
    wait_for(&b, 1);
    for (int i = 0; i < 3; i++) {
        fixture_key(i * 777, key);
        CALL_OK(&b, find, key, on_best, NULL);
        wait_for(&b, i + 2);
        assert_int_equal(b.status, 0);
        assert_int_equal(b.generation, i * 777 + 1);
        assert_true(b.saved);
    }
    fixture_key(MANY, key);
    CALL_OK(&b, find, key, on_best, NULL);
    wait_for(&b, 5);
    assert_int_equal(b.status, STORE_MISS);
    load_all(&b);
    fixture_key(0, key);
    CALL_OK(&b, find, key, on_best, NULL);
    wait_for(&b, b.callbacks + 1);
    assert_int_equal(b.status, STORE_MISS); /* `find` finds keys only while a load is under way */
    end(&b);
}

static void a_load_that_is_stopped(void **state)
{
    struct bench b;
    struct error err = ERROR_NULL;
    fill_bests(*state, MANY);
    assert_ok(begin(&b, *state, &err));
    CALL_OK(&b, load, true, on_load, NULL);
    end(&b);
    assert_int_equal(b.callbacks, 1);
    assert_true(b.status == 0 || b.status == ERROR_SHUTTING_DOWN);
}

static void on_written(void *ctx, int status, const struct error *err)
{
    note(status, err);
    *(int *)ctx = bench->callbacks;
}

/* A write does not wait for the lists that were requested before; all lists are answered. */
static void lists_are_patient(void **state)
{
    enum { LISTS = 200 };
    struct bench b;
    struct error err = ERROR_NULL;
    struct record *filter = calloc(1, sizeof(*filter));
    int written = 0;
    fill_bests(*state, MANY);
    assert_ok(begin(&b, *state, &err));
    record_init(filter);
    /* no index contains the column `source`: a list reads the whole table */
    record_put_text(filter, "source", "none");
    for (int i = 0; i < LISTS; i++) {
        CALL_OK(&b, list, 1, "best", filter, RESPONSE_BYTES_MAX, on_list, NULL);
    }
    CALL_OK(&b, lease, "k", 60000, on_written, &written);
    wait_for(&b, LISTS + 1);
    assert_int_equal(b.status, 0);
    assert_in_range(written, 1, LISTS / 2);
    for (int i = 0; i < LISTS; i++) {
        CALL_OK(&b, list, 1, "best", filter, RESPONSE_BYTES_MAX, on_list, NULL);
    }
    end(&b); /* all other lists are refused, each once */
    assert_int_equal(b.callbacks, 2 * LISTS + 1);
    free(filter);
}

static void on_listed(void *ctx, int status, const void *rows, size_t n, int64_t total,
                      const struct error *err)
{
    on_list(NULL, status, rows, n, total, err);
    *(int *)ctx = bench->callbacks;
}

/* A user's list does not wait for all lists of another user. A look-up of a key's rows waits for
 * no list. */
static void lists_of_users_take_turns(void **state)
{
    enum { LISTS = 200 };
    struct bench b;
    struct error err = ERROR_NULL;
    struct record *all = calloc(1, sizeof(*all)), *key = calloc(1, sizeof(*key));
    char id[HASH_HEX];
    int listed[2] = {0}, read[BRIEF_MAX] = {0};
    fill_bests(*state, MANY);
    assert_ok(begin(&b, *state, &err));
    record_init(all);
    record_put_text(all, "source", "none");
    record_init(key);
    fixture_key(7, id);
    record_put_text(key, "key", id);
    for (int i = 0; i < LISTS; i++) {
        CALL_OK(&b, list, 1, "best", all, RESPONSE_BYTES_MAX, on_list, NULL);
    }
    for (int i = 0; i < 2; i++) {
        CALL_OK(&b, list, 2, "best", all, RESPONSE_BYTES_MAX, on_listed, &listed[i]);
    }
    for (int i = 0; i < BRIEF_MAX; i++) {
        CALL_OK(&b, list, 1, "history", key, RESPONSE_BYTES_MAX, on_listed, &read[i]);
    }
    wait_for(&b, LISTS + 2 + BRIEF_MAX);
    assert_in_range(listed[0], 1, LISTS / 2);
    assert_in_range(listed[1], listed[0] + 2, LISTS / 2); /* a list of the other user ran between */
    assert_in_range(read[BRIEF_MAX - 1], 1, LISTS / 2);
    end(&b);
    free(key);
    free(all);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(loads_in_pages),
        T(finds_one),
        T(a_load_that_is_stopped),
        T(lists_are_patient),
        T(lists_of_users_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
