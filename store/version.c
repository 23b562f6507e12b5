/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Migrations, forward only. A step is SQL that raises `user_version`, run in a transaction: a crash
 * or a full disk leaves the old version whole. A release adds steps and never edits a step. A new
 * column needs no step for checksums: empty columns are left out of checksums (store/row.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/trust.h"
#include "store/db.h"
#include "store/store.h"

int version_judge(const char *path, int64_t id, int64_t version, bool empty, struct error *err)
{
    if (empty && version == 0) {
        return VERSION_EMPTY;
    }
    if (id != VERSION_APPLICATION_ID || version < 0) {
        return error_set(err, ERROR_STORE,
                         "database %s belongs to another program (application id %" PRId64
                         "): give another --database",
                         path, id);
    }
    if (version > STORE_SCHEMA_VERSION) {
        return error_set(err, ERROR_STORE,
                         "database %s was written by a newer gemmd (schema %" PRId64
                         ", this one knows %d): upgrade gemmd or use another --database",
                         path, version, STORE_SCHEMA_VERSION);
    }
    return version == STORE_SCHEMA_VERSION ? VERSION_CURRENT : VERSION_OLD;
}

int version_of(struct db *db, int64_t *version, struct error *err)
{
    int64_t id, objects;
    int r = db_int(db, "PRAGMA user_version", version, err);
    r = r ? r : db_int(db, "PRAGMA application_id", &id, err);
    r = r ? r : db_int(db, "SELECT count(*) FROM sqlite_schema", &objects, err);
    return r ? r : version_judge(db->path, id, *version, objects == 0, err);
}

int version_copy_to(struct db *db, const char *path, const struct stat *like, struct error *err)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof(dir), "%s", path);
    /* VACUUM opens the copy by its name, so nobody else may change its folder */
    if (trust_folder(dirname(dir), 0, 0, NULL, err) < 0) {
        return error_prefix(err, "backup to %s", path);
    }
    /* VACUUM INTO accepts an existing file if it is empty */
    int made = place_create_like(path, like);
    if (made && errno == EEXIST) {
        return error_set(err, ERROR_INVALID, "backup to %s: it exists; give a new path", path);
    }
    if (made) { /* SQLite's own message would name the database, not the copy */
        return error_set(err, ERROR_IO, "backup to %s: gemmd's user %d cannot write there: %s",
                         path, (int)geteuid(), strerror(errno));
    }
    int r = db_run(db, NULL, err, "VACUUM INTO ?1", "t", path);
    if (r == ERROR_DISK_FULL) { /* SQLite does not say which disk is full */
        error_set(err, r,
                  "no room there, or for SQLite's temporary files: free some space, or take "
                  "another path");
    }
    if (r == 0 && place_sync(path)) {
        r = error_set(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_IO,
                      "%s: %s", path, strerror(errno));
    }
    if (r) {
        unlink(path);
        error_prefix(err, "backup to %s", path);
    }
    return r;
}

static int back_up(struct db *db, int64_t version, struct error *err)
{
    char whole[PATH_MAX + 32], part[PATH_MAX + 64];
    struct stat file;
    if (stat(db->path, &file)) {
        return error_set(err, ERROR_IO, "backup of %s: %s", db->path, strerror(errno));
    }
    snprintf(whole, sizeof(whole), "%s.v%" PRId64 ".bak", db->path, version);
    snprintf(part, sizeof(part), "%s.part", whole);
    unlink(part);
    int r = version_copy_to(db, part, &file, err);
    if (r == 0 && rename(part, whole)) {
        r = error_set(err, ERROR_IO, "backup to %s: %s", whole, strerror(errno));
    }
    return r;
}

static int version_run_step(struct db *db, int64_t version, struct error *err)
{
    int r = db_begin(db, err);
    if (r == 0) {
        for (size_t i = 0; r == 0 && version_steps[version][i]; i++) {
            r = db_exec(db, version_steps[version][i], err);
        }
        r = db_end(db, r, err);
    }
    if (r < 0) {
        error_prefix(err, "migrating to version %" PRId64 " (nothing was changed)", version + 1);
    }
    return r;
}

static int version_run_steps(struct db *db, int64_t version, struct error *err)
{
    int r = 0;
    for (int64_t v = version; r == 0 && v < STORE_SCHEMA_VERSION; v++) {
        r = version_run_step(db, v, err);
    }
    return r;
}

int version_migrate(struct db *db, int64_t version, bool empty, struct error *err)
{
    if (!empty) {
        int r = back_up(db, version, err);
        return r ? r : version_run_steps(db, version, err);
    }
    /* A new file gets all steps in a single transaction: a half-made file would look like a file of
     * an old version. */
    int r = db_begin(db, err);
    return r ? r : db_end(db, version_run_steps(db, version, err), err);
}
