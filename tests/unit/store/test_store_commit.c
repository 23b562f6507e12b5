/* SPDX-License-Identifier: Apache-2.0 */
/* Several stores write a file in turn, under the commit lock. All are in this process; the lock
 * belongs to the open file, so that makes no difference. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/inner.h"
#include "tests/unit/store/fixture.h"

#define FIRST  "11.1.1"
#define SECOND "12.1.1"

static int publish(struct store *s, int key, int64_t *generation, struct error *err)
{
    struct best *b = calloc(1, sizeof(*b));
    fixture_best(b, key, key % 100);
    int r = store_publish(s, b, err);
    *generation = b->generation;
    free(b);
    return r;
}

static int64_t published(struct store *s, int key)
{
    struct error err = ERROR_NULL;
    int64_t generation;
    assert_ok(publish(s, key, &generation, &err));
    return generation;
}

static int refused(struct store *s, struct error *err)
{
    int64_t generation;
    int r = publish(s, 1, &generation, err);
    assert_int_equal(generation, 0);
    return r;
}

/* Runs SQL as a person's sqlite3 shell would. */
static void execute(struct fixture *f, const char *sql)
{
    sqlite3 *h;
    assert_int_equal(sqlite3_open(f->path, &h), SQLITE_OK);
    assert_int_equal(sqlite3_exec(h, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(h);
}

static int64_t size_of(struct fixture *f, const char *suffix)
{
    char path[128];
    struct stat st;
    fixture_path(f, suffix, path);
    return stat(path, &st) == 0 ? st.st_size : -1;
}

static int take_lock(struct fixture *f)
{
    char path[128];
    fixture_path(f, ".lock", path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    return fd;
}

/* ---- in turn --------------------------------------------------------------------------------- */

static void two_write_in_turn_and_no_number_comes_twice(void **state)
{
    enum { ROUNDS = 20 };
    struct fixture *f = *state;
    struct store *s[] = {fixture_open_as(f, FIRST), fixture_open_as(f, SECOND)};
    struct error err = ERROR_NULL;
    struct trial *t = calloc(1, sizeof(*t));
    struct best *b = calloc(1, sizeof(*b));
    struct event e;
    struct run run;
    struct quarantine q;
    int64_t last = 0, last_trial = 0, bad;
    for (int i = 0; i < ROUNDS; i++) {
        struct store *who = s[i % 3 == 0];
        fixture_run(&run);
        assert_ok(store_add_run(who, &run, &err));
        assert_int_equal(run.id, i + 1);
        fixture_trial(t, run.id, i, i);
        assert_ok(store_add_trial(who, t, &err));
        assert_int_equal(t->run, run.id);
        assert_true(t->id > last_trial);
        last_trial = t->id;
        fixture_event(&e, i);
        assert_ok(store_add_event(who, &e, &err));
        assert_int_equal(e.id, i + 1);
        fixture_quarantine(&q, i);
        assert_ok(store_add_quarantine(who, &q, &err));
        assert_int_equal(q.id, i + 1);
        int64_t given = published(who, i % 5);
        assert_true(given > last);
        last = given;
        /* each store sees the other's row at once */
        assert_int_equal(fixture_find_best(s[i % 2], i % 5, b), 0);
        assert_int_equal(b->generation, last);
    }
    for (int i = 0; i < 2; i++) {
        int64_t given;
        assert_ok(store_generation(s[i], &given, &err));
        assert_int_equal(given, last);
        assert_ok(store_check(s[i], &bad, &err));
        assert_int_equal(bad, 0);
    }
    free(t);
    free(b);
    store_close(s[0]);
    store_close(s[1]);
}

/* Store a counts generations in a transaction that is undone, and store b gives these generations
 * out: a's next generation is above them. */
static void numbers_of_an_undone_group_are_free(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    int64_t ignored;
    int64_t last = published(a, 1);
    for (int i = 0; i < 3; i++) {
        assert_ok(store_begin(a, &err));
        assert_ok(publish(a, 2, &ignored, &err));
        assert_ok(publish(a, 3, &ignored, &err));
        store_rollback(a);
        int64_t given = published(b, 4);
        assert_true(given > last);
        last = published(a, 5);
        assert_true(last > given);
    }
    assert_int_equal(fixture_count(a, "SELECT count(*) FROM best"), 7);
    store_close(a);
    store_close(b);
}

/* The count of a key's trials in memory includes trials of other stores. */
static void old_trials_of_all_writers_go_first(void **state)
{
    struct fixture *f = *state;
    struct store_options o = fixture_options(f);
    struct error err = ERROR_NULL;
    struct store *s[2];
    struct trial *t = calloc(1, sizeof(*t));
    o.trials_per_key_max = 40;
    for (int i = 0; i < 2; i++) {
        o.owner = i ? SECOND : FIRST;
        assert_ok(store_open(&o, &s[i], &err));
    }
    for (int i = 0; i < 200; i++) {
        fixture_trial(t, 0, 1, i);
        assert_ok(store_add_trial(s[i / 3 % 2], t, &err));
        assert_in_range(fixture_count(s[0], "SELECT count(*) FROM trial"), 0, 40);
    }
    free(t);
    store_close(s[0]);
    store_close(s[1]);
}

/* ---- the lock -------------------------------------------------------------------------------- */

static void a_held_lock_stops_writes_until_it_is_let_go(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open_as(f, FIRST), *other = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    char lock[128];
    fixture_path(f, ".lock", lock);
    published(s, 1);
    assert_ok(store_lease(other, "k", 60000, &err));
    int fd = take_lock(f);
    store_set_patience(s, 30);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(refused(s, &err), ERROR_BUSY);
        assert_says(err, lock);
    }
    assert_int_equal(store_begin(s, &err), ERROR_BUSY);
    assert_int_equal(store_evict(s, "k", NULL, &err), ERROR_BUSY);
    assert_int_equal(store_lease(s, "free", 60000, &err), ERROR_BUSY);
    assert_int_equal(store_lease(s, "k", 60000, &err), STORE_HELD); /* only reads */
    assert_int_equal(fixture_find_best(s, 1, b), 0);
    close(fd);
    assert_int_equal(published(s, 2), 2);
    assert_ok(store_lease(s, "free", 60000, &err));
    free(b);
    store_close(s);
    store_close(other);
}

static void who_cannot_have_the_lock_does_not_open(void **state)
{
    struct fixture *f = *state;
    struct store_options o = fixture_options(f);
    struct store *s;
    struct error err = ERROR_NULL;
    store_close(fixture_open(f));
    pid_t pid = fork();
    if (pid == 0) { /* stopped within a commit */
        s = fixture_open(f);
        store_begin(s, &err);
        raise(SIGSTOP);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    o.flags = STORE_READ_ONLY; /* a reader needs no lock */
    assert_ok(store_open(&o, &s, &err));
    store_close(s);
    o.flags = 0;
    assert_int_equal(store_open(&o, &s, &err), ERROR_BUSY);
    char says[32];
    snprintf(says, sizeof(says), "pid %ld", (long)pid);
    assert_says(err, says);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    s = fixture_open(f); /* the kernel released the killed process's lock */
    assert_int_equal(published(s, 1), 1);
    store_close(s);
}

static void a_removed_lock_file_is_noticed(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b;
    struct error err = ERROR_NULL;
    char lock[128];
    fixture_path(f, ".lock", lock);
    store_set_patience(a, 0);
    published(a, 1);
    assert_int_equal(unlink(lock), 0);
    b = fixture_open_as(f, SECOND); /* makes a new lock file */
    assert_ok(store_begin(b, &err));
    assert_int_equal(refused(a, &err), ERROR_BUSY);
    store_rollback(b);
    assert_int_equal(published(a, 1), 2);

    assert_int_equal(unlink(lock), 0); /* the lock file is missing until a store makes it */
    assert_int_equal(published(a, 1), 3);
    assert_int_equal(access(lock, F_OK), 0);
    int fd = take_lock(f);
    store_set_patience(b, 0);
    assert_int_equal(refused(b, &err), ERROR_BUSY);
    close(fd);
    assert_int_equal(published(b, 1), 4);

    assert_ok(store_begin(a, &err)); /* also while held */
    assert_int_equal(unlink(lock), 0);
    store_rollback(a);
    assert_int_equal(published(b, 1), 5);
    assert_int_equal(published(a, 1), 6);
    store_close(a);
    store_close(b);
}

/* A folder has the lock file's name. Each error says why, and no store holds a lock that the
 * other waits for. */
static void a_folder_in_the_locks_place_is_told_of(void **state)
{
    struct fixture *f = *state;
    struct store *s[] = {fixture_open_as(f, FIRST), fixture_open_as(f, SECOND)};
    struct error err = ERROR_NULL;
    char lock[128];
    fixture_path(f, ".lock", lock);
    published(s[0], 1);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(mkdir(lock, 0700), 0);
    for (int i = 0; i < 4; i++) {
        store_set_patience(s[i % 2], 0);
        assert_int_equal(refused(s[i % 2], &err), ERROR_STORE);
        assert_says(err, lock);
    }
    assert_int_equal(rmdir(lock), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(published(s[i % 2], 1), 2 + i);
    }
    store_close(s[0]);
    store_close(s[1]);
}

/* ---- the text of the lock file --------------------------------------------------------------- */

static void read_lock_file(struct fixture *f, char out[256])
{
    char path[128];
    fixture_path(f, ".lock", path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    out[fread(out, 1, 255, file)] = 0;
    fclose(file);
}

static void write_lock_file(struct fixture *f, const char *text)
{
    char path[128];
    fixture_path(f, ".lock", path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_lock_file(struct fixture *f, long long given)
{
    char text[256];
    struct stat st;
    unsigned long long dev, ino;
    long long number;
    long pid;
    read_lock_file(f, text);
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(sscanf(text, "%ld \n%llx:%llx \n%lld\n", &pid, &dev, &ino, &number), 4);
    assert_int_equal(pid, getpid());
    assert_int_equal(dev, st.st_dev);
    assert_int_equal(ino, st.st_ino);
    assert_int_equal(number, given);
}

static void the_lock_file_names_the_file_and_the_last_generation(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    assert_lock_file(f, 0);
    published(a, 1);
    assert_lock_file(f, 1);
    published(b, 1);
    assert_lock_file(f, 2);
    published(a, 1);
    assert_lock_file(f, 3);
    int64_t size = size_of(f, ".lock");
    assert_int_equal(unlink(f->path), 0);
    published(b, 1); /* store b puts the rows back in a new file */
    assert_lock_file(f, 4);
    assert_int_equal(size_of(f, ".lock"), size);
    store_close(a);
    store_close(b);
}

static void the_text_of_an_old_lock_file_is_read(void **state)
{
    static const char *const texts[] = {
        "4711\n/run/gemmd/0.sock\n                  77\n",
        "4711\n\n77\n",
        "4711\nfeed:beef\n77",
    };
    struct fixture *f = *state;
    store_close(fixture_open(f));
    for (int i = 0; i < 3; i++) {
        char path[128];
        fixture_path(f, "", path);
        unlink(path); /* an older file with fewer rows takes the database's place */
        fixture_path(f, "-wal", path);
        unlink(path);
        fixture_path(f, "-shm", path);
        unlink(path);
        write_lock_file(f, texts[i]);
        struct store *s = fixture_open(f);
        assert_int_equal(published(s, 1), 78);
        assert_lock_file(f, 78);
        store_close(s);
    }
}

/* Any bytes in the lock file are replaced; the database does not depend on them. */
static void odd_text_in_the_lock_file_does_no_harm(void **state)
{
    static const char *const texts[] = {
        "", "\n\n\n", "x", "1\n2\n-5\n", "1\n2\n99999999999999999999999\n", "\xff\xfe\n\n\xff",
    };
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    char path[128];
    fixture_path(f, ".lock", path);
    const int64_t size = size_of(f, ".lock");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        write_lock_file(f, texts[i]);
        assert_int_equal(published(s, 1), 1 + (int64_t)i);
        assert_int_equal(size_of(f, ".lock"), size);
    }
    assert_int_equal(truncate(path, 30), 0);
    assert_int_equal(published(s, 1), 7);
    store_close(s);
    store_close(fixture_open(f));
    assert_lock_file(f, 7);
}

/* Yesterday's copy replaces the file while no store has it open. */
static void generations_go_on_above_those_of_a_newer_file(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    struct store *s = fixture_open(f);
    char copy[128];
    fixture_path(f, ".copy", copy);
    published(s, 1);
    assert_ok(store_backup(s, copy, &err));
    for (int i = 0; i < 9; i++) {
        published(s, 2);
    }
    store_close(s);
    assert_int_equal(rename(copy, f->path), 0);
    s = fixture_open(f);
    assert_int_equal(fixture_count(s, "SELECT max(generation) FROM best"), 1);
    assert_int_equal(published(s, 3), 11);
    store_close(s);
}

/* ---- other schemas, other files -------------------------------------------------------------- */

static void a_newer_schema_stops_writing_with_a_sentence(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open_as(f, FIRST);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    int64_t bad;
    published(s, 1);
    execute(f, "PRAGMA user_version = 7");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(refused(s, &err), ERROR_STORE);
        assert_says(err, "schema 7");
        assert_says(err, "a newer gemmd");
        assert_int_equal(store_lease(s, "k", 1000, &err), ERROR_STORE);
    }
    assert_int_equal(fixture_find_best(s, 1, b), 0); /* existing rows are served */
    /* the newer schema is no damage, so the file is not rebuilt in this one's */
    execute(f, "CREATE TABLE news(id INTEGER PRIMARY KEY) STRICT");
    assert_int_equal(store_check(s, &bad, &err), ERROR_STORE);
    assert_says(err, "a newer gemmd");
    assert_false(store_damaged(s));
    assert_int_equal(store_repair(s, &err), ERROR_STORE);
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM news"), 0);
    assert_int_equal(fixture_count(s, "PRAGMA user_version"), 7);
    execute(f, "DROP TABLE news; PRAGMA user_version = 6");
    assert_int_equal(published(s, 1), 2);
    free(b);
    store_close(s);
}

static void a_file_that_another_put_back_is_taken(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    unsigned opened = store_opened(b);
    published(a, 1);
    published(b, 2);
    assert_int_equal(store_opened(b), opened);
    assert_int_equal(unlink(f->path), 0);
    published(a, 3);
    assert_string_equal(f->kind, "restored");
    assert_int_equal(f->notices, 1);
    published(b, 4);
    assert_string_equal(f->kind, "replaced"); /* store b takes the file that store a has put back */
    assert_int_equal(f->notices, 2);
    assert_int_equal(store_opened(b), opened + 1);
    assert_int_equal(fixture_count(a, "SELECT count(*) FROM best"), 4);
    assert_int_equal(fixture_count(b, "SELECT count(*) FROM best"), 4);

    char theirs[128];
    fixture_path(f, ".theirs", theirs);
    assert_int_equal(rename(f->path, theirs), 0);
    execute(f, "CREATE TABLE theirs(x)"); /* a person's file is left alone by both stores */
    assert_int_equal(refused(a, &err), ERROR_STORE);
    assert_says(err, "move it away");
    assert_int_equal(refused(b, &err), ERROR_STORE);
    assert_says(err, "move it away");
    assert_int_equal(rename(theirs, f->path), 0);
    assert_int_equal(published(b, 5), 5);
    assert_int_equal(published(a, 5), 6);
    store_close(a);
    store_close(b);
}

/* Two stores that meet the same damage rebuild the file once. */
static void a_file_that_another_rebuilt_is_taken(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    published(a, 1);
    published(b, 2);
    assert_ok(store_repair(a, &err));
    int told = f->notices;
    assert_true(told > 0);
    assert_ok(store_repair(b, &err));
    assert_int_equal(f->notices, told);
    int64_t first = published(b, 3), second = published(a, 4);
    assert_true(first > 2 && second > first);
    assert_int_equal(fixture_count(a, "SELECT count(*) FROM best"), 4);
    assert_int_equal(fixture_count(b, "SELECT count(*) FROM best"), 4);
    store_close(a);
    store_close(b);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

enum { PAGE = 4096 + 24 };

/* Adds n trials, each in a transaction of a few pages: the stores a and b write in turn. */
static void write_pages(struct store *a, struct store *b, int n)
{
    struct error err = ERROR_NULL;
    struct trial *t = calloc(1, sizeof(*t));
    for (int i = 0; i < n; i++) {
        fixture_trial(t, 0, i, i);
        assert_ok(store_add_trial(i % 2 ? a : b, t, &err));
    }
    free(t);
}

static void the_log_does_not_grow_without_bound(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    int64_t largest = 0;
    for (int i = 0; i < 12; i++) {
        write_pages(a, b, 200);
        const int64_t size = size_of(f, "-wal");
        largest = size > largest ? size : largest;
    }
    assert_in_range(largest, 900 * PAGE, 1500 * PAGE);
    assert_true(size_of(f, "") > 1 << 20); /* moved to the file */
    assert_ok(store_tidy(a, &err));
    assert_int_equal(size_of(f, "-wal"), 0);
    write_pages(b, a, 2);
    assert_int_equal(fixture_count(a, "SELECT count(*) FROM trial"), 12 * 200 + 2);
    assert_int_equal(fixture_count(b, "SELECT count(*) FROM trial"), 12 * 200 + 2);
    store_close(a);
    store_close(b);
}

/* A checkpoint needs the lock: another process may be writing. */
static void nothing_is_moved_out_of_the_log_without_the_lock(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open_as(f, FIRST);
    struct error err = ERROR_NULL;
    write_pages(s, s, 150);
    const int64_t log = size_of(f, "-wal"), file = size_of(f, "");
    assert_true(log > 1 << 20 && log < 1000 * PAGE);
    int fd = take_lock(f);
    store_set_patience(s, 0);
    assert_int_equal(store_tidy(s, &err), ERROR_BUSY);
    store_close(s);
    assert_int_equal(size_of(f, "-wal"), log);
    assert_int_equal(size_of(f, ""), file);
    close(fd);
    s = fixture_open_as(f, FIRST);
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM trial"), 150);
    store_close(s);
    assert_int_equal(size_of(f, "-wal"), 0);
    assert_true(size_of(f, "") > file);
}

static int count_call(void *n, int calls)
{
    (void)calls;
    ++*(int *)n;
    return 0;
}

/* All other stores wait for the lock during a checkpoint. */
static void a_checkpoint_does_not_wait_for_a_reader(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open_as(f, FIRST), *other = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    int waited = 0;
    sqlite3 *reader;
    write_pages(s, s, 150);
    assert_true(size_of(f, "-wal") > 1 << 20);
    assert_int_equal(sqlite3_open(f->path, &reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT 1 FROM trial", NULL, NULL, NULL),
                     SQLITE_OK);
    write_pages(s, s, 2);
    sqlite3_busy_handler(s->db.h, count_call, &waited);
    assert_ok(store_tidy(s, &err));
    assert_int_equal(waited, 0);
    assert_int_equal(published(other, 1), 1);
    assert_int_equal(sqlite3_close(reader), SQLITE_OK);
    assert_ok(store_tidy(s, &err));
    assert_int_equal(size_of(f, "-wal"), 0);
    store_close(s);
    store_close(other);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(two_write_in_turn_and_no_number_comes_twice),
        T(numbers_of_an_undone_group_are_free),
        T(old_trials_of_all_writers_go_first),
        T(a_held_lock_stops_writes_until_it_is_let_go),
        T(who_cannot_have_the_lock_does_not_open),
        T(a_removed_lock_file_is_noticed),
        T(a_folder_in_the_locks_place_is_told_of),
        T(the_lock_file_names_the_file_and_the_last_generation),
        T(the_text_of_an_old_lock_file_is_read),
        T(odd_text_in_the_lock_file_does_no_harm),
        T(generations_go_on_above_those_of_a_newer_file),
        T(a_newer_schema_stops_writing_with_a_sentence),
        T(a_file_that_another_put_back_is_taken),
        T(a_file_that_another_rebuilt_is_taken),
        T(the_log_does_not_grow_without_bound),
        T(nothing_is_moved_out_of_the_log_without_the_lock),
        T(a_checkpoint_does_not_wait_for_a_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
