/* SPDX-License-Identifier: Apache-2.0 */
/* The local ledger on a disk that is full, and on a file that is damaged. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "store/inner.h"
#include "tests/unit/ledger/rig.h"

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Lifts the limit of the file size, which a failed test may have left. */
static int teardown(void **state)
{
    limit_files(0);
    return fixture_teardown(state);
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
        fixture_trial(t, 0, i, i);
        CALL(&b, add_trial, t);
        fixture_best(best, i, i);
        CALL_OK(&b, publish, best, on_best, NULL);
        wait_for(&b, b.callbacks + 1);
        assert_int_equal(b.status, 0);
        assert_false(b.saved);
        assert_int_equal(b.generation, 0); /* a row has no generation before it is saved */
    }
    assert_int_equal(b.news[NEWS_BEST], 6);
    assert_int_equal(b.news_saved, 1);
    fixture_event(&e, 1);
    CALL(&b, add_event, &e);
    struct ledger_status s = counts(&b);
    assert_int_equal(s.unsaved, 5);
    assert_int_equal(s.lost_trials, 5);
    assert_int_equal(s.bests, 1);
    assert_true(s.disk_full);
    assert_string_equal(b.kinds, "disk_full "); /* said once */
    CALL_OK(&b, load, true, on_load, NULL);     /* reading goes on */
    wait_for(&b, b.callbacks + 1);
    assert_int_equal(b.loaded, 1);
    fixture_best(best, 2, 2);
    CALL_OK(&b, unpin, best->key, on_best, NULL); /* the file lacks the newest row */
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
    assert_int_equal(s.generation, 6);
    assert_int_equal(b.news_saved, 6); /* news of each saved row, with the row's generation */
    assert_int_equal(b.news_generation, 6);
    assert_string_equal(b.kinds, "disk_full disk_room ");
    fixture_best(best, 9, 9);
    CALL_OK(&b, publish, best, on_best, NULL);
    wait_for(&b, b.callbacks + 1);
    assert_int_equal(b.generation, 7);
    end(&b);
    free(best);
    free(t);
}

/* An unsaved key is evicted. Then the ledger stops while two rows are unsaved, and gives the notice
 * "lost". */
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
    assert_int_equal(b.status, 0); /* the file has no row of the key, so no write is needed */
    assert_int_equal(b.id, 1);
    assert_int_equal(counts(&b).unsaved, 2);
    end(&b);
    limit_files(0);
    assert_string_equal(b.kinds, "disk_full lost lease snapshot ");
    free(best);
}

/* Opens a transaction on the file, as a person's sqlite3 might. */
static sqlite3 *lock(struct bench *b)
{
    sqlite3 *h;
    assert_int_equal(sqlite3_open(b->f->path, &h), SQLITE_OK);
    assert_int_equal(sqlite3_exec(h, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    /* the writer is idle: no other thread uses the store */
    store_set_patience(((struct ledger *)b->l)->store, 20);
    return h;
}

static void quarantine(struct bench *b, struct quarantine *q, int i)
{
    fixture_quarantine(q, i);
    CALL(b, add_quarantine, q);
}

/* A kernel that hung the device must not hang it again after a restart. */
static void quarantine_waits_for_room(void **state)
{
    struct bench b;
    struct error err = ERROR_NULL;
    struct quarantine q;
    signal(SIGXFSZ, SIG_IGN);
    assert_ok(begin(&b, *state, &err));
    limit_files(4096);
    for (int i = 0; i < 4; i++) {
        quarantine(&b, &q, i);
    }
    fixture_quarantine(&q, 1);
    CALL_OK(&b, unquarantine, q.variant, on_id, NULL);
    wait_for(&b, 1);
    assert_int_equal(b.status, 0);
    assert_int_equal(b.id, 1);
    assert_int_equal(counts(&b).quarantined, 0);
    limit_files(0);
    uint64_t began = uv_hrtime();
    while (counts(&b).quarantined < 3 && uv_hrtime() - began < 20 * UINT64_C(1000000000)) {
    }
    assert_string_equal(b.kinds, "disk_full disk_room ");

    limit_files(4096);
    quarantine(&b, &q, 4);
    assert_int_equal(counts(&b).quarantined, 3);
    limit_files(0);
    end(&b); /* before its end the ledger tries again to write the waiting row */
    struct store *s = fixture_open(*state);
    struct store_stats stats;
    assert_ok(store_stats(s, &stats, &err));
    assert_int_equal(stats.quarantined, 4);
    store_close(s);

    assert_ok(begin(&b, *state, &err));
    limit_files(4096);
    quarantine(&b, &q, 5);
    end(&b);
    limit_files(0);
    assert_string_equal(b.kinds, "disk_full lost lease snapshot ");
}

/* A row of quarantine that waited in memory is written after a newer row of its variant. */
static void an_older_row_of_quarantine_changes_nothing(void **state)
{
    struct bench b;
    struct error err = ERROR_NULL;
    struct quarantine q;
    assert_ok(begin(&b, *state, &err));
    sqlite3 *h = lock(&b);
    fixture_quarantine(&q, 1);
    q.created_s -= 100;
    strcpy(q.reason, "of before");
    CALL(&b, add_quarantine, &q);
    assert_int_equal(counts(&b).unsaved_quarantine, 1);
    sqlite3_close(h);
    quarantine(&b, &q, 1);
    uint64_t began = uv_hrtime();
    while (counts(&b).unsaved_quarantine && uv_hrtime() - began < 20 * UINT64_C(1000000000)) {
    }
    end(&b);
    assert_int_equal(sqlite3_open(b.f->path, &h), SQLITE_OK);
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_prepare_v2(h, "SELECT reason, deaths FROM quarantine", -1, &s, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_string_equal(sqlite3_column_text(s, 0), q.reason);
    assert_int_equal(sqlite3_column_int(s, 1), 2);
    assert_int_equal(sqlite3_step(s), SQLITE_DONE);
    sqlite3_finalize(s);
    sqlite3_close(h);
}

/* A foreign file lies in the database's place. */
static void quarantine_that_no_file_takes_is_told(void **state)
{
    struct bench b;
    struct error err = ERROR_NULL;
    struct quarantine q;
    char aside[PATH_MAX];
    assert_ok(begin(&b, *state, &err));
    quarantine(&b, &q, 1);
    assert_int_equal(counts(&b).quarantined, 1);
    snprintf(aside, sizeof(aside), "%s.aside", b.f->path);
    assert_int_equal(rename(b.f->path, aside), 0);
    FILE *file = fopen(b.f->path, "w");
    fputs("somebody's", file);
    fclose(file);
    for (int i = 2; i < 5; i++) {
        quarantine(&b, &q, i);
    }
    assert_int_equal(counts(&b).unsaved_quarantine, 3);
    assert_string_equal(b.kinds, "lost "); /* the notice comes only once */
    unlink(b.f->path);
    assert_int_equal(rename(aside, b.f->path), 0);
    end(&b);
    struct store *s = fixture_open(*state);
    struct store_stats stats;
    assert_ok(store_stats(s, &stats, &err));
    assert_int_equal(stats.quarantined, 4);
    store_close(s);
}

/* The file keeps the key's older row until the disk has room. */
static void an_unsaved_row_is_not_replaced(void **state)
{
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    signal(SIGXFSZ, SIG_IGN);
    assert_ok(begin(&b, *state, &err));
    limit_files(4096);
    fixture_best(best, 1, 1);
    CALL_OK(&b, publish, best, on_best, NULL);
    fixture_best(best, 1, 2);
    strcpy(best->source, "imported");
    CALL_OK(&b, publish, best, on_best, NULL);
    wait_for(&b, 2);
    assert_int_equal(b.status, ERROR_CONFLICT);
    fixture_best(best, 2, 2);
    strcpy(best->source, "imported");
    CALL_OK(&b, publish, best, on_best, NULL);
    wait_for(&b, 3);
    assert_int_equal(b.status, 0);
    assert_false(b.saved);
    assert_int_equal(counts(&b).unsaved, 2);
    /* imported rows that cannot be written are dropped: they must not pile up in memory */
    for (int i = 0; i < 2 * STORE_IMPORTED_PER_KEY; i++) {
        fixture_best(best, 2, i);
        strcpy(best->source, "imported");
        CALL_OK(&b, publish, best, on_best, NULL);
    }
    wait_for(&b, b.callbacks + 2 * STORE_IMPORTED_PER_KEY);
    assert_int_equal(counts(&b).unsaved, 1 + STORE_IMPORTED_PER_KEY);
    limit_files(0);
    end(&b);
    struct store *s = fixture_open(*state);
    assert_int_equal(fixture_find_best(s, 2, best), 0);
    /* of the imported rows the file gets the last */
    assert_int_equal(record_int(&best->config, "serial", -1), 2 * STORE_IMPORTED_PER_KEY - 1);
    store_close(s);
    free(best);
}

/* A commit hook: refuses the second commit, as a failing disk would. */
static int refuse_second(void *n)
{
    return atomic_fetch_add((atomic_int *)n, 1) == 1;
}

static int64_t rows_of(struct fixture *f, const char *key)
{
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct record *filter = calloc(1, sizeof(*filter));
    WIRE_BUF_AUTO rows = WIRE_BUF_NULL;
    int64_t total = -1;
    record_init(filter);
    record_put_text(filter, "key", key);
    assert_ok(store_list(s, "history", filter, RESPONSE_BYTES_MAX, &rows, &total, &err));
    free(filter);
    store_close(s);
    return total;
}

/* True: the writer has taken all requests. */
static bool is_taken(struct bench *b)
{
    struct ledger *l = (struct ledger *)b->l;
    uv_mutex_lock(&l->mutex);
    bool taken = !l->todo.first;
    uv_mutex_unlock(&l->mutex);
    return taken;
}

/* An unsaved row is written in a transaction with the next row of its key and other rows; the whole
 * transaction fails. */
static void what_a_failed_group_would_have_saved_is_not_lost(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    struct event e;
    atomic_int commits = 0;
    signal(SIGXFSZ, SIG_IGN);
    assert_ok(begin(&b, f, &err));
    struct store *s = ((struct ledger *)b.l)->store;
    limit_files(4096);
    fixture_best(best, 1, 1);
    CALL_OK(&b, publish, best, on_best, NULL);
    wait_for(&b, 1);
    assert_false(b.saved);
    limit_files(0);
    sqlite3 *h = lock(&b);
    store_set_patience(s, 20000);
    sqlite3_commit_hook(s->db.h, refuse_second, &commits);
    fixture_event(&e, 1);
    CALL(&b, add_event, &e); /* the writer waits for the lock; meanwhile the other requests come */
    while (!is_taken(&b)) {
        usleep(100);
    }
    fixture_best(best, 1, 2);
    CALL_OK(&b, publish, best, on_best, NULL);
    CALL(&b, add_event, &e);
    assert_int_equal(sqlite3_close(h), SQLITE_OK);
    wait_for(&b, 2);
    assert_true(commits >= 2);
    end(&b);
    assert_int_equal(rows_of(f, best->key), 2);
    free(best);
}

/* ---- a lock of another program --------------------------------------------------------------- */

static void import(struct bench *b, struct best *best, int key)
{
    fixture_best(best, key, 1);
    strcpy(best->source, "imported");
    CALL_OK(b, publish, best, on_best, NULL);
    wait_for(b, b->callbacks + 1);
}

/* The writer waits for another program's lock once for a group of rows, not once for each row. */
static void a_lock_stops_nothing(void **state)
{
    enum { ROWS = 20 };
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    struct trial *t = calloc(1, sizeof(*t));
    assert_ok(begin(&b, *state, &err));
    fixture_best(best, 100, 1);
    CALL_OK(&b, publish, best, on_best, NULL);
    wait_for(&b, 1);
    import(&b, best, 101);
    int64_t before = b.generation;

    sqlite3 *h = lock(&b);
    uint64_t began = uv_hrtime();
    for (int i = 0; i < ROWS; i++) {
        fixture_trial(t, 0, i, i);
        CALL(&b, add_trial, t);
        fixture_best(best, i, i);
        CALL_OK(&b, publish, best, on_best, NULL);
    }
    wait_for(&b, 2 + ROWS);
    assert_int_equal(b.status, 0);
    assert_false(b.saved);
    assert_int_equal(b.generation, 0);
    import(&b, best, 100); /* refused: the file has the measured row */
    assert_int_equal(b.status, ERROR_CONFLICT);
    /* the file has this row already: the ledger writes nothing, and does not notice the lock */
    import(&b, best, 101);
    assert_true(b.status == 0 && b.saved && b.generation == before);
    CALL_OK(&b, record, t, false, on_done, NULL);
    wait_for(&b, b.callbacks + 1);
    assert_int_equal(b.status, ERROR_BUSY);
    struct ledger_status s = counts(&b);
    assert_true(uv_hrtime() - began < 10 * UINT64_C(1000000000));
    assert_true(s.locked && !s.disk_full);
    assert_int_equal(s.unsaved, ROWS);
    assert_int_equal(s.lost_trials, ROWS);
    assert_string_equal(b.kinds, "locked ");

    assert_int_equal(sqlite3_close(h), SQLITE_OK);
    began = uv_hrtime();
    do {
        s = counts(&b);
    } while (s.unsaved && uv_hrtime() - began < 20 * UINT64_C(1000000000));
    assert_int_equal(s.unsaved, 0);
    assert_int_equal(s.bests, 2 + ROWS);
    assert_int_equal(s.generation, before + ROWS);
    assert_false(s.locked);
    assert_string_equal(b.kinds, "locked unlocked ");
    end(&b);
    free(best);
    free(t);
}

static void a_lock_does_not_hold_up_a_stop(void **state)
{
    struct bench b;
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    assert_ok(begin(&b, *state, &err));
    sqlite3 *h = lock(&b);
    for (int i = 0; i < 5; i++) {
        fixture_best(best, i, i);
        CALL_OK(&b, publish, best, on_best, NULL);
    }
    uint64_t began = uv_hrtime();
    end(&b);
    assert_true(uv_hrtime() - began < 15 * UINT64_C(1000000000));
    assert_int_equal(b.callbacks, 5);
    /* "lease": the daemon could not give its leases back; they end with its process */
    assert_string_equal(b.kinds, "locked lost lease ");
    sqlite3_close(h);
    free(best);
}

/* ---- damage ---------------------------------------------------------------------------------- */

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
    assert_true(b.loaded > 130); /* includes the rows that were published just now */
    assert_non_null(strstr(b.kinds, "corrupt_file"));
    assert_int_equal(counts(&b).unsaved, 0);
    end(&b);
    free(best);
}

static int64_t page_of(const char *path, const char *name)
{
    sqlite3 *h;
    sqlite3_stmt *q;
    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    sqlite3_prepare_v2(h, "SELECT rootpage FROM sqlite_schema WHERE name = ?1", -1, &q, NULL);
    sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    int64_t page = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    sqlite3_close(h);
    return page;
}

/* Nothing was written between the damage and the stop. */
static void damage_met_at_the_end_is_repaired(void **state)
{
    struct fixture *f = *state;
    struct bench b;
    struct error err = ERROR_NULL;
    struct quarantine q;
    struct store_stats stats;
    char junk[4096];
    struct store *s = fixture_open(f);
    fixture_fill(s);
    assert_ok(store_stats(s, &stats, &err));
    store_close(s);
    const int64_t before = stats.quarantined, page = page_of(f->path, "quarantine_class");
    memset(junk, 0xff, sizeof(junk));
    assert_ok(begin(&b, f, &err));
    sqlite3 *h = lock(&b);
    quarantine(&b, &q, 1000);
    assert_int_equal(counts(&b).unsaved_quarantine, 1);
    FILE *file = fopen(f->path, "r+");
    fseek(file, (page - 1) * 4096, SEEK_SET);
    fwrite(junk, 1, sizeof(junk), file);
    fclose(file);
    /* A commit by another program makes the ledger read its cached pages anew. */
    assert_int_equal(sqlite3_exec(h,
                                  "INSERT INTO lease(key, owner, boot, until_ms, taken_s) VALUES "
                                  "('k', '1.1', 'x', 1, 1); COMMIT",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(h);
    end(&b);
    assert_non_null(strstr(b.kinds, "corrupt_file"));
    assert_null(strstr(b.kinds, "lost"));
    s = fixture_open(f);
    assert_ok(store_stats(s, &stats, &err));
    assert_int_equal(stats.quarantined, before + 1);
    store_close(s);
}

static void on_long(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

/* When the ledger is quiet after a load, the thorough check runs. It finds a bad trial that no load
 * would read; then a bad page, and the file is rebuilt. */
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
        const char *kind =
            round == 0 ? "corrupt_row " : "corrupt_file "; /* "rebuilt" may be next */
        assert_ptr_equal(strstr(b.kinds, kind), b.kinds);
        assert_int_equal(counts(&b).trials, round == 0 ? 96 : 95);
        end(&b);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, teardown)
    const struct CMUnitTest tests[] = {
        T(what_a_failed_group_would_have_saved_is_not_lost),
        T(an_unsaved_row_is_not_replaced),
        T(a_full_disk_stops_nothing),
        T(unsaved_bests_are_evicted_or_told),
        T(damage_is_repaired_on_the_way),
        T(the_file_is_checked_when_it_is_quiet),
        T(a_lock_stops_nothing),
        T(a_lock_does_not_hold_up_a_stop),
        T(quarantine_waits_for_room),
        T(damage_met_at_the_end_is_repaired),
        T(an_older_row_of_quarantine_changes_nothing),
        T(quarantine_that_no_file_takes_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
