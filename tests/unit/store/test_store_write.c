/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of each call that changes the store. */
#include <unistd.h>

#include "store/inner.h"
#include "tests/unit/store/fixture.h"

static void trials_of_a_key(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct trial *t = calloc(1, sizeof(*t)), *out;
    uint32_t n;
    static const char *const states[] = {"ok",           "aborted",     "hung",
                                         "cancelled",    "compile",     "crashed",
                                         "wrong_result", "device_lost", "invalid"};
    for (int i = 0; i < 9; i++) {
        fixture_trial(t, 0, 7, i);
        strcpy(t->status, states[i]);
        assert_ok(store_add_trial(s, t, &err));
    }
    fixture_trial(t, 0, 8, 1); /* a trial of another key */
    assert_ok(store_add_trial(s, t, &err));
    fixture_trial(t, 0, 7, 1);
    strcpy(t->stamp, "of other sources");
    assert_ok(store_add_trial(s, t, &err));
    fixture_trial(t, 0, 7, 0);
    assert_ok(store_trials_of(s, t->key, t->stamp, &out, &n, &err));
    assert_int_equal(n, 5);
    assert_string_equal(out[0].status, "ok");
    assert_string_equal(out[2].status, "compile");
    assert_string_equal(out[4].status, "invalid");
    free(out);
    assert_ok(store_trials_of(s, t->key, "no such stamp", &out, &n, &err));
    assert_int_equal(n, 0);
    assert_null(out);
    free(t);
    store_close(s);
}

static void references_are_kept_or_dropped(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct trial *t = calloc(1, sizeof(*t));
    struct best *b = calloc(1, sizeof(*b));
    struct run r;
    fixture_run(&r);
    assert_ok(store_add_run(s, &r, &err));
    assert_int_equal(r.id, 1);
    fixture_trial(t, r.id, 1, 1);
    assert_ok(store_add_trial(s, t, &err));
    assert_int_equal(t->run, 1);
    int64_t measured = t->id;
    fixture_trial(t, 99, 1, 2);
    assert_ok(store_add_trial(s, t, &err));
    assert_int_equal(t->run, 0);

    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->trial, measured); /* the store finds the trial by key, config and stamp */
    /* the config is verified two more times, with tighter tolerances */
    for (int i = 0; i < 2; i++) {
        fixture_trial(t, r.id, 1, 1);
        strcat(t->stamp, " atol=0.0001 rtol=0.01");
        t->time_us = 90 + i;
        assert_ok(store_add_trial(s, t, &err));
    }
    fixture_best(b, 1, 1);
    b->time_us = 90;
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->trial, t->id - 1); /* the trial with this time */
    fixture_best(b, 1, 1);
    strcpy(b->source, "imported");
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->trial, 0);
    fixture_best(b, 1, 1);
    strcpy(b->source, "imported");
    b->trial = 12345;
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->trial, 0);
    fixture_best(b, 2, 1);
    b->trial = measured; /* of key 1 */
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->trial, 0);

    r.ended_s = 5;
    strcpy(r.ending, "idle");
    assert_ok(store_end_run(s, &r, &err));
    struct run *known = calloc(1, sizeof(*known));
    assert_int_equal(rows_first(s, TABLE_RUN, known, &err, NULL, "WHERE id = 1", ""), 0);
    assert_string_equal(known->ending, "idle");
    assert_string_equal(known->build, "0.1.0-abc");
    free(known);
    r.id = 17;
    assert_int_equal(store_end_run(s, &r, &err), ERROR_NOT_FOUND);
    assert_says(err, "no run 17");
    free(t);
    free(b);
    store_close(s);
}

static void modules_are_touched(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct module m, row;
    int64_t n;
    fixture_module(&m, 1);
    int64_t created = m.created_s;
    assert_ok(store_add_module(s, &m, &err));
    m.used_s = 4000000000;
    m.created_s = 4000000000;
    assert_ok(store_add_module(s, &m, &err));
    assert_ok(db_int(&s->db, "SELECT count(*) FROM module", &n, &err));
    assert_int_equal(n, 1);
    assert_int_equal(rows_first(s, TABLE_MODULE, &row, &err, NULL, "", ""), 0);
    assert_int_equal(row.created_s, created);
    assert_int_equal(row.used_s, 4000000000);
    fixture_key(5, m.variant); /* the same image of another variant is another file */
    assert_ok(store_add_module(s, &m, &err));
    assert_ok(db_int(&s->db, "SELECT count(*) FROM module", &n, &err));
    assert_int_equal(n, 2);
    store_close(s);
}

static void quarantine_counts_and_is_lifted(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct quarantine q;
    char(*avoid)[HASH_HEX];
    uint32_t n;
    int64_t gone;
    for (int i = 0; i < 3; i++) {
        fixture_quarantine(&q, 1);
        assert_ok(store_add_quarantine(s, &q, &err));
        assert_int_equal(q.id, 1);
        assert_int_equal(q.deaths, i + 1);
    }
    fixture_quarantine(&q, 2);
    assert_ok(store_add_quarantine(s, &q, &err));
    char class_[192], driver[32];
    strcpy(class_, q.class);
    strcpy(driver, q.driver);
    strcpy(q.driver, "another");
    assert_ok(store_add_quarantine(s, &q, &err));
    assert_ok(store_avoid(s, class_, driver, &avoid, &n, &err));
    assert_int_equal(n, 2);
    free(avoid);
    assert_ok(store_avoid(s, class_, "another", &avoid, &n, &err));
    assert_int_equal(n, 1);
    assert_string_equal(avoid[0], q.variant);
    free(avoid);
    assert_ok(store_avoid(s, "another class", driver, &avoid, &n, &err));
    assert_int_equal(n, 0);
    assert_null(avoid);
    assert_ok(store_unquarantine(s, q.variant, &gone, &err));
    assert_int_equal(gone, 2); /* one for each driver */
    assert_ok(store_unquarantine(s, q.variant, &gone, &err));
    assert_int_equal(gone, 0);
    store_close(s);
}

static void old_trials_go_first(void **state)
{
    struct fixture *f = *state;
    struct store_options o = fixture_options(f);
    struct error err = ERROR_NULL;
    struct store *s;
    struct trial *t = calloc(1, sizeof(*t)), *out;
    struct best *b = calloc(1, sizeof(*b));
    uint32_t n;
    o.trials_per_key_max = 40;
    assert_ok(store_open(&o, &s, &err));
    for (int i = 0; i < 200; i++) {
        fixture_trial(t, 0, 3, i);
        assert_ok(store_add_trial(s, t, &err));
        if (i == 4) {
            fixture_best(b, 3, 4);
            assert_ok(store_publish(s, b, &err));
            assert_int_equal(b->trial, t->id);
        }
        if (i % 10 == 0) {
            /* a trial of another key between does not change the count */
            fixture_trial(t, 0, 4, i);
            assert_ok(store_add_trial(s, t, &err));
        }
    }
    fixture_trial(t, 0, 3, 0);
    assert_ok(store_trials_of(s, t->key, t->stamp, &out, &n, &err));
    assert_in_range(n, 36, 40);
    assert_int_equal(out[0].id, b->trial); /* the serving trial stays */
    assert_int_equal(record_int(&out[n - 1].config, "serial", -1), 199);
    assert_int_equal(record_int(&out[1].config, "serial", -1), 201 - n);
    free(out);
    fixture_trial(t, 0, 4, 0);
    assert_ok(store_trials_of(s, t->key, t->stamp, &out, &n, &err));
    assert_int_equal(n, 20);
    free(out);
    free(t);
    free(b);
    store_close(s);
}

static void events_are_capped(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct event e;
    int64_t n;
    assert_ok(store_begin(s, &err));
    for (int i = 0; i < 11000; i++) {
        fixture_event(&e, i);
        if (i == 0) {
            strcpy(e.kind, "bucket_scheme");
        }
        assert_ok(store_add_event(s, &e, &err));
    }
    assert_ok(store_commit(s, &err));
    assert_int_equal(e.id, 11000);
    assert_ok(db_int(&s->db, "SELECT min(id) FROM event", &n, &err));
    assert_int_equal(n, 1); /* the only event of its kind is kept */
    assert_ok(db_int(&s->db, "SELECT count(*) FROM event", &n, &err));
    assert_in_range(n, STORE_EVENTS_MAX, STORE_EVENTS_MAX + 256);
    store_close(s);
}

static void evicting_never_gives_a_number_twice(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    struct store_stats stats;
    char key[HASH_HEX];
    int64_t n;
    fixture_fill(s);
    fixture_key(1, key);
    assert_ok(store_evict(s, key, &n, &err));
    assert_int_equal(n, 2 + 8); /* a tuned and a pinned row, and 8 trials */
    assert_int_equal(fixture_find_best(s, 1, b), STORE_MISS);
    assert_ok(store_evict(s, key, &n, &err));
    assert_int_equal(n, 0);
    store_close(s);
    s = fixture_open(f);
    assert_ok(store_stats(s, &stats, &err));
    assert_int_equal(stats.generation, 13);
    assert_int_equal(stats.bests, 11);
    assert_int_equal(stats.trials, 88);
    assert_int_equal(stats.modules, 4);
    assert_int_equal(stats.quarantined, 4);
    assert_true(stats.file_bytes >= 4096);
    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->generation, 14);
    assert_ok(store_stats(s, &stats, &err));
    assert_int_equal(stats.bests, 12);
    assert_int_equal(stats.generation, 14);
    free(b);
    store_close(s);
}

static void unpinning(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b)), *now = calloc(1, sizeof(*now));
    fixture_fill(s); /* key 1: tuned, then pinned */
    fixture_best(b, 1, 3);
    assert_ok(store_unpin(s, b->key, now, &err));
    assert_string_equal(now->source, "tuned");
    assert_int_equal(now->generation, 14);
    assert_true(record_equal(&now->config, &b->config));
    assert_int_equal(fixture_find_best(s, 1, b), 0);
    assert_int_equal(b->generation, 14);
    assert_int_equal(store_unpin(s, b->key, now, &err), ERROR_NOT_FOUND);
    assert_says(err, "is not pinned");

    static const char *const sources[] = {"tuned", "partial", "imported", "manual"};
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        fixture_best(b, 31, 1 + (int)i);
        strcpy(b->source, sources[i]);
        assert_ok(store_publish(s, b, &err));
    }
    assert_ok(store_unpin(s, b->key, now, &err));
    /* the tuned row answers, not the newer partial or imported row */
    assert_string_equal(now->source, "tuned");

    fixture_best(b, 30, 1); /* a key without a tuned row */
    strcpy(b->source, "manual");
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(store_unpin(s, b->key, now, &err), STORE_MISS);
    assert_int_equal(fixture_find_best(s, 30, now), STORE_MISS);
    assert_int_equal(store_unpin(s, b->key, now, &err), ERROR_NOT_FOUND);
    free(b);
    free(now);
    store_close(s);
}

static void groups_commit_or_vanish(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    struct event e;
    assert_ok(store_begin(s, &err));
    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    fixture_event(&e, 1);
    assert_ok(store_add_event(s, &e, &err));
    store_rollback(s);
    assert_int_equal(fixture_find_best(s, 1, b), STORE_MISS);
    assert_ok(store_begin(s, &err));
    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->generation, 1);
    /* A call that fails between store_begin and store_commit undoes only its own writes. */
    char key[HASH_HEX];
    fixture_key(9, key);
    assert_int_equal(store_unpin(s, key, b, &err), ERROR_NOT_FOUND);
    assert_ok(store_commit(s, &err));
    store_close(s);
    s = fixture_open(f);
    assert_int_equal(fixture_find_best(s, 1, b), 0);
    assert_int_equal(b->generation, 1); /* the undone row's number: no caller was told of it */
    free(b);
    store_close(s);
}

static void offered(struct best *b, int key, int i, int64_t known)
{
    fixture_best(b, key, i);
    strcpy(b->source, "imported");
    b->stamp[0] = 0;
    b->generation = known;
}

/* An offer names the row that its daemon knew of the key. Another write may have come since: the
 * transaction compares with the newest row. */
static void an_offer_does_not_replace_a_newer_row(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    for (int i = 0; i < 2; i++) {
        fixture_best(b, i, 1);
        strcpy(b->source, i ? "manual" : "tuned");
        assert_ok(store_publish(s, b, &err));
        int64_t known = b->generation;
        offered(b, i, 2, 0);
        assert_int_equal(store_offer(s, b, &err), ERROR_CONFLICT);
        assert_says(err, "evict");
        assert_int_equal(fixture_find_best(s, i, b), 0);
        assert_string_equal(b->source, i ? "manual" : "tuned");
        offered(b, i, 2, known); /* this offer names that row, so it may replace the row */
        assert_ok(store_offer(s, b, &err));
        assert_int_equal(fixture_find_best(s, i, b), 0);
        assert_string_equal(b->source, "imported");
    }
    offered(b, 2, 1, 0);
    b->family[0] = 0; /* a custom op has no family: the last offered row answers */
    assert_ok(store_offer(s, b, &err));
    offered(b, 2, 2, 0);
    b->family[0] = 0;
    assert_ok(store_offer(s, b, &err));
    /* Between store_begin and store_commit, a refused offer undoes no other write. */
    assert_ok(store_begin(s, &err));
    fixture_best(b, 3, 1);
    assert_ok(store_publish(s, b, &err));
    offered(b, 3, 2, 0);
    assert_int_equal(store_offer(s, b, &err), ERROR_CONFLICT);
    assert_ok(store_commit(s, &err));
    assert_int_equal(fixture_find_best(s, 3, b), 0);
    free(b);
    store_close(s);
}

/* Offers the result of a search, or a pin that was verified again. `known`: generation of key
 * 0's row when the search began. */
static int ended(struct store *s, struct best *b, const char *source, int i, int64_t known)
{
    struct error err = ERROR_NULL;
    fixture_best(b, 0, i);
    strcpy(b->source, source);
    b->generation = known;
    return store_offer(s, b, &err);
}

static void the_end_of_a_search_does_not_replace_a_newer_row(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    assert_int_equal(ended(s, b, "tuned", 1, 0), 0);
    int64_t tuned = b->generation;
    assert_int_equal(ended(s, b, "partial", 2, 0), ERROR_CONFLICT);
    assert_int_equal(ended(s, b, "tuned", 2, 0), 0);                   /* the later search serves */
    assert_int_equal(ended(s, b, "manual", 3, tuned), ERROR_CONFLICT); /* without its pin */
    assert_int_equal(ended(s, b, "manual", 3, 0), 0);
    int64_t pinned = b->generation;
    assert_int_equal(ended(s, b, "tuned", 4, pinned - 1), ERROR_CONFLICT);
    assert_int_equal(ended(s, b, "partial", 4, pinned - 1), ERROR_CONFLICT);
    assert_int_equal(fixture_find_best(s, 0, b), 0);
    assert_string_equal(b->source, "manual");
    assert_int_equal(ended(s, b, "manual", 3, pinned), 0); /* verified again */
    assert_int_equal(ended(s, b, "manual", 3, pinned), 0); /* a second time */
    assert_int_equal(ended(s, b, "manual", 5, 0), 0);
    /* another pin */
    assert_int_equal(ended(s, b, "manual", 3, pinned), ERROR_CONFLICT);
    assert_ok(store_unpin(s, b->key, b, &err));
    assert_int_equal(ended(s, b, "manual", 5, b->generation), ERROR_CONFLICT);
    assert_int_equal(ended(s, b, "manual", 6, 0), 0);
    /* this offer names the stale pin, so the store takes it */
    assert_int_equal(ended(s, b, "tuned", 7, b->generation), 0);
    free(b);
    store_close(s);
}

/* A row with a wrong checksum does not count, whichever of its fields was changed. */
static void a_bad_row_is_replaced_under_its_number(void **state)
{
    static const char *const spoil[] = {"UPDATE best SET time_us = 1",
                                        "UPDATE best SET key = replace(key, '0', '1')"};
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(store_publish_again(s, b, &err), STORE_THERE);
        assert_int_equal(sqlite3_exec(s->db.h, spoil[i], NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(fixture_find_best(s, 1, b), STORE_MISS);
        fixture_best(b, 1, 1);
        b->generation = 1;
        assert_ok(store_publish_again(s, b, &err));
        assert_int_equal(fixture_find_best(s, 1, b), 0);
        assert_int_equal(b->generation, 1);
    }
    free(b);
    store_close(s);
}

/* While a person's sqlite3 locks the file, events cannot be added. A later transaction works. */
static void an_event_that_cannot_be_written_ends_no_group(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct event e = {.kind = "test"};
    struct best *b = calloc(1, sizeof(*b));
    sqlite3 *other;
    assert_int_equal(sqlite3_open(f->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_busy_timeout(s->db.h, 10);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_add_event(s, &e, &err), ERROR_BUSY);
    }
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    assert_ok(store_begin(s, &err));
    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    assert_ok(store_commit(s, &err));
    assert_ok(store_add_event(s, &e, &err));
    struct store_stats stats;
    assert_ok(store_stats(s, &stats, &err));
    assert_int_equal(stats.bests, 1);
    free(b);
    store_close(s);
}

/* The store also judges an offer that it cannot write, because the daemon would serve the row from
 * memory. */
static void an_offer_to_a_locked_file_is_judged(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    sqlite3 *other;
    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    offered(b, 2, 1, 0);
    assert_ok(store_offer(s, b, &err));
    assert_int_equal(sqlite3_open(f->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    store_set_patience(s, 0);
    offered(b, 1, 2, 0);
    assert_int_equal(store_offer(s, b, &err), ERROR_CONFLICT);
    assert_says(err, "measured here");
    offered(b, 2, 1, 0);
    assert_int_equal(store_offer(s, b, &err), STORE_THERE);
    assert_int_equal(b->generation, 2);
    offered(b, 3, 1, 0);
    assert_int_equal(store_offer(s, b, &err), ERROR_BUSY);
    assert_int_equal(b->generation, 0); /* unchanged: the row was not written */
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    assert_ok(store_offer(s, b, &err));
    assert_int_equal(b->generation, 3);
    free(b);
    store_close(s);
}

/* The file has lost the row, and a daemon with the row in memory brings it back. */
static void a_row_that_was_lost_keeps_its_number(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    fixture_best(b, 1, 1);
    b->generation = 40;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(store_publish_again(s, b, &err), i == 0 ? 0 : STORE_THERE);
        assert_int_equal(fixture_find_best(s, 1, b), 0);
        assert_int_equal(b->generation, 40);
    }
    fixture_best(b, 2, 1);
    b->generation = 40;
    assert_int_equal(store_publish_again(s, b, &err), ERROR_CONFLICT);
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->generation, 41);
    fixture_best(b, 1, 2); /* the newer row stays the newest */
    b->generation = 12;
    assert_ok(store_publish_again(s, b, &err));
    assert_int_equal(fixture_find_best(s, 1, b), 0);
    assert_int_equal(b->generation, 40);
    free(b);
    store_close(s);
}

static int64_t rows_of_key(struct store *s, int key)
{
    struct record filter;
    struct error err = ERROR_NULL;
    WIRE_BUF_AUTO out = WIRE_BUF_NULL;
    char id[HASH_HEX];
    int64_t total = 0;
    fixture_key(key, id);
    record_init(&filter);
    record_put_text(&filter, "key", id);
    assert_ok(store_list(s, "history", &filter, 1 << 20, &out, &total, &err));
    return total;
}

static void offers_do_not_pile_up(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    int64_t known = b->generation;
    offered(b, 1, 2, known);
    assert_ok(store_offer(s, b, &err));
    int64_t first = b->generation;
    offered(b, 1, 2, first);
    b->uid = 12345;
    b->created_s += 60;
    /* the same offer again returns the row that is there */
    assert_int_equal(store_offer(s, b, &err), STORE_THERE);
    assert_int_equal(b->generation, first);
    assert_int_not_equal(b->uid, 12345);
    assert_int_equal(rows_of_key(s, 1), 2);
    for (int i = 3; i < 3 + 2 * STORE_IMPORTED_PER_KEY; i++) {
        offered(b, 1, i, known);
        assert_ok(store_offer(s, b, &err));
    }
    assert_int_equal(rows_of_key(s, 1), 1 + STORE_IMPORTED_PER_KEY); /* the tuned row stays */
    int64_t last = b->generation;
    assert_int_equal(fixture_find_best(s, 1, b), 0);
    assert_int_equal(b->generation, last);
    offered(b, 2, 1, 0);
    assert_ok(store_offer(s, b, &err));
    assert_int_equal(b->generation, last + 1);
    free(b);
    store_close(s);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(trials_of_a_key),
        T(references_are_kept_or_dropped),
        T(modules_are_touched),
        T(quarantine_counts_and_is_lifted),
        T(old_trials_go_first),
        T(events_are_capped),
        T(evicting_never_gives_a_number_twice),
        T(unpinning),
        T(groups_commit_or_vanish),
        T(an_offer_does_not_replace_a_newer_row),
        T(the_end_of_a_search_does_not_replace_a_newer_row),
        T(an_event_that_cannot_be_written_ends_no_group),
        T(an_offer_to_a_locked_file_is_judged),
        T(a_bad_row_is_replaced_under_its_number),
        T(a_row_that_was_lost_keeps_its_number),
        T(offers_do_not_pile_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
