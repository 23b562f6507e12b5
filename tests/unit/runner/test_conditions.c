/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that other programs use, and devices that do not tell who uses them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runner/base/conditions.h"

static struct device_health now;

static void tell(struct device *d, struct device_health *out)
{
    (void)d;
    *out = now;
}

/* These devices have no other operation: a use of the device's context would crash. */
static const struct device_ops telling = {.kind = "telling", .health = tell},
                               silent = {.kind = "silent"};

static bool is_in_use(int64_t processes, int64_t busy_percent)
{
    struct device d = {.ops = &telling};
    char says[160];
    now = (struct device_health){.processes = processes, .busy_percent = busy_percent};
    bool is = conditions_in_use(&d, says);
    assert_true(is == (says[0] != '\0'));
    return is;
}

static void a_context_or_work_of_others_is_use(void **state)
{
    (void)state;
    assert_true(is_in_use(1, 0));
    assert_true(is_in_use(3, -1));
    assert_true(is_in_use(0, 87));
    assert_true(is_in_use(-1, 87));
    assert_false(is_in_use(0, 0));
    assert_false(is_in_use(0, 5));
}

static void what_a_device_cannot_tell_is_no_use(void **state)
{
    (void)state;
    struct device d = {.ops = &silent};
    char says[160];
    assert_false(is_in_use(-1, -1));
    assert_false(conditions_in_use(&d, says));
    assert_string_equal(says, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_or_work_of_others_is_use),
        cmocka_unit_test(what_a_device_cannot_tell_is_no_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
