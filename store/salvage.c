/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A damaged file is set aside, never thrown away, and a new one is made from what can be read.
 *
 * What can be read is found by row numbers: forward until SQLite meets a bad page, backward from
 * the end until it does, and in the gap between by halving, so that a bad page costs its own rows
 * and hardly any others. Only rows whose checksum and key are right are taken over. When a table,
 * or all, cannot be found, the file's header or its description of itself may be what is bad. Both
 * are known, so a second try reads a copy with them mended.
 *
 * The steps are ordered so that a crash between any two loses nothing:
 *   1. <path>.rebuild is filled (found at open: removed, the damaged file is still in place)
 *   2. renamed to <path>.rebuilt (found at open: steps 3 and 4 are done again)
 *   3. -wal, -shm and the file itself are renamed to <path>.corrupt-<time>...
 *   4. <path>.rebuilt is renamed to <path>
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/db.h"
#include "store/inner.h"
#include "store/place.h"

enum { NAME_MAX_ = PATH_MAX + 64, PAGE = 4096 };
#define COUNTED_MAX (INT64_C(1) << 53) /* no file has so many rows, and a real has each number */

struct salvage {
    struct store to; /* the new file: only what rows_put needs */
    struct db from;
    int64_t kept, lost;    /* rows taken over; rows with a wrong checksum or key */
    int64_t given[TABLES]; /* highest number that a row is known to have had */
    int64_t outdated;      /* bests not taken over: a newer one of their key is lost */
    bool holes;            /* some pages could not be read */
    bool unknown;          /* a table is not in the file's description of itself */
    uint8_t *pristine;     /* owned: pages of a new file; the roots of tables marked */
    int64_t n_pristine;
};

/* ---- file names ------------------------------------------------------------------------------ */

static void salvage_make_name(const char *path, const char *suffix, char out[NAME_MAX_])
{
    snprintf(out, NAME_MAX_, "%s%s", path, suffix);
}

static int io_fault(const char *doing, const char *path, struct error *err)
{
    return error_set(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_STORE,
                     "%s %s: %s", doing, path, strerror(errno));
}

static int rename_if_there(const char *from, const char *to, struct error *err)
{
    return rename(from, to) && errno != ENOENT ? io_fault("renaming", from, err) : 0;
}

/* A free name for the damaged file. */
static void aside_name(const char *path, char out[NAME_MAX_])
{
    char stamp[40];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof(stamp), ".corrupt-%Y%m%dT%H%M%SZ", &tm);
    salvage_make_name(path, stamp, out);
    for (int i = 2; access(out, F_OK) == 0 && i < 1000; i++) {
        snprintf(out, NAME_MAX_, "%s%s-%d", path, stamp, i);
    }
}

/* Steps 3 and 4. The WAL goes first: left beside the new file, SQLite would apply it to that. */
static int salvage_swap_files(const char *path, char aside[NAME_MAX_], struct error *err)
{
    static const char *const parts[] = {"-wal", "-shm", ""};
    char from[NAME_MAX_], to[NAME_MAX_];
    int r = 0;
    aside_name(path, aside);
    for (size_t i = 0; r == 0 && i < 3; i++) {
        salvage_make_name(path, parts[i], from);
        salvage_make_name(aside, parts[i], to);
        r = rename_if_there(from, to, err);
    }
    salvage_make_name(path, ".rebuilt", from);
    if (r == 0 && (rename(from, path) || place_sync_folder(path))) {
        r = io_fault("renaming", from, err);
    }
    return r;
}

int salvage_resume(const char *path, struct error *err)
{
    char name[NAME_MAX_], aside[NAME_MAX_];
    salvage_make_name(path, ".rebuild", name);
    unlink(name);
    salvage_make_name(path, ".rebuilt", name);
    return access(name, F_OK) == 0 ? salvage_swap_files(path, aside, err) : 0;
}

/* ---- reading what can be read ---------------------------------------------------------------- */

static void see_number(struct salvage *v, enum table_id table, int64_t number)
{
    v->given[table] = number > v->given[table] ? number : v->given[table];
}

/* Takes over the row that the statement stands on: 0, or a fault of the new file. */
static int salvage_copy_row(struct salvage *v, sqlite3_stmt *st, enum table_id table, void *object,
                            struct error *err)
{
    const struct table *t = &tables[table];
    int r = row_read(&v->from, st, t, object, &v->to.scratch, err);
    if (r == ROW_BAD) {
        v->lost++;
        return 0;
    }
    r = r ? r : write_known_parent(&v->to, table, object, err);
    r = r ? r : rows_put(&v->to, table, ROW_IGNORE, object, err);
    if (r == 0) {
        v->kept += sqlite3_changes64(v->to.db.h) > 0;
    }
    if (r == 0 && t->id) {
        see_number(v, table, t->id(object, 0));
    }
    return r;
}

enum walk_end { WALK_END = 0, WALK_BAD_PAGE = 1, WALK_NO_TABLE = 2 };

/* Want of memory is no reason to leave rows out. */
static int salvage_judge_fault(int r, const struct error *met, struct error *err)
{
    if (r == ERROR_NO_MEMORY || r == ERROR_BUSY) {
        return error_set(err, r, "%s", met->text);
    }
    return r < 0 ? WALK_BAD_PAGE : WALK_END;
}

/* One walk over the rows between low and high (both exclusive). *reached: the last row number that
 * was read. */
static int salvage_walk_rows(struct salvage *v, enum table_id table, bool down, int64_t low,
                             int64_t high, int64_t *reached, void *object, struct error *err)
{
    const struct table *t = &tables[table];
    struct error met = ERROR_NULL;
    char sql[2 * ROW_SQL_MAX];
    DB_STMT_AUTO *st = NULL;
    row_select_sql(t, NULL, sql); /* fails where a column is not known, also of an older version */
    size_t n = strlen(sql);
    snprintf(sql + n, sizeof(sql) - n, "WHERE %s > ?1 AND %s < ?2 ORDER BY %s%s", t->rowid,
             t->rowid, t->rowid, down ? " DESC" : "");
    *reached = down ? high : low;
    int r = db_query(&v->from, &st, &met, sql, "ii", low, high);
    if (r) {
        r = salvage_judge_fault(r, &met, err);
        return r < 0 ? r : WALK_NO_TABLE;
    }
    for (;;) {
        r = db_step(&v->from, st, &met);
        if (r != DB_ROW) {
            return salvage_judge_fault(r, &met, err);
        }
        *reached = sqlite3_column_int64(st, sqlite3_column_count(st) - 1);
        r = salvage_copy_row(v, st, table, object, err);
        if (r) {
            return r;
        }
    }
}

/* Halving: rows on both sides of the middle, then the gaps that are left. Islands smaller than the
 * grain are given up, so that a file cut to half does not cost a look-up for every lost number. */
static int take_gap(struct salvage *v, enum table_id table, int64_t a, int64_t b, int64_t grain,
                    void *object, struct error *err)
{
    if (b - a <= grain || b - a < 2) {
        return 0;
    }
    int64_t middle = a + (b - a) / 2, low, high;
    int below = salvage_walk_rows(v, table, true, a, middle, &low, object, err);
    if (below < 0) {
        return below;
    }
    int above = salvage_walk_rows(v, table, false, middle - 1, b, &high, object, err);
    if (above < 0) {
        return above;
    }
    low = low > middle ? middle : low; /* a damaged tree may lead to numbers out of its order */
    int r = below == WALK_BAD_PAGE ? take_gap(v, table, a, low, grain, object, err) : 0;
    high = high < middle ? middle : high; /* nothing read: the middle one is lost */
    return r || above != WALK_BAD_PAGE ? r : take_gap(v, table, high, b, grain, object, err);
}

/* The last number that the damaged file has given to a row, which may be gone; 0: it cannot be
 * read, or is no number that rows are counted by. */
static int64_t last_given(struct salvage *v, enum table_id table)
{
    struct error ignored;
    char sql[128];
    int64_t seq;
    snprintf(sql, sizeof(sql), "SELECT seq FROM sqlite_sequence WHERE name = '%s'",
             tables[table].name);
    bool read = db_int(&v->from, sql, &seq, &ignored) == 0;
    return read && seq > 0 && seq < COUNTED_MAX ? seq : 0;
}

/* A number above all rows of a table, when the last one cannot be read. */
static int64_t salvage_find_bound(struct salvage *v, enum table_id table, int64_t above)
{
    enum { ROW_BYTES_MIN = 32 };
    struct stat st;
    if (v->given[table] > above) {
        return v->given[table] + 1;
    }
    return above + (stat(v->from.path, &st) == 0 ? st.st_size / ROW_BYTES_MIN : 0) + 2;
}

static int take_table(struct salvage *v, enum table_id table, void *object, struct error *err)
{
    enum { GRAINS = 1024 };
    int64_t a, b;
    see_number(v, table, last_given(v, table));
    int r = salvage_walk_rows(v, table, false, 0, INT64_MAX, &a, object, err);
    v->unknown |= r == WALK_NO_TABLE;
    if (r == WALK_BAD_PAGE) {
        v->holes = true;
        r = salvage_walk_rows(v, table, true, a, INT64_MAX, &b, object, err);
    }
    if (r != WALK_BAD_PAGE) {
        return r < 0 ? r : 0;
    }
    b = b == INT64_MAX ? salvage_find_bound(v, table, a) : b;
    return take_gap(v, table, a, b, (b - a) / GRAINS, object, err);
}

static int take_tables(struct salvage *v, struct error *err)
{
    int r = 0;
    for (enum table_id i = 0; r == 0 && i < TABLES; i++) {
        void *object = malloc(tables[i].schema->size);
        r = object ? take_table(v, i, object, err)
                   : error_set(err, ERROR_NO_MEMORY, "no memory for a rebuild");
        free(object);
    }
    return r;
}

/* A key whose newest row is lost is a miss: the row before it may be one that somebody has
 * replaced. What was the newest, the index of the damaged file says, if it can be read; numbers
 * that were never given are its damage. */
static int drop_outdated(struct salvage *v, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    struct error met = ERROR_NULL;
    int64_t gone = 0, last = last_given(v, TABLE_BEST);
    int r = db_query(&v->from, &st, &met,
                     "SELECT key, max(generation) FROM best INDEXED BY best_key GROUP BY key", "");
    while (r == 0 && (r = db_step(&v->from, st, &met)) == DB_ROW) {
        int64_t newest = sqlite3_column_int64(st, 1);
        r = 0;
        if (last > 0 && newest > last) {
            continue;
        }
        r = db_run(&v->to.db, &gone, err,
                   "DELETE FROM best WHERE key = ?1 AND NOT EXISTS"
                   " (SELECT 1 FROM best WHERE key = ?1 AND generation >= ?2)",
                   "ti", (const char *)sqlite3_column_text(st, 0), newest);
        if (r) {
            return r;
        }
        v->kept -= gone;
        v->outdated += gone;
    }
    r = salvage_judge_fault(r, &met, err);
    return r < 0 ? r : 0;
}

/* writable_schema: tables whose description can be parsed are read although others cannot. */
static int open_damaged(struct db *db, const char *path, struct error *err)
{
    int r = db_open(db, path, SQLITE_OPEN_READWRITE, err);
    if (r == 0) {
        sqlite3_db_config(db->h, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        int on = 1;
        sqlite3_file_control(db->h, "main", SQLITE_FCNTL_PERSIST_WAL, &on);
        db_exec(db,
                "PRAGMA writable_schema=ON; PRAGMA cell_size_check=ON; PRAGMA query_only=ON;"
                "BEGIN",
                err);
    }
    return r;
}

/* ---- mending the file's description of itself ------------------------------------------------ */

enum { NOT_OURS = 0xff }; /* first byte of a kept page that is a root; no page begins so */

/* Keeps the new file as it is before any row: its pages that are no table's or index's root. */
static int keep_pristine(struct salvage *v, const char *path, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    struct stat file;
    FILE *f = fopen(path, "re");
    if (!f || fstat(fileno(f), &file) || !(v->pristine = malloc((size_t)file.st_size)) ||
        fread(v->pristine, 1, (size_t)file.st_size, f) != (size_t)file.st_size) {
        io_fault("reading", path, err);
    } else {
        v->n_pristine = file.st_size / PAGE;
    }
    if (f) {
        fclose(f);
    }
    int r = v->n_pristine ? 0 : ERROR_STORE;
    r = r ? r : db_query(&v->to.db, &st, err, "SELECT rootpage FROM sqlite_schema", "");
    while (r == 0 && (r = db_step(&v->to.db, st, err)) == DB_ROW) {
        int64_t root = sqlite3_column_int64(st, 0);
        if (root > 0 && root <= v->n_pristine) {
            v->pristine[(root - 1) * PAGE] = NOT_OURS;
        }
        r = 0;
    }
    return r;
}

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> (24 - 8 * i));
    }
}

/* The first page's header and sqlite_schema, from the new file, into a copy of the damaged one. A
 * file that was made by the same steps has its tables at the same pages; of any other, checksums
 * will say that what is found there are no rows. */
static int salvage_mend_header(struct salvage *v, const char *path, struct error *err)
{
    uint8_t *first = v->pristine;
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    int r = fd < 0 || fstat(fd, &st) ? io_fault("mending", path, err) : 0;
    if (r == 0) {
        first[18] = first[19] = 2; /* WAL */
        put_u32(first + 28, (uint32_t)(st.st_size / PAGE));
        memcpy(first + 92, first + 24, 4); /* that size is to be believed */
    }
    for (int64_t i = 0; r == 0 && i < v->n_pristine; i++) {
        const uint8_t *page = v->pristine + i * PAGE;
        if (page[0] != NOT_OURS && pwrite(fd, page, PAGE, i * PAGE) != PAGE) {
            r = io_fault("mending", path, err);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return r;
}

static int copy_file(const char *from, const char *to, struct error *err)
{
    uint8_t buffer[65536];
    struct stat file;
    size_t n;
    if (stat(from, &file) || place_create_like(to, &file)) {
        return io_fault("copying", from, err);
    }
    FILE *in = fopen(from, "re"), *out = fopen(to, "we");
    int r = in && out ? 0 : io_fault("copying", from, err);
    while (r == 0 && (n = fread(buffer, 1, sizeof(buffer), in)) > 0) {
        r = fwrite(buffer, 1, n, out) == n ? 0 : io_fault("writing", to, err);
    }
    if (in) {
        fclose(in);
    }
    if (out && fclose(out) && r == 0) {
        r = io_fault("writing", to, err);
    }
    return r;
}

int salvage_copy_aside(const char *path, const char *part, char aside[PATH_MAX])
{
    char from[NAME_MAX_], base[NAME_MAX_];
    struct error ignored;
    salvage_make_name(path, part, from);
    aside_name(path, base);
    return snprintf(aside, PATH_MAX, "%s%s", base, part) < PATH_MAX
               ? copy_file(from, aside, &ignored)
               : -1;
}

static void remove_mended(const char *mended)
{
    static const char *const parts[] = {"", "-wal", "-shm"};
    char name[NAME_MAX_];
    for (size_t i = 0; i < 3; i++) {
        salvage_make_name(mended, parts[i], name);
        unlink(name);
    }
}

static int take_mended(struct salvage *v, const char *path, struct error *err)
{
    char mended[NAME_MAX_ - 8], wal[NAME_MAX_], mended_wal[NAME_MAX_];
    snprintf(mended, sizeof(mended), "%s.mended", path);
    salvage_make_name(path, "-wal", wal);
    salvage_make_name(mended, "-wal", mended_wal);
    remove_mended(mended);
    int r = copy_file(path, mended, err);
    if (r == 0 && access(wal, F_OK) == 0) {
        r = copy_file(wal, mended_wal, err);
    }
    r = r ? r : salvage_mend_header(v, mended, err);
    struct error met = ERROR_NULL;
    if (r == 0) {
        r = open_damaged(&v->from, mended, &met);
        r = r ? salvage_judge_fault(r, &met, err) : take_tables(v, err);
        r = r ? r : drop_outdated(v, err);
    }
    db_close(&v->from);
    remove_mended(mended);
    return r < 0 ? r : 0;
}

/* ---- the new file ---------------------------------------------------------------------------- */

static int make_new(struct salvage *v, const char *path, const char *damaged, struct error *err)
{
    struct stat file;
    unlink(path);
    if (stat(damaged, &file) || place_create_like(path, &file)) {
        return io_fault("writing", path, err);
    }
    int r = db_open(&v->to.db, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    r = r ? r : version_migrate(&v->to.db, 0, true, err);
    r = r ? r : keep_pristine(v, path, err);
    /* References were looked up in the order of writing; synced once, at the end. */
    return r ? r : db_exec(&v->to.db, "PRAGMA synchronous=OFF; PRAGMA foreign_keys=ON", err);
}

/* Numbers go on above all that are known; generations, which jobs pin, well above: what was lost
 * may have had higher ones. */
static int number_on(struct salvage *v, enum table_id table, struct error *err)
{
    int r = db_run(&v->to.db, NULL, err, "DELETE FROM sqlite_sequence WHERE name = ?1", "t",
                   tables[table].name);
    return r ? r
             : db_run(&v->to.db, NULL, err, "INSERT INTO sqlite_sequence VALUES (?1, ?2)", "ti",
                      tables[table].name,
                      v->given[table] + (table == TABLE_BEST ? STORE_GENERATION_GAP : 0));
}

/* Others read from the last change that they know. Where not all can be read, numbers go on with a
 * gap: then everybody believes what is in the new file. */
static int take_changes(struct salvage *v, struct error *err)
{
    enum { GAP = 1 << 20 };
    DB_STMT_AUTO *st = NULL;
    struct error met = ERROR_NULL;
    int64_t last = 0;
    int r = db_query(&v->from, &st, &met, "SELECT seq, kind, name, writer FROM change ORDER BY seq",
                     "");
    while (r == 0 && (r = db_step(&v->from, st, &met)) == DB_ROW) {
        last = sqlite3_column_int64(st, 0);
        r = db_run(&v->to.db, NULL, err, "INSERT INTO change VALUES (?1, ?2, ?3, ?4)", "ittt", last,
                   (const char *)sqlite3_column_text(st, 1),
                   (const char *)sqlite3_column_text(st, 2),
                   (const char *)sqlite3_column_text(st, 3));
        if (r) {
            return r;
        }
    }
    r = salvage_judge_fault(r, &met, err);
    if (r != WALK_BAD_PAGE) {
        return r;
    }
    r = db_run(&v->to.db, NULL, err, "DELETE FROM change", "");
    r = r ? r
          : db_run(&v->to.db, NULL, err, "DELETE FROM sqlite_sequence WHERE name = 'change'", "");
    return r ? r
             : db_run(&v->to.db, NULL, err, "INSERT INTO sqlite_sequence VALUES ('change', ?1)",
                      "i", last + GAP);
}

static int end_new(struct salvage *v, const char *path, struct error *err)
{
    int r = 0;
    for (enum table_id i = 0; r == 0 && i < TABLES; i++) {
        r = tables[i].id ? number_on(v, i, err) : 0;
    }
    r = db_end(&v->to.db, r, err);
    db_close(&v->to.db);
    int fd = r ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (r == 0 && (fd < 0 || fsync(fd))) {
        r = io_fault("writing", path, err);
    }
    if (fd >= 0) {
        close(fd);
    }
    return r;
}

static int fill_new(struct salvage *v, const char *damaged, const char *path, struct error *err)
{
    int r = make_new(v, path, damaged, err);
    r = r ? r : db_begin(&v->to.db, err);
    if (r) {
        return r;
    }
    struct error met = ERROR_NULL;
    r = open_damaged(&v->from, damaged, &met);
    r = r ? salvage_judge_fault(r, &met, err) : take_tables(v, err);
    r = r ? r : drop_outdated(v, err);
    r = r < 0 ? r : take_changes(v, err);
    db_close(&v->from);
    r = r < 0 ? r : 0;
    if (r == 0 && (v->unknown || v->kept == 0)) {
        v->lost = 0; /* they are met again */
        r = take_mended(v, damaged, err);
    }
    return r < 0 ? db_end(&v->to.db, r, err) : end_new(v, path, err);
}

int salvage_rebuild(struct store *s, const char *why, struct error *err)
{
    char building[NAME_MAX_], built[NAME_MAX_], aside[NAME_MAX_];
    struct salvage v = {0};
    char *reason = strdup(why);
    salvage_make_name(s->path, ".rebuild", building);
    salvage_make_name(s->path, ".rebuilt", built);
    int r = reason ? fill_new(&v, s->path, building, err)
                   : error_set(err, ERROR_NO_MEMORY, "no memory for a rebuild");
    row_scratch_deinit(&v.to.scratch);
    free(v.pristine);
    db_close(&v.to.db);
    if (r == 0 && rename(building, built)) {
        r = io_fault("renaming", building, err);
    }
    r = r ? r : salvage_swap_files(s->path, aside, err);
    if (r == 0) {
        store_notice(s, "corrupt_file",
                     "%s. It was set aside as %s; the new one has the %" PRId64
                     " rows that could be read (%" PRId64
                     " rows had wrong checksums or keys, %" PRId64
                     " were older than a lost one of their key%s)",
                     reason, aside, v.kept, v.lost, v.outdated,
                     v.holes ? ", some pages were unreadable" : "");
    } else {
        unlink(building);
        error_prefix(err, "rebuilding damaged database %s", s->path);
    }
    free(reason);
    return r;
}
