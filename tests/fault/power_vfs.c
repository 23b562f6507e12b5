/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See power_vfs.h. Each file has two records: the real file, which stands for the page cache and
 * which SQLite reads back, and `synced`, which the platter holds for certain.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "tests/fault/power_vfs.h"

enum { SECTOR = 512, FILES_MAX = 64, PATH_MOST = 512 };

struct change { /* a change of a file since its last sync; a list in the order of the changes */
    struct change *next;
    int64_t at; /* offset of a write; -1: a truncation to n bytes */
    int64_t n;
    uint8_t data[];
};

struct content {
    uint8_t *bytes; /* owned */
    int64_t n, room;
};

struct followed {
    char path[PATH_MOST];
    struct content synced;
    struct change *first, **last;
    bool made, removed; /* since the folder was synced */
    bool syncs_folder;  /* a sync also syncs the folder, as in SQLite's own VFS for new journals,
                           logs */
};

struct power_file {
    sqlite3_file base;
    struct followed *f;  /* NULL: not followed */
    sqlite3_file real[]; /* sqlite3_vfs.szOsFile bytes of the real VFS */
};

static sqlite3_vfs *real_vfs;
static sqlite3_vfs our_vfs;
static bool following, off;
static long left, dropped;
static uint64_t state;
static struct followed files[FILES_MAX];
static int n_files;

static void die(const char *why)
{
    fprintf(stderr, "power_vfs: %s\n", why);
    abort();
}

uint64_t power_random(void)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t power_below(uint64_t n)
{
    return power_random() % n;
}

/* ---- contents -------------------------------------------------------------------------------- */

static void content_size(struct content *c, int64_t n)
{
    if (n > c->room) {
        c->room = n + n / 2 + 4096;
        c->bytes = realloc(c->bytes, (size_t)c->room);
        if (!c->bytes) {
            die("no memory");
        }
    }
    if (n > c->n) {
        memset(c->bytes + c->n, 0, (size_t)(n - c->n));
    }
    c->n = n;
}

static void content_put(struct content *c, int64_t at, const uint8_t *data, int64_t n)
{
    if (n > 0) {
        content_size(c, at + n > c->n ? at + n : c->n);
        memcpy(c->bytes + at, data, (size_t)n);
    }
}

static void content_apply(struct content *c, const struct change *x)
{
    if (x->at < 0) {
        content_size(c, x->n);
    } else {
        content_put(c, x->at, x->data, x->n);
    }
}

/* Each sector of a write reaches the disk or not, independently. */
static void content_apply_some(struct content *c, const struct change *x)
{
    if (x->at < 0) {
        if (power_below(2)) {
            content_size(c, x->n);
        }
        return;
    }
    for (int64_t at = x->at, end = x->at + x->n; at < end;) {
        int64_t stop = (at / SECTOR + 1) * SECTOR;
        stop = stop < end ? stop : end;
        if (power_below(2)) {
            content_put(c, at, x->data + (at - x->at), stop - at);
        }
        at = stop;
    }
}

static void content_load(struct content *c, const char *path)
{
    FILE *f = fopen(path, "rb");
    c->n = 0;
    if (f) {
        fseek(f, 0, SEEK_END);
        content_size(c, ftell(f));
        rewind(f);
        if (c->n && fread(c->bytes, 1, (size_t)c->n, f) != (size_t)c->n) {
            die("cannot read a file of the test");
        }
        fclose(f);
    }
}

static void content_save(const struct content *c, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f || (c->n && fwrite(c->bytes, 1, (size_t)c->n, f) != (size_t)c->n) || fclose(f)) {
        die("cannot write a file of the test");
    }
}

/* ---- recorded files -------------------------------------------------------------------------- */

static struct followed *follow(const char *path)
{
    for (int i = 0; i < n_files; i++) {
        if (strcmp(files[i].path, path) == 0) {
            return &files[i];
        }
    }
    if (n_files == FILES_MAX) {
        die("too many files");
    }
    struct followed *f = &files[n_files++];
    memset(f, 0, sizeof(*f));
    snprintf(f->path, sizeof(f->path), "%s", path);
    f->last = &f->first;
    f->made = access(path, F_OK) != 0;
    content_load(&f->synced, path);
    return f;
}

static void forget_changes(struct followed *f)
{
    for (struct change *x = f->first, *next; x; x = next) {
        next = x->next;
        free(x);
    }
    f->first = NULL;
    f->last = &f->first;
}

static void note_change(struct followed *f, int64_t at, const void *data, int64_t n)
{
    size_t held = at < 0 ? 0 : (size_t)n;
    struct change *x = malloc(sizeof(*x) + held);
    if (!x) {
        die("no memory");
    }
    *x = (struct change){.at = at, .n = n};
    if (held) {
        memcpy(x->data, data, held);
    }
    *f->last = x;
    f->last = &x->next;
}

static void sync_folder(void)
{
    for (int i = 0; i < n_files; i++) {
        if (files[i].removed) {
            files[i].synced.n = 0;
        }
        files[i].made = files[i].removed = false;
    }
}

static void sync_content(struct followed *f)
{
    for (const struct change *x = f->first; x; x = x->next) {
        content_apply(&f->synced, x);
    }
    forget_changes(f);
    if (f->syncs_folder) {
        f->syncs_folder = false;
        sync_folder();
    }
}

/* True: the power is off, or fails now. */
static bool fails(void)
{
    if (following && !off && left-- <= 0) {
        off = true;
    }
    return off;
}

/* ---- laying down ----------------------------------------------------------------------------- */

static void lay_changes(struct followed *f)
{
    enum { NOTHING, ALL, FIRST_ONES, ANY_SECTORS, WAYS };
    int way = (int)power_below(WAYS);
    uint64_t n = 0;
    for (const struct change *x = f->first; x; x = x->next) {
        n++;
    }
    uint64_t whole = way == ALL ? n : way == FIRST_ONES ? power_below(n + 1) : 0, i = 0;
    for (const struct change *x = f->first; x; x = x->next, i++) {
        if (i < whole) {
            content_apply(&f->synced, x);
        } else if (way == ANY_SECTORS || (way == FIRST_ONES && i == whole)) {
            content_apply_some(&f->synced, x);
            dropped++;
        } else {
            dropped++;
        }
    }
}

static void lay_down(struct followed *f)
{
    bool there = access(f->path, F_OK) == 0;
    lay_changes(f);
    if (f->made ||
        f->removed) { /* the disk may hold the folder's entry from before or after the change */
        there = power_below(2);
    }
    if (there) {
        content_save(&f->synced, f->path);
    } else {
        unlink(f->path);
    }
}

void power_cut(void)
{
    char shm[PATH_MOST + 8];
    dropped = 0;
    for (int i = 0; i < n_files; i++) {
        lay_down(&files[i]);
        snprintf(shm, sizeof(shm), "%s-shm", files[i].path);
        unlink(shm);
        forget_changes(&files[i]);
        free(files[i].synced.bytes);
    }
    n_files = 0;
    following = off = false;
}

void power_on(uint64_t seed, long operations)
{
    state = seed;
    left = operations;
    following = true;
    off = false;
}

bool power_is_off(void)
{
    return off;
}

long power_dropped(void)
{
    return dropped;
}

/* ---- the methods of a file ------------------------------------------------------------------- */

static struct power_file *of(sqlite3_file *f)
{
    return (struct power_file *)f;
}

#define REAL(f) (of(f)->real)

static int file_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    if (of(f)->f && fails()) {
        return SQLITE_IOERR_WRITE;
    }
    if (of(f)->f) {
        note_change(of(f)->f, at, p, n);
    }
    return REAL(f)->pMethods->xWrite(REAL(f), p, n, at);
}

static int file_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    if (of(f)->f && fails()) {
        return SQLITE_IOERR_TRUNCATE;
    }
    if (of(f)->f) {
        note_change(of(f)->f, -1, NULL, n);
    }
    return REAL(f)->pMethods->xTruncate(REAL(f), n);
}

static int file_sync(sqlite3_file *f, int flags)
{
    (void)flags; /* the real file is not synced: only the simulated disk loses its power */
    if (of(f)->f && fails()) {
        return SQLITE_IOERR_FSYNC;
    }
    if (of(f)->f) {
        sync_content(of(f)->f);
    }
    return SQLITE_OK;
}

static int file_close(sqlite3_file *f)
{
    return REAL(f)->pMethods->xClose(REAL(f));
}

static int file_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    return REAL(f)->pMethods->xRead(REAL(f), p, n, at);
}

static int file_size(sqlite3_file *f, sqlite3_int64 *n)
{
    return REAL(f)->pMethods->xFileSize(REAL(f), n);
}

static int file_lock(sqlite3_file *f, int level)
{
    return REAL(f)->pMethods->xLock(REAL(f), level);
}

static int file_unlock(sqlite3_file *f, int level)
{
    return REAL(f)->pMethods->xUnlock(REAL(f), level);
}

static int file_reserved(sqlite3_file *f, int *out)
{
    return REAL(f)->pMethods->xCheckReservedLock(REAL(f), out);
}

static int file_control(sqlite3_file *f, int op, void *arg)
{
    /* Ignores the size hint: the real VFS would resize the file, and our list of changes lacks
     * that. */
    return op == SQLITE_FCNTL_SIZE_HINT ? SQLITE_OK
                                        : REAL(f)->pMethods->xFileControl(REAL(f), op, arg);
}

static int file_sector(sqlite3_file *f)
{
    return REAL(f)->pMethods->xSectorSize(REAL(f));
}

static int file_characteristics(sqlite3_file *f)
{
    return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f));
}

static int shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
    return REAL(f)->pMethods->xShmMap(REAL(f), page, size, extend, out);
}

static int shm_lock(sqlite3_file *f, int at, int n, int flags)
{
    return REAL(f)->pMethods->xShmLock(REAL(f), at, n, flags);
}

static void shm_barrier(sqlite3_file *f)
{
    REAL(f)->pMethods->xShmBarrier(REAL(f));
}

static int shm_unmap(sqlite3_file *f, int remove)
{
    return REAL(f)->pMethods->xShmUnmap(REAL(f), remove);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2, /* no xFetch: no memory maps */
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_reserved,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_characteristics,
    .xShmMap = shm_map,
    .xShmLock = shm_lock,
    .xShmBarrier = shm_barrier,
    .xShmUnmap = shm_unmap,
};

/* ---- the methods of the VFS ------------------------------------------------------------------ */

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    enum { KEPT = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL };
    (void)vfs;
    struct power_file *p = of(file);
    p->base.pMethods = NULL;
    p->f = following && name && flags & KEPT ? follow(name) : NULL;
    bool fresh = p->f && access(name, F_OK) != 0;
    if (fresh && fails()) {
        return SQLITE_CANTOPEN; /* without power no file is created */
    }
    if (fresh) {
        p->f->synced.n = 0;
        p->f->made = true;
        p->f->syncs_folder = !(flags & SQLITE_OPEN_MAIN_DB);
    }
    int rc = real_vfs->xOpen(real_vfs, name, p->real, flags, out);
    if (p->real->pMethods) {
        p->base.pMethods = &methods;
    }
    return rc;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync_dir)
{
    (void)vfs;
    struct followed *f = following ? follow(name) : NULL;
    if (f && fails()) {
        return SQLITE_IOERR_DELETE;
    }
    if (f) {
        forget_changes(f);
        f->removed = true;
        if (sync_dir) {
            sync_folder();
        }
    }
    return real_vfs->xDelete(real_vfs, name, 0);
}

void power_install(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    our_vfs = *real_vfs;
    our_vfs.zName = "power";
    our_vfs.szOsFile = (int)sizeof(struct power_file) + real_vfs->szOsFile;
    our_vfs.xOpen = vfs_open;
    our_vfs.xDelete = vfs_delete;
    sqlite3_vfs_register(&our_vfs, 1);
}
