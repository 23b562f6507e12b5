/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of daemon/ledger/ledger.h, on a real loop and a real file. */
#include <unistd.h>

#include "tests/unit/ledger/rig.h"
#include "proto/pull.h"

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
    assert_int_equal(uv_loop_close(&b.loop), 0); /* a failed start leaves no handle to close */
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
    struct store *other = open_other(f);
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
    CALL_OK(&b, lease, "k", 60000, on_done, NULL);
    wait_for(&b, 4);
    assert_int_equal(b.status, 0);
    assert_int_equal(store_lease(other, "k", 60000, &err), STORE_HELD);
    assert_ok(store_lease(other, "theirs", 60000, &err));
    CALL_OK(&b, lease, "theirs", 60000, on_done, NULL);
    wait_for(&b, 5);
    assert_int_equal(b.status, STORE_HELD);
    CALL_OK(&b, unlease, "k");
    CALL_OK(&b, lease, "k", 60000, on_done, NULL);
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
    assert_int_equal(b.news[NEWS_BEST], 1); /* the daemon gets news of its own write once */
    assert_int_equal(b.news_saved, 1);
    assert_int_equal(b.news_generation, 1);
    assert_int_equal(b.news[NEWS_EVICTED], 1);
    assert_int_equal(b.news[NEWS_QUARANTINE], 0);
    store_close(other);
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

/* The writer makes many writes in order, in one transaction; an impossible write fails alone. */
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
        run.id = 1000; /* an unknown run: this row fails, not the transaction */
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

static void a_stop_carries_out_earlier_requests(void **state)
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
    ledger_stop(b.l, on_stopped, &b);
    assert_int_equal(ledger_publish(b.l, best, on_best, NULL), ERROR_SHUTTING_DOWN);
    end(&b); /* a second stop does nothing */
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

/* An imported row is offered before the ledger has answered the publish of a tuned row. */
static void a_brought_row_does_not_replace_a_row_under_way(void **state)
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
    best->generation = 1; /* this offer names the row of generation 1, so it may replace that row */
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
    bench->loaded += status == 0; /* called only after the row is in the file */
}

/* Rows of clients have a share of the queue. When it is full, clients get an error. Trials of
 * the runner have another share. */
static void a_client_that_records_too_much_gets_an_error(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    struct trial *t = calloc(1, sizeof(*t));
    assert_ok(begin(&b, f, &err));
    struct ledger *l = (struct ledger *)b.l;
    fixture_trial(t, 0, 1, 1);
    assert_int_equal(ledger_room(b.l), RECORDS_MAX);
    uv_mutex_lock(&l->mutex); /* simulates a full queue */
    l->records = RECORDS_MAX - 1;
    uv_mutex_unlock(&l->mutex);
    assert_int_equal(ledger_room(b.l), 1);
    uv_mutex_lock(&l->mutex);
    l->records = RECORDS_MAX;
    uv_mutex_unlock(&l->mutex);
    assert_int_equal(ledger_room(b.l), 0);
    assert_int_equal(ledger_record(b.l, t, false, on_recorded, NULL), ERROR_BUSY);
    CALL(&b, add_trial, t);
    assert_int_equal(counts(&b).trials, 1);
    assert_int_equal(b.counts.lost_trials, 0);
    for (int i = 0; i < 300; i++) { /* more than a transaction */
        CALL_OK(&b, record, t, false, on_recorded, NULL);
    }
    wait_for(&b, 301);
    assert_int_equal(b.loaded, 300);
    assert_int_equal(counts(&b).trials, 301);
    end(&b);
    free(t);
}

/* ---- other daemons --------------------------------------------------------------------------- */

static int64_t publish_other(struct store *s, int key)
{
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    fixture_best(best, key, 1);
    assert_ok(store_publish(s, best, &err));
    int64_t generation = best->generation;
    free(best);
    return generation;
}

static void news_of_other_daemons_are_told(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    struct quarantine q;
    const struct store_wanted w = {.key = "k", .class = "a class", .search = "s", .n = 1};
    char key[HASH_HEX];
    fixture_key(1, key);
    assert_ok(begin(&b, f, &err));
    struct store *other = open_other(f);
    int64_t given = publish_other(other, 1);
    wait_for_news(&b, NEWS_BEST, 1);
    assert_int_equal(b.news_saved, 1);
    assert_int_equal(b.news_generation, given);
    assert_int_equal(ledger_generation(b.l), given);
    assert_string_equal(b.news_key, key);
    assert_ok(store_evict(other, key, NULL, &err));
    wait_for_news(&b, NEWS_EVICTED, 1);
    assert_string_equal(b.news_key, key);
    fixture_quarantine(&q, 1);
    assert_ok(store_add_quarantine(other, &q, &err));
    wait_for_news(&b, NEWS_QUARANTINE, 1);
    assert_string_equal(b.news_key, q.variant);
    assert_ok(store_want(other, &w, &err));
    wait_for_news(&b, NEWS_WANTED, 1);
    assert_string_equal(b.news_key, "a class");
    assert_int_equal(b.l->daemons, 1);
    assert_ok(store_join(other, &err));
    wait_for_news(&b, NEWS_DAEMONS, 1);
    assert_int_equal(b.l->daemons, 2);
    assert_int_equal(counts(&b).daemons, 2);
    assert_ok(store_lease(other, key, 60000, &err));
    assert_ok(store_unlease(other, key, &err));
    wait_for_news(&b, NEWS_FREED, 1);
    assert_string_equal(b.news_key, key);
    assert_ok(store_leave(other, &err));
    wait_for_news(&b, NEWS_FREED, 2);
    assert_int_equal(counts(&b).daemons, 1);
    store_close(other);
    end(&b);
    assert_int_equal(b.news[NEWS_BEST], 1);
    assert_int_equal(b.news[NEWS_RELOADING], 0);
    assert_string_equal(b.kinds, "");
}

/* Before the ledger answers a request for a lease or a key's state, it gives the daemon all earlier
 * changes as news. */
static void news_come_before_a_lease(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    char key[HASH_HEX];
    fixture_key(7, key);
    assert_ok(begin(&b, f, &err));
    struct store *other = open_other(f);
    /* the file system's notice of a change is late */
    uv_fs_event_stop(&((struct ledger *)b.l)->watch);
    assert_ok(store_lease(other, key, 60000, &err));
    int64_t given = publish_other(other, 7);
    assert_ok(store_unlease(other, key, &err));
    CALL_OK(&b, lease, key, 60000, on_done, NULL);
    wait_for(&b, 1);
    assert_int_equal(b.status, 0);
    assert_int_equal(b.news_generation, given);
    publish_other(other, 8);
    counts(&b);
    assert_int_equal(b.news[NEWS_BEST], 2);
    store_close(other);
    end(&b);
}

static void on_wanted(void *ctx, int status, const void *found, size_t n, int64_t rank,
                      const struct error *err)
{
    struct pull in = {found, (const uint8_t *)found + n};
    int64_t uid = -1;
    if (status == 0) {
        assert_true(pull_int(&in, &uid));
        assert_true(rank > 0);
    }
    on_list(ctx, status, in.at, pull_left(&in), uid, err);
}

static void searches_that_wait_are_shared(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    WIRE_BUF_AUTO search = WIRE_BUF_NULL, theirs = WIRE_BUF_NULL;
    int64_t uid = 0, rank = 0;
    assert_ok(begin(&b, f, &err));
    struct store *other = open_other(f);
    CALL_OK(&b, next_wanted, "c", 0, on_wanted, NULL);
    wait_for(&b, 1);
    assert_int_equal(b.status, STORE_MISS);
    wire_put_array(&search, 2);
    wire_put_int(&search, 1);
    wire_put_int(&search, 2);
    CALL(&b, want, "ours", "c", 7, &search);
    counts(&b);
    assert_ok(store_next_wanted(other, "c", &rank, &uid, &theirs, &err));
    assert_int_equal(uid, 7);
    assert_int_equal(theirs.len, search.len);
    assert_memory_equal(theirs.data, search.data, search.len);
    assert_int_equal(store_next_wanted(other, "c", &rank, &uid, &theirs, &err), STORE_MISS);
    CALL(&b, unwant, "ours");
    counts(&b);
    rank = 0;
    assert_int_equal(store_next_wanted(other, "c", &rank, &uid, &theirs, &err), STORE_MISS);

    const struct store_wanted w = {
        .key = "k", .class = "c", .uid = 1000, .search = search.data, .n = search.len};
    assert_ok(store_want(other, &w, &err));
    CALL_OK(&b, next_wanted, "c", 0, on_wanted, NULL);
    wait_for(&b, b.callbacks + 1);
    assert_int_equal(b.status, 0);
    assert_int_equal(b.id, 1000);  /* the user of the wanted search */
    assert_int_equal(b.loaded, 2); /* elements of its request, an array */
    store_close(other);
    end(&b);
}

/* The daemon missed more changes than the table `change` keeps: it reads all rows again, and drops
 * missing keys. */
static void missed_news_have_all_read_anew(void **state)
{
    enum { MISSED = 9000, BESTS = 100 };
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    char key[HASH_HEX];
    fill_bests(f, BESTS);
    assert_ok(begin(&b, f, &err));
    load_all(&b);
    struct store *other = open_other(f);
    fixture_key(0, key);
    assert_ok(store_begin(other, &err));
    for (int i = 0; i < MISSED; i++) {
        assert_ok(store_evict(other, key, NULL, &err));
    }
    assert_ok(store_commit(other, &err));
    wait_for_news(&b, NEWS_RELOADED, 1);
    assert_int_equal(b.news[NEWS_RELOADING], 1);
    assert_int_equal(b.news[NEWS_LOADED], BESTS - 1);
    assert_int_equal(b.news[NEWS_RELOADED_LOST], 0);
    publish_other(other, 0);
    wait_for_news(&b, NEWS_BEST, 1);
    store_close(other);
    end(&b);
}

/* Another daemon has replaced a removed file: the new file may lack rows that this daemon knows. */
static void another_file_is_read_anew(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    fill_bests(f, 3);
    assert_ok(begin(&b, f, &err));
    load_all(&b);
    struct store *other = open_other(f);
    assert_int_equal(unlink(f->path), 0);
    publish_other(other, 5);
    struct best *best = calloc(1, sizeof(*best));
    fixture_best(best, 6, 1);
    CALL_OK(&b, publish, best, on_best, NULL);
    wait_for_news(&b, NEWS_RELOADED_LOST, 1);
    assert_int_equal(b.news[NEWS_RELOADING], 1);
    assert_int_equal(b.news[NEWS_LOADED], 5);
    assert_true(b.saved);
    store_close(other);
    end(&b);
    assert_string_equal(b.kinds, "replaced ");
    free(best);
}

/* ---- rows that the file has lost ------------------------------------------------------------- */

static void restore(struct bench *b, int key, int64_t generation)
{
    struct best *best = calloc(1, sizeof(*best));
    fixture_best(best, key, 1);
    best->generation = generation;
    CALL_OK(b, restore, best, on_best, NULL);
    wait_for(b, b->callbacks + 1);
    free(best);
}

static void lost_rows_are_restored_under_their_numbers(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    assert_ok(begin(&b, f, &err));
    restore(&b, 1, 41);
    assert_int_equal(b.status, 0);
    assert_true(b.saved);
    assert_int_equal(b.generation, 41);
    restore(&b, 1, 41);
    assert_int_equal(b.status, STORE_THERE);
    restore(&b, 2, 41);
    assert_int_equal(b.status, ERROR_CONFLICT);
    restore(&b, 2, 0);
    assert_int_equal(b.status, ERROR_CONFLICT);
    restore(&b, 2, 40);
    assert_int_equal(b.status, 0);
    assert_int_equal(counts(&b).generation, 41);
    end(&b);
}

/* Rows that another daemon evicted are not lost rows: neither before this daemon hears of the
 * eviction, nor after it has written other rows. */
static void evict_and_restore(struct fixture *f, bool writes_between)
{
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    assert_ok(begin(&b, f, &err));
    struct store *other = open_other(f);
    fixture_best(best, 1, 1);
    CALL_OK(&b, publish, best, on_best, NULL);
    wait_for(&b, 1);
    assert_int_equal(counts(&b).bests, 1);
    uv_fs_event_stop(&((struct ledger *)b.l)->watch); /* the notice comes later */
    assert_ok(store_evict(other, best->key, NULL, &err));
    if (writes_between) {
        fixture_best(best, 2, 1);
        CALL_OK(&b, publish, best, on_best, NULL);
        wait_for(&b, b.callbacks + 1);
    }
    restore(&b, 1, 1);
    assert_int_equal(b.status, STORE_THERE);
    assert_int_equal(fixture_find_best(other, 1, best), STORE_MISS);
    store_close(other);
    end(&b);
    free(best);
}

static void a_key_evicted_by_another_daemon_is_not_restored(void **state)
{
    evict_and_restore(*state, false);
}

static void a_key_evicted_before_another_write_is_not_restored(void **state)
{
    evict_and_restore(*state, true);
}

/* The ledger still evicts the key when the daemon brings the key's row back from memory. */
static void a_key_under_eviction_is_not_restored(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    assert_ok(begin(&b, f, &err));
    fixture_best(best, 1, 1);
    CALL_OK(&b, publish, best, on_best, NULL);
    wait_for(&b, 1);
    CALL_OK(&b, evict, best->key, on_id, NULL);
    best->generation = 1;
    CALL_OK(&b, restore, best, on_best, NULL);
    wait_for(&b, 3);
    assert_int_equal(b.status, STORE_THERE);
    assert_int_equal(counts(&b).bests, 0);
    end(&b);
    free(best);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(starts_and_stops),
        T(a_start_that_fails_leaves_nothing),
        T(every_call_is_answered_once),
        T(many_writes_keep_their_order),
        T(a_stop_carries_out_earlier_requests),
        T(a_client_that_records_too_much_gets_an_error),
        T(a_brought_row_does_not_replace_a_row_under_way),
        T(news_of_other_daemons_are_told),
        T(news_come_before_a_lease),
        T(searches_that_wait_are_shared),
        T(missed_news_have_all_read_anew),
        T(another_file_is_read_anew),
        T(lost_rows_are_restored_under_their_numbers),
        T(a_key_evicted_by_another_daemon_is_not_restored),
        T(a_key_evicted_before_another_write_is_not_restored),
        T(a_key_under_eviction_is_not_restored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
