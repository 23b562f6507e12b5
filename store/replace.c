/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_replace puts a copy of another database in the place of the database. The replaced file is
 * kept under another name.
 *
 * A process that has the file open would go on writing into the replaced file. Each SQLite
 * connection to a file in WAL mode holds a shared lock on byte 128 of -shm as long as it is open
 * (sqlite.org/walformat.html), so that lock tells whether any process uses the file. gemmds open
 * the file under the commit lock only: none opens the file between that look and the renames.
 *
 * The log (-wal) gets its new name before the file: SQLite would apply a log that stays to the new
 * file. A crash between two renames loses no file, and the same restore can be repeated. The
 * snapshot is renamed, too: it is of the replaced file, and a rebuild of the new file must not use
 * it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/inner.h"

/* ---- users of the file ----------------------------------------------------------------------- */

/* True when a process has the database open; `who` names the process. */
static bool replace_find_user(const char *path, char who[PLACE_LOCKER_MAX])
{
    enum { OPEN_LOCK = 128 };
    char name[PATH_MAX + 16];
    snprintf(name, sizeof(name), "%s-shm", path);
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = OPEN_LOCK, .l_len = 1};
    PLACE_FD_AUTO fd = open(name, O_RDWR | O_CLOEXEC);
    bool used = fd >= 0 && fcntl(fd, F_GETLK, &l) == 0 && l.l_type != F_UNLCK;
    if (used && l.l_pid > 0) {
        place_name_process(l.l_pid, who);
    } else if (used) {
        snprintf(who, PLACE_LOCKER_MAX, "a process of another container");
    }
    return used;
}

static int replace_refuse_users(const char *path, struct error *err)
{
    char who[PLACE_LOCKER_MAX];
    return replace_find_user(path, who)
               ? error_set(err, ERROR_BUSY,
                           "database %s is in use by %s: stop all daemons of this database "
                           "(`gemmctl stop`, or systemctl stop 'gemmd@*.socket' 'gemmd@*.service') "
                           "and other programs that have it open",
                           path, who)
               : 0;
}

/* ---- the copy -------------------------------------------------------------------------------- */

static int replace_check_copy(struct db *db, struct error *err)
{
    int64_t version;
    int state = version_of(db, &version, err);
    if (state == VERSION_EMPTY) {
        return error_set(err, ERROR_STORE, "%s has no tables: it is no copy of gemmd's database",
                         db->path);
    }
    DB_STMT_AUTO *st = NULL;
    int r = state < 0 ? state : db_first(db, &st, err, "PRAGMA quick_check(1)", "");
    if (r == DB_ROW && strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0) {
        return error_set(err, ERROR_STORE, "%s is damaged (%s): restore another copy", db->path,
                         (const char *)sqlite3_column_text(st, 0));
    }
    return r < 0 ? r : 0;
}

/* Copies `from` to the new file `part`, with the owner and mode of `like`. */
static int replace_copy(const char *from, const char *part, const struct stat *like,
                        struct error *err)
{
    struct db db = {0};
    int r = db_open(&db, from, SQLITE_OPEN_READONLY, err);
    r = r ? r : db_exec(&db, "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON", err);
    r = r ? r : replace_check_copy(&db, err);
    unlink(part);
    r = r ? r : version_copy_to(&db, part, like, err);
    db_close(&db);
    return r;
}

/* The owner and mode of the new file: those of the file in its place, else of its folder. */
static int replace_read_like(const char *path, const char *from, struct stat *like,
                             struct error *err)
{
    struct stat copy;
    if (stat(from, &copy)) {
        return error_set(err, ERROR_IO, "%s: %s", from, strerror(errno));
    }
    if (stat(path, like) == 0) {
        return copy.st_ino == like->st_ino && copy.st_dev == like->st_dev
                   ? error_set(err, ERROR_INVALID, "%s is the database itself", from)
                   : 0;
    }
    char dir[PATH_MAX];
    snprintf(dir, sizeof(dir), "%s", path);
    *strrchr(dir, '/') = '\0';
    if (stat(*dir ? dir : "/", like)) {
        return error_set(err, ERROR_IO, "%s: %s", dir, strerror(errno));
    }
    like->st_mode = S_IFREG | S_IRUSR | S_IWUSR;
    return 0;
}

/* ---- the renames ----------------------------------------------------------------------------- */

/* Under the commit lock. */
static int replace_files(const char *path, const char *part, char aside[PATH_MAX],
                         struct error *err)
{
    struct stat st;
    int r = replace_refuse_users(path, err);
    /* a rebuild that a crash interrupted would later replace the new file */
    r = r ? r : salvage_resume(path, err);
    if (r) {
        return r;
    }
    place_name_aside(path, "replaced", aside);
    r = place_rename(path, aside, "-wal", err);
    r = r ? r : place_rename(path, aside, "-journal", err);
    r = r ? r : place_rename(path, aside, ".snapshot", err);
    r = r ? r : place_rename(path, aside, "", err);
    place_unlink(path, "-shm");
    if (lstat(aside, &st)) {
        aside[0] = '\0';
    }
    r = r ? r : place_rename(part, path, "", err);
    if (r == 0 && place_sync_folder(path)) {
        r = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    }
    return r;
}

/* ---- the whole ------------------------------------------------------------------------------- */

int store_replace(const char *path, const char *from, unsigned flags, char aside[PATH_MAX],
                  struct error *err)
{
    struct store s = {.flags = flags, .lock_fd = -1};
    struct stat like;
    char part[PATH_MAX + 16];
    aside[0] = '\0';
    int r = place_resolve(path, &s.path, err);
    r = r || flags & STORE_FORCE_NETWORK_FS ? r : place_refuse_network(s.path, err);
    r = r ? r : replace_read_like(s.path, from, &like, err);
    r = r ? r : replace_refuse_users(s.path, err); /* fails before the long copy */
    if (r == 0) {
        snprintf(part, sizeof(part), "%s.replacing", s.path);
        r = replace_copy(from, part, &like, err);
        r = r ? r : commit_lock(&s, err);
        if (r == 0) {
            r = replace_files(s.path, part, aside, err);
            commit_unlock(&s);
        }
        unlink(part);
    }
    place_close(&s.lock_fd);
    free(s.path);
    return r;
}
