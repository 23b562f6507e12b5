/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/proto/common.h"

#include "proto/error.h"

static int traced;

static void trace(int code, const char *text)
{
    assert_true(strlen(text) > 0);
    traced = code;
}

static void test_set(void **state)
{
    (void)state;
    struct error err = ERROR_NULL;
    error_trace_hook = trace;
    assert_int_equal(error_set(&err, ERROR_BUSY, "queue of %d is full", 7), ERROR_BUSY);
    assert_int_equal(traced, ERROR_BUSY);
    error_trace_hook = NULL;
    assert_int_equal(err.code, ERROR_BUSY);
    assert_string_equal(err.text, "queue of 7 is full");
    assert_int_equal(error_prefix(&err, "job %d", 3), ERROR_BUSY);
    assert_string_equal(err.text, "job 3: queue of 7 is full");
    assert_int_equal(error_set(NULL, ERROR_IO, "x"), ERROR_IO);
}

static void test_long_text_is_cut(void **state)
{
    (void)state;
    struct error err;
    char text[2000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    error_set(&err, ERROR_INVALID, "%s", text);
    assert_int_equal(strlen(err.text), ERROR_TEXT_MAX - 1);
    assert_string_equal(err.text + ERROR_TEXT_MAX - 4, "...");
    error_prefix(&err, "%s", text);
    assert_int_equal(strlen(err.text), ERROR_TEXT_MAX - 1);
    assert_int_equal(err.code, ERROR_INVALID);
}

static void test_names(void **state)
{
    (void)state;
    for (int code = -1; code >= ERROR_QUARANTINED; code--) {
        assert_int_equal(error_code_of(error_name(code)), code); /* no gaps, no doubles */
    }
    assert_string_equal(error_name(-999), "internal");
    assert_int_equal(error_code_of("of a newer peer"), ERROR_INTERNAL);
    assert_false(error_survives(ERROR_MALFORMED));
    assert_false(error_survives(ERROR_TOO_LARGE));
    assert_true(error_survives(ERROR_UNKNOWN_FIELD));
    assert_true(error_survives(-999));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_long_text_is_cut),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
