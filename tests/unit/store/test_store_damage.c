/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged files. For any damage, every row that comes out went in, and readable rows are kept. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/limits.h"
#include "store/inner.h"
#include "tests/unit/store/fixture.h"

enum { BESTS = 13, TRIALS = 96, PAGE = 4096 }; /* of fixture_fill */

/* The rows of fixture_fill, as read from an undamaged file. */
struct originals {
    struct best *bests;   /* by generation, from 1 */
    struct trial *trials; /* by id, from 1 */
    uint8_t *bytes;       /* of the file */
    size_t n;
};

static void read_file(const char *path, uint8_t **bytes, size_t *n)
{
    struct stat st;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    *n = (size_t)st.st_size;
    *bytes = malloc(*n);
    assert_int_equal(fread(*bytes, 1, *n, f), *n);
    fclose(f);
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void originals_make(struct fixture *f, struct originals *o)
{
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    o->bests = calloc(BESTS + 1, sizeof(*o->bests));
    o->trials = calloc(TRIALS + 1, sizeof(*o->trials));
    fixture_fill(s);
    for (int i = 1; i <= BESTS; i++) {
        assert_ok(rows_first(s, TABLE_BEST, &o->bests[i], &err, NULL, "WHERE generation = ?1", "i",
                             (int64_t)i));
    }
    for (int i = 1; i <= TRIALS; i++) {
        assert_ok(rows_first(s, TABLE_TRIAL, &o->trials[i], &err, NULL, "WHERE id = ?1", "i",
                             (int64_t)i));
    }
    store_close(s);
    read_file(f->path, &o->bytes, &o->n);
}

static void originals_free(struct originals *o)
{
    free(o->bests);
    free(o->trials);
    free(o->bytes);
}

static void remove_all(struct fixture *f)
{
    DIR *d = opendir(f->dir);
    for (struct dirent *e; (e = readdir(d));) {
        char path[400];
        snprintf(path, sizeof(path), "%s/%s", f->dir, e->d_name);
        unlink(path);
    }
    closedir(d);
}

static int files_like(struct fixture *f, const char *part)
{
    int n = 0;
    DIR *d = opendir(f->dir);
    for (struct dirent *e; (e = readdir(d));) {
        n += strstr(e->d_name, part) != NULL;
    }
    closedir(d);
    return n;
}

struct reading {
    const struct originals *o;
    int bests, trials;
};

/* A reference to a lost row is dropped; everything else is unchanged. */
static void assert_best(const struct originals *o, const struct best *b)
{
    assert_in_range(b->generation, 1, BESTS);
    struct best *original = &o->bests[b->generation];
    int64_t trial = original->trial;
    original->trial = b->trial ? trial : 0;
    assert_true(fixture_equal(&best_schema, b, original));
    original->trial = trial;
}

static void assert_trial(const struct originals *o, const struct trial *t)
{
    assert_in_range(t->id, 1, TRIALS);
    struct trial *original = &o->trials[t->id];
    int64_t run = original->run;
    original->run = t->run ? run : 0;
    assert_true(fixture_equal(&trial_schema, t, original));
    original->run = run;
}

static int see_best(void *ctx, const struct best *b)
{
    struct reading *r = ctx;
    assert_best(r->o, b);
    r->bests++;
    return 0;
}

/* A load and single lookups give the same rows. */
static void see_pages(struct store *s, const struct reading *r)
{
    struct best *b = calloc(2, sizeof(*b)), *one = &b[1];
    struct store_load *l = NULL;
    uint32_t n = 0;
    int seen = 0;
    if (store_load_begin(s, &l, NULL) == 0) {
        while (store_load_page(l, b, 1, &n, NULL) == 0 && n > 0) {
            seen++;
            assert_int_equal(store_load_find(l, b->key, one, NULL), 0);
            assert_true(fixture_equal(&best_schema, b, one));
        }
    }
    assert_int_equal(seen, r->bests);
    store_load_end(l);
    free(b);
}

static void see_trials(struct store *s, struct reading *r)
{
    for (int key = 0; key < 12; key++) {
        struct trial *rows;
        uint32_t n;
        const struct trial *first = &r->o->trials[1];
        char id[HASH_HEX];
        fixture_key(key, id);
        store_trials_of(s, id, first->stamp, &rows, &n, NULL);
        for (uint32_t i = 0; i < n; i++) {
            assert_trial(r->o, &rows[i]);
        }
        r->trials += (int)n;
        free(rows);
    }
}

/* Lists contain rows, too: each number and text must be an original row's. */
static void see_list(struct store *s, const struct originals *o)
{
    WIRE_BUF_AUTO page = WIRE_BUF_NULL;
    struct wire_doc *doc = wire_doc_new();
    const struct wire_obj *rows;
    struct best *b = malloc(sizeof(*b));
    int64_t total;
    if (store_list(s, "history", NULL, RESPONSE_BYTES_MAX, &page, &total, NULL) == 0) {
        assert_int_equal(wire_decode(doc, page.data, page.len, &rows, NULL), 0);
        for (size_t i = 0; i < wire_count(rows); i++) {
            assert_int_equal(schema_decode(&best_schema, SCHEMA_LENIENT, wire_at(rows, i), b, NULL),
                             0);
            assert_best(o, b);
        }
    }
    free(b);
    wire_doc_free(doc);
}

static int try_open(struct fixture *f, struct store **s, struct error *err)
{
    struct store_options options = fixture_options(f);
    *err = ERROR_NULL;
    return store_open(&options, s, err);
}

static void read_all(struct fixture *f, const struct originals *o, struct reading *r)
{
    struct store *s;
    struct error err;
    *r = (struct reading){.o = o};
    if (try_open(f, &s, &err)) {
        return;
    }
    fixture_each_best(s, see_best, r, NULL);
    see_pages(s, r);
    see_trials(s, r);
    see_list(s, o);
    store_close(s);
}

static void flipped_bits(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    originals_make(f, &o);
    struct reading all, r;
    read_all(f, &o, &all);
    assert_int_equal(all.bests, 12);
    int changed = 0, refused = 0;
    uint64_t seed = 20251121;
    for (int i = 0; i < 300; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        size_t bit = (size_t)((seed >> 16) % (o.n * 8));
        remove_all(f);
        o.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_file(f->path, o.bytes, o.n);
        o.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        read_all(f, &o, &r);
        assert_true(r.bests <= all.bests && r.trials <= all.trials);
        refused += r.bests == 0;
        changed += r.bests < all.bests || r.trials < all.trials;
    }
    /* most flips hit free space; a flip in a row costs that row, rarely the file */
    assert_in_range(changed, 20, 280);
    assert_in_range(refused, 0, 5);
    originals_free(&o);
}

/* Flips bits in the WAL of a daemon that was killed. */
static void flipped_bits_in_the_wal(void **state)
{
    struct fixture *f = *state;
    struct originals o, w = {0};
    originals_make(f, &o);
    remove_all(f);
    struct store *s = fixture_open(f);
    fixture_fill(s);
    char wal[128];
    fixture_path(f, "-wal", wal);
    read_file(wal, &w.bytes, &w.n);
    free(o.bytes);
    read_file(f->path, &o.bytes, &o.n);
    store_close(s);
    uint64_t seed = 7;
    struct reading r;
    for (int i = 0; i < 100; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        size_t bit = (size_t)((seed >> 16) % (w.n * 8));
        remove_all(f);
        write_file(f->path, o.bytes, o.n);
        w.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_file(wal, w.bytes, w.n);
        w.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        struct store *t;
        struct error err;
        if (try_open(f, &t, &err) == 0) {
            int64_t bad;
            assert_int_equal(store_check(t, &bad, &err), 0);
            assert_int_equal(bad, 0); /* SQLite's own checksums cut the WAL before the flip */
            store_close(t);
        }
    }
    (void)r;
    free(w.bytes);
    originals_free(&o);
}

static void garbage_is_set_aside(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {5, 100, 600, 5000, 20000};
    char garbage[20000];
    memset(garbage, 'g', sizeof(garbage));
    for (size_t i = 0; i < 5; i++) {
        remove_all(f);
        store_close(fixture_open(f)); /* leaves -wal and -shm, by which gemmd knows its file */
        write_file(f->path, garbage, sizes[i]);
        struct store *s = fixture_open(f);
        assert_string_equal(f->kind, "corrupt_file");
        assert_non_null(strstr(f->text, ".corrupt-"));
        assert_non_null(strstr(f->text, "the 0 rows that could be read"));
        assert_int_equal(files_like(f, ".corrupt-"), 3);
        fixture_fill(s);
        store_close(s);
    }
}

/* `gemmd --database notes.txt` is a mistake, and notes.txt stays in place. */
static void a_foreign_file_is_left_alone(void **state)
{
    struct fixture *f = *state;
    /* a single byte is an empty file to SQLite */
    static const size_t sizes[] = {2, 100, 5000, 8192};
    char text[8192];
    memset(text, 'n', sizeof(text));
    for (size_t i = 0; i < 4; i++) {
        struct store_options o = {.path = f->path};
        struct store *s = NULL;
        struct error err = ERROR_NULL;
        remove_all(f);
        write_file(f->path, text, sizes[i]);
        assert_int_equal(store_open(&o, &s, &err), ERROR_STORE);
        assert_null(s);
        assert_non_null(strstr(err.text, "is no database"));
        assert_int_equal(files_like(f, ".corrupt-"), 0);
        struct stat st;
        assert_int_equal(stat(f->path, &st), 0);
        assert_int_equal(st.st_size, sizes[i]);
    }
}

static void a_damaged_header_costs_nothing(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct reading r;
    originals_make(f, &o);
    memset(o.bytes, 0xaa, 64); /* magic, page size, counters */
    write_file(f->path, o.bytes, o.n);
    read_all(f, &o, &r);
    assert_string_equal(f->kind, "corrupt_file");
    assert_int_equal(r.bests, 12);
    assert_int_equal(r.trials, TRIALS);
    assert_int_equal(files_like(f, ".corrupt-"), 3); /* the damaged file with its -wal and -shm */
    assert_int_equal(files_like(f, "mended"), 0);
    assert_int_equal(files_like(f, "rebui"), 0);
    f->notices = 0;
    read_all(f, &o, &r); /* later it opens normally */
    assert_int_equal(r.bests, 12);
    assert_int_equal(f->notices, 0);
    originals_free(&o);
}

/* A copy has its tables at other pages than the file that it was made from. */
static void a_lost_first_page_of_a_restored_file_costs_nothing(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct reading r;
    struct error err = ERROR_NULL;
    char copy[128], aside[PATH_MAX];
    originals_make(f, &o);
    fixture_path(f, ".copy", copy);
    struct store *s = fixture_open(f);
    assert_ok(store_backup(s, copy, &err));
    store_close(s);
    assert_ok(store_replace(f->path, copy, 0, aside, &err));
    read_all(f, &o, &r); /* the file gets its log */
    free(o.bytes);
    read_file(f->path, &o.bytes, &o.n);
    memset(o.bytes, 0, PAGE);
    write_file(f->path, o.bytes, o.n);
    read_all(f, &o, &r);
    assert_string_equal(f->kind, "corrupt_file");
    assert_non_null(strstr(f->text, "(0 rows had wrong checksums"));
    assert_int_equal(r.bests, 12);
    assert_int_equal(r.trials, TRIALS);
    originals_free(&o);
}

static void numbers_go_on_after_a_rebuild(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    originals_make(f, &o);
    memset(o.bytes, 0, 16);
    write_file(f->path, o.bytes, o.n);
    struct store *s = fixture_open(f);
    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->generation, BESTS + STORE_GENERATION_GAP + 1);
    s->next_id[TABLE_BEST] += 5 * STORE_GENERATION_GAP;
    assert_ok(store_publish(s, b, &err));
    const int64_t last = b->generation;
    assert_int_equal(last, BESTS + 6 * STORE_GENERATION_GAP + 2);
    assert_ok(db_exec(&s->db, /* the file has lost the row and every mention of it */
                      "DELETE FROM best WHERE generation > 1000;"
                      "UPDATE sqlite_sequence SET seq = 1 WHERE name = 'best'",
                      &err));
    assert_ok(store_repair(s, &err));
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->generation, last + 1);
    store_close(s);
    free(b);
    originals_free(&o);
}

/* New generations are also above evicted ones: a client may be pinned to an evicted generation. */
static void numbers_that_were_evicted_are_not_given_again(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    struct run *run = calloc(1, sizeof(*run));
    struct store *s = fixture_open(f);
    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    int64_t first = b->generation;
    /* the store counts on as if 3 * STORE_GENERATION_GAP rows had been published and evicted */
    s->next_id[TABLE_BEST] += 3 * STORE_GENERATION_GAP;
    fixture_best(b, 2, 2);
    assert_ok(store_publish(s, b, &err));
    fixture_run(run);
    s->next_id[TABLE_RUN] += 3 * STORE_GENERATION_GAP;
    assert_ok(store_add_run(s, run, &err));
    int64_t evicted = b->generation, gone = run->id;
    assert_true(evicted > first + 2 * STORE_GENERATION_GAP);
    assert_ok(db_exec(&s->db, "DELETE FROM best WHERE generation > 1; DELETE FROM run", &err));
    store_close(s);

    size_t n;
    uint8_t *bytes;
    read_file(f->path, &bytes, &n);
    memset(bytes, 0, 16);
    write_file(f->path, bytes, n);
    s = fixture_open(f);
    assert_string_equal(f->kind, "corrupt_file");
    fixture_best(b, 3, 3);
    assert_ok(store_publish(s, b, &err));
    assert_int_equal(b->generation, evicted + STORE_GENERATION_GAP + 1);
    fixture_run(run);
    assert_ok(store_add_run(s, run, &err));
    assert_true(run->id > gone);
    store_close(s);
    free(bytes);
    free(run);
    free(b);
}

static int64_t listed(struct store *s, const char *what)
{
    WIRE_BUF_AUTO rows = WIRE_BUF_NULL;
    struct error err = ERROR_NULL;
    int64_t total = -1;
    assert_ok(store_list(s, what, NULL, RESPONSE_BYTES_MAX, &rows, &total, &err));
    return total;
}

/* A bad row is left out of lists until it is rewritten, and reported again if it is bad again. */
static void a_bad_row_that_is_written_again_is_listed(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    int64_t bad;
    struct store *s = fixture_open(f);
    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    for (int round = 1; round < 3; round++) {
        assert_ok(db_exec(&s->db, "UPDATE best SET checksum = checksum + 1", &err));
        f->notices = 0;
        assert_ok(store_check(s, &bad, &err));
        assert_int_equal(bad, 1);
        assert_int_equal(f->notices, 1);
        assert_int_equal(listed(s, "best"), 0);
        assert_ok(store_publish_again(s, b, &err));
        assert_ok(store_check(s, &bad, &err));
        assert_int_equal(bad, 0);
        assert_int_equal(listed(s, "best"), 1);
        assert_int_equal(listed(s, "history"), 1);
    }
    store_close(s);
    free(b);
}

/* Makes each page unreadable in turn: rows on other pages are kept. */
static void lost_pages(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct reading r;
    struct error err;
    originals_make(f, &o);
    int rebuilt = 0, least = 1000;
    for (size_t page = 1; page < o.n / PAGE; page++) {
        uint8_t kept[PAGE];
        remove_all(f);
        memcpy(kept, o.bytes + page * PAGE, PAGE);
        memset(o.bytes + page * PAGE, 0xff, PAGE);
        write_file(f->path, o.bytes, o.n);
        memcpy(o.bytes + page * PAGE, kept, PAGE);
        struct store *s;
        int64_t bad;
        f->kind[0] = 0;
        assert_int_equal(try_open(f, &s, &err), 0);
        if (store_check(s, &bad, &err) < 0) {
            assert_true(store_damaged(s));
            assert_says(err, "damaged");
            assert_ok(store_repair(s, &err));
            assert_false(store_damaged(s));
        }
        rebuilt += strcmp(f->kind, "corrupt_file") == 0;
        assert_ok(store_check(s, &bad, &err));
        assert_int_equal(bad, 0);
        store_close(s);
        read_all(f, &o, &r);
        int rows = r.bests + r.trials;
        least = rows < least ? rows : least;
    }
    assert_true(rebuilt >= (int)(o.n / PAGE) - 3); /* free pages may go unnoticed */
    /* the worst page to lose is the root of the trials */
    assert_in_range(least, 12, 107);
    originals_free(&o);
}

static void a_file_cut_short(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct reading r;
    originals_make(f, &o);
    for (size_t n = o.n - 1; n > 7 * PAGE / 2; n -= 7 * PAGE / 2) {
        remove_all(f);
        write_file(f->path, o.bytes, n);
        read_all(f, &o, &r);
    }
    originals_free(&o);
}

/* SQLite takes an empty file for new, and would remove the log that a killed daemon has left. */
static void a_file_cut_to_nothing(void **state)
{
    struct fixture *f = *state;
    struct originals o, w = {0};
    struct reading r;
    struct error err;
    char wal[128];
    originals_make(f, &o);
    remove_all(f);
    struct store *s = fixture_open(f);
    fixture_fill(s);
    fixture_path(f, "-wal", wal);
    read_file(wal, &w.bytes, &w.n);
    store_close(s);
    for (int logged = 0; logged < 2; logged++) {
        remove_all(f);
        write_file(f->path, "", 0);
        write_file(wal, w.bytes, logged ? w.n : 0);
        f->notices = 0;
        assert_int_equal(try_open(f, &s, &err), 0);
        store_close(s);
        assert_true(f->notices > 0);
        assert_string_equal(f->kind, "corrupt_file");
        int64_t n = 0;
        s = fixture_open(f);
        assert_ok(db_int(&s->db, "SELECT count(*) FROM best", &n, &err));
        store_close(s);
        assert_int_equal(n, logged ? BESTS : 0); /* only the log had rows */
    }
    /* The log has only later changes: rows on its pages are kept, and lost rows are reported. */
    remove_all(f);
    write_file(f->path, o.bytes, o.n);
    s = fixture_open(f);
    struct event e;
    fixture_event(&e, 1);
    assert_ok(store_add_event(s, &e, &err));
    free(w.bytes);
    read_file(wal, &w.bytes, &w.n);
    store_close(s);
    assert_true(w.n > 0);
    remove_all(f);
    write_file(f->path, "", 0);
    write_file(wal, w.bytes, w.n);
    f->notices = 0;
    read_all(f, &o, &r);
    assert_int_equal(f->notices, 2);
    assert_int_equal(files_like(f, "Z-wal"), 1); /* the log is set aside, too */
    free(w.bytes);
    originals_free(&o);
}

/* SQLite meets the damage in the middle of work; the store is repaired and goes on. */
static void damage_met_at_work(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct error err = ERROR_NULL;
    struct trial *t = calloc(1, sizeof(*t));
    int64_t root;
    originals_make(f, &o);
    struct store *s = fixture_open(f);
    assert_ok(
        db_int(&s->db, "SELECT rootpage FROM sqlite_schema WHERE name = 'trial_key'", &root, &err));
    store_close(s);
    memset(o.bytes + (root - 1) * PAGE, 0xff, PAGE);
    write_file(f->path, o.bytes, o.n);
    s = fixture_open(f); /* the damaged page is an index, which opening does not read */
    fixture_trial(t, 0, 1, 1);
    assert_int_equal(store_add_trial(s, t, &err), ERROR_STORE);
    assert_says(err, "the file is damaged");
    assert_true(store_damaged(s));
    assert_ok(store_repair(s, &err));
    assert_ok(store_add_trial(s, t, &err));
    assert_int_equal(t->id, TRIALS + 1);
    struct store_stats stats;
    assert_ok(store_stats(s, &stats, &err));
    assert_int_equal(stats.trials, TRIALS + 1); /* no row was lost */
    assert_int_equal(stats.bests, 12);
    store_close(s);
    free(t);
    originals_free(&o);
}

static void a_damaged_description(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct reading r;
    originals_make(f, &o);
    /* changes of the schema's text: another name of a column, then a word unknown to SQLite */
    static const char *const from[] = {"max_error REAL", "CREATE TABLE trial"};
    static const char *const to[] = {"mxx_error REAL", "CREXTE TABLE trial"};
    for (int i = 0; i < 2; i++) {
        remove_all(f);
        uint8_t *at = memmem(o.bytes, o.n, from[i], strlen(from[i]));
        assert_non_null(at);
        memcpy(at, to[i], strlen(to[i]));
        write_file(f->path, o.bytes, o.n);
        memcpy(at, from[i], strlen(from[i]));
        f->kind[0] = 0;
        read_all(f, &o, &r);
        assert_string_equal(f->kind, "corrupt_file");
        assert_int_equal(r.bests, 12);
        assert_int_equal(r.trials, TRIALS);
    }
    originals_free(&o);
}

/* A file of version 4 has no table `served`. The copy of the file before its migration meets the
 * bad page. */
static void a_damaged_file_of_an_older_version(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    struct db db = {0};
    char nothing[PAGE] = {0};
    int64_t root, rows;
    struct store *s = fixture_open(f);
    fixture_fill(s);
    store_close(s);
    assert_ok(db_open(&db, f->path, SQLITE_OPEN_READWRITE, &err));
    assert_ok(db_exec(&db,
                      "DROP TABLE fleet; DROP TABLE fleet_row; DROP VIEW served_evidence;"
                      "DROP VIEW job; DROP TABLE served; ALTER TABLE lease DROP COLUMN state;"
                      "ALTER TABLE lease DROP COLUMN class; ALTER TABLE lease DROP COLUMN stamp;"
                      "ALTER TABLE lease DROP COLUMN fence; ALTER TABLE lease DROP COLUMN asker;"
                      "PRAGMA user_version = 4; PRAGMA wal_checkpoint(TRUNCATE)",
                      &err));
    assert_ok(db_int(&db, "SELECT rootpage FROM sqlite_schema WHERE name = 'event'", &root, &err));
    db_close(&db);
    int fd = open(f->path, O_WRONLY);
    assert_int_equal(pwrite(fd, nothing, PAGE, (root - 1) * PAGE), PAGE);
    close(fd);
    f->notices = 0;
    s = fixture_open(f);
    assert_string_equal(f->kind, "corrupt_file");
    assert_non_null(strstr(f->text, "(0 rows had wrong checksums"));
    assert_ok(db_int(&s->db,
                     "SELECT (SELECT count(*) FROM best) * 100 + (SELECT count(*) FROM trial)",
                     &rows, &err));
    assert_int_equal(rows, BESTS * 100 + TRIALS);
    store_close(s);
}

static void an_interrupted_rebuild(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct reading r;
    char path[128];
    originals_make(f, &o);
    fixture_path(f, ".rebuild", path); /* killed during a rebuild */
    write_file(path, o.bytes, o.n / 2);
    read_all(f, &o, &r);
    assert_int_equal(r.bests, 12);
    assert_int_equal(access(path, F_OK), -1);
    for (int step = 0; step < 3; step++) { /* the process was killed after `step` renames */
        remove_all(f);
        fixture_path(f, ".rebuilt", path);
        write_file(path, o.bytes, o.n);
        if (step < 2) {
            write_file(f->path, "damaged", 7);
        }
        if (step < 1) {
            fixture_path(f, "-wal", path);
            write_file(path, "of the damaged one", 18);
        }
        read_all(f, &o, &r);
        assert_int_equal(r.bests, 12);
        assert_int_equal(r.trials, TRIALS);
        assert_int_equal(files_like(f, "rebui"), 0);
        assert_int_equal(files_like(f, ".corrupt-"), step == 0 ? 2 : step == 1);
    }
    originals_free(&o);
}

static void a_failed_rebuild_leaves_all_in_place(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct store *s;
    struct error err;
    struct reading r;
    char path[128];
    originals_make(f, &o);
    memset(o.bytes, 0xaa, 64);
    write_file(f->path, o.bytes, o.n);
    fixture_path(f, ".rebuild", path);
    assert_int_equal(mkdir(path, 0700), 0); /* a folder in place of the new file */
    assert_int_equal(try_open(f, &s, &err), ERROR_STORE);
    assert_says(err, "rebuilding damaged database");
    assert_int_equal(files_like(f, ".corrupt-"), 0);
    assert_int_equal(rmdir(path), 0);
    read_all(f, &o, &r);
    assert_int_equal(r.bests, 12);
    originals_free(&o);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

/* Damages the first page of a table: none of the table's rows can be found. */
static void spoil_table(struct fixture *f, const char *table)
{
    struct error err = ERROR_NULL;
    char sql[80], nothing[PAGE] = {0};
    int64_t root;
    struct store *s = fixture_open(f);
    snprintf(sql, sizeof(sql), "SELECT rootpage FROM sqlite_schema WHERE name = '%s'", table);
    assert_ok(db_int(&s->db, sql, &root, &err));
    store_close(s);
    int fd = open(f->path, O_WRONLY);
    assert_int_equal(pwrite(fd, nothing, PAGE, (root - 1) * PAGE), PAGE);
    close(fd);
}

/* Makes a snapshot, and then changes three keys and variants. */
static void change_after_snapshot(struct fixture *f, char gone[HASH_HEX], char replaced[HASH_HEX])
{
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    struct quarantine q;
    struct store *s = fixture_open(f);
    fixture_quarantine(&q, 7);
    assert_ok(store_add_quarantine(s, &q, &err));
    assert_ok(store_snapshot(s, 0, &err));
    fixture_key(1, gone);
    assert_ok(store_evict(s, gone, NULL, &err));
    fixture_best(b, 2, 99);
    assert_ok(store_publish(s, b, &err));
    memcpy(replaced, b->key, HASH_HEX);
    assert_ok(store_unquarantine(s, q.variant, NULL, &err));
    store_close(s);
    free(b);
}

/* For keys that changed since the snapshot, only the damaged file's rows count. */
static void a_snapshot_gives_back_only_unchanged_keys(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    struct reading r = {.o = &o};
    char gone[HASH_HEX], replaced[HASH_HEX];
    originals_make(f, &o);
    change_after_snapshot(f, gone, replaced);
    spoil_table(f, "best");
    spoil_table(f, "trial"); /* opening repairs the table `best` first */
    struct store *s = fixture_open(f);
    assert_non_null(strstr(f->text, "or in its snapshot"));
    assert_ok(fixture_each_best(s, see_best, &r, &err));
    assert_int_equal(r.bests, 10);
    see_trials(s, &r);
    assert_int_equal(r.trials, (10 * TRIALS) / 12);
    assert_int_equal(store_best_of(s, gone, b, &err), STORE_MISS);
    assert_int_equal(store_best_of(s, replaced, b, &err), STORE_MISS);
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM quarantine"), 4);
    fixture_best(b, 1, 1);
    assert_ok(store_publish(s, b, &err));
    assert_true(b->generation > BESTS + 1 + STORE_GENERATION_GAP);
    store_close(s);
    free(b);
    originals_free(&o);
}

/* The table `change` lacks changes since the snapshot, or belongs to another file. */
static void a_snapshot_is_not_used_when_changes_since_are_unknown(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct error err = ERROR_NULL;
    char gone[HASH_HEX], replaced[HASH_HEX];
    static const char *const spoils[] = {
        "DELETE FROM change WHERE seq = (SELECT max(seq) - 1 FROM change)",
        "DELETE FROM change WHERE seq = (SELECT max(seq) FROM change)",
        "UPDATE change SET writer = 'another'",
    };
    originals_make(f, &o);
    for (size_t i = 0; i < 3; i++) {
        remove_all(f);
        write_file(f->path, o.bytes, o.n);
        change_after_snapshot(f, gone, replaced);
        struct store *s = fixture_open(f);
        assert_ok(db_exec(&s->db, spoils[i], &err));
        store_close(s);
        spoil_table(f, "best");
        s = fixture_open(f);
        assert_string_equal(f->kind, "corrupt_file");
        assert_null(strstr(f->text, "snapshot"));
        assert_int_equal(files_like(f, "Z.snapshot"),
                         1); /* the next snapshot does not replace it */
        assert_int_equal(fixture_count(s, "SELECT count(*) FROM best"), 0);
        store_close(s);
    }
    originals_free(&o);
}

/* No best and no change of the damaged file can be read. */
static void a_snapshot_stands_in_for_a_file_that_is_lost(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct reading r;
    struct error err = ERROR_NULL;
    struct event e;
    originals_make(f, &o);
    struct store *s = fixture_open(f);
    assert_ok(store_snapshot(s, 0, &err));
    store_close(s);
    memset(o.bytes, 0, o.n);
    write_file(f->path, o.bytes, o.n);
    read_all(f, &o, &r);
    assert_non_null(strstr(f->text, "since the snapshot are undone"));
    assert_int_equal(r.bests, 12);
    assert_int_equal(r.trials, TRIALS);
    s = fixture_open(f);
    fixture_event(&e, 1);
    assert_ok(store_add_event(s, &e, &err));
    assert_ok(store_snapshot(s, 0, &err));
    assert_int_equal(files_like(f, "Z.snapshot"), 1); /* kept with the damaged file */
    store_close(s);
    originals_free(&o);
}

/* A file of 0 bytes is not new when a snapshot lies beside it, with a log or without one. */
static void a_snapshot_stands_in_for_a_file_that_was_cut_to_nothing(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct reading r;
    struct error err = ERROR_NULL;
    char log[128];
    originals_make(f, &o);
    fixture_path(f, "-wal", log);
    for (int without_log = 0; without_log < 2; without_log++) {
        struct store *s = fixture_open(f);
        assert_ok(store_snapshot(s, 0, &err));
        store_close(s);
        assert_int_equal(truncate(f->path, 0), 0);
        assert_int_equal(without_log ? unlink(log) : 0, 0);
        read_all(f, &o, &r);
        assert_non_null(strstr(f->text, "since the snapshot are undone"));
        assert_int_equal(r.bests, 12);
        assert_int_equal(r.trials, TRIALS);
    }
    originals_free(&o);
}

/* Another connection of the process has the file open. */
static void a_file_cut_to_nothing_is_rebuilt_at_once(void **state)
{
    struct fixture *f = *state;
    struct originals o;
    struct reading r;
    struct error err = ERROR_NULL;
    originals_make(f, &o);
    struct store *s = fixture_open(f), *reader = fixture_open(f);
    assert_ok(store_snapshot(s, 0, &err));
    assert_int_equal(truncate(f->path, 0), 0);
    assert_ok(store_repair(s, &err));
    store_close(reader);
    store_close(s);
    read_all(f, &o, &r);
    assert_int_equal(r.bests, 12);
    assert_int_equal(r.trials, TRIALS);
    originals_free(&o);
}

static void a_restore_sets_aside_the_snapshot_of_the_replaced_file(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    char copy[128], aside[PATH_MAX];
    fixture_path(f, ".copy", copy);
    struct store *s = fixture_open(f);
    assert_ok(store_backup(s, copy, &err));
    fixture_fill(s);
    assert_ok(store_snapshot(s, 0, &err));
    store_close(s);
    assert_ok(store_replace(f->path, copy, 0, aside, &err));
    assert_int_equal(files_like(f, "Z.snapshot"), 1);
    assert_int_equal(files_like(f, ".snapshot"), 1);
}

static void a_snapshot_is_made_when_the_database_was_written_to(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    struct event e;
    struct stat first, st;
    char name[128], part[128];
    struct store *s = fixture_open(f);
    fixture_fill(s);
    fixture_path(f, ".snapshot", name);
    fixture_path(f, ".snapshot.part", part);
    write_file(part, "", 0); /* this file shows that another gemmd writes the snapshot */
    assert_ok(store_snapshot(s, 0, &err));
    assert_int_equal(access(name, F_OK), -1);
    /* a file of a second that the clock of file times may not have reached */
    struct timespec now[2], before;
    clock_gettime(CLOCK_REALTIME, &before);
    do {
        clock_gettime(CLOCK_REALTIME, &now[0]);
    } while (now[0].tv_sec == before.tv_sec);
    now[1] = now[0];
    assert_int_equal(utimensat(AT_FDCWD, part, now, 0), 0);
    assert_ok(store_snapshot(s, 0, &err));
    assert_int_equal(access(name, F_OK), -1);
    unlink(part);
    usleep(20000); /* the clock of file times advances by a tick */
    assert_ok(store_snapshot(s, 0, &err));
    assert_int_equal(stat(name, &first), 0);
    assert_int_equal(first.st_mode & 0777, 0600);
    assert_ok(store_snapshot(s, 0, &err)); /* no change since */
    assert_int_equal(stat(name, &st), 0);
    assert_int_equal(st.st_ino, first.st_ino);
    fixture_event(&e, 1);
    assert_ok(store_add_event(s, &e, &err));
    assert_ok(store_snapshot(s, 3600, &err)); /* young enough */
    assert_int_equal(stat(name, &st), 0);
    assert_int_equal(st.st_ino, first.st_ino);
    assert_ok(store_snapshot(s, 0, &err));
    assert_int_equal(stat(name, &st), 0);
    assert_true(st.st_ino != first.st_ino);
    assert_int_equal(files_like(f, "part"), 0);
    /* files of a time when the clock was ahead */
    const struct timespec ahead[2] = {{st.st_mtime + 86400, 0}, {st.st_mtime + 86400, 0}};
    write_file(part, "", 0);
    assert_int_equal(utimensat(AT_FDCWD, part, ahead, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, name, ahead, 0), 0);
    assert_ok(store_snapshot(s, 3600, &err));
    assert_int_equal(stat(name, &first), 0);
    assert_true(st.st_ino != first.st_ino);
    store_close(s);
}

/* Runs SQL that SQLite does not bring into the index best_key. */
static void change_without_index(struct fixture *f, const char *sql)
{
    struct error err = ERROR_NULL;
    char text[1024];
    struct db db;
    assert_ok(db_open(&db, f->path, SQLITE_OPEN_READWRITE, &err));
    snprintf(text, sizeof(text),
             "PRAGMA writable_schema=ON;"
             "CREATE TEMP TABLE kept AS SELECT * FROM main.sqlite_schema WHERE name = 'best_key';"
             "DELETE FROM main.sqlite_schema WHERE name = 'best_key';"
             "PRAGMA writable_schema=RESET; %s; PRAGMA writable_schema=ON;"
             "INSERT INTO main.sqlite_schema SELECT * FROM temp.kept",
             sql);
    assert_ok(db_exec(&db, text, &err));
    db_close(&db);
}

/* Damage must be noticed: else the row before a key's newest row would serve. */
static void an_index_that_contradicts_the_rows_is_damage(void **state)
{
    struct fixture *f = *state;
    static const char *const changes[] = {
        "DELETE FROM best WHERE generation = 14", /* the index has a newer row */
        "INSERT INTO best SELECT 1000, key, op, family, problem, class, source, config, module,"
        " trial, time_us, spread, reference_us, flops, bytes, floor_us, atol, rtol, measured,"
        " stamp, uid, created_s, checksum, doubt FROM best WHERE generation = 13",
    };
    for (size_t i = 0; i < 2; i++) {
        struct error err = ERROR_NULL;
        struct store_load *l;
        struct best *b = calloc(1, sizeof(*b));
        remove_all(f);
        struct store *s = fixture_open(f);
        for (int row = 0; row < 14; row++) {
            fixture_best(b, row % 7, row);
            assert_ok(store_publish(s, b, &err));
        }
        store_close(s);
        change_without_index(f, changes[i]);
        s = fixture_open(f);
        int r = store_load_begin(s, &l, &err);
        if (i == 0) {
            assert_int_equal(r, ERROR_STORE);
            assert_true(store_damaged(s));
        } else { /* a copied row has another generation, so its checksum is wrong: a bad row only */
            assert_ok(r);
            assert_string_equal(f->kind, "corrupt_row");
            store_load_end(l);
        }
        store_close(s);
        free(b);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(flipped_bits),
        T(flipped_bits_in_the_wal),
        T(garbage_is_set_aside),
        T(a_foreign_file_is_left_alone),
        T(a_damaged_header_costs_nothing),
        T(a_lost_first_page_of_a_restored_file_costs_nothing),
        T(numbers_go_on_after_a_rebuild),
        T(numbers_that_were_evicted_are_not_given_again),
        T(a_bad_row_that_is_written_again_is_listed),
        T(lost_pages),
        T(a_file_cut_short),
        T(a_file_cut_to_nothing),
        T(damage_met_at_work),
        T(a_damaged_description),
        T(a_damaged_file_of_an_older_version),
        T(an_interrupted_rebuild),
        T(a_failed_rebuild_leaves_all_in_place),
        T(a_snapshot_gives_back_only_unchanged_keys),
        T(a_snapshot_is_not_used_when_changes_since_are_unknown),
        T(a_snapshot_stands_in_for_a_file_that_is_lost),
        T(a_snapshot_stands_in_for_a_file_that_was_cut_to_nothing),
        T(a_file_cut_to_nothing_is_rebuilt_at_once),
        T(a_restore_sets_aside_the_snapshot_of_the_replaced_file),
        T(a_snapshot_is_made_when_the_database_was_written_to),
        T(an_index_that_contradicts_the_rows_is_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
