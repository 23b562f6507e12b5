/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of resources: counted per user, and given back. A user over a limit stays over until the
 * use has fallen to half of the limit. */
#include "common.h"
#include "daemon/base/account.h"

static const struct account_limits limits = {.connections = 2,
                                             .jobs = 1,
                                             .leases = 1,
                                             .subscriptions = 1,
                                             .waiting = 2,
                                             .most = {1000, 1000, 1000}};

static void one_account_per_user_while_somebody_holds_it(void **state)
{
    (void)state;
    struct accounts all;
    accounts_init(&all, &limits);
    struct account *a = account_of(&all, 7);
    struct account *b = account_of(&all, 8);
    assert_ptr_equal(account_of(&all, 7), a);
    assert_ptr_not_equal(a, b);
    account_drop(a);
    assert_false(list_empty(&all.all));
    account_drop(a);
    account_drop(b);
    assert_true(list_empty(&all.all));
    assert_null(account_drop(NULL));
}

static void one_more_than_the_share_is_busy_and_not_charged(void **state)
{
    (void)state;
    struct error err = ERROR_NULL;
    struct accounts all;
    accounts_init(&all, &limits);
    struct account *a = account_of(&all, 7), *b = account_of(&all, 8);
    assert_ok(account_add_connection(a, &err), &err);
    assert_ok(account_add_connection(a, &err), &err);
    assert_int_equal(account_add_connection(a, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "user 7"));
    assert_int_equal(a->connections, 2);
    assert_ok(account_add_connection(b, &err), &err);
    assert_ok(account_add_job(a, &err), &err);
    assert_int_equal(account_add_job(a, &err), ERROR_BUSY);
    assert_ok(account_add_job(b, &err), &err);
    account_drop(a);
    account_drop(b);
}

static void bytes_that_are_kept_are_paid_for_by_time_alone(void **state)
{
    (void)state;
    struct error err = ERROR_NULL;
    struct accounts all;
    accounts_init(&all, &limits);
    struct account *a = account_of(&all, 7), *b = account_of(&all, 8);
    assert_ok(account_keep(a, 1000 - KEPT_ROW_BYTES, 1, 5000, &err), &err);
    assert_int_equal(account_keep(a, 100, 0, 5000, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "--user-mib"));
    assert_ok(account_keep(b, 100, 0, 5000, &err), &err);
    account_drop(a);
    account_drop(b);
    a = account_of(
        &all,
        7); /* a new connection of the user has what the last connection left of the user's share */
    assert_int_equal(account_keep(a, 100, 0, 5000, &err), ERROR_BUSY);
    assert_ok(account_keep(a, 100, 0, 5000 + KEPT_PERIOD_MS / 8, &err), &err);
    assert_int_equal(account_keep(a, 100, 0, 5000 + KEPT_PERIOD_MS / 8, &err), ERROR_BUSY);
    assert_ok(account_keep(a, 1000, 0, 5000 + 3 * (uint64_t)KEPT_PERIOD_MS, &err), &err);
    account_drop(a);
    accounts_deinit(&all);
}

static void waiting_acquires_and_their_bytes_are_counted(void **state)
{
    (void)state;
    struct error err = ERROR_NULL;
    struct accounts all;
    accounts_init(&all, &limits);
    struct account *a = account_of(&all, 7), *b = account_of(&all, 8);
    assert_ok(account_add_waiting(a, 600, &err), &err);
    assert_int_equal(account_add_waiting(a, 401, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "--user-mib"));
    assert_ok(account_add_waiting(b, 1000, &err), &err);
    assert_ok(account_add_waiting(a, 400, &err), &err);
    account_end_waiting(a, 600);
    assert_ok(account_add_waiting(a, 1, &err), &err);
    assert_int_equal(account_add_waiting(a, 1, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "user 7"));
    account_end_waiting(a, 400);
    account_end_waiting(a, 1);
    assert_int_equal(a->waiting, 0);
    assert_int_equal(a->waiting_bytes, 0);
    account_end_waiting(b, 1000);
    account_drop(a);
    account_drop(b);
}

static void over_begins_above_the_limit_and_ends_at_half(void **state)
{
    (void)state;
    struct accounts all;
    size_t one = 0, two = 0;
    accounts_init(&all, &limits);
    struct account *a = account_of(&all, 7);
    assert_false(account_charge(a, ACCOUNT_OUT, &one, 600));
    assert_false(account_charge(a, ACCOUNT_OUT, &two, 400));
    assert_false(a->over[ACCOUNT_OUT]);
    assert_true(account_charge(a, ACCOUNT_OUT, &two, 401));
    assert_true(a->over[ACCOUNT_OUT]);
    assert_false(a->over[ACCOUNT_IN]);
    assert_false(account_charge(a, ACCOUNT_OUT, &one, 101));
    assert_true(a->over[ACCOUNT_OUT]);
    assert_true(account_charge(a, ACCOUNT_OUT, &one, 99));
    assert_false(a->over[ACCOUNT_OUT]);
    account_charge(a, ACCOUNT_OUT, &one, 0);
    account_charge(a, ACCOUNT_OUT, &two, 0);
    assert_int_equal(a->held[ACCOUNT_OUT], 0);
    account_drop(a);
}

static void time_is_spent_until_the_next_tick(void **state)
{
    (void)state;
    struct accounts all;
    accounts_init(&all, &limits);
    struct account *a = account_of(&all, 7), *b = account_of(&all, 8);
    account_spend(a, 5, TURN_NS);
    assert_true(account_spent(a, 5));
    assert_false(account_spent(b, 5));
    assert_false(account_spent(a, 6));
    account_spend(a, 6, TURN_NS / 2);
    assert_false(account_spent(a, 6));
    account_spend(a, 6, TURN_NS / 2);
    assert_true(account_spent(a, 6));
    account_drop(a);
    account_drop(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_account_per_user_while_somebody_holds_it),
        cmocka_unit_test(one_more_than_the_share_is_busy_and_not_charged),
        cmocka_unit_test(bytes_that_are_kept_are_paid_for_by_time_alone),
        cmocka_unit_test(waiting_acquires_and_their_bytes_are_counted),
        cmocka_unit_test(over_begins_above_the_limit_and_ends_at_half),
        cmocka_unit_test(time_is_spent_until_the_next_tick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
