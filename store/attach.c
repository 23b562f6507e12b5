/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening of a store's file: settings, version, tables.
 *
 * WAL: people can read while gemmd writes. synchronous=FULL: a row costs seconds of GPU time, a
 * sync a fraction of a millisecond. PERSIST_WAL: other users can open the file read-only after a
 * clean stop. mmap is off, and writes and checkpoints run under the commit lock (commit.c), because
 * of the WAL-reset bug of SQLite before 3.51.3.
 */
#include <inttypes.h>
#include <sys/stat.h>

#include "store/inner.h"

static const char settings[] = "PRAGMA synchronous=FULL;"
                               "PRAGMA foreign_keys=ON;"
                               "PRAGMA mmap_size=0;"
                               "PRAGMA journal_size_limit=4194304;"
                               /* a copied file's schema may not call unsafe SQL functions */
                               "PRAGMA trusted_schema=OFF;"
                               "PRAGMA cell_size_check=ON;" /* SQLite finds damage sooner */
                               "PRAGMA temp_store=MEMORY;"
                               "CREATE TEMP TABLE bad_row(tbl TEXT, row INTEGER,"
                               " PRIMARY KEY (tbl, row)) STRICT;";

static int attach_settings(struct store *s, struct error *err)
{
    bool writer = !(s->flags & STORE_READ_ONLY);
    if (writer && sqlite3_db_readonly(s->db.h, "main")) {
        return db_fail(&s->db, SQLITE_READONLY, err);
    }
    return db_exec(&s->db, settings, err);
}

/* Sets up the write-ahead log. This writes into the file, so the caller first checks that the file
 * is gemmd's. */
static int attach_journal(struct store *s, struct error *err)
{
    int on = 1;
    int64_t ignored;
    int r = db_int(&s->db, "PRAGMA journal_mode=WAL", &ignored, err);
    if (r == 0) {
        sqlite3_file_control(s->db.h, "main", SQLITE_FCNTL_PERSIST_WAL, &on);
    }
    return r;
}

static int attach_version(struct store *s, struct error *err)
{
    int64_t version;
    int state = version_of(&s->db, &version, err);
    bool writer = !(s->flags & STORE_READ_ONLY);
    int r = state >= 0 && writer ? attach_journal(s, err) : 0;
    if (r || state <= 0) {
        return r ? r : state;
    }
    if (!writer) {
        return error_set(err, ERROR_STORE,
                         "database %s has schema %" PRId64 ", this gemmd reads %d: start gemmd on "
                         "it once, so that it is migrated",
                         s->path, version, STORE_SCHEMA_VERSION);
    }
    r = version_migrate(&s->db, version, state == VERSION_EMPTY, err);
    if (r == 0 && state == VERSION_OLD) {
        store_notice(s, "migrated",
                     "database %s was migrated from schema %" PRId64 " to %d; the old one is kept "
                     "in %s.v%" PRId64 ".bak",
                     s->path, version, STORE_SCHEMA_VERSION, s->path, version);
    }
    return r;
}

/* Checks that each table has the columns of this program, and a readable first page. */
static int attach_tables(struct store *s, struct error *err)
{
    int r = 0;
    for (enum table_id i = 0; r == 0 && i < TABLES; i++) {
        char sql[ROW_SQL_MAX];
        DB_STMT_AUTO *st = NULL;
        row_select_sql(&tables[i], NULL, sql);
        r = db_query(&s->db, &st, err, sql, "");
        if (r == ERROR_STORE && sqlite3_errcode(s->db.h) == SQLITE_ERROR) {
            /* a file of any schema version has these columns, so the text of the schema is
             * damaged */
            s->db.damaged = true;
        }
        r = r ? r : db_step(&s->db, st, err);
        r = r < 0 ? r : 0;
    }
    return r;
}

/* Notes which database file and which log are open. Call after tables were read: then SQLite has
 * made the log. */
static void remember_files(struct store *s)
{
    struct stat st;
    if (stat(s->path, &st) == 0) {
        s->file = st;
    }
    s->log = place_stat(s->path, "-wal", &st) == 0 ? st : (struct stat){0};
}

int store_attach(struct store *s, struct error *err)
{
    int flags = s->flags & STORE_READ_ONLY ? SQLITE_OPEN_READONLY
                                           : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    int r = db_open(&s->db, s->path, flags, err);
    if (r == 0) {
        commit_attach(s);
    }
    r = r ? r : change_attach(s, err);
    r = r ? r : attach_settings(s, err);
    r = r ? r : attach_version(s, err);
    r = r ? r : attach_tables(s, err);
    if (r == 0) {
        remember_files(s);
        s->opened++;
        sqlite3_busy_timeout(s->db.h, s->patience_ms);
        if (s->locks) {
            commit_note_file(s);
        }
    }
    return r;
}

int store_attach_again(struct store *s, struct error *err)
{
    store_detach(s);
    int r = store_attach(s, err);
    if (r < 0) { /* closes a half-open store, which later calls would take for open */
        store_detach(s);
    }
    return r;
}

void store_detach(struct store *s)
{
    row_scratch_deinit(&s->scratch);
    s->portfolio.made = false;
    s->stats_at = -1;
    db_close(&s->db);
}
