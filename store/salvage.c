/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A damaged file is set aside, never thrown away, and a new one is made from what can be read.
 *
 * What can be read is found by row numbers: forward until SQLite meets a bad page, backward from the
 * end until it does, and in the gap between by halving, so that one bad page costs its own rows and
 * no others. Only rows whose checksum is right are taken over. When nothing can be read at all, the
 * first hundred bytes may be what is bad: they are known, so a second try reads a copy with them
 * mended.
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
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/inner.h"
#include "store/version.h"

enum { NAME_MAX_ = PATH_MAX + 64, PROBES_MAX = 100000 };

struct salvage {
    struct store to;  /* the new file: only what rows_put needs */
    struct db from;
    int64_t kept, lost; /* rows taken over; rows with a wrong checksum */
    int64_t generation; /* highest seen */
    int probes;         /* look-ups left for the table at hand */
    bool holes;         /* some pages could not be read */
};

/* ---- file names ---------------------------------------------------------------------------- */

static void suffixed(const char *path, const char *suffix, char out[NAME_MAX_])
{
    snprintf(out, NAME_MAX_, "%s%s", path, suffix);
}

static int io_fault(const char *doing, const char *path, struct error *err)
{
    return error_set(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_STORE,
                     "%s %s: %s", doing, path, strerror(errno));
}

static int sync_folder(const char *path)
{
    char dir[NAME_MAX_];
    suffixed(path, "", dir);
    int fd = open(dirname(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? -1 : fsync(fd);
    if (fd >= 0) {
        close(fd);
    }
    return r;
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
    suffixed(path, stamp, out);
    for (int i = 2; access(out, F_OK) == 0 && i < 1000; i++) {
        snprintf(out, NAME_MAX_, "%s%s-%d", path, stamp, i);
    }
}

/* Steps 3 and 4. The WAL goes first: left beside the new file, SQLite would apply it to that. */
static int swap(const char *path, char aside[NAME_MAX_], struct error *err)
{
    static const char *const parts[] = {"-wal", "-shm", ""};
    char from[NAME_MAX_], to[NAME_MAX_];
    int r = 0;
    aside_name(path, aside);
    for (size_t i = 0; r == 0 && i < 3; i++) {
        suffixed(path, parts[i], from);
        suffixed(aside, parts[i], to);
        r = rename_if_there(from, to, err);
    }
    suffixed(path, ".rebuilt", from);
    if (r == 0 && (rename(from, path) || sync_folder(path))) {
        r = io_fault("renaming", from, err);
    }
    return r;
}

int salvage_resume(const char *path, struct error *err)
{
    char name[NAME_MAX_], aside[NAME_MAX_];
    suffixed(path, ".rebuild", name);
    unlink(name);
    suffixed(path, ".rebuilt", name);
    return access(name, F_OK) == 0 ? swap(path, aside, err) : 0;
}

/* ---- reading what can be read ----------------------------------------------------------------- */

/* Takes over the row that the statement stands on: 0, or a fault of the new file. */
static int take(struct salvage *v, sqlite3_stmt *st, enum table_id table, void *object,
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
    if (r == 0 && table == TABLE_BEST && t->id(object, 0) > v->generation) {
        v->generation = t->id(object, 0);
    }
    return r;
}

/* How a walk ended: 0 at its end, 1 at a bad page; want of memory is no reason to leave rows out. */
static int unreadable(int r, const struct error *met, struct error *err)
{
    if (r == ERROR_NO_MEMORY || r == ERROR_BUSY) {
        return error_set(err, r, "%s", met->text);
    }
    return r < 0;
}

/* One walk over the rows between low and high (both exclusive). *reached: the last row number that
 * was read; 0, or 1 when a bad page ended the walk. */
static int walk(struct salvage *v, enum table_id table, bool down, int64_t low, int64_t high,
                int64_t *reached, void *object, struct error *err)
{
    const struct table *t = &tables[table];
    struct error met = ERROR_NULL;
    char sql[256];
    DB_STMT_AUTO *st = NULL;
    snprintf(sql, sizeof(sql), "SELECT *, %s FROM %s WHERE %s > ?1 AND %s < ?2 ORDER BY %s%s",
             t->rowid, t->name, t->rowid, t->rowid, t->rowid, down ? " DESC" : "");
    *reached = down ? high : low;
    v->probes--;
    int r = db_query(&v->from, &st, &met, sql, "ii", low, high);
    if (r == 0 && sqlite3_column_count(st) != (int)t->schema->n + 2) {
        return 1;
    }
    for (;;) {
        r = r ? r : db_step(&v->from, st, &met);
        if (r != DB_ROW) {
            return unreadable(r, &met, err);
        }
        *reached = sqlite3_column_int64(st, sqlite3_column_count(st) - 1);
        r = take(v, st, table, object, err);
        if (r) {
            return r;
        }
    }
}

static int take_range(struct salvage *v, enum table_id table, int64_t low, int64_t high,
                      void *object, struct error *err)
{
    int64_t a, b;
    int r = walk(v, table, false, low, high, &a, object, err);
    if (r != 1) {
        return r;
    }
    v->holes = true;
    r = walk(v, table, true, a, high, &b, object, err);
    if (r != 1 || v->probes <= 0) {
        return r < 0 ? r : 0;
    }
    int64_t middle = a + (int64_t)(((uint64_t)b - (uint64_t)a) / 2);
    if (middle == a || middle == b) {
        return 0;
    }
    r = take_range(v, table, a, middle + 1, object, err);
    return r ? r : take_range(v, table, middle, b, object, err);
}

static int take_tables(struct salvage *v, struct error *err)
{
    int r = 0;
    for (enum table_id i = 0; r == 0 && i < TABLES; i++) {
        void *object = malloc(tables[i].schema->size);
        v->probes = PROBES_MAX;
        r = object ? take_range(v, i, INT64_MIN, INT64_MAX, object, err)
                   : error_set(err, ERROR_NO_MEMORY, "no memory for a rebuild");
        free(object);
    }
    return r;
}

/* writable_schema: tables whose description can be parsed are read although others cannot. */
static int open_damaged(struct db *db, const char *path, struct error *err)
{
    int r = db_open(db, path, SQLITE_OPEN_READWRITE, err);
    if (r == 0) {
        sqlite3_db_config(db->h, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        int on = 1;
        sqlite3_file_control(db->h, "main", SQLITE_FCNTL_PERSIST_WAL, &on);
        db_exec(db, "PRAGMA writable_schema=ON; PRAGMA cell_size_check=ON; PRAGMA query_only=ON",
                err);
    }
    return r;
}

/* ---- mending the first page's header ----------------------------------------------------------- */

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> (24 - 8 * i));
    }
}

/* The header of the files we make: SQLite's file format, section 1.3. */
static void mend_header(uint8_t h[100], off_t size)
{
    static const uint8_t from16[8] = {0x10, 0x00, 2, 2, 0, 64, 32, 32}; /* 4 KiB pages, WAL */
    memcpy(h, "SQLite format 3", 16);
    memcpy(h + 16, from16, sizeof(from16));
    put_u32(h + 28, (uint32_t)(size / 4096));
    put_u32(h + 32, 0); /* no free pages: nothing is allocated here */
    put_u32(h + 36, 0);
    put_u32(h + 44, 4); /* schema format */
    put_u32(h + 52, 0); /* no auto-vacuum */
    put_u32(h + 56, 1); /* UTF-8 */
    put_u32(h + 60, STORE_SCHEMA_VERSION);
    put_u32(h + 68, VERSION_APPLICATION_ID);
    memcpy(h + 92, h + 24, 4); /* the size above is to be believed */
}

static int copy_file(const char *from, const char *to, bool mend, struct error *err)
{
    uint8_t buffer[65536];
    FILE *in = fopen(from, "re"), *out = fopen(to, "we");
    struct stat st;
    size_t n;
    int r = in && out && fstat(fileno(in), &st) == 0 ? 0 : io_fault("copying", from, err);
    while (r == 0 && (n = fread(buffer, 1, sizeof(buffer), in)) > 0) {
        if (mend && n >= 100) {
            mend_header(buffer, st.st_size);
        }
        mend = false;
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

static void remove_mended(const char *mended)
{
    static const char *const parts[] = {"", "-wal", "-shm"};
    char name[NAME_MAX_];
    for (size_t i = 0; i < 3; i++) {
        suffixed(mended, parts[i], name);
        unlink(name);
    }
}

static int take_mended(struct salvage *v, const char *path, struct error *err)
{
    char mended[NAME_MAX_ - 8], wal[NAME_MAX_], mended_wal[NAME_MAX_];
    snprintf(mended, sizeof(mended), "%s.mended", path);
    suffixed(path, "-wal", wal);
    suffixed(mended, "-wal", mended_wal);
    remove_mended(mended);
    int r = copy_file(path, mended, true, err);
    if (r == 0 && access(wal, F_OK) == 0) {
        r = copy_file(wal, mended_wal, false, err);
    }
    if (r == 0 && open_damaged(&v->from, mended, err) == 0) {
        r = take_tables(v, err);
    }
    db_close(&v->from);
    remove_mended(mended);
    return r;
}

/* ---- the new file -------------------------------------------------------------------------- */

static int make_new(struct salvage *v, const char *path, struct error *err)
{
    unlink(path);
    int r = db_open(&v->to.db, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    r = r ? r : version_migrate(&v->to.db, 0, true, err);
    /* References were looked up in the order of writing; synced once, at the end. */
    return r ? r : db_exec(&v->to.db, "PRAGMA synchronous=OFF; PRAGMA foreign_keys=ON", err);
}

/* Numbers go on well above all that were seen: what was lost may have had higher ones. */
static int end_new(struct salvage *v, const char *path, struct error *err)
{
    int r = db_run(&v->to.db, NULL, err, "DELETE FROM sqlite_sequence WHERE name = 'best'", "");
    r = r ? r
          : db_run(&v->to.db, NULL, err, "INSERT INTO sqlite_sequence VALUES ('best', ?1)", "i",
                   v->generation + STORE_GENERATION_GAP);
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
    int r = make_new(v, path, err);
    r = r ? r : db_begin(&v->to.db, err);
    if (r) {
        return r;
    }
    struct error met = ERROR_NULL;
    r = open_damaged(&v->from, damaged, &met);
    r = r ? unreadable(r, &met, err) : take_tables(v, err);
    db_close(&v->from);
    r = r < 0 ? r : 0;
    if (r == 0 && v->kept == 0) {
        r = take_mended(v, damaged, err);
    }
    return r < 0 ? db_end(&v->to.db, r, err) : end_new(v, path, err);
}

int salvage(struct store *s, const char *why, struct error *err)
{
    char building[NAME_MAX_], built[NAME_MAX_], aside[NAME_MAX_];
    struct salvage v = {0};
    char *reason = strdup(why);
    suffixed(s->path, ".rebuild", building);
    suffixed(s->path, ".rebuilt", built);
    int r = reason ? fill_new(&v, s->path, building, err)
                   : error_set(err, ERROR_NO_MEMORY, "no memory for a rebuild");
    row_scratch_deinit(&v.to.scratch);
    db_close(&v.to.db);
    if (r == 0 && rename(building, built)) {
        r = io_fault("renaming", building, err);
    }
    r = r ? r : swap(s->path, aside, err);
    if (r == 0) {
        store_notice(s, "corrupt_file",
                     "%s. It was set aside as %s; the new one has the %" PRId64
                     " rows that could be read (%" PRId64 " rows had wrong checksums%s)",
                     reason, aside, v.kept, v.lost, v.holes ? ", some pages were unreadable" : "");
    } else {
        unlink(building);
        error_prefix(err, "rebuilding damaged database %s", s->path);
    }
    free(reason);
    return r;
}
