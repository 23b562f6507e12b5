/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuild of a damaged file. The damaged file is set aside, never deleted. The new file gets its
 * readable rows with right checksums and keys, and the rows of the snapshot (snapshot.c) whose keys
 * were not changed since.
 *
 * The table `change` names the changed keys. The snapshot is used only when the damaged file still
 * has the snapshot's last change and each later change: else an evicted key or an old pin would
 * come back. When tables cannot be found, the file's header or schema may be damaged. Files of
 * gemmd have the same header and schema, so a second pass reads a copy of the file with both
 * replaced.
 *
 * When no best and no change of the damaged file can be read, all rows of the snapshot are used: an
 * old pin costs less than all answers. The snapshot also stays beside the damaged file, since later
 * snapshots lack rows that the rebuild has lost.
 *
 * The steps are ordered so that a crash between any two loses nothing:
 *   1. <path>.rebuild is filled (found at open: removed, the damaged file is still in place)
 *   2. renamed to <path>.rebuilt (found at open: steps 3 and 4 are done again)
 *   3. the snapshot is linked as <path>.corrupt-<time>.snapshot; -wal, -shm and the file are
 * renamed to <path>.corrupt-<time>...
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
#include <unistd.h>

#include "store/inner.h"

enum { NAME_MAX_ = PATH_MAX + 64 };

struct salvage {
    const char *path; /* borrowed: of the damaged file */
    struct store to;  /* the new file: a store with only the members that rows_put needs */
    struct db from;
    int64_t lost;     /* number of rows with a wrong checksum or key */
    int64_t outdated; /* number of bests left out since a newer row of their key is lost */
    bool holes;       /* some pages of the damaged file could not be read */
    bool unknown;     /* a table is missing in the file's schema */
    bool heard;       /* all rows of `change` were copied, so it is known which keys have changed */
    const char *snapped; /* for the notice: rows of the snapshot were copied; NULL: none were */
};

/* ---- file names ------------------------------------------------------------------------------ */

static void salvage_make_name(const char *path, const char *suffix, char out[NAME_MAX_])
{
    snprintf(out, NAME_MAX_, "%s%s", path, suffix);
}

/* Keeps the snapshot under the damaged file's new name. A link leaves the snapshot also in its
 * place, until the next snapshot. Some file systems have no links. */
static int salvage_keep_snapshot(const char *path, const char *aside, struct error *err)
{
    char from[NAME_MAX_], to[NAME_MAX_];
    salvage_make_name(path, ".snapshot", from);
    salvage_make_name(aside, ".snapshot", to);
    return link(from, to) && errno != ENOENT ? place_rename(from, to, "", err) : 0;
}

/* Takes steps 3 and 4. The WAL goes first: SQLite would apply a remaining WAL to the new file. */
static int salvage_swap_files(const char *path, char aside[PATH_MAX], struct error *err)
{
    char from[NAME_MAX_];
    place_name_aside(path, "corrupt", aside);
    int r = salvage_keep_snapshot(path, aside, err);
    r = r ? r : place_rename(path, aside, "-wal", err);
    r = r ? r : place_rename(path, aside, "-shm", err);
    r = r ? r : place_rename(path, aside, "", err);
    salvage_make_name(path, ".rebuilt", from);
    if (r == 0 && (rename(from, path) || place_sync_folder(path))) {
        r = place_fail_io("renaming", from, err);
    }
    return r;
}

int salvage_resume(const char *path, struct error *err)
{
    char name[NAME_MAX_], aside[PATH_MAX];
    place_unlink(path, ".rebuild");
    salvage_make_name(path, ".rebuilt", name);
    return access(name, F_OK) == 0 ? salvage_swap_files(path, aside, err) : 0;
}

int salvage_copy_aside(const char *path, const char *part, char aside[PATH_MAX])
{
    char from[NAME_MAX_], base[PATH_MAX];
    struct error ignored;
    salvage_make_name(path, part, from);
    place_name_aside(path, "corrupt", base);
    return snprintf(aside, PATH_MAX, "%s%s", base, part) < PATH_MAX
               ? place_copy_bytes(from, aside, &ignored)
               : -1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum copy_end { COPY_END = 0, COPY_BAD_PAGE = 1, COPY_NO_TABLE = 2 };

/* Decides about the result r of reading: COPY_END, or COPY_BAD_PAGE after a fault. Lack of memory
 * and locks are no damage: they end the rebuild. */
static int salvage_judge_fault(int r, const struct error *met, struct error *err)
{
    if (r == ERROR_NO_MEMORY || r == ERROR_BUSY) {
        return error_set(err, r, "%s", met->text);
    }
    return r < 0 ? COPY_BAD_PAGE : COPY_END;
}

/* Copies the statement's current row: 0, or a fault of the new file. */
static int salvage_copy_row(struct salvage *v, sqlite3_stmt *st, enum table_id table, void *object,
                            struct error *err)
{
    int r = row_read(&v->from, st, &tables[table], object, &v->to.scratch, err);
    if (r == ROW_BAD) {
        v->lost++;
        return 0;
    }
    r = r ? r : write_known_parent(&v->to, table, object, err);
    return r ? r : rows_put(&v->to, table, ROW_UPDATE, object, err);
}

/* Copies the table's rows with numbers above *after, and sets *after to the highest number read. */
static int salvage_copy_rows(struct salvage *v, enum table_id table, int64_t *after, void *object,
                             struct error *err)
{
    const struct table *t = &tables[table];
    struct error met = ERROR_NULL;
    char sql[2 * ROW_SQL_MAX];
    DB_STMT_AUTO *st = NULL;
    /* the statement fails when the table lacks a column, also in a file of an older version */
    row_select_sql(t, NULL, sql);
    size_t n = strlen(sql);
    snprintf(sql + n, sizeof(sql) - n, "WHERE %s > ?1 ORDER BY %s", t->rowid, t->rowid);
    int r = db_query(&v->from, &st, &met, sql, "i", *after);
    if (r) {
        r = salvage_judge_fault(r, &met, err);
        return r < 0 ? r : COPY_NO_TABLE;
    }
    while ((r = db_step(&v->from, st, &met)) == DB_ROW) {
        int64_t number = sqlite3_column_int64(st, (int)t->schema->n + 1);
        *after = number > *after ? number : *after; /* in a damaged B-tree numbers may fall again */
        r = salvage_copy_row(v, st, table, object, err);
        if (r) {
            return r;
        }
    }
    return salvage_judge_fault(r, &met, err);
}

/* Copies a table. At a bad page skips row numbers, more at each further try. So a bad page costs
 * its own rows, and at most a quarter as many readable rows behind it. */
static int salvage_copy_table(struct salvage *v, enum table_id table, struct error *err)
{
    int64_t after = 0, before = 0, skip = 0;
    void *object = malloc(tables[table].schema->size);
    int r = object ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory for a rebuild");
    while (r == 0 && after < INT64_MAX / 4) {
        r = salvage_copy_rows(v, table, &after, object, err);
        if (r != COPY_BAD_PAGE) {
            break;
        }
        v->holes = true;
        skip = after > before ? 1 : skip + skip / 4 + 1;
        before = after += skip;
        r = 0;
    }
    free(object);
    v->unknown |= r == COPY_NO_TABLE;
    return r < 0 ? r : 0;
}

/* Opens the damaged file. With writable_schema SQLite reads the tables with a valid description
 * although others are broken. */
static int salvage_open_source(struct db *db, const char *path, struct error *err)
{
    int r = db_open(db, path, SQLITE_OPEN_READWRITE, err);
    if (r == 0) {
        sqlite3_db_config(db->h, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        db_exec(db,
                "PRAGMA writable_schema=ON; PRAGMA cell_size_check=ON; PRAGMA query_only=ON;"
                "BEGIN",
                err);
    }
    return r;
}

static int salvage_copy_tables(struct salvage *v, const char *path, struct error *err)
{
    struct error met = ERROR_NULL;
    int r = db_begin(&v->to.db, err);
    if (r) {
        return r;
    }
    r = salvage_open_source(&v->from, path, &met);
    v->unknown |= r < 0;
    r = r ? salvage_judge_fault(r, &met, err) : 0;
    for (enum table_id i = 0; v->from.h && r == 0 && i < TABLES; i++) {
        r = salvage_copy_table(v, i, err);
    }
    db_close(&v->from);
    return db_end(&v->to.db, r, err);
}

/* ---- reads across files ---------------------------------------------------------------------- */

/* Runs a statement that reads the damaged file or the snapshot: 0, COPY_BAD_PAGE, fault. */
static int salvage_run(struct salvage *v, const char *sql, const char *types, const char *text,
                       struct error *err)
{
    struct error met = ERROR_NULL;
    return salvage_judge_fault(db_run(&v->to.db, NULL, &met, sql, types, text), &met, err);
}

/* Removes the bests of each key whose newest row is lost: a person may have made that row to
 * replace an older row, which must not serve again. The index of the damaged file, if readable,
 * tells each key's newest generation. A generation in the index above all that were given is
 * damage, and is ignored. */
static int salvage_drop_outdated(struct salvage *v, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    struct error met = ERROR_NULL;
    int64_t gone = 0;
    int r = db_query(&v->to.db, &st, &met,
                     "SELECT key, max(generation) FROM damaged.best INDEXED BY best_key GROUP BY"
                     " key HAVING max(generation) <= (SELECT coalesce(max(seq), 1 << 53) FROM given"
                     " WHERE name = 'best')",
                     "");
    while (r == 0 && (r = db_step(&v->to.db, st, &met)) == DB_ROW) {
        r = db_run(&v->to.db, &gone, err,
                   "DELETE FROM main.best WHERE key = ?1 AND NOT EXISTS"
                   " (SELECT 1 FROM main.best WHERE key = ?1 AND generation >= ?2)",
                   "ti", (const char *)sqlite3_column_text(st, 0), sqlite3_column_int64(st, 1));
        if (r) {
            return r;
        }
        v->outdated += gone;
    }
    return salvage_judge_fault(r, &met, err);
}

/* Copies the snapshot's rows of keys that were not changed since, if all changes since the snapshot
 * are known. */
static int salvage_use_snapshot(struct salvage *v, const char *path, struct error *err)
{
    static const char *const tables_of_keys[] = {"best WHERE key", "trial WHERE key",
                                                 "quarantine WHERE variant"};
    struct error met = ERROR_NULL;
    int64_t last = 0;
    int r = db_int(&v->to.db,
                   "SELECT s.seq FROM snapshot.change AS s JOIN main.change USING (seq, kind, name,"
                   " writer) WHERE s.seq = (SELECT max(seq) FROM snapshot.change)"
                   " AND (SELECT max(seq) - s.seq = count(*) - 1 AND max(seq) = (SELECT max(seq)"
                   " FROM given WHERE name = 'change') FROM main.change WHERE seq >= s.seq)",
                   &last, &met);
    r = salvage_judge_fault(r, &met, err);
    if (r || last == 0) {
        return r < 0 ? r : 0;
    }
    r = salvage_copy_tables(v, path, err);
    v->lost = 0; /* `lost` counts rows of the damaged file only */
    v->holes = v->unknown = false;
    for (size_t i = 0; r == 0 && i < 3; i++) {
        char sql[128];
        snprintf(sql, sizeof(sql),
                 "DELETE FROM main.%s IN (SELECT name FROM main.change WHERE seq"
                 " > ?1)",
                 tables_of_keys[i]);
        r = db_run(&v->to.db, NULL, err, sql, "i", last);
    }
    v->snapped = r == 0 ? ", there or in its snapshot" : NULL;
    return r;
}

/* True when the snapshot is there; `name` gets its name. */
static bool salvage_has_snapshot(const struct salvage *v, char name[NAME_MAX_])
{
    struct stat st;
    salvage_make_name(v->path, ".snapshot", name);
    return lstat(name, &st) == 0 && S_ISREG(st.st_mode);
}

/* Copies all rows of a file into the new file. They replace rows of the same number that were
 * copied before. */
static int salvage_copy_file(struct salvage *v, const char *path, struct error *err)
{
    char snapshot[NAME_MAX_];
    int r = salvage_run(v, "ATTACH ?1 AS damaged", "t", path, err);
    const bool attached = r == 0;
    if (attached) {
        r = salvage_run(v,
                        "INSERT INTO given SELECT name, seq FROM damaged.sqlite_sequence"
                        " WHERE seq BETWEEN 1 AND 1 << 53",
                        "", NULL, err);
    }
    if (attached && r >= 0 && !v->heard) {
        r = salvage_run(v, "INSERT INTO main.change SELECT * FROM damaged.change ORDER BY seq", "",
                        NULL, err);
        v->heard = r == 0;
    }
    if (attached && r >= 0) {
        r = salvage_run(v, "INSERT OR IGNORE INTO main.fleet_row SELECT * FROM damaged.fleet_row",
                        "", NULL, err);
    }
    if (v->heard && !v->snapped && salvage_has_snapshot(v, snapshot)) {
        r = salvage_run(v, "ATTACH ?1 AS snapshot", "t", snapshot, err);
        if (r == 0) {
            r = salvage_use_snapshot(v, snapshot, err);
            db_exec(&v->to.db, "DETACH snapshot", NULL);
        }
    }
    r = r < 0 ? r : salvage_copy_tables(v, path, err);
    if (attached) {
        r = r < 0 ? r : salvage_drop_outdated(v, err);
        db_exec(&v->to.db, "DETACH damaged", NULL);
    }
    return r < 0 ? r : 0;
}

static int salvage_count_rows(struct salvage *v, int64_t *n, struct error *err)
{
    return db_int(&v->to.db,
                  "SELECT (SELECT count(*) FROM device) + (SELECT count(*) FROM run) +"
                  " (SELECT count(*) FROM trial) + (SELECT count(*) FROM module) +"
                  " (SELECT count(*) FROM best) + (SELECT count(*) FROM quarantine) +"
                  " (SELECT count(*) FROM event) + (SELECT count(*) FROM served)",
                  n, err);
}

/* Reads a copy of the damaged file with the header and schema of a new file. */
static int salvage_copy_mended(struct salvage *v, struct error *err)
{
    char mended[NAME_MAX_];
    salvage_make_name(v->path, ".mended", mended);
    int r = mend_make(v->path, err);
    r = r ? r : salvage_copy_file(v, mended, err);
    mend_remove(v->path);
    return r;
}

/* ---- the new file ---------------------------------------------------------------------------- */

/* Makes the new, empty file. It is not synced after each write, but once at the end
 * (salvage_fill). */
static int salvage_make_new(struct salvage *v, const char *path, struct error *err)
{
    struct stat file;
    unlink(path);
    if (stat(v->path, &file) || place_create_like(path, &file)) {
        return place_fail_io("writing", path, err);
    }
    int r = db_open(&v->to.db, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    r = r ? r : version_migrate(&v->to.db, 0, true, err);
    if (r == 0) {
        sqlite3_db_config(v->to.db.h, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        r = db_exec(&v->to.db,
                    "PRAGMA synchronous=OFF; PRAGMA writable_schema=ON;"
                    "CREATE TEMP TABLE bad_row(tbl, row);"
                    "CREATE TEMP TABLE given(name, seq)",
                    err);
    }
    return r;
}

/* Lets the new file's row numbers go on above all numbers that the damaged files show. Generations
 * go on above a gap, since jobs pin generations, and lost rows may have had higher ones. When some
 * rows of `change` are unreadable, change numbers go on above a gap, too: then each gemmd of the
 * file finds changes missed, and reads all bests again. */
static int salvage_number_on(struct salvage *v, struct error *err)
{
    enum { CHANGE_GAP = 1 << 20 };
    int r = db_exec(&v->to.db,
                    "INSERT INTO given SELECT name, seq FROM main.sqlite_sequence"
                    " UNION ALL VALUES ('best', 0), ('change', 0);"
                    "DELETE FROM main.sqlite_sequence",
                    err);
    return r ? r
             : db_run(&v->to.db, NULL, err,
                      "INSERT INTO main.sqlite_sequence SELECT name, max(seq) + CASE name"
                      " WHEN 'best' THEN ?1 WHEN 'change' THEN ?2 ELSE 0 END FROM given"
                      " WHERE name IN (SELECT name FROM main.sqlite_schema) GROUP BY name",
                      "ii", (int64_t)STORE_GENERATION_GAP, (int64_t)(v->heard ? 0 : CHANGE_GAP));
}

/* Copies all rows of the snapshot, when the damaged file gave neither bests nor changes. */
static int salvage_copy_snapshot(struct salvage *v, struct error *err)
{
    char snapshot[NAME_MAX_];
    const int64_t lost = v->lost;
    int64_t known;
    int r = db_int(&v->to.db,
                   "SELECT EXISTS (SELECT 1 FROM main.best) OR EXISTS (SELECT 1 FROM main.change)",
                   &known, err);
    if (r || known || !salvage_has_snapshot(v, snapshot)) {
        return r;
    }
    v->snapped = ", or in its snapshot: evictions, pins and unpins since the snapshot are undone";
    r = salvage_copy_file(v, snapshot, err);
    v->heard = false; /* the changes since then are unknown */
    v->lost = lost;
    return r;
}

/* Forgets the numbers of the fleet's rows that are lost. The new file's table `fleet` is empty, so
 * gemmd-fleet reads all rows of the fleet again. */
static int salvage_forget_fleet(struct salvage *v, struct error *err)
{
    return db_exec(&v->to.db,
                   "DELETE FROM main.fleet_row WHERE state IN ('new', 'confirmed', 'own',"
                   " 'evidence') AND generation NOT IN (SELECT generation FROM main.best)",
                   err);
}

static int salvage_fill(struct salvage *v, const char *path, int64_t *rows, struct error *err)
{
    int r = salvage_make_new(v, path, err);
    r = r ? r : salvage_copy_file(v, v->path, err);
    r = r ? r : salvage_count_rows(v, rows, err);
    if (r == 0 && (v->unknown || *rows == 0)) {
        v->lost = 0; /* the second pass counts the lost rows again */
        r = salvage_copy_mended(v, err);
    }
    r = r ? r : salvage_copy_snapshot(v, err);
    r = r ? r : salvage_count_rows(v, rows, err);
    r = r ? r : salvage_forget_fleet(v, err);
    r = r ? r : salvage_number_on(v, err);
    row_scratch_deinit(&v->to.scratch);
    db_close(&v->to.db);
    return r || !place_sync(path) ? r : place_fail_io("writing", path, err);
}

int salvage_rebuild(struct store *s, const char *why, struct error *err)
{
    char building[NAME_MAX_], built[NAME_MAX_], aside[PATH_MAX];
    struct salvage v = {.path = s->path};
    int64_t rows = 0;
    char *reason = strdup(why);
    salvage_make_name(s->path, ".rebuild", building);
    salvage_make_name(s->path, ".rebuilt", built);
    int r = reason ? salvage_fill(&v, building, &rows, err)
                   : error_set(err, ERROR_NO_MEMORY, "no memory for a rebuild");
    if (r == 0 && rename(building, built)) {
        r = place_fail_io("renaming", building, err);
    }
    r = r ? r : salvage_swap_files(s->path, aside, err);
    if (r == 0) {
        store_notice(s, "corrupt_file",
                     "%s. It was set aside as %s; the new one has the %" PRId64
                     " rows that could be read%s (%" PRId64
                     " rows had wrong checksums or keys, %" PRId64
                     " were older than a lost one of their key%s)",
                     reason, strrchr(aside, '/') + 1, rows, v.snapped ? v.snapped : "", v.lost,
                     v.outdated, v.holes ? ", some pages were unreadable" : "");
    } else {
        unlink(building);
        error_prefix(err, "rebuilding damaged database %s", s->path);
    }
    free(reason);
    return r;
}
