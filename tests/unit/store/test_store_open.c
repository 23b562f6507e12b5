/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a store: refused paths, locks, versions, and a full disk. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/inner.h"
#include "tests/unit/store/fixture.h"

static int open_path(struct fixture *f, const char *path, unsigned flags, struct store **out,
                     struct error *err)
{
    struct store_options o = fixture_options(f);
    o.path = path;
    o.flags = flags;
    *err = ERROR_NULL;
    return store_open(&o, out, err);
}

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    fclose(file);
}

static void places_that_will_not_do(void **state)
{
    struct fixture *f = *state;
    char inside[160];
    write_file(f->path, "", 0);
    snprintf(inside, sizeof(inside), "%s/x.db", f->path);
    const struct {
        const char *path, *says;
    } rows[] = {
        {"", "needs a path"},
        {f->dir, "it is a folder, not a plain file"},
        {"/dev/null", "it is a device, pipe or socket"},
        {"/no/such/folder/x.db", "folder /no/such/folder: No such file or directory"},
        {inside, "not a folder"},
        {"/proc/x.db", "cannot make the lock file: /proc/x.db.lock"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct store *s;
        struct error err;
        assert_int_equal(open_path(f, rows[i].path, 0, &s, &err), ERROR_STORE);
        assert_says(err, rows[i].says);
    }
}

/* Opens the store as a user without permission to do so, since root ignores permissions. */
static int as_nobody(struct fixture *f, int status, const char *says)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct store *s;
        struct error err;
        if (geteuid() == 0 && setresuid(65534, 65534, 65534)) {
            _exit(3);
        }
        int r = open_path(f, f->path, 0, &s, &err);
        if (r != status || !strstr(err.text, says)) {
            fprintf(stderr, "%d: %s\n", r, err.text);
            _exit(1);
        }
        _exit(0);
    }
    int code = -1;
    waitpid(pid, &code, 0);
    return code;
}

static void files_without_permission(void **state)
{
    struct fixture *f = *state;
    char lock[128];
    store_close(fixture_open(f));
    chmod(f->dir, 0555);
    assert_int_equal(as_nobody(f, ERROR_STORE, "Permission denied"), 0);
    chmod(f->dir, 0755);
    fixture_path(f, ".lock", lock);
    if (geteuid() == 0) {
        assert_int_equal(chown(f->dir, 65534, 65534) || chown(lock, 65534, 65534), 0);
    }
    chmod(f->path, 0444);
    assert_int_equal(as_nobody(f, ERROR_STORE, "it is read-only"), 0);
    chmod(f->path, 0000);
    assert_int_equal(as_nobody(f, ERROR_STORE, "it cannot be opened (Permission denied)"), 0);
}

static unsigned long pretended;

static int pretend(int fd, struct statfs *out)
{
    int r = fstatfs(fd, out);
    out->f_type = (__typeof__(out->f_type))pretended;
    return r;
}

static void network_file_systems_are_refused(void **state)
{
    static const struct {
        unsigned long magic;
        const char *name;
    } rows[] = {
        {0x6969, "NFS"},        {0xff534d42, "CIFS"}, {0x517b, "SMB"},      {0xfe534d42, "SMB2"},
        {0x0bd00bd0, "Lustre"}, {0x65735546, "FUSE"}, {0x47504653, "GPFS"}, {0x19830326, "BeeGFS"},
        {0x00c36400, "CephFS"}, {0x01021997, "9p"},   {0x5346414f, "AFS"},
    };
    struct fixture *f = *state;
    struct store *s;
    struct error err;
    place_fstatfs = pretend;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pretended = rows[i].magic;
        int r = open_path(f, f->path, 0, &s, &err);
        if (r != ERROR_STORE) {
            fail_msg("%s: %d", rows[i].name, r);
        }
        assert_says(err, rows[i].name);
        assert_says(err, "give --database on a local disk");
        assert_int_equal(access(f->path, F_OK), -1);
    }
    assert_int_equal(open_path(f, f->path, STORE_FORCE_NETWORK_FS, &s, &err), 0);
    store_close(s);
    pretended = 0xef53; /* ext4 */
    assert_int_equal(open_path(f, f->path, 0, &s, &err), 0);
    store_close(s);
    place_fstatfs = fstatfs;
}

/* A writer with another name of the file waits for the same lock. */
static void a_file_has_one_lock_whatever_its_name(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f), *second;
    struct error err;
    char link[128], lock[128];
    fixture_path(f, ".other-name", link);
    fixture_path(f, ".lock", lock);
    assert_int_equal(symlink(f->path, link), 0);
    store_set_patience(s, 0);
    assert_int_equal(open_path(f, link, 0, &second, &err), 0);
    assert_ok(store_begin(second, &err));
    assert_int_equal(store_begin(s, &err), ERROR_BUSY);
    assert_says(err, lock);
    assert_says(err, "is held by another gemmd");
    store_rollback(second);
    assert_ok(store_begin(s, &err));
    store_rollback(s);
    store_close(second);
    store_close(s);
}

/* A user with write access to the folder cannot redirect gemmd's writes. */
static void a_link_in_the_locks_place_is_not_followed(void **state)
{
    struct fixture *f = *state;
    struct store *s;
    struct error err;
    struct stat st;
    char lock[128], precious[128];
    fixture_path(f, ".lock", lock);
    fixture_path(f, ".precious", precious);
    write_file(precious, "data", 4);
    assert_int_equal(symlink(precious, lock), 0);
    assert_int_equal(open_path(f, f->path, 0, &s, &err), ERROR_STORE);
    assert_says(err, lock);
    assert_says(err, "symbolic link");
    assert_int_equal(stat(precious, &st), 0);
    assert_int_equal(st.st_size, 4);
}

static void relative_and_odd_names(void **state)
{
    struct fixture *f = *state;
    struct store *s;
    struct error err;
    char here[4096];
    assert_non_null(getcwd(here, sizeof(here)));
    assert_int_equal(chdir(f->dir), 0);
    static const char *const names[] = {"cache.db", ":memory:", "file:x.db?mode=ro", "it's"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(open_path(f, names[i], 0, &s, &err), 0);
        store_close(s);
        assert_int_equal(access(names[i], F_OK), 0);
    }
    assert_int_equal(chdir(here), 0);
}

static void sql(const char *path, const char *text)
{
    sqlite3 *h;
    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    char *why = NULL;
    if (sqlite3_exec(h, text, NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s: %s", text, why);
    }
    sqlite3_close(h);
}

static int64_t sql_int(const char *path, const char *text)
{
    sqlite3 *h;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(h, text, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t v = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(h);
    return v;
}

static void newer_versions_are_refused(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err;
    fixture_fill(s);
    store_close(s);
    sql(f->path, "PRAGMA user_version = 9");
    assert_int_equal(open_path(f, f->path, 0, &s, &err), ERROR_STORE);
    assert_says(err, "was written by a newer gemmd (schema 9, this one knows 6): upgrade gemmd or "
                     "use another --database");
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM trial"), 96); /* untouched */
    assert_int_equal(f->notices, 0);
    sql(f->path, "PRAGMA user_version = 6");
    assert_int_equal(open_path(f, f->path, 0, &s, &err), 0);
    store_close(s);
}

static void other_programs_files_are_refused(void **state)
{
    struct fixture *f = *state;
    struct store *s;
    struct error err;
    sql(f->path, "CREATE TABLE mail(body); PRAGMA application_id = 77");
    assert_int_equal(open_path(f, f->path, 0, &s, &err), ERROR_STORE);
    assert_says(err, "belongs to another program (application id 77)");
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM mail"), 0);
    assert_int_equal(sql_int(f->path, "SELECT journal_mode = 'delete' FROM pragma_journal_mode"),
                     1);
}

/* An artificial file of version 0: our application id, and a table that version 1 does not know. */
static void old_versions_are_migrated(void **state)
{
    struct fixture *f = *state;
    struct store *s;
    struct error err;
    char backup[128];
    fixture_path(f, ".v0.bak", backup);
    sql(f->path, "PRAGMA application_id = 1734700397; CREATE TABLE note(text);"
                 "INSERT INTO note VALUES ('kept')");
    assert_int_equal(open_path(f, f->path, STORE_READ_ONLY, &s, &err), ERROR_STORE);
    assert_says(err, "has schema 0, this gemmd reads 6: start gemmd on it once");
    assert_int_equal(open_path(f, f->path, 0, &s, &err), 0);
    assert_string_equal(f->kind, "migrated");
    assert_non_null(strstr(f->text, ".v0.bak"));
    fixture_fill(s);
    store_close(s);
    assert_int_equal(sql_int(f->path, "PRAGMA user_version"), STORE_SCHEMA_VERSION);
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM note"), 1);
    assert_int_equal(sql_int(backup, "PRAGMA user_version"), 0);
    assert_int_equal(sql_int(backup, "SELECT text = 'kept' FROM note"), 1);
    f->notices = 0;
    assert_int_equal(open_path(f, f->path, 0, &s, &err), 0); /* the second open gives no notice */
    assert_int_equal(f->notices, 0);
    store_close(s);
}

#define DROP_VERSION_6                                                                             \
    "DROP TABLE fleet; DROP TABLE fleet_row; ALTER TABLE lease DROP COLUMN state;"                 \
    "ALTER TABLE lease DROP COLUMN class; ALTER TABLE lease DROP COLUMN stamp;"                    \
    "ALTER TABLE lease DROP COLUMN fence; ALTER TABLE lease DROP COLUMN asker;"
#define DROP_VERSION_5 DROP_VERSION_6 "DROP VIEW served_evidence; DROP VIEW job; DROP TABLE served;"

/* A file of version 1, without the additions of version 2. Its rows' checksums still hold. */
static void version_1_is_migrated(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err;
    fixture_fill(s);
    store_close(s);
    sql(f->path,
        "ALTER TABLE trial DROP COLUMN sm_mhz; ALTER TABLE trial DROP COLUMN power_w;"
        "ALTER TABLE trial DROP COLUMN temperature_c;"
        "ALTER TABLE trial DROP COLUMN throttle; ALTER TABLE best DROP COLUMN doubt;" DROP_VERSION_5
        "DROP TABLE change; DROP TABLE wanted; PRAGMA user_version = 1");
    int64_t trials = sql_int(f->path, "SELECT count(*) FROM trial");
    assert_int_equal(open_path(f, f->path, 0, &s, &err), 0);
    assert_string_equal(f->kind, "migrated");
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM trial"), trials);
    int64_t bad = -1;
    assert_int_equal(store_check(s, &bad, &err), 0);
    assert_int_equal(bad, 0);
    struct trial *t = calloc(1, sizeof(*t));
    fixture_trial(t, 0, 1, 1);
    t->sm_mhz = 1575;
    assert_int_equal(store_add_trial(s, t, &err), 0);
    free(t);
    store_close(s);
    assert_int_equal(sql_int(f->path, "PRAGMA user_version"), STORE_SCHEMA_VERSION);
    assert_int_equal(sql_int(f->path, "SELECT max(sm_mhz) FROM trial"), 1575);
    assert_int_equal(sql_int(f->path, "SELECT min(sm_mhz) FROM trial"), 0);
}

/* A file with the views of version 2. */
static void version_2_is_migrated(void **state)
{
    struct fixture *f = *state;
    struct store *s;
    struct error err;
    for (int v = 0; v < 2; v++) {
        for (int i = 0; version_steps[v][i]; i++) {
            sql(f->path, version_steps[v][i]);
        }
    }
    assert_int_equal(sql_int(f->path, "PRAGMA user_version"), 2);
    assert_int_equal(open_path(f, f->path, 0, &s, &err), 0);
    assert_string_equal(f->kind, "migrated");
    fixture_fill(s);
    store_close(s);
    assert_int_equal(
        sql_int(f->path, "SELECT count(*) FROM pragma_table_info('stale') WHERE name = 'target'"),
        1);
    assert_true(sql_int(f->path, "SELECT count(*) FROM stale") > 0);
}

/* A file of version 3, with a daemon's lease. New generations go on above its bests. */
static void version_3_is_migrated(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err;
    struct best *b = calloc(1, sizeof(*b));
    char boot[sizeof(s->boot)], text[512];
    strcpy(boot, s->boot);
    fixture_fill(s);
    store_close(s);
    snprintf(text, sizeof(text),
             DROP_VERSION_5 "DROP TABLE change; DROP TABLE wanted; PRAGMA user_version = 3;"
                            "INSERT INTO lease VALUES ('k', '%ld.17', '%s', %lld, 1)",
             (long)getpid(), boot, (long long)INT64_MAX / 2);
    sql(f->path, text);
    assert_int_equal(open_path(f, f->path, 0, &s, &err), 0);
    assert_string_equal(f->kind, "migrated");
    /* the old lease has ended: no daemon of that version writes any more */
    assert_ok(store_lease(s, "k", 1000, &err));
    assert_int_equal(fixture_find_best(s, 1, b), 0);
    assert_string_equal(b->source, "manual");
    fixture_best(b, 2, 1);
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->generation, 14);
    store_close(s);
    assert_int_equal(sql_int(f->path, "PRAGMA user_version"), STORE_SCHEMA_VERSION);
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM trial"), 96);
    free(b);
}

/* A file of version 4 keeps its rows. From now on it counts answers to jobs. */
static void version_4_is_migrated(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err;
    int64_t bad = -1;
    fixture_fill(s);
    store_close(s);
    sql(f->path, DROP_VERSION_5 "PRAGMA user_version = 4");
    assert_int_equal(open_path(f, f->path, 0, &s, &err), 0);
    assert_string_equal(f->kind, "migrated");
    assert_int_equal(store_check(s, &bad, &err), 0);
    assert_int_equal(bad, 0);
    store_close(s);
    assert_int_equal(sql_int(f->path, "PRAGMA user_version"), 6);
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM best"), 13);
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM served_evidence"), 0);
}

static void a_failed_migration_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct store *s;
    struct error err;
    sql(f->path, "PRAGMA application_id = 1734700397; CREATE TABLE trial(x)");
    assert_int_equal(open_path(f, f->path, 0, &s, &err), ERROR_STORE);
    assert_says(err, "migrating to version 1 (nothing was changed)");
    assert_says(err, "trial");
    assert_int_equal(sql_int(f->path, "PRAGMA user_version"), 0);
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM sqlite_schema"), 1);
}

/* ---- the file loses its name ----------------------------------------------------------------- */

static void publish_one(struct store *s, int key)
{
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    fixture_best(b, key, key);
    assert_ok(store_publish(s, b, &err));
    free(b);
}

static void remove_parts(struct fixture *f, bool lock)
{
    static const char *const parts[] = {"", "-wal", "-shm", ".lock"};
    char path[128];
    for (int i = 0; i < 3 + lock; i++) {
        fixture_path(f, parts[i], path);
        unlink(path);
    }
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

/* Copies and replacements of a database keep its permissions for group and other users. Opening the
 * database anew closes it to both. */
static void copies_of_a_file_keep_its_permissions(void **state)
{
    static const mode_t modes[] = {0600, 0640, 0440}, expected[] = {0600, 0640, 0640};
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    for (int i = 0; i < 3; i++) {
        char copy[128], part[32];
        struct store *s = fixture_open(f);
        assert_int_equal(chmod(f->path, modes[i]), 0);
        snprintf(part, sizeof(part), ".copy%d", i);
        fixture_path(f, part, copy);
        assert_ok(store_backup(s, copy, &err));
        assert_int_equal(mode_of(copy), expected[i]);

        publish_one(s, 1 + i);
        assert_int_equal(unlink(f->path), 0);
        publish_one(s, 11 + i);
        assert_string_equal(f->kind, "restored");
        assert_int_equal(mode_of(f->path), expected[i]);
        store_close(s);

        FILE *file = fopen(f->path, "r+");
        assert_non_null(file);
        assert_int_equal(fwrite("damaged, damaged", 1, 16, file), 16);
        fclose(file);
        s = fixture_open(f);
        assert_string_equal(f->kind, "corrupt_file");
        assert_int_equal(mode_of(f->path), 0600);
        store_close(s);
    }
}

/* Whichever of a store's files are removed, and when: all rows are kept, and generations go on. */
static void a_removed_file_is_put_back(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    struct store *s = fixture_open(f), *other = NULL;
    struct store_stats before, after;
    fixture_fill(s);
    assert_ok(store_stats(s, &before, &err));
    for (int round = 0; round < 3; round++) {
        f->kind[0] = 0;
        remove_parts(f, round == 1);
        if (round == 2) { /* only the file's name is gone: its log remains */
            publish_one(s, 100);
            assert_int_equal(unlink(f->path), 0);
        }
        assert_ok(store_begin(s, &err));
        publish_one(s, 50 + round);
        assert_ok(store_commit(s, &err));
        assert_string_equal(f->kind, "restored");
        /* found by name */
        assert_int_equal(open_path(f, f->path, 0, &other, &err), 0);
        publish_one(other, 60 + round);
        store_close(other);
    }
    assert_ok(store_stats(s, &after, &err));
    assert_int_equal(after.trials, before.trials);
    assert_int_equal(after.bests, before.bests + 7);
    assert_int_equal(after.generation, before.generation + 7);
    remove_parts(f, false);
    store_close(s); /* also at the end */
    s = fixture_open(f);
    assert_ok(store_stats(s, &after, &err));
    assert_int_equal(after.bests, before.bests + 7);
    store_close(s);
}

static void a_replaced_file_is_left_alone(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    struct store *s = fixture_open(f);
    struct best *b = calloc(1, sizeof(*b));
    struct stat st;
    fixture_fill(s);
    assert_int_equal(unlink(f->path), 0);
    sql(f->path, "CREATE TABLE theirs(x)");
    assert_int_equal(stat(f->path, &st), 0);
    fixture_best(b, 60, 60);
    assert_int_equal(store_publish(s, b, &err), ERROR_STORE);
    assert_says(err, "move it away");
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM sqlite_schema"), 1);
    char moved[128];
    fixture_path(f, ".theirs", moved);
    assert_int_equal(rename(f->path, moved), 0);
    assert_int_equal(b->generation, 0);
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->generation, 14);
    store_close(s);
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM best WHERE generation = 14"), 1);
    free(b);
}

/* An empty database that another gemmd opened in the place of the file: what is there counts, and a
 * notice says so. */
static void a_file_that_another_gemmd_replaced_is_taken(void **state)
{
    struct fixture *f = *state;
    char away[128];
    struct store *s = fixture_open(f);
    fixture_fill(s);
    fixture_path(f, ".away", away);
    assert_int_equal(rename(f->path, away), 0);
    struct store *other = fixture_open(f);
    publish_one(other, 0);
    f->kind[0] = 0;
    publish_one(s, 1);
    assert_string_equal(f->kind, "replaced");
    assert_non_null(strstr(f->text, "another file now"));
    store_close(s);
    store_close(other);
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM best"), 2);
}

static int write_run(struct store *s, struct error *err)
{
    struct run r = {.started_s = 1};
    return store_add_run(s, &r, err);
}

static int write_trial(struct store *s, struct error *err)
{
    struct trial *t = calloc(1, sizeof(*t));
    fixture_trial(t, 0, 1, 1);
    int r = store_add_trial(s, t, err);
    free(t);
    return r;
}

static int write_event(struct store *s, struct error *err)
{
    struct event e = {.kind = "test"};
    return store_add_event(s, &e, err);
}

static int write_quarantine(struct store *s, struct error *err)
{
    struct quarantine q = {.variant = "v", .class = "c", .driver = "1"};
    return store_add_quarantine(s, &q, err);
}

static int write_evict(struct store *s, struct error *err)
{
    struct best *b = calloc(1, sizeof(*b));
    fixture_best(b, 1, 1);
    int r = store_evict(s, b->key, NULL, err);
    free(b);
    return r;
}

static int write_unquarantine(struct store *s, struct error *err)
{
    return store_unquarantine(s, "v", NULL, err);
}

static int write_unpin(struct store *s, struct error *err)
{
    struct best *b = calloc(1, sizeof(*b));
    fixture_best(b, 2, 1);
    strcpy(b->source, "manual");
    int r = store_publish(s, b, err);
    r = r ? r : unlink(s->path);
    r = r ? r : store_unpin(s, b->key, b, err);
    free(b);
    return r;
}

static int write_lease(struct store *s, struct error *err)
{
    return store_lease(s, "k", 1000, err);
}

static int write_unlease(struct store *s, struct error *err)
{
    return store_unlease(s, "k", err);
}

static int write_join(struct store *s, struct error *err)
{
    return store_join(s, err);
}

static int write_want(struct store *s, struct error *err)
{
    const struct store_wanted w = {.key = "k", .class = "c", .search = "s", .n = 1};
    return store_want(s, &w, err);
}

static int write_unwant(struct store *s, struct error *err)
{
    return store_unwant(s, "k", err);
}

static int write_drop_gone(struct store *s, struct error *err)
{
    return store_drop_gone(s, err);
}

static int write_leave(struct store *s, struct error *err)
{
    return store_leave(s, err);
}

/* The last saves are only in the log, which goes into a new file together with later writes. A
 * process that is then killed leaves all rows behind, as a copy of the files shows. */
static void a_removed_log_is_put_back(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    char log[128], theirs[128], command[500];
    fixture_path(f, "-wal", log);
    fixture_path(f, ".theirs", theirs);
    for (int round = 0; round < 3; round++) {
        struct store *s = fixture_open(f);
        publish_one(s, 10 * round);
        if (round == 1) { /* another file takes the log's place */
            sql(theirs, "CREATE TABLE theirs(x)");
            assert_int_equal(rename(theirs, log), 0);
        } else {
            assert_int_equal(unlink(log), 0);
        }
        f->kind[0] = 0;
        if (round == 2) {
            assert_ok(store_begin(s, &err));
        }
        publish_one(s, 10 * round + 1);
        if (round == 2) {
            assert_ok(store_commit(s, &err));
        }
        assert_string_equal(f->kind, "restored");
        snprintf(command, sizeof(command), "cd '%s' && mkdir k%d && cp %s* k%d", f->dir, round,
                 strrchr(f->path, '/') + 1, round);
        assert_int_equal(system(command), 0);
        char killed[200];
        snprintf(killed, sizeof(killed), "%s/k%d%s", f->dir, round, strrchr(f->path, '/'));
        assert_int_equal(sql_int(killed, "SELECT count(*) FROM best"), 3 * round + 2);
        f->kind[0] = 0;
        publish_one(s, 10 * round + 1); /* goes into the restored file's WAL */
        assert_string_equal(f->kind, "");
        store_close(s);
    }
}

/* Every write puts a removed file back: not only publishes, but also durable trials and
 * deletions. */
static void no_write_goes_into_a_removed_file(void **state)
{
    static int (*const writes[])(struct store *, struct error *) = {
        write_run,   write_trial,        write_event,     write_quarantine, write_unpin,
        write_lease, write_unquarantine, write_drop_gone, write_evict,      write_unlease,
        write_join,  write_want,         write_unwant,    write_leave,
    };
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    char away[128];
    struct store *s = fixture_open(f);
    fixture_fill(s);
    fixture_path(f, ".away", away);
    for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
        f->kind[0] = 0;
        assert_int_equal(unlink(f->path), 0);
        assert_ok(writes[i](s, &err));
        assert_string_equal(f->kind, "restored");

        assert_int_equal(rename(f->path, away), 0);
        sql(f->path, "CREATE TABLE theirs(x)");
        assert_int_equal(writes[i](s, &err), ERROR_STORE);
        assert_says(err, "move it away");
        assert_int_equal(rename(away, f->path), 0);
    }
    store_close(s);
}

/* The file is removed during a transaction: the commit must fail, since no row is durable. */
static void a_file_that_is_removed_in_a_group_fails_it(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    struct store *s = fixture_open(f);
    assert_ok(store_begin(s, &err));
    assert_ok(write_trial(s, &err));
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(store_commit(s, &err), ERROR_STORE);
    assert_ok(write_trial(s, &err));
    store_close(s);
    assert_int_equal(sql_int(f->path, "SELECT count(*) FROM trial"), 1);
}

static void a_removed_folder_is_waited_for(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    char away[80];
    struct store *s = fixture_open(f);
    struct best *b = calloc(1, sizeof(*b));
    fixture_fill(s);
    snprintf(away, sizeof(away), "%s-away", f->dir);
    assert_int_equal(rename(f->dir, away), 0);
    fixture_best(b, 60, 60);
    assert_int_equal(store_publish(s, b, &err), ERROR_STORE);
    assert_says(err, f->path);
    assert_says(err, "No such file or directory");
    assert_int_equal(mkdir(f->dir, 0700), 0);
    assert_ok(store_publish(s, b, &err));
    assert_string_equal(f->kind, "restored");
    store_close(s);
    assert_int_equal(sql_int(f->path, "SELECT count(DISTINCT key) FROM best"), 13);
    char command[200];
    snprintf(command, sizeof(command), "rm -rf '%s'", away);
    assert_int_equal(system(command), 0);
    free(b);
}

/* ---- no room --------------------------------------------------------------------------------- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static int64_t wal_size(const struct fixture *f)
{
    struct stat st;
    char path[128];
    fixture_path(f, "-wal", path);
    return stat(path, &st) == 0 ? st.st_size : 0;
}

static int count_best(void *ctx, const struct best *b)
{
    (void)b;
    ++*(int *)ctx;
    return 0;
}

static void a_full_disk(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    int r = 0, saved = 0, n = 0;
    signal(SIGXFSZ, SIG_IGN);
    limit_files((rlim_t)wal_size(f) + 60000);
    while (r == 0 && saved < 1000) {
        fixture_best(b, saved, saved);
        r = store_publish(s, b, &err);
        saved += r == 0;
    }
    assert_says(err, "no room on its disk");
    assert_int_equal(r, ERROR_DISK_FULL);
    assert_in_range(saved, 1, 999);
    assert_int_equal(b->generation, 0);
    assert_int_equal(store_publish(s, b, &err), ERROR_DISK_FULL);
    assert_ok(fixture_each_best(s, count_best, &n, &err)); /* reading goes on */
    assert_int_equal(n, saved);
    char path[128];
    fixture_path(f, ".copy", path);
    limit_files(8192);
    assert_int_equal(store_backup(s, path, &err), ERROR_DISK_FULL);
    assert_says(err, path);
    assert_says(err, "no room there");
    assert_int_equal(access(path, F_OK), -1);
    limit_files(0);
    assert_false(store_damaged(s));
    assert_ok(store_publish(s, b, &err));
    int64_t number = b->generation;
    assert_int_equal(number, saved + 1); /* the undone row's number: no caller was told of it */
    fixture_best(b, 2000, 1);
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->generation, number + 1);
    store_close(s);
    s = fixture_open(f);
    n = 0;
    assert_ok(fixture_each_best(s, count_best, &n, &err));
    assert_int_equal(n, saved + 2);
    free(b);
    store_close(s);
}

/* SQLite's own limit of pages fills the database. SQLite then undoes a whole transaction, also one
 * of several calls (store_begin). */
static void a_full_database(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct trial *t = calloc(1, sizeof(*t));
    struct store_stats stats;
    int64_t pages;
    char limit[64];
    assert_ok(db_int(&s->db, "PRAGMA page_count", &pages, &err));
    snprintf(limit, sizeof(limit), "PRAGMA max_page_count=%d", (int)pages + 6);
    assert_ok(db_exec(&s->db, limit, &err));
    int r = store_begin(s, &err);
    assert_int_equal(r, 0);
    for (int i = 0; r == 0 && i < 1000; i++) {
        fixture_trial(t, 0, i, i);
        r = store_add_trial(s, t, &err);
    }
    assert_int_equal(r, ERROR_DISK_FULL);
    if (store_commit(s, &err) == 0) { /* SQLite has not undone the transaction by itself */
        assert_ok(store_stats(s, &stats, &err));
        assert_true(stats.trials > 0);
    }
    assert_int_equal(s->db.depth, 0);
    assert_ok(db_exec(&s->db, "PRAGMA max_page_count=100000", &err));
    fixture_trial(t, 0, 1, 1);
    assert_ok(store_add_trial(s, t, &err));
    free(t);
    store_close(s);
}

static void no_room_to_begin(void **state)
{
    struct fixture *f = *state;
    struct store *s;
    struct error err;
    signal(SIGXFSZ, SIG_IGN);
    limit_files(20000);
    assert_int_equal(open_path(f, f->path, 0, &s, &err), ERROR_DISK_FULL);
    assert_says(err, "no room on its disk");
    limit_files(0);
    s = fixture_open(f);
    fixture_fill(s);
    store_close(s);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(places_that_will_not_do),
        T(files_without_permission),
        T(network_file_systems_are_refused),
        T(a_file_has_one_lock_whatever_its_name),
        T(a_link_in_the_locks_place_is_not_followed),
        T(relative_and_odd_names),
        T(newer_versions_are_refused),
        T(other_programs_files_are_refused),
        T(old_versions_are_migrated),
        T(version_1_is_migrated),
        T(version_2_is_migrated),
        T(version_3_is_migrated),
        T(version_4_is_migrated),
        T(a_failed_migration_changes_nothing),
        T(a_removed_file_is_put_back),
        T(copies_of_a_file_keep_its_permissions),
        T(a_replaced_file_is_left_alone),
        T(a_file_that_another_gemmd_replaced_is_taken),
        T(a_removed_log_is_put_back),
        T(no_write_goes_into_a_removed_file),
        T(a_file_that_is_removed_in_a_group_fails_it),
        T(a_removed_folder_is_waited_for),
        T(a_full_disk),
        T(a_full_database),
        T(no_room_to_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
