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

/* ---- a full disk
 * ---------------------------------------------------------------------------------- */

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(loads_in_pages),
        T(finds_one),
        T(a_load_that_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
