/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The size limit of the module cache. Trimming removes the least recently used images and refusals
 * first, but never an image that some database serves. Each database that uses the directory lists
 * the images of its bests in <cache>/serving/<hash of its file>. So the daemon of one GPU does not
 * remove images that another GPU's daemon hands out.
 *
 * A list is removed when its database is missing and the list was not written for a month. A
 * database of another container is invisible here, or another file may have its path. Its daemon
 * rewrites its list at every check of the cache.
 *
 * Two trims at the same time may remove slightly too much, but no protected image.
 */
#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/modules_inner.h"
#include "proto/hash.h"

enum { BLOCK = 4096, GONE_S = 30 * 24 * 3600, SKEW_S = 24 * 3600 /* error of a host's clock */ };

struct file {
    struct timespec used;
    int64_t bytes;
    bool image; /* true: an image; false: the record of a refusal */
    char name[64];
};

struct files {
    struct file *at; /* owned; NULL: files are only counted, not listed */
    size_t n, room;
    bool keep, failed;
    time_t now;
    struct modules_usage *usage;
};

/* ---- counting ------------------------------------------------------------------------------- */

static void add_file(struct files *f, const struct file *file)
{
    if (f->n == f->room) {
        size_t room = f->room ? f->room * 2 : 1024;
        struct file *more = realloc(f->at, room * sizeof(*more));
        if (!more) {
            f->failed = true;
            return;
        }
        f->at = more;
        f->room = room;
    }
    f->at[f->n++] = *file;
}

static bool has_link(const char *cache_dir, const char *variant)
{
    char path[PATH_MAX];
    struct stat st;
    return modules_path(path, NULL, "%s/variants/%s", cache_dir, variant) == 0 &&
           lstat(path, &st) == 0;
}

/* The record of an image is not counted as a separate file: it goes with its image. */
static void files_look_at(struct files *f, const char *cache_dir, bool image, int folder,
                          const char *name)
{
    struct stat st;
    struct file file = {.image = image};
    size_t n = strcspn(name, ".");
    if (!modules_is_id(name, n) || strlen(name) >= sizeof(file.name) || (!image && name[n]) ||
        fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode)) {
        return;
    }
    bool refusal = !image && !has_link(cache_dir, name);
    /* A time in the future (a copied file, a wrong clock) counts as oldest. Otherwise the file
     * would stay until that time and push out files in use. */
    file.used = st.st_mtim.tv_sec > f->now + SKEW_S ? (struct timespec){0} : st.st_mtim;
    file.bytes = (st.st_size + BLOCK - 1) / BLOCK * BLOCK;
    f->usage->bytes += file.bytes;
    f->usage->modules += image;
    f->usage->refusals += refusal;
    if (f->keep && (image || refusal)) {
        snprintf(file.name, sizeof(file.name), "%s", name);
        add_file(f, &file);
    }
}

static void look_through(struct files *f, const char *cache_dir, const char *folder, bool image)
{
    DIR *d = modules_open_folder(cache_dir, folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        files_look_at(f, cache_dir, image, dirfd(d), e->d_name);
    }
    if (d) {
        closedir(d);
    }
}

static void files_look(struct files *f, const char *cache_dir)
{
    f->now = time(NULL);
    look_through(f, cache_dir, "modules", true);
    look_through(f, cache_dir, "records", false);
}

void modules_count(const char *cache_dir, struct modules_usage *out)
{
    *out = (struct modules_usage){0};
    struct files f = {.usage = out};
    files_look(&f, cache_dir);
}

/* ---- served images -------------------------------------------------------------------------- */

struct served {
    void *ids; /* owned: the ids, as a tree of search.h */
    bool failed;
};

/* The name of a database's list, from its path and the identity of its file: another container may
 * have another file of that path. */
static void served_name(const char *database, char out[HASH_HEX])
{
    struct stat st;
    char named[PATH_MAX + 64];
    if (stat(database, &st) < 0) {
        memset(&st, 0, sizeof(st));
    }
    int n = snprintf(named, sizeof(named), "%s file %llu %llu", database,
                     (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
    hash128_hex(named, (size_t)n, out);
}

int modules_serve(const char *cache_dir, const char *database, const char (*ids)[HASH_HEX],
                  size_t n, struct error *err)
{
    char folder[PATH_MAX], path[PATH_MAX], name[HASH_HEX], *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a list of %zu modules", n);
    }
    fprintf(f, "%s\n", database);
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "%s\n", ids[i]);
    }
    bool bad = ferror(f);
    bad = fclose(f) != 0 || bad;
    served_name(database, name);
    int r = bad ? error_set(err, ERROR_NO_MEMORY, "no memory for a list of %zu modules", n)
                : modules_folder(cache_dir, "serving", true, folder, err);
    r = r ? r : modules_path(path, err, "%s/%s", folder, name);
    r = r ? r : modules_write(path, text, size, err);
    free(text);
    return r;
}

static int served_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void served_add(struct served *s, const char *line)
{
    char *id = strdup(line), **known = id ? tsearch(id, &s->ids, served_compare) : NULL;
    s->failed = s->failed || !known;
    if (!known || *known != id) {
        free(id);
    }
}

/* Reads a database's list of the modules that its bests name: the database's path, then a module's
 * id per line. Removes an old list whose database is gone. */
static void read_served(struct served *s, const char *path, bool old)
{
    struct image file = {0};
    char *rest = NULL, name[HASH_HEX];
    s->failed = s->failed || modules_read_file(path, &file, NULL) != 0;
    if (file.data) {
        ((char *)file.data)[file.size] = '\0';
    }
    char *line = file.size ? strtok_r(file.data, "\n", &rest) : NULL;
    served_name(line ? line : "", name);
    /* the database is gone, or another file has its path */
    const bool gone = old && strcmp(name, strrchr(path, '/') + 1) != 0;
    if (gone) {
        unlink(path);
    }
    while (!gone && line && (line = strtok_r(NULL, "\n", &rest))) {
        if (modules_is_id(line, strlen(line))) {
            served_add(s, line);
        }
    }
    image_deinit(&file);
}

static int read_all_served(struct served *s, const char *cache_dir, struct error *err)
{
    char folder[PATH_MAX], path[PATH_MAX];
    struct stat st;
    int r = modules_folder(cache_dir, "serving", false, folder, err);
    DIR *d = r ? NULL : opendir(folder);
    r = r == MODULES_MISS ? 0 : r; /* no database serves images */
    for (struct dirent *e; d && (e = readdir(d));) {
        /* Skips other files, for example a FIFO. */
        if (modules_is_id(e->d_name, strlen(e->d_name)) &&
            modules_path(path, err, "%s/%s", folder, e->d_name) == 0 && lstat(path, &st) == 0 &&
            S_ISREG(st.st_mode)) {
            read_served(s, path, time(NULL) - st.st_mtime > GONE_S);
        }
    }
    if (d) {
        closedir(d);
    }
    return r || !s->failed ? r
                           : error_set(err, ERROR_IO,
                                       "cannot read which modules are served (%s/serving): none "
                                       "is removed",
                                       cache_dir);
}

static bool is_served(const struct served *s, const char *file)
{
    char id[HASH_HEX];
    snprintf(id, sizeof(id), "%.32s", file); /* without the suffix */
    return tfind(id, &s->ids, served_compare);
}

/* ---- removing ------------------------------------------------------------------------------- */

static int by_use(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) {
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    }
    if (x->used.tv_nsec != y->used.tv_nsec) {
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static void remove_oldest(struct files *f, const struct served *s, const char *cache_dir,
                          int64_t wanted)
{
    char path[PATH_MAX];
    time_t young = time(NULL) - MODULES_YOUNG_S;
    struct modules_usage *u = f->usage;
    for (size_t i = 0; i < f->n && u->bytes > wanted && f->at[i].used.tv_sec <= young; i++) {
        const struct file *file = &f->at[i];
        if ((file->image && is_served(s, file->name)) ||
            modules_path(path, NULL, "%s/%s/%s", cache_dir, file->image ? "modules" : "records",
                         file->name) ||
            unlink(path) < 0) {
            continue;
        }
        u->bytes -= file->bytes;
        u->modules -= file->image;
        u->refusals -= !file->image;
        u->removed++;
    }
}

/* Removes records and links whose images are missing. */
static void forget_dangling(const char *cache_dir)
{
    struct stat st;
    DIR *d = modules_open_folder(cache_dir, "variants");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (modules_is_id(e->d_name, strlen(e->d_name)) &&
            fstatat(dirfd(d), e->d_name, &st, 0) < 0 && errno == ENOENT) {
            modules_forget(cache_dir, e->d_name);
        }
    }
    if (d) {
        closedir(d);
    }
}

static int files_trim(struct files *f, const char *cache_dir, int64_t limit, struct error *err)
{
    struct served served = {0};
    int r = read_all_served(&served, cache_dir, err);
    if (r == 0) {
        qsort(f->at, f->n, sizeof(*f->at), by_use);
        remove_oldest(f, &served, cache_dir, limit - limit / 10);
        forget_dangling(cache_dir);
    }
    tdestroy(served.ids, free);
    return r;
}

int modules_trim(const char *cache_dir, int64_t limit, struct modules_usage *out, struct error *err)
{
    int r = 0;
    *out = (struct modules_usage){0};
    struct files f = {.usage = out, .keep = true};
    files_look(&f, cache_dir);
    if (f.failed) {
        r = error_set(err, ERROR_NO_MEMORY, "no memory to list %zu modules", f.n);
    } else if (limit > 0 && out->bytes > limit && f.n > 0) {
        r = files_trim(&f, cache_dir, limit, err);
        /* counts again, because records were removed with their images */
        if (r == 0 && out->removed) {
            int64_t removed = out->removed;
            modules_count(cache_dir, out);
            out->removed = removed;
        }
    }
    free(f.at);
    return r;
}
