/* SPDX-License-Identifier: Apache-2.0 */
/* The local ledger: what its contract in daemon/ledger.h promises, on a real loop and a real file.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "daemon/ledger_home.h"
#include "proto/limits.h"
#include "tests/unit/store/fixture.h"

struct bench {
    struct fixture *f;
    uv_loop_t loop;
    struct ledger *l;
    bool in_call;  /* a call has not returned yet: no callback may come */
    int callbacks; /* answered */
    int notices;
    char kinds[512]; /* of the notices, with spaces */
    bool stopped;

    /* what the last callbacks said */
    int status;
    char text[ERROR_TEXT_MAX];
    bool saved;
    int64_t generation, id;
    struct ledger_status counts;
    int loaded, pages;
    int64_t before; /* the last row loaded; 0: none */
    uint32_t n_trials, n_avoid;
    int order[64];
};

static struct bench *bench;

static void note(int status, const struct error *err)
{
    assert_false(bench->in_call);
    bench->callbacks++;
    bench->status = status;
    snprintf(bench->text, sizeof(bench->text), "%s", err ? err->text : "");
    assert_true(status >= 0 || (err && err->text[0]));
}

static void on_notice(void *ctx, const char *kind, const char *text)
{
    (void)text;
    struct bench *b = ctx;
    assert_false(b->in_call);
    b->notices++;
    strncat(b->kinds, kind, sizeof(b->kinds) - strlen(b->kinds) - 2);
    strcat(b->kinds, " ");
}

static void on_stopped(void *ctx)
{
    ((struct bench *)ctx)->stopped = true;
}

static int begin(struct bench *b, struct fixture *f, struct error *err)
{
    struct ledger_config c = {.path = f->path, .notice = on_notice, .ctx = b};
    memset(b, 0, sizeof(*b));
    b->f = f;
    bench = b;
    assert_int_equal(uv_loop_init(&b->loop), 0);
    b->in_call = true;
    int r = ledger_local_ops.start(&b->l, &b->loop, &c, err);
    b->in_call = false;
    return r;
}

static void end(struct bench *b)
{
    b->l->ops->stop(b->l, on_stopped, b);
    assert_false(b->stopped);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    assert_true(b->stopped);
    assert_int_equal(uv_loop_close(&b->loop), 0);
}

/* Runs the loop until n callbacks have come. */
static void wait_for(struct bench *b, int n)
{
    while (b->callbacks < n) {
        uv_run(&b->loop, UV_RUN_ONCE);
    }
}

#define CALL(b, op, ...)                                                                           \
    do {                                                                                           \
        (b)->in_call = true;                                                                       \
        (b)->l->ops->op((b)->l, __VA_ARGS__);                                                      \
        (b)->in_call = false;                                                                      \
    } while (0)
#define CALL_OK(b, op, ...)                                                                        \
    do {                                                                                           \
        (b)->in_call = true;                                                                       \
        assert_int_equal((b)->l->ops->op((b)->l, __VA_ARGS__), 0);                                 \
        (b)->in_call = false;                                                                      \
    } while (0)

static void on_done(void *ctx, int status, const struct error *err)
{
    (void)ctx;
    note(status, err);
}

static void on_id(void *ctx, int status, int64_t id, const struct error *err)
{
    (void)ctx;
    note(status, err);
    bench->id = id;
}

static void on_best(void *ctx, int status, const struct best *b, bool saved,
                    const struct error *err)
{
    note(status, err);
    bench->saved = saved;
    assert_true((status == 0) == (b != NULL));
    if (b) {
        bench->generation = b->generation;
        if (ctx) {
            *(struct best *)ctx = *b;
        }
    }
}

static void on_status(void *ctx, const struct ledger_status *s)
{
    (void)ctx;
    note(0, NULL);
    bench->counts = *s;
}

static void on_load(void *ctx, int status, const struct best *bests, size_t n,
                    const struct error *err)
{
    (void)ctx;
    for (size_t i = 0; status == 0 && i < n; i++) {
        assert_true(bests[i].created_s > 0);
        assert_true(bench->before == 0 || bests[i].generation < bench->before);
        bench->before = bests[i].generation;
    }
    bench->loaded += status == 0 ? (int)n : 0;
    bench->pages += status == 0 && n > 0;
    assert_in_range(n, 0, LOAD_PAGE);
    note(status, err);
}

static void on_history(void *ctx, int status, const struct trial *trials, uint32_t n,
                       char (*avoid)[HASH_HEX], uint32_t n_avoid, const struct error *err)
{
    (void)ctx;
    note(status, err);
    bench->n_trials = n;
    bench->n_avoid = n_avoid;
    for (uint32_t i = 0; i < n; i++) {
        assert_string_equal(trials[i].status, "ok");
    }
    for (uint32_t i = 0; i < n_avoid; i++) {
        assert_int_equal(strlen(avoid[i]), HASH_HEX - 1);
    }
}

static void on_list(void *ctx, int status, const void *rows, size_t n, int64_t total,
                    const struct error *err)
{
    (void)ctx;
    note(status, err);
    bench->id = total;
    if (status == 0) {
        struct wire_doc *doc = wire_doc_new();
        const struct wire_obj *array;
        assert_int_equal(wire_decode(doc, rows, n, &array, NULL), 0);
        bench->loaded = (int)wire_count(array);
        wire_doc_free(doc);
    }
}

static struct ledger_status counts(struct bench *b)
{
    CALL_OK(b, status, on_status, NULL);
    wait_for(b, b->callbacks + 1);
    return b->counts;
}

/* ---- tests ----------------------------------------------------------------------------------- */

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
    CALL_OK(&b, list, "trials", filter, RESPONSE_BYTES_MAX, on_list, NULL);
    wait_for(&b, 8);
    assert_int_equal(b.loaded, 1);
    assert_int_equal(b.id, 1);
    record_put_text(filter, "colour", "red");
    CALL_OK(&b, list, "trials", filter, RESPONSE_BYTES_MAX, on_list, NULL);
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

enum { MANY = 2000 };

static void fill_bests(struct fixture *f, int n)
{
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    assert_ok(store_begin(s, &err));
    for (int i = 0; i < n; i++) {
        fixture_best(best, i, i);
        assert_ok(store_publish(s, best, &err));
    }
    assert_ok(store_commit(s, &err));
    store_close(s);
    free(best);
}

static void load_all(struct bench *b)
{
    int before = -1;
    b->before = 0;
    while (b->loaded > before) {
        CALL_OK(b, load, before < 0, on_load, NULL);
        before = b->loaded;
        wait_for(b, b->callbacks + 1);
        assert_int_equal(b->status, 0);
    }
}

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

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_full_disk_stops_nothing(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    struct trial *t = calloc(1, sizeof(*t));
    struct event e;
    signal(SIGXFSZ, SIG_IGN);
    assert_ok(begin(&b, f, &err));
    fixture_best(best, 0, 0);
    CALL_OK(&b, publish, best, on_best, NULL);
    wait_for(&b, 1);
    assert_true(b.saved);

    limit_files(4096);
    for (int i = 1; i <= 5; i++) {
        int64_t before = b.generation;
        fixture_trial(t, 0, i, i);
        CALL(&b, add_trial, t);
        fixture_best(best, i, i);
        CALL_OK(&b, publish, best, on_best, NULL);
        wait_for(&b, b.callbacks + 1);
        assert_int_equal(b.status, 0);
        assert_false(b.saved);
        assert_true(b.generation > before);
    }
    int64_t last = b.generation;
    fixture_event(&e, 1);
    CALL(&b, add_event, &e);
    struct ledger_status s = counts(&b);
    assert_int_equal(s.unsaved, 5);
    assert_int_equal(s.lost_trials, 5);
    assert_int_equal(s.bests, 1);
    assert_true(s.disk_full);
    assert_string_equal(b.kinds, "disk_full "); /* said once */
    CALL_OK(&b, load, true, on_load, NULL); /* reading goes on */
    wait_for(&b, b.callbacks + 1);
    assert_int_equal(b.loaded, 1);
    fixture_best(best, 2, 2);
    CALL_OK(&b, unpin, best->key, on_best, NULL); /* the newest is not in the file */
    wait_for(&b, b.callbacks + 1);
    assert_int_equal(b.status, ERROR_DISK_FULL);

    limit_files(0);
    uint64_t began = uv_hrtime();
    do {
        s = counts(&b);
    } while (s.unsaved && uv_hrtime() - began < 20 * UINT64_C(1000000000));
    assert_int_equal(s.unsaved, 0);
    assert_int_equal(s.bests, 6);
    assert_false(s.disk_full);
    assert_int_equal(s.generation, last);
    assert_string_equal(b.kinds, "disk_full disk_room ");
    fixture_best(best, 9, 9);
    CALL_OK(&b, publish, best, on_best, NULL);
    wait_for(&b, b.callbacks + 1);
    assert_int_equal(b.generation, last + 1);
    end(&b);
    free(best);
    free(t);
}

/* Evicting a key that is only in memory; ending with what was never saved. */
static void unsaved_bests_are_evicted_or_told(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    signal(SIGXFSZ, SIG_IGN);
    assert_ok(begin(&b, f, &err));
    limit_files(4096);
    for (int i = 0; i < 3; i++) {
        fixture_best(best, i, i);
        CALL_OK(&b, publish, best, on_best, NULL);
    }
    wait_for(&b, 3);
    fixture_best(best, 1, 1);
    CALL_OK(&b, evict, best->key, on_id, NULL);
    wait_for(&b, 4);
    assert_int_equal(b.status, 0); /* nothing of it in the file: nothing to write */
    assert_int_equal(b.id, 1);
    assert_int_equal(counts(&b).unsaved, 2);
    end(&b);
    limit_files(0);
    assert_string_equal(b.kinds, "disk_full lost ");
    free(best);
}

/* ---- damage
 * ---------------------------------------------------------------------------------------- */

static void damage_is_repaired_on_the_way(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    fill_bests(f, 300);
    FILE *file = fopen(f->path, "r+");
    struct stat st;
    fstat(fileno(file), &st);
    char junk[4096];
    memset(junk, 0xff, sizeof(junk));
    for (long page = 60; page < st.st_size / 4096; page += 10) {
        fseek(file, page * 4096, SEEK_SET);
        fwrite(junk, 1, sizeof(junk), file);
    }
    fclose(file);
    assert_ok(begin(&b, f, &err));
    for (int i = 1000; i < 1030; i++) {
        fixture_best(best, i, i);
        CALL_OK(&b, publish, best, on_best, NULL);
    }
    wait_for(&b, 30);
    load_all(&b);
    assert_true(b.loaded > 130); /* and what was published just now */
    assert_non_null(strstr(b.kinds, "corrupt_file"));
    assert_int_equal(counts(&b).unsaved, 0);
    end(&b);
    free(best);
}

static void on_long(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

/* The thorough check comes by itself when it is quiet after a load: a bad trial is told of, which
 * no load would have met; then a bad page, and the file is made anew. */
static void the_file_is_checked_when_it_is_quiet(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    uv_timer_t timer;
    sqlite3 *h;
    for (int round = 0; round < 2; round++) {
        bool too_long = false;
        struct store *s = fixture_open(f);
        if (round == 0) {
            fixture_fill(s);
        }
        store_close(s);
        assert_int_equal(sqlite3_open(f->path, &h), SQLITE_OK);
        if (round == 0) {
            sqlite3_exec(h, "UPDATE trial SET time_us = 1 WHERE id = 3", NULL, NULL, NULL);
        } else {
            sqlite3_exec(h,
                         "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET rootpage ="
                         " (SELECT rootpage FROM sqlite_schema WHERE name = 'best_trial')"
                         " WHERE name = 'trial_key'",
                         NULL, NULL, NULL);
        }
        sqlite3_close(h);
        assert_ok(begin(&b, f, &err));
        load_all(&b);
        uv_timer_init(&b.loop, &timer);
        timer.data = &too_long;
        uv_timer_start(&timer, on_long, 30000, 0);
        while (b.notices == 0 && !too_long) {
            uv_run(&b.loop, UV_RUN_ONCE);
        }
        uv_close((uv_handle_t *)&timer, NULL);
        assert_string_equal(b.kinds, round == 0 ? "corrupt_row " : "corrupt_file ");
        assert_int_equal(counts(&b).trials, round == 0 ? 96 : 95);
        end(&b);
    }
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
        T(loads_in_pages),
        T(finds_one),
        T(a_load_that_is_stopped),
        T(a_full_disk_stops_nothing),
        T(unsaved_bests_are_evicted_or_told),
        T(damage_is_repaired_on_the_way),
        T(the_file_is_checked_when_it_is_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
