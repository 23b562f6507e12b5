/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search with waiting successors is set aside while it waits for compilers, and comes back with
 * its trials. Its winner is as good as an undisturbed search's, for little more time. (The config
 * may differ: another order of measurements has other noise.)
 *
 *   test_set_aside LANDSCAPE
 */
#include "tests/search/world.h"

#include <stdio.h>
#include <string.h>

#include "tests/search/keys.h"

enum { ORDERS_MOST = 8 };
static const double
    MOST = 1.1, /* limit of the device time, as a multiple of an undisturbed search's */
    RESTART_MS =
        100, /* device time that each continuation may take besides: operands, the reference */
    MISSED = 0.02; /* share of the best's time by which a winner may be slower */

static struct world world;
static struct mapped_key key;
static struct landscape *landscape; /* owned */

static void start(struct child *c, char **folder)
{
    *folder = folder_make();
    child_start(c, world.spec, *folder, NULL);
}

static void stop(struct child *c, char *folder)
{
    child_end(c);
    folder_remove(folder);
}

static void tune_alone(struct tune_result *out)
{
    struct child c;
    char *folder;
    struct tune_order *o = world_order(&world);
    start(&c, &folder);
    child_tune(&c, o);
    assert_int_equal(c.error.code, 0);
    assert_false(c.result.set_aside);
    *out = c.result;
    order_free(o);
    stop(&c, folder);
}

/* Makes an order that goes on with the trials of earlier orders. */
static struct tune_order *next_order(const struct child *c)
{
    struct tune_order *o = world_order(&world);
    order_done(o, c->trials, c->n_trials);
    o->spent_device_ms = c->result.device_ms;
    o->spent_ms = c->result.wall_ms;
    return o;
}

/* Sends orders in turn, each with the trials of the orders before; returns the number of set-aside
 * orders. */
static unsigned tune_contended(struct child *c, double most_device_ms)
{
    unsigned n = 0;
    uint32_t trials = 0;
    for (;; n++) {
        struct tune_order *o = next_order(c);
        child_send_contended(c, o);
        child_wait(c);
        order_free(o);
        assert_int_equal(c->error.code, 0);
        if (!c->result.set_aside) {
            return n;
        }
        assert_true(n < ORDERS_MOST);
        assert_true(c->n_trials > trials); /* each order measures its share */
        assert_true(c->result.device_ms < most_device_ms);
        trials = c->n_trials;
    }
}

static void test_others_wait(void **state)
{
    (void)state;
    struct tune_result alone;
    struct child c;
    char *folder;
    tune_alone(&alone);
    start(&c, &folder);
    unsigned n = tune_contended(&c, alone.device_ms + ORDERS_MOST * RESTART_MS);
    printf("set aside %u times: %.1f us, %.0f ms on the device; alone: %.1f us, %.0f ms\n", n,
           key_truth(landscape, &c.result.config), c.result.device_ms,
           key_truth(landscape, &alone.config), alone.device_ms);
    assert_true(n >= 1);
    assert_true(key_truth(landscape, &c.result.config) <= (1 + MISSED) * key.best_us);
    assert_true(
        c.result.device_ms >=
        0.9 * alone.device_ms); /* counts the device time of all orders, not only of the last */
    assert_true(c.result.device_ms <= MOST * alone.device_ms + n * RESTART_MS);
    stop(&c, folder);
}

static const struct trial *fastest(const struct child *c)
{
    const struct trial *best = NULL;
    for (uint32_t i = 0; i < c->n_trials; i++) {
        const struct trial *t = &c->trials[i];
        bool ok = strcmp(t->status, "ok") == 0 && strcmp(t->stage, "measure") == 0;
        best = ok && (!best || t->time_us < best->time_us) ? t : best;
    }
    return best;
}

/* A search that goes on obeys the quarantine of its new order. */
static void test_quarantine_between_orders(void **state)
{
    (void)state;
    struct child c;
    char *folder, avoided[HASH_HEX];
    struct tune_order *o = world_order(&world);
    start(&c, &folder);
    child_send_contended(&c, o);
    child_wait(&c);
    assert_true(c.result.set_aside);
    order_free(o);
    const uint32_t before = c.n_trials;
    snprintf(avoided, sizeof(avoided), "%s", fastest(&c)->variant);
    o = next_order(&c);
    order_avoid(o, avoided);
    child_tune(&c, o);
    assert_int_equal(c.error.code, 0);
    assert_true(c.n_trials > before);
    for (uint32_t i = before; i < c.n_trials; i++) {
        assert_string_not_equal(c.trials[i].variant, avoided);
    }
    order_free(o);
    stop(&c, folder);
}

/* The remaining time budget excludes the time of earlier orders. */
static void test_budget_is_of_all_orders(void **state)
{
    (void)state;
    struct tune_result alone;
    struct child c;
    char *folder;
    struct tune_order *o = world_order(&world);
    tune_alone(&alone);
    start(&c, &folder);
    o->request.query.budget_ms = 10000;
    o->spent_device_ms = 9999;
    child_tune(&c, o);
    assert_int_equal(c.error.code, 0);
    /* the budget is used up: the search ends soon after it has measured the reference kernel */
    assert_true(c.result.measured > 0 && c.result.measured <= alone.measured / 2);
    order_free(o);
    stop(&c, folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_wait),
        cmocka_unit_test(test_quarantine_between_orders),
        cmocka_unit_test(test_budget_is_of_all_orders),
    };
    if (argc != 2) {
        fprintf(stderr, "test_set_aside LANDSCAPE\n");
        return 2;
    }
    world_open(&world, argv[1]);
    if (!key_open(&key, argv[1]) || landscape_load(world.spec, &landscape, NULL)) {
        return 2;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    landscape_free(landscape);
    return failed;
}
