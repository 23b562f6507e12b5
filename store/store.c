/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a store: find the place, take the lock, open the file (attach.c), and rebuild a
 * damaged file. Reading and writing: write.c, read.c, list.c.
 */
#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/inner.h"

/* ---- foreign files --------------------------------------------------------------------------- */

/* Offsets of SQLite's file format (sqlite.org/fileformat2.html). The root page of sqlite_schema
 * follows the header. */
enum { VERSION_AT = 60, ID_AT = 68, ROOT_AT = 100, ROOT_ROWS_AT = 103, HEAD = 108, LEAF = 13 };

static size_t store_read_head(const char *path, unsigned char head[HEAD])
{
    memset(head, 0, HEAD);
    return place_read(path, head, HEAD);
}

static bool is_database(const unsigned char head[HEAD])
{
    return memcmp(head, "SQLite format 3", 16) == 0;
}

static int32_t store_get_number(const unsigned char *head, size_t at)
{
    uint32_t n;
    memcpy(&n, head + at, sizeof(n));
    return (int32_t)be32toh(n);
}

/* True when a file that SQLite cannot read is not gemmd's: for example a text, named by mistake. A
 * file that looks like a database, or has gemmd's files beside it (the log stays there:
 * SQLITE_FCNTL_PERSIST_WAL; the snapshot also when a person removes the log), is gemmd's and
 * damaged. */
static bool is_foreign(const char *path)
{
    unsigned char head[HEAD];
    struct stat st;
    return place_stat(path, "-wal", &st) && place_stat(path, "-shm", &st) &&
           place_stat(path, ".snapshot", &st) && store_read_head(path, head) > 0 &&
           !is_database(head) && store_get_number(head, ID_AT) != VERSION_APPLICATION_ID;
}

static int refuse_foreign(const char *path, struct error *err)
{
    return error_set(err, ERROR_STORE,
                     "database %s is no database, and nothing says that it was one of gemmd's: "
                     "give another --database, or move this file away",
                     path);
}

/* Refuses a foreign file before gemmd makes a file beside it. Skipped where gemmd's files lie
 * beside the file: this process may have the file open, and closing a second descriptor ends
 * SQLite's locks. */
static int refuse_early(const char *path, struct error *err)
{
    static const char *const of_ours[] = {".lock", ".rebuilt", "-wal", "-journal"};
    unsigned char head[HEAD];
    struct stat st;
    for (size_t i = 0; i < sizeof(of_ours) / sizeof(of_ours[0]); i++) {
        if (place_stat(path, of_ours[i], &st) == 0) {
            return 0;
        }
    }
    if (is_foreign(path)) {
        return refuse_foreign(path, err);
    }
    if (store_read_head(path, head) < HEAD || !is_database(head)) {
        return 0;
    }
    const bool empty = head[ROOT_AT] == LEAF && !head[ROOT_ROWS_AT] && !head[ROOT_ROWS_AT + 1];
    int r = version_judge(path, store_get_number(head, ID_AT), store_get_number(head, VERSION_AT),
                          empty, err);
    return r < 0 ? r : 0;
}

/* ---- open ------------------------------------------------------------------------------------ */

static int store_rebuild_file(struct store *s, struct error *err)
{
    struct error why = *err;
    int r = commit_lock(s, err);
    if (r) {
        return r;
    }
    if (s->db.h && commit_met_newer(s, err)) {
        s->db.damaged = false; /* its schema is not this gemmd's, and that may be all */
        r = err->code;
    } else if (s->file.st_ino && store_is_named(s) < 0 && commit_is_noted(s)) {
        r = store_attach_again(s, err); /* another gemmd has rebuilt the file */
    } else {
        store_detach(s);
        log_look_at_nothing(s); /* SQLite would wait for this process's readers to make it new */
        r = salvage_rebuild(s, why.text, err);
        r = r ? r : store_attach_again(s, err);
    }
    commit_unlock(s);
    return r;
}

int store_refresh(struct store *s, struct error *err)
{
    return s->db.h && store_is_named(s) == 1 ? 0 : store_attach_again(s, err);
}

int store_repair(struct store *s, struct error *err)
{
    if (s->flags & STORE_READ_ONLY) { /* the writing store repairs the file */
        return store_attach_again(s, err);
    }
    error_set(err, ERROR_STORE, "damaged pages were met");
    return store_rebuild_file(s, err);
}

bool store_damaged(const struct store *s)
{
    return s->db.damaged || !s->db.h;
}

static int take_place(struct store *s, const char *path, struct error *err)
{
    int r = place_resolve(path, &s->path, err);
    if (r == 0 && !(s->flags & STORE_FORCE_NETWORK_FS)) {
        r = place_refuse_network(s->path, err);
    }
    if (r == 0 && !(s->flags & STORE_READ_ONLY)) {
        r = refuse_early(s->path, err);
        r = r ? r : commit_lock(s, err);
        r = r ? r : salvage_resume(s->path, err);
        if (r == 0) {
            log_look(s);
            place_create(s->path);
        }
    }
    return r;
}

static void read_boot_id(char *out, size_t size)
{
    out[place_read("/proc/sys/kernel/random/boot_id", out, size - 1)] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

int store_open(const struct store_options *o, struct store **out, struct error *err)
{
    struct error local = ERROR_NULL;
    err = err ? err : &local; /* the notice of a rebuild quotes err */
    struct store *s = calloc(1, sizeof(*s));
    if (!s) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to open database %s", o->path);
    }
    s->flags = o->flags;
    s->lock_fd = -1;
    s->stats_at = -1;
    s->patience_ms = DB_PATIENCE_MS;
    s->trials_per_key_max =
        o->trials_per_key_max > 0 ? o->trials_per_key_max : STORE_TRIALS_PER_KEY;
    s->notice = o->notice;
    s->ctx = o->ctx;
    if (o->owner) {
        snprintf(s->owner, sizeof(s->owner), "%s", o->owner);
    } else {
        store_owner(s->owner);
    }
    read_boot_id(s->boot, sizeof(s->boot));
    int r = take_place(s, o->path, err);
    r = r ? r : store_attach(s, err);
    if (r == ERROR_BUSY && s->db.h) {
        /* another program has locked the database, since this gemmd has the commit lock */
        r = err->code = ERROR_STORE;
    }
    /* gemmd has opened a file that the lock file names */
    if (r == ERROR_STORE && s->db.damaged && is_foreign(s->path) && !commit_is_noted(s)) {
        r = refuse_foreign(s->path, err);
    } else if (r == ERROR_STORE && s->db.damaged && !(s->flags & STORE_READ_ONLY)) {
        r = store_rebuild_file(s, err);
    }
    if (r == 0 && !(s->flags & STORE_READ_ONLY)) {
        /* only now, when the file is known to be a database: other files keep their mode */
        place_close_to_others(s->path);
    }
    if (s->locks) {
        commit_unlock(s);
    }
    if (r) {
        store_close(s);
        return r;
    }
    *out = s;
    return 0;
}

unsigned store_opened(const struct store *s)
{
    return s->opened;
}

void store_set_patience(struct store *s, int ms)
{
    s->patience_ms = ms;
    if (s->db.h) {
        sqlite3_busy_timeout(s->db.h, ms);
    }
}

struct store *store_close(struct store *s)
{
    if (!s) {
        return NULL;
    }
    struct error ignored;
    if (s->db.h && !(s->flags & STORE_READ_ONLY) && s->file.st_ino &&
        commit_lock(s, &ignored) == 0) {
        store_in_place(s, &ignored);
        if (s->db.h) {
            commit_checkpoint(s, &ignored);
        }
        commit_unlock(s);
    }
    store_detach(s);
    owners_forget(s);
    place_close(&s->lock_fd);
    free(s->path);
    free(s);
    return NULL;
}

/* ---- groups, copies ------------------------------------------------------------------ */

int store_begin(struct store *s, struct error *err)
{
    assert(s->db.depth == 0);
    return write_begin(s, err);
}

int store_commit(struct store *s, struct error *err)
{
    /* Checks again that the file has its name: carrying out the group took a while, and the rows of
     * the group would be lost with a file that was removed meanwhile. */
    return write_end(s, store_in_place(s, err), err);
}

void store_rollback(struct store *s)
{
    struct error ignored;
    write_end(s, ERROR_CANCELLED, &ignored);
}

void store_interrupt(struct store *s)
{
    if (s->db.h) {
        sqlite3_interrupt(s->db.h);
    }
}

int store_backup(struct store *s, const char *path, struct error *err)
{
    store_is_named(s); /* reads owner and mode of the file again */
    return version_copy_to(&s->db, path, &s->file, err);
}

int store_probe(struct store *s, struct error *err)
{
    char sql[64];
    snprintf(sql, sizeof(sql), "PRAGMA user_version = %d", STORE_SCHEMA_VERSION);
    int r = store_begin(s, err);
    return r ? r : write_end(s, db_exec(&s->db, sql, err), err);
}

static int64_t store_get_size(const char *path, const char *suffix)
{
    struct stat st;
    return place_stat(path, suffix, &st) == 0 ? st.st_size : 0;
}

int store_tidy(struct store *s, struct error *err)
{
    enum { WAL_KEPT = 1 << 20 };
    if (!s->db.h || store_get_size(s->path, "-wal") <= WAL_KEPT) {
        return 0;
    }
    return commit_checkpoint(s, err);
}

static int count_rows(struct store *s, struct store_stats *out, struct error *err)
{
    int r = db_int(&s->db, "SELECT count(DISTINCT key) FROM best", &out->bests, err);
    r = r ? r : db_int(&s->db, "SELECT count(*) FROM trial", &out->trials, err);
    r = r ? r : db_int(&s->db, "SELECT count(*) FROM module", &out->modules, err);
    return r ? r
             : db_int(&s->db, "SELECT count(*) FROM quarantine WHERE deaths > 0", &out->quarantined,
                      err);
}

int store_stats(struct store *s, struct store_stats *out, struct error *err)
{
    int64_t others = 0, now = s->db.h ? sqlite3_total_changes64(s->db.h) : 0;
    int r = db_int(&s->db, "PRAGMA data_version", &others, err);
    if (r == 0 && (s->stats_at != now || s->stats_others != others)) {
        r = count_rows(s, &s->stats, err);
        s->stats_at = r ? -1 : now;
        s->stats_others = others;
    }
    r = r ? r : store_generation(s, &s->stats.generation, err);
    r = r ? r : store_daemons(s, &s->stats.daemons, err);
    if (r) {
        return r;
    }
    s->stats.file_bytes = store_get_size(s->path, "");
    s->stats.wal_bytes = store_get_size(s->path, "-wal");
    *out = s->stats;
    return 0;
}
