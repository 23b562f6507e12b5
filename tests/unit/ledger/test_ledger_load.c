/* SPDX-License-Identifier: Apache-2.0 */
/* The local ledger's bests, loaded page by page, and found while that goes on. */
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
    assert_int_equal(b.status, STORE_MISS); /* no load is under way */
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

/* A write does not wait for all lists that were asked for before it, and all of them are answered. */
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
    record_put_text(filter, "source", "none"); /* no index knows it: the whole table is read */
    for (int i = 0; i < LISTS; i++) {
        CALL_OK(&b, list, "best", filter, RESPONSE_BYTES_MAX, on_list, NULL);
    }
    CALL_OK(&b, lease, "k", "me", 60000, on_written, &written);
    wait_for(&b, LISTS + 1);
    assert_int_equal(b.status, 0);
    assert_in_range(written, 1, LISTS / 2);
    for (int i = 0; i < LISTS; i++) {
        CALL_OK(&b, list, "best", filter, RESPONSE_BYTES_MAX, on_list, NULL);
    }
    end(&b); /* the others are refused, each once */
    assert_int_equal(b.callbacks, 2 * LISTS + 1);
    free(filter);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(loads_in_pages),
        T(finds_one),
        T(a_load_that_is_stopped),
        T(lists_are_patient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
