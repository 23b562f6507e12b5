/* SPDX-License-Identifier: Apache-2.0 */
/* Lack of memory in SQLite: its Nth allocation fails (once, or from then on), for every N until a
 * run passes. Work reported as done is in the file afterwards; the rest is undamaged. */
#include <stdio.h>
#include <unistd.h>

#include "proto/limits.h"
#include "store/inner.h"
#include "tests/unit/store/fixture.h"

static sqlite3_mem_methods real;
static long countdown = -1; /* allocations until a failure; below 0: no failure */
static bool for_good;       /* all later allocations fail, too */

static bool fails(void)
{
    if (countdown < 0) {
        return false;
    }
    if (countdown == 0) {
        countdown = for_good ? 0 : -1;
        return true;
    }
    countdown--;
    return false;
}

static void *failing_malloc(int n)
{
    return fails() ? NULL : real.xMalloc(n);
}

static void *failing_realloc(void *p, int n)
{
    return fails() ? NULL : real.xRealloc(p, n);
}

static int count_best(void *ctx, const struct best *b)
{
    (void)b;
    ++*(int *)ctx;
    return 0;
}

/* The results that the calls of a run reported. */
struct outcome {
    int64_t generation; /* published, 0: no */
    bool evicted;
    int faults;
};

static int met(struct outcome *o, int status, const struct error *err)
{
    if (status < 0) {
        o->faults++;
        if (status != ERROR_NO_MEMORY && status != ERROR_STORE) {
            fail_msg("%d (%s)", status, err->text);
        }
    }
    return status;
}

static void use(struct fixture *f, struct outcome *o, struct best *b, struct trial *t)
{
    struct store_options options = fixture_options(f);
    struct error err = ERROR_NULL;
    struct store *s;
    struct trial *trials;
    struct quarantine q;
    struct module m;
    uint32_t n;
    int64_t total;
    int bests = 0;
    char key[HASH_HEX];
    WIRE_BUF_AUTO page = WIRE_BUF_NULL;
    if (met(o, store_open(&options, &s, &err), &err)) {
        return;
    }
    fixture_trial(t, 1, 40, 1);
    met(o, store_add_trial(s, t, &err), &err);
    fixture_best(b, 40, 1);
    if (met(o, store_publish(s, b, &err), &err) == 0) {
        o->generation = b->generation;
    }
    fixture_quarantine(&q, 1);
    met(o, store_add_quarantine(s, &q, &err), &err);
    fixture_module(&m, 1);
    met(o, store_add_module(s, &m, &err), &err);
    met(o, fixture_fill_served(s, &err), &err);
    met(o, store_list(s, "served", NULL, RESPONSE_BYTES_MAX, &page, &total, &err), &err);
    met(o, store_trials_of(s, t->key, t->stamp, &trials, &n, &err), &err);
    free(trials);
    met(o, store_list(s, "trials", NULL, RESPONSE_BYTES_MAX, &page, &total, &err), &err);
    met(o, fixture_each_best(s, count_best, &bests, &err), &err);
    fixture_key(5, key);
    o->evicted = met(o, store_evict(s, key, NULL, &err), &err) == 0;
    store_close(s);
}

/* Opens the file again, with enough memory, and compares. */
static void verify(struct fixture *f, const struct outcome *o, struct best *b)
{
    struct error err = ERROR_NULL;
    int64_t bad;
    int n = 0;
    f->notices = 0;
    struct store *s = fixture_open(f);
    assert_ok(store_check(s, &bad, &err));
    assert_int_equal(bad, 0);
    assert_int_equal(f->notices, 0); /* no notice says that a file was set aside or a row was bad */
    assert_ok(fixture_each_best(s, count_best, &n, &err));
    if (o->generation) {
        assert_ok(
            rows_first(s, TABLE_BEST, b, &err, NULL, "WHERE generation = ?1", "i", o->generation));
        assert_int_equal(record_int(&b->config, "serial", -1), 1);
    }
    assert_true(n >= 11);
    if (o->evicted) {
        assert_int_equal(n, o->generation ? 12 : 11);
    }
    store_close(s);
}

static void copy(const char *from, const char *to)
{
    char buffer[65536];
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    assert_true(in && out);
    for (size_t n; (n = fread(buffer, 1, sizeof(buffer), in)) > 0;) {
        assert_int_equal(fwrite(buffer, 1, n, out), n);
    }
    fclose(in);
    fclose(out);
}

static void every_allocation_fails_once(void **state)
{
    struct fixture *f = *state;
    struct best *b = calloc(1, sizeof(*b));
    struct trial *t = calloc(1, sizeof(*t));
    char kept[128], name[128];
    struct store *s = fixture_open(f);
    fixture_fill(s);
    store_close(s);
    fixture_path(f, ".kept", kept);
    copy(f->path, kept);
    for (int mode = 0; mode < 2; mode++) {
        long failing = mode % fixture_apart(); /* modes fail in other calls */
        for (bool clean = false; !clean; failing += fixture_apart() * (1 + failing / 40)) {
            struct outcome o = {0};
            copy(kept, f->path);
            fixture_path(f, "-wal", name);
            unlink(name);
            fixture_path(f, "-shm", name);
            unlink(name);
            for_good = mode;
            countdown = failing;
            use(f, &o, b, t);
            clean = countdown > 0;
            countdown = -1;
            assert_true(!clean || o.faults == 0);
            verify(f, &o, b);
        }
        print_message("mode %d: clean after %ld allocations\n", mode, failing);
        assert_true(failing > 100);
    }
    free(b);
    free(t);
}

/* A rebuild without memory leaves no row out: it fails, and the next rebuild has all rows. */
static void every_allocation_of_a_rebuild_fails(void **state)
{
    struct fixture *f = *state;
    struct store_options options = fixture_options(f);
    struct error err = ERROR_NULL;
    char kept[128], command[400];
    struct store *s = fixture_open(f);
    fixture_fill(s);
    store_close(s);
    FILE *file = fopen(f->path, "r+");
    assert_non_null(file);
    assert_int_equal(fwrite("damaged header!!", 1, 16, file), 16);
    fclose(file);
    fixture_path(f, ".kept", kept);
    copy(f->path, kept);
    int failed = 0;
    long failing = 0;
    for (bool clean = false; !clean; failing += fixture_apart() * (1 + failing / 40)) {
        snprintf(command, sizeof(command), "rm -f '%s-wal' '%s-shm' '%s.corrupt'*", f->path,
                 f->path, f->path);
        assert_int_equal(system(command), 0);
        copy(kept, f->path);
        countdown = failing;
        for_good = false;
        int r = store_open(&options, &s, &err);
        clean = countdown > 0;
        countdown = -1;
        if (r == 0) {
            store_close(s);
        }
        failed += r < 0;
        int n = 0;
        int64_t trials;
        s = fixture_open(f);
        assert_ok(fixture_each_best(s, count_best, &n, &err));
        assert_int_equal(n, 12);
        assert_ok(db_int(&s->db, "SELECT count(*) FROM trial", &trials, &err));
        assert_int_equal(trials, 96);
        store_close(s);
    }
    print_message("clean after %ld allocations, %d rebuilds failed\n", failing, failed);
    assert_true(failed > 20);
}

/* Counts the allocations of a repair (or of a restore, if the file is gone). With `failing` of them
 * left, an allocation fails (below 0: no failure). */
static long mend(struct store *s, bool gone, long failing, int *status, struct error *err)
{
    const long most = 1L << 30;
    for_good = false;
    countdown = failing < 0 ? most : failing;
    if (gone) {
        unlink(s->path);
        *status = store_in_place(s, err);
    } else {
        s->db.damaged = true;
        *status = store_repair(s, err);
    }
    const long left = countdown;
    countdown = -1;
    return failing < 0 ? most - left : left < 0;
}

/* The last allocations open the new file. A store that seems open, but is only half open, would
 * save no row, and no repair would follow. */
static void a_repair_that_fails_at_its_end_is_tried_again(void **state)
{
    enum { LAST = 400, APART = 7 };
    struct fixture *f = *state;
    struct best *b = calloc(1, sizeof(*b));
    struct error err = ERROR_NULL;
    int status, failed = 0;
    for (int gone = 0; gone < 2; gone++) {
        struct store *s = fixture_open(f);
        fixture_fill(s);
        const long all = mend(s, gone, -1, &status, &err);
        assert_ok(status);
        assert_true(all > LAST);
        for (long failing = all - LAST; failing < all; failing += APART) {
            if (mend(s, gone, failing, &status, &err) && status < 0) {
                failed++;
                assert_true(store_damaged(s)); /* still needs the repair */
                assert_ok(store_repair(s, &err));
            }
            fixture_best(b, 500, 1);
            assert_ok(store_publish(s, b, &err));
        }
        store_close(s);
    }
    assert_true(failed > LAST / APART / 2);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_allocation_fails_once, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_repair_that_fails_at_its_end_is_tried_again,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(every_allocation_of_a_rebuild_fails, fixture_setup,
                                        fixture_teardown),
    };
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real);
    sqlite3_mem_methods failing = real;
    failing.xMalloc = failing_malloc;
    failing.xRealloc = failing_realloc;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &failing);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
