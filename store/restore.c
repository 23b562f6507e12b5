/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database that was removed while open (by a cleaner of temporary files, or a hasty rm) still
 * exists without a name, for as long as gemmd has the file open. SQLite alone would go on writing
 * into that file, which nobody can open again. So gemmd copies the file to a new file, which gets
 * the name.
 *
 * gemmd does the same when only the log was removed: the latest rows are only in the log. The copy
 * replaces the file: completing the old file from the log would lose rows if gemmd were killed half
 * way.
 *
 * A file that a person put in place is left alone: only people know which file they want. To begin
 * anew, stop gemmd first. A file that another gemmd put in place, or opened, is the database from
 * then on.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/inner.h"

int store_is_named(struct store *s)
{
    struct stat st;
    if (stat(s->path, &st)) {
        return errno == ENOENT ? 0 : -1;
    }
    if (st.st_dev != s->file.st_dev || st.st_ino != s->file.st_ino) {
        return -1;
    }
    s->file = st; /* a person may have changed owner and mode */
    return 1;
}

/* True when the open log is still the log that other processes would open. */
static bool has_log(const struct store *s)
{
    struct stat st = {0};
    if (s->log.st_ino == 0 || (place_stat(s->path, "-wal", &st) && errno != ENOENT)) {
        return true;
    }
    return st.st_dev == s->log.st_dev && st.st_ino == s->log.st_ino;
}

/* Gives the copy its name. When no file has the name, uses link(2), which fails if a file has got
 * the name meanwhile: that file stays. */
static int give_name(const char *copy, const char *path, bool named)
{
    int r = named ? rename(copy, path) : link(copy, path);
    return r ? r : place_sync_folder(path);
}

/* Copies the open database to a new file in its place. Removes -wal and -shm only after the copy is
 * complete: until then the old file needs them. */
static int copy_to_its_place(struct store *s, bool named, struct error *err)
{
    char copy[PATH_MAX + 16];
    snprintf(copy, sizeof(copy), "%s.restored", s->path);
    unlink(copy);
    int r = version_copy_to(&s->db, copy, &s->file, err);
    if (r == 0) { /* SQLite would apply the log of the file without a name to the new file */
        place_unlink(s->path, "-wal");
        place_unlink(s->path, "-shm");
    }
    if (r == 0 && give_name(copy, s->path, named)) {
        r = error_set(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_STORE,
                      "%s: %s", s->path, strerror(errno));
    }
    unlink(copy);
    return r;
}

static int restore_put_back(struct store *s, bool named, struct error *err)
{
    const char *what = named ? "the log (-wal) of " : "";
    int r = copy_to_its_place(s, named, err);
    r = r ? r : store_attach_again(s, err);
    if (r == 0) {
        store_notice(s, "restored",
                     "%sdatabase %s was removed while it was open, and was put back: all of it is "
                     "in a new file of that name. To begin anew, stop gemmd before removing it",
                     what, s->path);
    }
    return r < 0 ? error_prefix(err,
                                "%sdatabase %s was removed while it was open, and cannot be put "
                                "back",
                                what, s->path)
                 : r;
}

int store_in_place(struct store *s, struct error *err)
{
    if (s->flags & STORE_READ_ONLY || !s->db.h) {
        return 0;
    }
    int named = store_is_named(s);
    if (named == 1 && has_log(s)) {
        return 0;
    }
    if (named >= 0 && s->db.depth == 0) {
        return restore_put_back(s, named == 1, err);
    }
    if (named < 0 && s->db.depth == 0 && commit_is_noted(s)) {
        /* another gemmd has put the file there, or has opened it */
        int r = store_attach_again(s, err);
        if (r == 0) {
            store_notice(s, "replaced",
                         "database %s is another file now, which another gemmd uses: this gemmd "
                         "goes on with its rows, and forgets those that it lacks",
                         s->path);
        }
        return r;
    }
    return error_set(err, ERROR_STORE,
                     "database %s, or its log, was removed or replaced while it was open: nothing "
                     "more is saved into it; %s",
                     s->path,
                     named >= 0
                         ? "it is put back with the next write"
                         : "to use the file that is there now, restart gemmd; else move it away, "
                           "and gemmd puts its own back");
}
