/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flips a random bit, many times: in the database, in its log after a kill, in the files of the
 * module cache. The store serves the original rows or no rows, and reports every flip that changed
 * something.
 *
 *   flips [--flips 300] [--seed 1]
 *
 * SQLite alone decides if a flip in the database changed something: all rows of all tables, read
 * without our checksums, and integrity_check. A flip without effect must not be reported: false
 * alarms would hide true alarms.
 */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/modules.h"
#include "proto/hash.h"
#include "store/inner.h"
#include "tests/unit/store/fixture.h"

enum { KEYS = 40, GENERATIONS = 3, TRIALS = 6 };

static long flips = 300;
static uint64_t seed = 20261121;

static uint64_t random_below(uint64_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (seed >> 20) % n;
}

struct bytes {
    uint8_t *data; /* owned */
    size_t n;
};

static struct bytes read_bytes(const char *path)
{
    struct bytes b = {0};
    struct stat st;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    b.n = (size_t)st.st_size;
    b.data = malloc(b.n + 1);
    assert_int_equal(fread(b.data, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

static void write_bytes(const char *path, const struct bytes *b)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->n, f), b->n);
    assert_int_equal(fclose(f), 0);
}

static void turn(struct bytes *b, size_t bit)
{
    b->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
}

/* ---- SQLite's own view of a file ------------------------------------------------------------- */

static uint64_t cell_hash(uint64_t hash, sqlite3_stmt *st, int c)
{
    int type = sqlite3_column_type(st, c);
    uint64_t part[3] = {hash, (uint64_t)type, 0};
    if (type == SQLITE_FLOAT) { /* text would have fewer digits */
        double v = sqlite3_column_double(st, c);
        memcpy(&part[2], &v, sizeof(v));
    } else {
        const void *blob = sqlite3_column_blob(st, c);
        part[2] = blob ? hash64(blob, (size_t)sqlite3_column_bytes(st, c)) : 0;
    }
    return hash64(part, sizeof(part)) | 1;
}

/* Adds the rows of a query to the hash. Returns 0 if the rows are unreadable. */
static uint64_t query_hash(uint64_t hash, sqlite3 *h, const char *sql)
{
    sqlite3_stmt *st;
    int rc;
    if (!hash || sqlite3_prepare_v2(h, sql, -1, &st, NULL) != SQLITE_OK) {
        return 0;
    }
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        for (int c = 0; c < sqlite3_column_count(st); c++) {
            hash = cell_hash(hash, st, c);
        }
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? hash : 0;
}

/* Hashes all rows of all tables, the schema, and the file's user_version and application_id. */
static uint64_t rows_hash(sqlite3 *h)
{
    uint64_t hash = query_hash(1, h, "SELECT * FROM sqlite_schema");
    hash = query_hash(hash, h, "SELECT * FROM pragma_user_version, pragma_application_id");
    for (enum table_id i = 0; i < TABLES; i++) {
        char sql[160];
        snprintf(sql, sizeof(sql), "SELECT * FROM %s NOT INDEXED ORDER BY rowid", tables[i].name);
        hash = query_hash(hash, h, sql);
    }
    return hash;
}

/* Returns false when the rows' hash is not *hash, or integrity_check fails. Sets a *hash of 0. */
static bool reads_the_same(const char *path, uint64_t *hash)
{
    sqlite3 *h;
    sqlite3_stmt *st;
    bool sound = sqlite3_open_v2(path, &h, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK;
    sqlite3_db_config(h, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    uint64_t now = sound ? rows_hash(h) : 0;
    sound = now && (*hash == 0 || now == *hash);
    *hash = *hash ? *hash : now;
    if (sound && sqlite3_prepare_v2(h, "PRAGMA integrity_check", -1, &st, NULL) == SQLITE_OK) {
        sound = sqlite3_step(st) == SQLITE_ROW &&
                strcmp((const char *)sqlite3_column_text(st, 0), "ok") == 0;
        sqlite3_finalize(st);
    }
    sqlite3_close(h);
    return sound;
}

/* ---- the store's view ------------------------------------------------------------------------ */

struct original {
    struct best bests[KEYS]; /* current bests */
    struct trial *trials;    /* owned; index: id, from 1 */
    uint64_t rows;           /* rows_hash */
};

static void fill_more(struct store *s)
{
    struct error err = ERROR_NULL;
    struct trial *t = calloc(1, sizeof(*t));
    struct best *b = calloc(1, sizeof(*b));
    struct run r;
    fixture_run(&r);
    assert_ok(store_add_run(s, &r, &err));
    for (int g = 0; g < GENERATIONS; g++) {
        for (int key = 0; key < KEYS; key++) {
            for (int i = 0; i < TRIALS / GENERATIONS; i++) {
                fixture_trial(t, r.id, key, 100 * g + i);
                assert_ok(store_add_trial(s, t, &err));
            }
            fixture_best(b, key, 100 * g);
            assert_ok(store_publish(s, b, &err));
        }
    }
    free(t);
    free(b);
}

static int index_of(const char *key)
{
    char id[HASH_HEX];
    for (int i = 0; i < KEYS; i++) {
        fixture_key(i, id);
        if (strcmp(id, key) == 0) {
            return i;
        }
    }
    fail_msg("key %s was never put in", key);
    return 0;
}

static int keep_best(void *ctx, const struct best *b)
{
    struct original *o = ctx;
    o->bests[index_of(b->key)] = *b;
    return 0;
}

static void keep_trials(struct store *s, struct original *o)
{
    struct error err = ERROR_NULL;
    struct store_stats stats;
    assert_ok(store_stats(s, &stats, &err));
    o->trials = calloc((size_t)stats.trials + 1, sizeof(*o->trials));
    for (int64_t id = 1; id <= stats.trials; id++) {
        assert_ok(rows_first(s, TABLE_TRIAL, &o->trials[id], &err, NULL, "WHERE id = ?1", "i", id));
    }
}

struct served {
    const struct original *o;
    int bests;
    bool seen[KEYS];
};

/* Compares a loaded best with the original. Only its trial may be 0: the trial's row was lost. */
static int see_best(void *ctx, const struct best *b)
{
    struct served *x = ctx;
    int key = index_of(b->key);
    struct best original = x->o->bests[key];
    original.trial = b->trial ? original.trial : 0;
    if (!fixture_equal(&best_schema, b, &original)) {
        fail_msg("key %d is served by generation %lld, which is not its best (%lld), or not as it "
                 "was",
                 key, (long long)b->generation, (long long)original.generation);
    }
    assert_false(x->seen[key]);
    x->seen[key] = true;
    x->bests++;
    return 0;
}

static void see_trials(struct store *s, const struct original *o)
{
    for (int key = 0; key < KEYS; key++) {
        struct trial *rows = NULL;
        uint32_t n = 0;
        char id[HASH_HEX];
        fixture_key(key, id);
        store_trials_of(s, id, o->trials[1].stamp, &rows, &n, NULL);
        for (uint32_t i = 0; i < n; i++) {
            struct trial original = o->trials[rows[i].id];
            original.run = rows[i].run ? original.run : 0;
            assert_string_equal(rows[i].key, id);
            assert_true(fixture_equal(&trial_schema, &rows[i], &original));
        }
        free(rows);
    }
}

/* Opens the store and reads all rows, as an idle daemon does after its start. Returns true when the
 * store reported damage. */
static bool is_reported(struct fixture *f, const struct original *o, struct served *x)
{
    struct store_options options = fixture_options(f);
    struct error err = ERROR_NULL;
    struct store *s;
    int64_t bad;
    *x = (struct served){.o = o};
    f->notices = 0;
    if (store_open(&options, &s, &err)) {
        return true;
    }
    fixture_each_best(s, see_best, x, NULL);
    see_trials(s, o);
    if (store_check(s, &bad, &err) && store_damaged(s)) {
        assert_ok(store_repair(s, &err));
    }
    *x = (struct served){.o = o};
    assert_ok(fixture_each_best(s, see_best, x, &err));
    see_trials(s, o);
    store_close(s);
    return f->notices > 0;
}

static void remove_database(const struct fixture *f)
{
    char command[200];
    snprintf(command, sizeof(command), "rm -f '%s'*", f->path);
    assert_int_equal(system(command), 0);
}

static void of_the_database(void **state)
{
    struct fixture *f = *state;
    struct original *o = calloc(1, sizeof(*o));
    struct error err = ERROR_NULL;
    struct served x;
    struct store *s = fixture_open(f);
    fixture_fill(s); /* adds a few rows to each table, for keys 0 to 11 */
    fill_more(s);
    assert_ok(fixture_each_best(s, keep_best, o, &err));
    keep_trials(s, o);
    store_close(s);
    struct bytes file = read_bytes(f->path);
    assert_true(reads_the_same(f->path, &o->rows));
    int changing = 0, keys_lost = 0;
    for (long i = 0; i < flips; i++) {
        size_t bit = random_below(8 * file.n);
        remove_database(f);
        turn(&file, bit);
        write_bytes(f->path, &file);
        turn(&file, bit);
        uint64_t hash = o->rows;
        bool harmless = reads_the_same(f->path, &hash);
        bool reported = is_reported(f, o, &x);
        if (reported == harmless) {
            fail_msg("bit %zu (page %zu, byte %zu): %s", bit, bit / 8 / 4096 + 1, bit / 8 % 4096,
                     harmless ? "changed nothing, and was reported" : "was not reported");
        }
        changing += !harmless;
        keys_lost += KEYS - x.bests;
    }
    print_message("database of %zu bytes: %ld flips, %d of them changed something, all reported; "
                  "none served wrong, %d keys to be tuned again\n",
                  file.n, flips, changing, keys_lost);
    assert_true(changing > flips / 4);
    free(file.data);
    free(o->trials);
    free(o);
}

/* ---- the log of a killed daemon -------------------------------------------------------------- */

struct history {
    struct best *by_generation; /* owned; index: generation, from 1 */
    int64_t n, newest[KEYS];    /* for each key: its newest generation read so far */
    int wrong;
};

/* A returned row must equal the original row of its generation. */
static int see_row_of_history(void *ctx, const struct best *b)
{
    struct history *x = ctx;
    assert_in_range(b->generation, 1, x->n);
    struct best original = x->by_generation[b->generation];
    original.trial = b->trial ? original.trial : 0;
    x->wrong += !fixture_equal(&best_schema, b, &original);
    x->newest[index_of(b->key)] = b->generation;
    return 0;
}

static void keep_history(struct store *s, struct history *x)
{
    struct error err = ERROR_NULL;
    struct store_stats stats;
    assert_ok(store_stats(s, &stats, &err));
    x->n = stats.generation;
    x->by_generation = calloc((size_t)x->n + 1, sizeof(*x->by_generation));
    for (int64_t g = 1; g <= x->n; g++) {
        assert_ok(rows_first(s, TABLE_BEST, &x->by_generation[g], &err, NULL,
                             "WHERE generation = ?1", "i", g));
    }
}

/* Copies file and log as a kill leaves them: the last bests are in the log, earlier rows in the
 * file. */
static void leave_log(struct fixture *f, struct history *x, struct bytes *file, struct bytes *log)
{
    char path[128];
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    struct store *s = fixture_open(f);
    fixture_fill(s);
    fill_more(s);
    store_close(s);
    s = fixture_open(f);
    for (int key = 0; key < KEYS / 2; key++) {
        fixture_best(b, key, 1000);
        assert_ok(store_publish(s, b, &err));
    }
    free(b);
    keep_history(s, x);
    *file = read_bytes(f->path);
    fixture_path(f, "-wal", path);
    *log = read_bytes(path);
    store_close(s);
}

static void put_back(struct fixture *f, const struct bytes *file, const struct bytes *log)
{
    char path[128];
    remove_database(f);
    write_bytes(f->path, file);
    fixture_path(f, "-wal", path);
    write_bytes(path, log);
}

static void of_the_log(void **state)
{
    struct fixture *f = *state;
    struct history x = {0};
    struct bytes file, log;
    struct error err = ERROR_NULL;
    uint64_t rows = 0;
    int changing = 0, damage = 0;
    leave_log(f, &x, &file, &log);
    put_back(f, &file, &log);
    assert_true(reads_the_same(f->path, &rows));
    for (long i = 0; i < flips; i++) {
        size_t bit = i ? random_below(8 * log.n) : 8; /* the first flip hits the log's header */
        turn(&log, bit);
        put_back(f, &file, &log);
        bool harmless = reads_the_same(f->path, &rows);
        put_back(f, &file, &log);
        turn(&log, bit);
        f->notices = 0;
        struct store *s = fixture_open(f);
        if (!harmless && f->notices == 0) {
            fail_msg("bit %zu of the log (frame %zu, byte %zu): was not reported", bit,
                     (bit / 8 - 32) / 4120 + 1, (bit / 8 - 32) % 4120);
        }
        changing += !harmless;
        damage += strcmp(f->kind, "corrupt_log") == 0 && f->notices > 0;
        assert_ok(fixture_each_best(s, see_row_of_history, &x, &err));
        assert_int_equal(x.wrong, 0);
        store_close(s);
    }
    print_message("log of %zu bytes: %ld flips, %d of them cut something off, all reported, %d of "
                  "them for certain; no row other than it was\n",
                  log.n, flips, changing, damage);
    assert_true(damage > flips / 2);
    free(file.data);
    free(log.data);
    free(x.by_generation);
}

/* ---- the module cache ------------------------------------------------------------------------ */

enum { MODULES = 8 };

struct kept {
    char variant[HASH_HEX];
    struct image image; /* owned: data */
};

static void put_modules(const struct fixture *f, struct kept kept[MODULES])
{
    struct error err = ERROR_NULL;
    for (int i = 0; i < MODULES; i++) {
        struct kept *k = &kept[i];
        fixture_module(&k->image.meta, i);
        memcpy(k->variant, k->image.meta.variant, HASH_HEX);
        k->image.size = 200 + random_below(3000);
        k->image.data = realloc(k->image.data, k->image.size);
        for (size_t at = 0; at < k->image.size; at++) {
            ((uint8_t *)k->image.data)[at] = (uint8_t)random_below(256);
        }
        snprintf(k->image.log, sizeof(k->image.log), "compiled %d", i);
        assert_ok(modules_put(f->dir, &k->image, "so", &err));
    }
}

/* Flips a random bit of the module's file, or of the record that names the variant's module. */
static void turn_bit_of_module(const struct fixture *f, const struct kept *k)
{
    char path[200];
    bool record = random_below(2);
    snprintf(path, sizeof(path), "%s/%s/%s%s", f->dir, record ? "records" : "modules",
             record ? k->variant : k->image.meta.id, record ? "" : ".so");
    struct bytes b = read_bytes(path);
    turn(&b, random_below(8 * b.n));
    write_bytes(path, &b);
    free(b.data);
}

/* Looks a module up. Returns 0 after a check that the bytes are the original bytes, or
 * MODULES_MISS. */
static int look_up(const struct fixture *f, const struct kept *k, bool by_id)
{
    struct image out;
    int r = by_id ? modules_get(f->dir, k->image.meta.id, &out, NULL)
                  : modules_find(f->dir, k->variant, &out, NULL);
    assert_true(r == 0 || r == MODULES_MISS);
    if (r == 0) {
        assert_int_equal(out.size, k->image.size);
        assert_memory_equal(out.data, k->image.data, out.size);
    }
    if (r == 0 && !by_id) {
        out.meta.used_s = k->image.meta.used_s;
        assert_true(fixture_equal(&module_schema, &out.meta, &k->image.meta));
    }
    image_deinit(&out);
    return r;
}

/* Looks up all modules. Returns the number of bytes that the look-ups wrote to stderr. */
static off_t said_by_looking(const struct fixture *f, const struct kept kept[MODULES], int *misses)
{
    struct stat st;
    FILE *said = tmpfile();
    int before = dup(STDERR_FILENO);
    dup2(fileno(said), STDERR_FILENO);
    *misses = 0;
    for (int i = 0; i < MODULES; i++) {
        bool by_id = random_below(2);
        *misses += look_up(f, &kept[i], by_id) != 0;
        *misses += look_up(f, &kept[i], !by_id) != 0;
    }
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    assert_int_equal(fstat(fileno(said), &st), 0);
    fclose(said);
    return st.st_size;
}

static void of_modules(void **state)
{
    struct fixture *f = *state;
    struct kept kept[MODULES] = {0};
    int misses, all = 0;
    for (long i = 0; i < flips; i++) {
        put_modules(f, kept);
        assert_int_equal(said_by_looking(f, kept, &misses), 0);
        assert_int_equal(misses, 0);
        turn_bit_of_module(f, &kept[random_below(MODULES)]);
        assert_true(said_by_looking(f, kept, &misses) > 0);
        assert_in_range(misses, 1, 2);
        all += misses;
    }
    print_message("module cache: %ld flips, all reported; none gave a wrong module, %d misses\n",
                  flips, all);
    for (int i = 0; i < MODULES; i++) {
        image_deinit(&kept[i].image);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--flips") == 0) {
            flips = strtol(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[i + 1], NULL, 10);
        }
    }
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {T(of_the_database), T(of_the_log), T(of_modules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
