/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit lock: flock(2) on "<path>.lock". A gemmd holds the lock around each writing
 * transaction, each checkpoint, and each opening, and at no other time. Several gemmds write the
 * file: without the lock two of them could write and checkpoint at once. SQLite before 3.51.3 may
 * damage the file then (the WAL-reset bug).
 *
 * The holder of the lock is the only writer, and counts row numbers in memory, because the numbers
 * are part of checksums. After a commit of another connection the holder reads the numbers again.
 *
 * The lock file has three lines of fixed length:
 *   1. Pid of the last holder, for people. Written again after each commit: the other gemmds watch
 *      the lock file, since a change of the log is seen before the commit can be read.
 *   2. Device and inode of the database file. A gemmd that rebuilds or restores the file notes the
 *      new file here, and the other gemmds know that no person put it there.
 *   3. The highest generation that was given. The number outlives the database: after a restore of
 *      an older copy, generations go on above all numbers that jobs may be pinned to.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/lockfile.h"
#include "proto/trust.h"
#include "store/inner.h"

enum { PID_LINE = 12, FILE_LINE = 44, NUMBER_LINE = 21, TEXT = PID_LINE + FILE_LINE + NUMBER_LINE };

/* ---- the file's text ------------------------------------------------------------------------- */

/* Reads the lines of the lock file. Before schema 4 line 2 was a path, so of any length. */
static void commit_read_text(struct store *s)
{
    char text[PATH_MAX + 64] = "";
    unsigned long long dev = 0, ino = 0;
    ssize_t n = pread(s->lock_fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = 0;
    char *second = strchr(text, '\n'), *third = second ? strchr(second + 1, '\n') : NULL;
    s->noted.pid = strtol(text, NULL, 10);
    int64_t given = third ? strtoll(third + 1, NULL, 10) : 0;
    bool known = second && sscanf(second + 1, "%llx:%llx", &dev, &ino) == 2;
    s->noted.dev = known ? (dev_t)dev : 0;
    s->noted.ino = known ? (ino_t)ino : 0;
    s->noted.given = given > 0 && given < INT64_MAX / 2 ? given : 0;
    s->noted.whole = n == TEXT;
}

static void write_text(struct store *s)
{
    char text[TEXT + 1], file[FILE_LINE];
    snprintf(file, sizeof(file), "%llx:%llx", (unsigned long long)s->noted.dev,
             (unsigned long long)s->noted.ino);
    snprintf(text, sizeof(text), "%-11ld\n%-43s\n%020" PRId64 "\n", (long)getpid(), file,
             s->noted.given);
    if (!s->noted.whole && ftruncate(s->lock_fd, 0)) {
        return; /* the disk is full; the database has the highest generation, too */
    }
    s->noted.whole = pwrite(s->lock_fd, text, TEXT, 0) == TEXT;
}

void commit_note_file(struct store *s)
{
    struct stat st;
    if (stat(s->path, &st) == 0 && (st.st_ino != s->noted.ino || st.st_dev != s->noted.dev)) {
        s->noted.dev = st.st_dev;
        s->noted.ino = st.st_ino;
        write_text(s);
    }
}

bool commit_is_noted(const struct store *s)
{
    struct stat st;
    return s->noted.ino && stat(s->path, &st) == 0 && st.st_ino == s->noted.ino &&
           st.st_dev == s->noted.dev;
}

/* ---- the lock -------------------------------------------------------------------------------- */

static int open_lock(struct store *s, struct error *err)
{
    char name[PATH_MAX + 8];
    int fd;
    snprintf(name, sizeof(name), "%s.lock", s->path);
    int r = trust_open(name, O_RDWR | O_CREAT, 0600, &fd, err);
    if (r < 0) { /* a full disk keeps its code, any other fault becomes ERROR_STORE */
        r = err && err->code == ERROR_DISK_FULL ? ERROR_DISK_FULL : ERROR_STORE;
        error_prefix(err, "database %s: cannot make the lock file", s->path);
        if (err) {
            err->code = r;
        }
        return r;
    }
    place_close(&s->lock_fd);
    s->lock_fd = fd;
    owner_lock_byte(s);
    return 0;
}

/* False when the lock file was removed, so that its name leads to another file or to no file. */
static bool lock_is_named(const struct store *s)
{
    struct stat named, held;
    return fstat(s->lock_fd, &held) == 0 && place_stat(s->path, ".lock", &named) == 0 &&
           named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

/* Sets the error that the lock is held, with the pid in the lock file. That is the last gemmd's
 * pid; another program may hold the lock now. */
static int say_held(const struct store *s, struct error *err)
{
    char text[PID_LINE] = "", who[LOCKFILE_NAME_MAX];
    ssize_t n = pread(s->lock_fd, text, sizeof(text) - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    struct lockfile_holder h = lockfile_of(pid == (long)getpid() ? 0 : pid);
    return error_set(err, ERROR_BUSY,
                     "database %s: the commit lock, %s.lock, is held by another gemmd (%s), which "
                     "is stopped, or stuck at its disk, or of a version before schema 4: end it",
                     s->path, s->path, lockfile_name(&h, who));
}

/* Returns the time of the last commit by any gemmd: each commit ends with a write to the lock
 * file. */
static int64_t last_commit_ns(const struct store *s)
{
    struct stat st;
    return fstat(s->lock_fd, &st) == 0 ? place_time_ns(&st) : 0;
}

/* Waits for the lock; flock has no time limit. Goes on waiting as long as other gemmds commit. A
 * holder that does not commit for PATIENCE_MS is stuck: later calls fail at once until the holder
 * commits. */
static int wait_for_lock(struct store *s, struct error *err)
{
    enum { FIRST_NS = 50 * 1000, LAST_NS = 2 * 1000 * 1000, PATIENCE_MS = 2000, MOST_MS = 30000 };
    int64_t seen = last_commit_ns(s), now_seen;
    const int64_t began = store_read_clock(CLOCK_MONOTONIC);
    int64_t until = began + (seen == s->stuck_ns ? 0 : PATIENCE_MS);
    long ns = FIRST_NS;
    while (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK) {
            return error_set(err, ERROR_STORE, "database %s: cannot lock %s.lock: %s", s->path,
                             s->path, strerror(errno));
        }
        now_seen = last_commit_ns(s);
        if (seen != now_seen) {
            seen = now_seen;
            until = store_read_clock(CLOCK_MONOTONIC) + PATIENCE_MS;
        }
        if (store_read_clock(CLOCK_MONOTONIC) >=
            (until < began + MOST_MS ? until : began + MOST_MS)) {
            s->stuck_ns = seen;
            return say_held(s, err);
        }
        nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
        ns = 2 * ns < LAST_NS ? 2 * ns : LAST_NS;
    }
    s->stuck_ns = 0;
    return 0;
}

int commit_lock(struct store *s, struct error *err)
{
    enum { TRIES = 8 };
    if (s->locks++) {
        return 0;
    }
    int r = s->lock_fd < 0 ? open_lock(s, err) : 0;
    for (int i = 0; r == 0; i++) {
        r = wait_for_lock(s, err);
        if (r || lock_is_named(s) || i == TRIES) {
            break;
        }
        /* opens the lock file that the name leads to now, which the other gemmds lock */
        r = open_lock(s, err);
    }
    if (r) {
        s->locks--;
        if (s->lock_fd >= 0) { /* the descriptor may be of a lock file that has lost its name */
            flock(s->lock_fd, LOCK_UN);
        }
        return r;
    }
    commit_read_text(s);
    if (s->noted.pid != (long)getpid()) {
        write_text(s);
    }
    return 0;
}

void commit_unlock(struct store *s)
{
    if (--s->locks == 0) {
        flock(s->lock_fd, LOCK_UN);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

bool commit_met_newer(struct store *s, struct error *err)
{
    int64_t version;
    if (db_int(&s->db, "PRAGMA user_version", &version, err) || version <= STORE_SCHEMA_VERSION) {
        return false;
    }
    error_set(err, ERROR_STORE,
              "database %s was migrated to schema %" PRId64
              " by a newer gemmd: nothing more is saved by this one (schema %d); "
              "restart it from the newer program",
              s->path, version, STORE_SCHEMA_VERSION);
    return true;
}

/* Reads the next row numbers again when another connection has committed. Fails when a newer gemmd
 * has migrated the file. */
static int hear_others(struct store *s, struct error *err)
{
    int64_t seen;
    int r = db_int(&s->db, "PRAGMA data_version", &seen, err);
    if (r || seen == s->seen) {
        return r;
    }
    if (commit_met_newer(s, err)) {
        return err->code;
    }
    for (enum table_id i = 0; r == 0 && i < TABLES; i++) {
        r = rows_number_on(s, i, err);
    }
    s->seen = r ? s->seen : seen;
    return r;
}

int write_begin(struct store *s, struct error *err)
{
    if (s->db.depth > 0) {
        return db_begin(&s->db, err);
    }
    int r = commit_lock(s, err);
    if (r) {
        return r;
    }
    r = store_in_place(s, err);
    r = r ? r : db_begin(&s->db, err);
    if (r == 0) {
        r = hear_others(s, err);
        r = r ? db_end(&s->db, r, err) : 0;
    }
    if (r) {
        commit_unlock(s);
    }
    return r;
}

/* Checkpoints a log of a thousand pages or more. SQLite's automatic checkpoints are off: they would
 * run without the lock. */
static void move_log(struct store *s)
{
    enum { PAGES = 1000 };
    if (s->log_pages >= PAGES) {
        sqlite3_wal_checkpoint_v2(s->db.h, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    }
}

int write_end(struct store *s, int status, struct error *err)
{
    int r = db_end(&s->db, status, err);
    if (s->db.depth == 0) {
        if (r >= 0) {
            int64_t given = s->next_id[TABLE_BEST] - 1;
            s->noted.given = given > s->noted.given ? given : s->noted.given;
            /* wakes the gemmds that watch the lock file: they can read the commit now */
            write_text(s);
            move_log(s);
        } else {
            /* the transaction's row numbers were undone: read the next numbers again */
            s->seen = -1;
        }
        commit_unlock(s);
    }
    return r;
}

static int note_pages(void *store, sqlite3 *h, const char *name, int pages)
{
    struct store *s = store;
    s->log_pages = pages;
    return SQLITE_OK;
}

void commit_attach(struct store *s)
{
    s->seen = -1;
    s->log_pages = 0;
    sqlite3_wal_hook(s->db.h, note_pages, s); /* instead of SQLite's automatic checkpoints */
    sqlite3_db_config(s->db.h, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

int commit_checkpoint(struct store *s, struct error *err)
{
    int r = commit_lock(s, err);
    if (r) {
        return r;
    }
    /* the checkpoint must not wait: other gemmds wait for the lock meanwhile */
    sqlite3_busy_timeout(s->db.h, 0);
    int rc = sqlite3_wal_checkpoint_v2(s->db.h, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    sqlite3_busy_timeout(s->db.h, s->patience_ms);
    /* A reader that blocks the checkpoint is no fault: the next checkpoint does the work. */
    r = rc == SQLITE_OK || (rc & 0xff) == SQLITE_BUSY ? 0 : db_fail(&s->db, rc, err);
    commit_unlock(s);
    return r;
}
