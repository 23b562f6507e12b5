/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a copy of a damaged file with the header and schema of a new file, so that SQLite finds the
 * tables. A new file has one of two layouts: migration steps and VACUUM put tables and indexes at
 * different pages.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/inner.h"

enum { NAME_MAX_ = PATH_MAX + 64, PAGE = 4096 };

/* Makes a new file. `copied`: with the layout of a file that VACUUM made (backup, restore), which
 * has its tables and indexes at other pages. The views of such a file come after its rows, at pages
 * that differ from file to file; the layout is without them. */
static int mend_make_fresh(struct db *fresh, const char *path, bool copied, struct error *err)
{
    db_close(fresh);
    unlink(path);
    int r = db_open(fresh, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    r = r ? r : version_migrate(fresh, 0, true, err);
    return r || !copied ? r
                        : db_exec(fresh,
                                  "PRAGMA writable_schema=ON;"
                                  "DELETE FROM sqlite_schema WHERE type = 'view'; VACUUM",
                                  err);
}

/* Counts the roots of the new file's tables and indexes where the damaged file has a page of the
 * same kind. */
static int mend_count_roots(struct db *fresh, const char *path, int *n, struct error *err)
{
    enum { INDEX_INNER = 2, TABLE_INNER = 5, LEAF = 8 };
    DB_STMT_AUTO *st = NULL;
    PLACE_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC);
    int r = fd < 0
                ? place_fail_io("reading", path, err)
                : db_query(fresh, &st, err,
                           "SELECT rootpage, type = 'table' FROM sqlite_schema WHERE rootpage", "");
    *n = 0;
    while (r == 0 && (r = db_step(fresh, st, err)) == DB_ROW) {
        uint8_t kind = 0, inner = sqlite3_column_int(st, 1) ? TABLE_INNER : INDEX_INNER;
        off_t at = (off_t)(sqlite3_column_int64(st, 0) - 1) * PAGE;
        *n += pread(fd, &kind, 1, at) == 1 && (kind == inner || kind == (inner | LEAF));
        r = 0;
    }
    return r;
}

/* Makes a new file with the layout that fits the damaged file best. */
static int mend_make_alike(struct db *fresh, const char *path, const char *damaged,
                           struct error *err)
{
    int n[2] = {0};
    int r = 0;
    for (int copied = 0; r == 0 && copied < 2; copied++) {
        r = mend_make_fresh(fresh, path, copied, err);
        r = r ? r : mend_count_roots(fresh, damaged, &n[copied], err);
    }
    return r || n[1] > n[0] ? r : mend_make_fresh(fresh, path, false, err);
}

/* Overwrites header and sqlite_schema of the copy `mended` with those of a new file: all pages of
 * the new file but the roots of its tables and indexes. A file that was made in a single version,
 * or is a copy, has its tables at the same pages as a new file of its layout. In other files the
 * checksums reject the rows. */
static int mend_write_pages(struct db *fresh, const char *path, const char *mended,
                            struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    uint8_t page[PAGE];
    PLACE_FD_AUTO in = open(path, O_RDONLY | O_CLOEXEC), out = open(mended, O_WRONLY | O_CLOEXEC);
    int r = in < 0 || out < 0 ? place_fail_io("mending", mended, err) : 0;
    r = r ? r
          : db_query(fresh, &st, err,
                     "WITH RECURSIVE page(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM page WHERE"
                     " n < (SELECT page_count FROM pragma_page_count))"
                     " SELECT n FROM page WHERE n NOT IN (SELECT rootpage FROM sqlite_schema)",
                     "");
    while (r == 0 && (r = db_step(fresh, st, err)) == DB_ROW) {
        off_t at = (off_t)(sqlite3_column_int64(st, 0) - 1) * PAGE;
        r = pread(in, page, PAGE, at) == PAGE ? 0 : place_fail_io("reading", path, err);
        if (at == 0) {
            page[18] = page[19] = 2; /* journal mode: WAL */
            /* SQLite then uses the file's real size, not the size in the header */
            memset(page + 92, 0, 4);
        }
        if (r == 0 && pwrite(out, page, PAGE, at) != PAGE) {
            r = place_fail_io("mending", mended, err);
        }
    }
    return r;
}

void mend_remove(const char *path)
{
    place_unlink(path, ".mended");
    place_unlink(path, ".mended-wal");
    place_unlink(path, ".mended-shm");
    place_unlink(path, ".fresh");
}

int mend_make(const char *path, struct error *err)
{
    char mended[NAME_MAX_], fresh[NAME_MAX_], wal[NAME_MAX_], mended_wal[NAME_MAX_];
    struct db db = {0};
    snprintf(mended, sizeof(mended), "%s.mended", path);
    snprintf(fresh, sizeof(fresh), "%s.fresh", path);
    snprintf(wal, sizeof(wal), "%s-wal", path);
    snprintf(mended_wal, sizeof(mended_wal), "%s.mended-wal", path);
    mend_remove(path);
    int r = place_copy_bytes(path, mended, err);
    if (r == 0 && access(wal, F_OK) == 0) {
        r = place_copy_bytes(wal, mended_wal, err);
    }
    r = r ? r : mend_make_alike(&db, fresh, path, err);
    r = r ? r : mend_write_pages(&db, fresh, mended, err);
    db_close(&db);
    return r;
}
