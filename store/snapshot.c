/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot copies the database to <path>.snapshot; a rebuild uses the snapshot (salvage.c).
 * Writers do not wait for the copy. The snapshot's file time is the start of the copy. When several
 * gemmds share the database, a fresh <path>.snapshot.part shows that another gemmd is copying.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/inner.h"

enum { PART_FRESH_S = 60 };

/* True for a file of the last `age_s` seconds. One of a clock that was ahead counts as old. */
static bool snapshot_is_fresh(const struct stat *made, time_t now, int64_t age_s)
{
    return made->st_mtime <= now && now - made->st_mtime < age_s;
}

/* True when the database was last written before the snapshot began. With equal times the write may
 * be newer, since a clock tick is long. */
static bool snapshot_is_current(const struct store *s, const struct stat *made)
{
    struct stat st;
    return place_time_ns(&s->file) < place_time_ns(made) &&
           (place_stat(s->path, "-wal", &st) || place_time_ns(&st) < place_time_ns(made));
}

int store_snapshot(struct store *s, int64_t age_s, struct error *err)
{
    char name[PATH_MAX + 16], part[PATH_MAX + 24];
    struct timespec begun[2], now; /* begun: no file written later has an earlier time */
    struct stat st;
    clock_gettime(CLOCK_REALTIME_COARSE, &begun[0]);
    clock_gettime(CLOCK_REALTIME, &now);
    begun[1] = begun[0];
    snprintf(name, sizeof(name), "%s.snapshot", s->path);
    snprintf(part, sizeof(part), "%s.part", name);
    if (!s->db.h || store_is_named(s) != 1 ||
        (stat(name, &st) == 0 && st.st_mtime <= now.tv_sec &&
         (snapshot_is_fresh(&st, now.tv_sec, age_s) || snapshot_is_current(s, &st))) ||
        (stat(part, &st) == 0 && snapshot_is_fresh(&st, now.tv_sec, PART_FRESH_S))) {
        return 0;
    }
    unlink(part);
    int r = version_copy_to(&s->db, part, &s->file, err);
    if (r == 0 &&
        (utimensat(AT_FDCWD, part, begun, 0) || rename(part, name) || place_sync_folder(name))) {
        r = error_set(err, ERROR_IO, "%s: %s", name, strerror(errno));
    }
    return r;
}
