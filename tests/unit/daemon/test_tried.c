/* SPDX-License-Identifier: Apache-2.0 */
/* Keys with trials but no answer: each counted once, until its removal. */
#include "common.h"
#include "daemon/cache/cache.h"
#include "proto/hash.h"

enum { KEYS = 1000 };

/* Three of four ids begin alike, so they are neighbours in the table. */
static const char *id_of(int i)
{
    static char id[HASH_HEX];
    snprintf(id, sizeof(id), "%016x%016x", i % 4 ? 7 : i, i + 1);
    return id;
}

static void each_tried_key_counts_until_its_removal(void **state)
{
    (void)state;
    struct tried x = {0};
    struct error err = ERROR_NULL;
    tried_remove(&x, id_of(0));
    assert_false(tried_has(&x, id_of(0)));
    for (int twice = 0; twice < 2; twice++) {
        for (int i = 0; i < KEYS; i++) {
            assert_ok(tried_ask(&x, id_of(i), 7, &err), &err);
            tried_answered(&x, id_of(i), !twice); /* a key that was kept stays kept */
        }
        assert_int_equal(x.keys.n, KEYS);
    }
    for (int i = 0; i < KEYS; i += 2) {
        tried_remove(&x, id_of(i));
        tried_remove(&x, id_of(i));
    }
    assert_int_equal(x.keys.n, KEYS / 2);
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(tried_has(&x, id_of(i)), i % 2);
    }
    tried_deinit(&x);
    assert_false(tried_has(&x, id_of(1)));
}

static void a_key_without_kept_trials_counts_while_a_request_is_open(void **state)
{
    (void)state;
    struct tried x = {0};
    struct error err = ERROR_NULL;
    const char *id = id_of(0);
    assert_ok(tried_ask(&x, id, 7, &err), &err);
    assert_ok(tried_ask(&x, id, 7, &err), &err);
    assert_int_equal(x.keys.n, 1);
    tried_answered(&x, id, false);
    assert_true(tried_has(&x, id)); /* the other request still waits */
    tried_answered(&x, id, false);
    assert_int_equal(x.keys.n, 0);

    assert_ok(tried_ask(&x, id, 7, &err), &err);
    assert_ok(tried_ask(&x, id, 7, &err), &err);
    tried_answered(&x, id, true);
    tried_answered(&x, id, false);
    assert_true(tried_has(&x, id)); /* later requests were refused */

    for (int kept = 0; kept < 2; kept++) {
        assert_ok(tried_ask(&x, id, 7, &err), &err);
        tried_remove(&x, id);
        assert_true(tried_has(&x, id));
        tried_answered(&x, id, kept);
        assert_int_equal(x.keys.n, kept);
    }
    tried_deinit(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tried_key_counts_until_its_removal),
        cmocka_unit_test(a_key_without_kept_trials_counts_while_a_request_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
