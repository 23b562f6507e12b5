/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A failing disk: SQLite's Nth write, sync or truncation fails (once, or from then on), for every N
 * until a run passes. Work reported as done is in the file afterwards, failed work can be repeated,
 * and no failing write counts as a damaged file.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "store/inner.h"
#include "tests/unit/store/fixture.h"

/* ---- a VFS around SQLite's own --------------------------------------------------------------- */

static long countdown = -1; /* calls until a failure; below 0: no failure */
static bool for_good;
static int failure; /* SQLITE_FULL, SQLITE_IOERR_WRITE ... */

static struct methods {
    const sqlite3_io_methods *real;
    sqlite3_io_methods ours;
} known[4]; /* SQLite has a table of methods for each kind of file */

static sqlite3_vfs *real_vfs;
static sqlite3_vfs our_vfs;

static bool fails(void)
{
    if (countdown != 0) {
        countdown -= countdown > 0;
        return false;
    }
    countdown = for_good ? 0 : -1;
    return true;
}

static const sqlite3_io_methods *real_of(const sqlite3_file *f)
{
    for (size_t i = 0; i < 4; i++) {
        if (f->pMethods == &known[i].ours) {
            return known[i].real;
        }
    }
    fail_msg("a file of no known kind");
    return NULL;
}

static int our_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    errno = failure == SQLITE_FULL ? 0 : EIO;
    return fails() ? failure : real_of(f)->xWrite(f, p, n, at);
}

static int our_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    return fails() ? SQLITE_IOERR_TRUNCATE : real_of(f)->xTruncate(f, n);
}

static int our_sync(sqlite3_file *f, int flags)
{
    return fails() ? SQLITE_IOERR_FSYNC : real_of(f)->xSync(f, flags);
}

static int our_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out)
{
    (void)vfs;
    int rc = real_vfs->xOpen(real_vfs, name, f, flags, out);
    if (!f->pMethods) {
        return rc;
    }
    for (size_t i = 0; i < 4; i++) {
        if (!known[i].real) {
            known[i].real = f->pMethods;
            known[i].ours = *f->pMethods;
            known[i].ours.xWrite = our_write;
            known[i].ours.xTruncate = our_truncate;
            known[i].ours.xSync = our_sync;
        }
        if (known[i].real == f->pMethods) {
            f->pMethods = &known[i].ours;
            return rc;
        }
    }
    fail_msg("more kinds of files than known");
    return SQLITE_ERROR;
}

/* ---- the test -------------------------------------------------------------------------------- */

struct outcome {
    int64_t generations[8]; /* generation of best i; 0: its publish failed */
    bool saved[8];
    int faults;
};

static int met(struct outcome *o, int status, const struct error *err)
{
    if (status < 0) {
        o->faults++;
        if (status != ERROR_DISK_FULL && status != ERROR_STORE) {
            fail_msg("%d (%s)", status, err->text);
        }
        assert_null(strstr(err->text, "damaged"));
    }
    return status;
}

static void use(struct fixture *f, struct outcome *o, struct best *b, struct trial *t)
{
    struct store_options options = fixture_options(f);
    struct error err = ERROR_NULL;
    struct store *s;
    if (met(o, store_open(&options, &s, &err), &err)) {
        return;
    }
    for (int i = 0; i < 8; i++) {
        fixture_trial(t, 1, 50 + i, i);
        met(o, store_add_trial(s, t, &err), &err);
        fixture_best(b, 50 + i, i);
        bool group = i % 2;
        int r = group ? store_begin(s, &err) : 0;
        r = r ? r : store_publish(s, b, &err);
        if (group && r == 0) {
            r = store_commit(s, &err);
        } else if (group && s->db.depth) {
            store_rollback(s);
        }
        o->saved[i] = met(o, r, &err) == 0;
        o->generations[i] = b->generation;
    }
    assert_false(store_damaged(s));
    long left = countdown;
    countdown = -1; /* the disk gets better */
    for (int i = 0; i < 8; i++) {
        if (!o->saved[i]) {
            fixture_best(b, 50 + i, i);
            assert_ok(store_publish(s, b, &err));
            o->generations[i] = b->generation;
            o->saved[i] = true;
        }
    }
    countdown = left;
    store_close(s);
}

static int count_best(void *ctx, const struct best *b)
{
    (void)b;
    ++*(int *)ctx;
    return 0;
}

static void verify(struct fixture *f, const struct outcome *o, struct best *b)
{
    struct error err = ERROR_NULL;
    int64_t bad;
    int n = 0, expected = 12;
    f->notices = 0;
    struct store *s = fixture_open(f);
    assert_ok(store_check(s, &bad, &err));
    assert_int_equal(bad, 0);
    assert_int_equal(f->notices, 0);
    for (int i = 0; i < 8; i++) {
        if (o->saved[i]) {
            assert_ok(rows_first(s, TABLE_BEST, b, &err, NULL, "WHERE generation = ?1", "i",
                                 o->generations[i]));
            assert_int_equal(record_int(&b->config, "serial", -1), i);
            expected++;
        }
    }
    assert_ok(fixture_each_best(s, count_best, &n, &err));
    assert_int_equal(n, expected);
    store_close(s);
}

static void prepare(struct fixture *f, const char *kept)
{
    char command[800];
    snprintf(command, sizeof(command), "rm -f '%s' '%s-wal' '%s-shm' && cp '%s' '%s'", f->path,
             f->path, f->path, kept, f->path);
    assert_int_equal(system(command), 0);
}

static void every_write_fails(void **state)
{
    static const int failures[] = {SQLITE_FULL, SQLITE_IOERR_WRITE};
    struct fixture *f = *state;
    struct best *b = calloc(1, sizeof(*b));
    struct trial *t = calloc(1, sizeof(*t));
    char kept[128];
    struct store *s = fixture_open(f);
    fixture_fill(s);
    fixture_path(f, ".kept", kept);
    assert_int_equal(store_backup(s, kept, NULL), 0);
    store_close(s);
    for (int mode = 0; mode < 4; mode++) {
        long failing = mode % fixture_apart(); /* modes fail in other calls */
        for (bool clean = false; !clean; failing += fixture_apart()) {
            struct outcome o = {0};
            prepare(f, kept);
            failure = failures[mode % 2];
            for_good = mode >= 2;
            countdown = failing;
            use(f, &o, b, t);
            clean = countdown > 0;
            countdown = -1;
            for_good = false;
            assert_true(!clean || o.faults == 0);
            verify(f, &o, b);
        }
        print_message("mode %d: clean after %ld writes\n", mode, failing);
        assert_true(failing > 50);
    }
    free(b);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_write_fails, fixture_setup, fixture_teardown),
    };
    real_vfs = sqlite3_vfs_find(NULL);
    our_vfs = *real_vfs;
    our_vfs.zName = "failing";
    our_vfs.xOpen = our_open;
    sqlite3_vfs_register(&our_vfs, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
