/* SPDX-License-Identifier: Apache-2.0 */
/* The local ledger: what its contract in daemon/ledger/ledger.h promises, on a real loop and a real
 * file. */
#include <unistd.h>

#include "tests/unit/ledger/rig.h"

static void starts_and_stops(void **state)
{
    struct bench b;
    struct error err = ERROR_NULL;
    assert_ok(begin(&b, *state, &err));
    end(&b);
    assert_int_equal(b.notices, 0);
}

static void a_start_that_fails_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    strcpy(f->path, "/no/such/folder/x.db");
    assert_int_equal(begin(&b, f, &err), ERROR_STORE);
    assert_says(err, "/no/such/folder");
    assert_int_equal(uv_loop_close(&b.loop), 0); /* not even a handle to close */
}

static void every_call_is_answered_once(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best)), *back = calloc(1, sizeof(*back));
    struct trial *t = calloc(1, sizeof(*t));
    struct run run;
    struct device_info d;
    struct module m;
    struct quarantine q;
    struct event e;
    struct record *filter = calloc(1, sizeof(*filter));
    char copy[128];
    assert_ok(begin(&b, f, &err));
    fixture_device(&d);
    CALL(&b, put_device, &d);
    fixture_run(&run);
    CALL_OK(&b, add_run, &run, on_id, NULL);
    wait_for(&b, 1);
    assert_int_equal(b.id, 1);
    fixture_trial(t, b.id, 1, 1);
    CALL(&b, add_trial, t);
    fixture_best(best, 1, 1);
    CALL_OK(&b, publish, best, on_best, back);
    wait_for(&b, 2);
    assert_true(b.saved);
    assert_int_equal(b.generation, 1);
    assert_int_equal(back->trial, 1);
    best->generation = 1;
    best->trial = 1;
    assert_true(fixture_equal(&best_schema, best, back));
    fixture_module(&m, 1);
    CALL(&b, add_module, &m);
    fixture_quarantine(&q, 1);
    CALL(&b, add_quarantine, &q);
    fixture_event(&e, 1);
    CALL(&b, add_event, &e);
    run.id = 1;
    strcpy(run.ending, "idle");
    CALL(&b, end_run, &run);
    CALL_OK(&b, history, t->key, t->stamp, q.class, q.driver, on_history, NULL);
    wait_for(&b, 3);
    assert_int_equal(b.n_trials, 1);
    assert_int_equal(b.n_avoid, 1);
    CALL_OK(&b, lease, "k", "me", 60000, on_done, NULL);
    wait_for(&b, 4);
    assert_int_equal(b.status, 0);
    CALL_OK(&b, lease, "k", "you", 60000, on_done, NULL);
    wait_for(&b, 5);
    assert_int_equal(b.status, STORE_HELD);
    CALL_OK(&b, unlease, "k", "me");
    CALL_OK(&b, lease, "k", "you", 60000, on_done, NULL);
    wait_for(&b, 6);
    assert_int_equal(b.status, 0);
    CALL_OK(&b, load, true, on_load, NULL);
    wait_for(&b, 7);
    assert_int_equal(b.loaded, 1);
    record_init(filter);
    record_put_text(filter, "status", "ok");
    CALL_OK(&b, list, 1, "trials", filter, RESPONSE_BYTES_MAX, on_list, NULL);
    wait_for(&b, 8);
    assert_int_equal(b.loaded, 1);
    assert_int_equal(b.id, 1);
    record_put_text(filter, "colour", "red");
    CALL_OK(&b, list, 1, "trials", filter, RESPONSE_BYTES_MAX, on_list, NULL);
    wait_for(&b, 9);
    assert_int_equal(b.status, ERROR_UNKNOWN_FIELD);
    fixture_path(f, ".copy", copy);
    CALL_OK(&b, backup, copy, on_done, NULL);
    wait_for(&b, 10);
    assert_int_equal(b.status, 0);
    assert_int_equal(access(copy, F_OK), 0);
    CALL_OK(&b, unpin, best->key, on_best, NULL);
    wait_for(&b, 11);
    assert_int_equal(b.status, ERROR_NOT_FOUND);
    CALL_OK(&b, unquarantine, q.variant, on_id, NULL);
    wait_for(&b, 12);
    assert_int_equal(b.id, 1);
    struct ledger_status s = counts(&b);
    assert_int_equal(s.bests, 1);
    assert_int_equal(s.trials, 1);
    assert_int_equal(s.modules, 1);
    assert_int_equal(s.quarantined, 0);
    assert_int_equal(s.generation, 1);
    assert_int_equal(s.unsaved, 0);
    assert_false(s.disk_full);
    CALL_OK(&b, evict, best->key, on_id, NULL);
    wait_for(&b, 14);
    assert_int_equal(b.id, 2);
    end(&b);
    assert_int_equal(b.callbacks, 14);
    assert_string_equal(b.kinds, "");
    free(best);
    free(back);
    free(t);
    free(filter);
}

static void on_ordered(void *ctx, int status, const struct best *best, bool saved,
                       const struct error *err)
{
    note(status, err);
    assert_true(saved);
    bench->order[bench->callbacks - 1] = (int)(intptr_t)ctx;
    assert_int_equal(best->generation, bench->callbacks);
}

/* Groups of writes: in order, with those in between that cannot be done failing alone. */
static void many_writes_keep_their_order(void **state)
{
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    struct trial *t = calloc(1, sizeof(*t));
    struct run run;
    assert_ok(begin(&b, *state, &err));
    for (int i = 0; i < 64; i++) {
        for (int k = 0; k < 20; k++) {
            fixture_trial(t, 0, i, k);
            CALL(&b, add_trial, t);
        }
        fixture_run(&run);
        run.id = 1000; /* no such run: a row of the group that fails */
        CALL(&b, end_run, &run);
        fixture_best(best, i, 7);
        CALL_OK(&b, publish, best, on_ordered, (void *)(intptr_t)i);
    }
    wait_for(&b, 64);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(b.order[i], i);
    }
    struct ledger_status s = counts(&b);
    assert_int_equal(s.trials, 64 * 20);
    assert_int_equal(s.bests, 64);
    assert_int_equal(s.lost_trials, 0);
    assert_int_equal(b.notices, 64);
    end(&b);
    free(best);
    free(t);
}

static void stopping_carries_out_what_was_asked(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    struct trial *t = calloc(1, sizeof(*t));
    assert_ok(begin(&b, f, &err));
    for (int i = 0; i < 10; i++) {
        fixture_trial(t, 0, i, 1);
        CALL(&b, add_trial, t);
        fixture_best(best, i, 1);
        CALL_OK(&b, publish, best, on_best, NULL);
    }
    CALL_OK(&b, history, t->key, t->stamp, "c", "d", on_history, NULL);
    b.l->ops->stop(b.l, on_stopped, &b);
    assert_int_equal(b.l->ops->publish(b.l, best, on_best, NULL), ERROR_SHUTTING_DOWN);
    end(&b); /* stop, called twice, is one stop */
    assert_int_equal(b.callbacks, 11);
    struct store *s = fixture_open(f);
    struct store_stats stats;
    assert_ok(store_stats(s, &stats, &err));
    assert_int_equal(stats.bests, 10);
    assert_int_equal(stats.trials, 10);
    store_close(s);
    free(best);
    free(t);
}

/* It is asked for before the other's answer has come. */
static void what_is_brought_does_not_push_out_what_is_on_its_way(void **state)
{
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best)), *back = calloc(1, sizeof(*back));
    assert_ok(begin(&b, *state, &err));
    fixture_best(best, 1, 1);
    CALL_OK(&b, publish, best, on_best, NULL);
    fixture_best(best, 1, 2);
    strcpy(best->source, "imported");
    CALL_OK(&b, publish, best, on_best, NULL);
    wait_for(&b, 2);
    assert_int_equal(b.status, ERROR_CONFLICT);
    assert_non_null(strstr(b.text, "measured here"));
    best->generation = 1; /* who has seen that row, and takes it for a hint */
    CALL_OK(&b, publish, best, on_best, back);
    wait_for(&b, 3);
    assert_int_equal(b.status, 0);
    assert_true(b.saved && back->generation > 1);
    assert_int_equal(counts(&b).unsaved, 0);
    end(&b);
    free(best);
    free(back);
}

static void on_recorded(void *ctx, int status, const struct error *err)
{
    (void)ctx;
    note(status, err);
    bench->loaded += status == 0; /* told when it is in the file, and not before */
}

/* Clients fill their own share of the queue, and are told; the runner's trials have theirs. */
static void who_records_too_much_is_told(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    struct trial *t = calloc(1, sizeof(*t));
    assert_ok(begin(&b, f, &err));
    struct local *l = (struct local *)b.l;
    fixture_trial(t, 0, 1, 1);
    assert_int_equal(b.l->ops->room(b.l), RECORDS_MAX);
    uv_mutex_lock(&l->mutex); /* as if so many waited */
    l->records = RECORDS_MAX - 1;
    uv_mutex_unlock(&l->mutex);
    assert_int_equal(b.l->ops->room(b.l), 1);
    uv_mutex_lock(&l->mutex);
    l->records = RECORDS_MAX;
    uv_mutex_unlock(&l->mutex);
    assert_int_equal(b.l->ops->room(b.l), 0);
    assert_int_equal(b.l->ops->record(b.l, t, on_recorded, NULL), ERROR_BUSY);
    CALL(&b, add_trial, t);
    assert_int_equal(counts(&b).trials, 1);
    assert_int_equal(b.counts.lost_trials, 0);
    for (int i = 0; i < 300; i++) { /* of more than one transaction */
        CALL_OK(&b, record, t, on_recorded, NULL);
    }
    wait_for(&b, 301);
    assert_int_equal(b.loaded, 300);
    assert_int_equal(counts(&b).trials, 301);
    end(&b);
    free(t);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(starts_and_stops),
        T(a_start_that_fails_leaves_nothing),
        T(every_call_is_answered_once),
        T(many_writes_keep_their_order),
        T(stopping_carries_out_what_was_asked),
        T(who_records_too_much_is_told),
        T(what_is_brought_does_not_push_out_what_is_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
