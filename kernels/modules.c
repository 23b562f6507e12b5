/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of the module cache (modules.h says which). Nothing here is ever changed in place: files
 * are written under a name of their own, fsynced and renamed, links too. So two writers of one
 * module write the same bytes, and a reader sees a whole file or none.
 *
 * The record of a variant decides; the link beside it is for people, and for images that were put
 * there by an older gemmd, without a record.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/modules_inner.h"
#include "proto/hash.h"
#include "proto/paths.h"

enum {
    IMAGE_BYTES_MAX = 256 * 1024 * 1024,
    ASIDE_SECONDS = 3600, /* nobody writes one file for so long */
};

void image_deinit(struct image *i)
{
    free(i->data);
    *i = (struct image){0};
}

int modules_io_error(struct error *err, const char *what, const char *path)
{
    int saved = errno;
    if (saved == ENOSPC || saved == EDQUOT) {
        return error_set(err, ERROR_DISK_FULL,
                         "cannot %s %s: %s; free space or set the cache "
                         "directory elsewhere",
                         what, path, strerror(saved));
    }
    return error_set(err, ERROR_IO, "cannot %s %s: %s", what, path, strerror(saved));
}

int modules_path(char out[PATH_MAX], struct error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out, PATH_MAX, format, args);
    va_end(args);
    if (n < 0 || n >= PATH_MAX) {
        return error_set(err, ERROR_INVALID, "the cache path is too long (%d bytes)", n);
    }
    return 0;
}

int modules_folder(const char *cache_dir, const char *name, struct error *err)
{
    char path[PATH_MAX];
    int r = modules_path(path, err, "%s/%s", cache_dir, name);
    if (r) {
        return r;
    }
    if (mkdir(path, 0755) == 0 || errno == EEXIST) {
        return 0;
    }
    if (errno == ENOENT && paths_make_dir(cache_dir, 0750, err) == 0 &&
        (mkdir(path, 0755) == 0 || errno == EEXIST)) {
        return 0;
    }
    return modules_io_error(err, "create", path);
}

static int write_all(int fd, const void *data, size_t n)
{
    for (const char *at = data; n > 0;) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno != EINTR) {
            return -1;
        }
        if (done > 0) {
            at += done;
            n -= (size_t)done;
        }
    }
    return 0;
}

int modules_write(const char *path, const void *data, size_t n, struct error *err)
{
    char aside[PATH_MAX];
    int r = modules_path(aside, err, "%s.XXXXXX", path);
    if (r) {
        return r;
    }
    int fd = mkostemp(aside, O_CLOEXEC);
    if (fd < 0) {
        return modules_io_error(err, "create", aside);
    }
    /* fsync before rename: a crash must not leave a whole name with half a content. */
    if (write_all(fd, data, n) < 0 || fchmod(fd, 0644) < 0 || fsync(fd) < 0) {
        r = modules_io_error(err, "write", aside);
        close(fd);
        unlink(aside);
        return r;
    }
    close(fd);
    if (rename(aside, path) < 0) {
        r = modules_io_error(err, "write", path);
        unlink(aside);
    }
    return r;
}

static int link_variant(const char *cache_dir, const struct image *image, const char *suffix,
                        struct error *err)
{
    char target[PATH_MAX], path[PATH_MAX], aside[PATH_MAX];
    int r = modules_path(target, err, "../modules/%s.%s", image->meta.id, suffix);
    r = r ? r : modules_path(path, err, "%s/variants/%s", cache_dir, image->meta.variant);
    /* The address of a local tells threads of one process apart. */
    r = r ? r : modules_path(aside, err, "%s.%ld.%p", path, (long)getpid(), (void *)&target);
    if (r) {
        return r;
    }
    if (symlink(target, aside) < 0) {
        return modules_io_error(err, "create", aside);
    }
    if (rename(aside, path) < 0) {
        r = modules_io_error(err, "create", path);
        unlink(aside);
    }
    return r;
}

int modules_put(const char *cache_dir, struct image *image, const char *suffix, struct error *err)
{
    char path[PATH_MAX];
    bool named = image->meta.variant[0];
    hash128_hex(image->data, image->size, image->meta.id);
    image->meta.size = (int64_t)image->size;
    int r = modules_folder(cache_dir, "modules", err);
    r = r ? r : modules_folder(cache_dir, "variants", err);
    r = r ? r : modules_path(path, err, "%s/modules/%s.%s", cache_dir, image->meta.id, suffix);
    r = r ? r : modules_write(path, image->data, image->size, err);
    r = r || !named ? r : record_write(cache_dir, image, suffix, NULL, err);
    return r || !named ? r : link_variant(cache_dir, image, suffix, err);
}

int modules_put_refusal(const char *cache_dir, const struct image *image, const struct error *why,
                        struct error *err)
{
    return record_write(cache_dir, image, "", why, err);
}

void modules_forget(const char *cache_dir, const char *variant)
{
    static const char *const folders[] = {"records", "variants"};
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        if (modules_path(path, NULL, "%s/%s/%s", cache_dir, folders[i], variant) == 0) {
            unlink(path);
        }
    }
}

/* Returns bytes read, or -1. */
static ssize_t read_all(int fd, char *data, size_t n)
{
    size_t have = 0;
    while (have < n) {
        ssize_t got = read(fd, data + have, n - have);
        if (got < 0 && errno != EINTR) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        have += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)have;
}

int modules_read_file(const char *path, struct image *out, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? MODULES_MISS : modules_io_error(err, "open", path);
    }
    int r = 0;
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > IMAGE_BYTES_MAX) {
        r = error_set(err, ERROR_IO, "%s is not a module: remove it", path);
    } else if (!(out->data = malloc((size_t)st.st_size + 1))) {
        r = error_set(err, ERROR_NO_MEMORY, "no memory for a module of %lld bytes",
                      (long long)st.st_size);
    } else if (read_all(fd, out->data, (size_t)st.st_size) != st.st_size) {
        r = modules_io_error(err, "read", path);
    } else {
        out->size = (size_t)st.st_size;
    }
    close(fd);
    return r;
}

void modules_damaged(const char *path)
{
    fprintf(stderr,
            "%s is damaged: its content has not the hash it was written with; it is removed, and "
            "made again when it is wanted\n",
            path);
}

/* Reads `path`, whose name says `id`. A damaged file is removed, and counts as not there. */
static int read_checked(const char *path, const char *id, struct image *out, struct error *err)
{
    *out = (struct image){0};
    int r = modules_read_file(path, out, err);
    if (r) {
        image_deinit(out);
        return r;
    }
    hash128_hex(out->data, out->size, out->meta.id);
    if (strcmp(out->meta.id, id) != 0) {
        modules_damaged(path);
        unlink(path);
        image_deinit(out);
        return MODULES_MISS;
    }
    utimensat(AT_FDCWD, path, NULL, 0); /* used now; of a cache that is not ours, it does not tell */
    out->meta.size = (int64_t)out->size;
    return 0;
}

bool modules_is_id(const char *text, size_t n)
{
    return n == HASH_HEX - 1 && strspn(text, "0123456789abcdef") >= n;
}

/* An image that no record tells of: where the link points. */
static int find_linked(const char *cache_dir, const char *variant, struct image *out,
                       struct error *err)
{
    char path[PATH_MAX], target[PATH_MAX], file[PATH_MAX], id[HASH_HEX];
    int r = modules_path(path, err, "%s/variants/%s", cache_dir, variant);
    if (r) {
        return r;
    }
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n < 0) {
        return errno == ENOENT || errno == ENOTDIR ? MODULES_MISS
                                                   : modules_io_error(err, "read", path);
    }
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    const char *name = slash ? slash + 1 : target;
    const char *dot = strchr(name, '.');
    if (!dot || !modules_is_id(name, (size_t)(dot - name))) {
        unlink(path);
        return MODULES_MISS;
    }
    snprintf(id, sizeof(id), "%.*s", (int)(dot - name), name);
    r = modules_path(file, err, "%s/modules/%s", cache_dir, name);
    r = r ? r : read_checked(file, id, out, err);
    if (r == MODULES_MISS) {
        unlink(path);
    } else if (r == 0) {
        snprintf(out->meta.variant, sizeof(out->meta.variant), "%s", variant);
        out->meta.registers = -1;
    }
    return r;
}

/* The image that a record names. One that is gone takes the record and the link with it. */
static int find_recorded(const char *cache_dir, const char *suffix, struct image *out,
                         struct error *err)
{
    char path[PATH_MAX];
    struct image file = {0};
    const struct module *m = &out->meta;
    int r = modules_path(path, err, "%s/modules/%s.%s", cache_dir, m->id, suffix);
    r = r ? r : read_checked(path, m->id, &file, err);
    if (r == 0) {
        out->data = file.data;
        out->size = file.size;
    } else if (r == MODULES_MISS) {
        modules_forget(cache_dir, m->variant);
    }
    return r;
}

int modules_find(const char *cache_dir, const char *variant, struct image *out, struct error *err)
{
    char suffix[16];
    *out = (struct image){0};
    int r = record_read(cache_dir, variant, out, suffix, err);
    if (r == MODULES_MISS) {
        return find_linked(cache_dir, variant, out, err);
    }
    r = r ? r : find_recorded(cache_dir, suffix, out, err);
    if (r) {
        image_deinit(out);
    } else {
        out->meta.used_s = (int64_t)time(NULL);
    }
    return r;
}

/* The file of a content id, whatever its suffix: asked for by name, since the folder is large. */
static int find_file(const char *cache_dir, const char *id, char out[PATH_MAX], const char **suffix,
                     struct error *err)
{
    static const char *const suffixes[] = {"cubin", "so", "replay"};
    if (!modules_is_id(id, strlen(id))) {
        return error_set(err, ERROR_INVALID, "\"%s\" is not the id of a module (32 hex digits)",
                         id);
    }
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        int r = modules_path(out, err, "%s/modules/%s.%s", cache_dir, id, suffixes[i]);
        if (r) {
            return r;
        }
        if (access(out, F_OK) == 0) {
            *suffix = suffixes[i];
            return 0;
        }
    }
    return errno == ENOENT || errno == ENOTDIR ? MODULES_MISS : modules_io_error(err, "open", out);
}

int modules_read(const char *cache_dir, const char *id, size_t offset, size_t n, struct chunk *out,
                 struct error *err)
{
    char path[PATH_MAX];
    struct stat st;
    *out = (struct chunk){0};
    int r = find_file(cache_dir, id, path, &out->suffix, err);
    if (r) {
        return r;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? MODULES_MISS : modules_io_error(err, "open", path);
    }
    if (fstat(fd, &st) < 0) {
        r = modules_io_error(err, "read", path);
    } else if ((out->size = (size_t)st.st_size) > offset) {
        out->n = out->size - offset < n ? out->size - offset : n;
        out->data = malloc(out->n);
        if (!out->data) {
            r = error_set(err, ERROR_NO_MEMORY, "no memory for %zu bytes of a module", out->n);
        } else if (lseek(fd, (off_t)offset, SEEK_SET) < 0 ||
                   read_all(fd, out->data, out->n) != (ssize_t)out->n) {
            r = modules_io_error(err, "read", path);
        }
    }
    close(fd);
    if (r) {
        free(out->data);
        out->data = NULL;
    }
    return r;
}

int modules_get(const char *cache_dir, const char *id, struct image *out, struct error *err)
{
    char path[PATH_MAX];
    const char *suffix;
    *out = (struct image){0};
    int r = find_file(cache_dir, id, path, &suffix, err);
    return r ? r : read_checked(path, id, out, err);
}

/* Links to it stay behind: modules_find removes a link whose file is gone. */
int modules_remove(const char *cache_dir, const char *id, struct error *err)
{
    char path[PATH_MAX];
    const char *suffix;
    int r = find_file(cache_dir, id, path, &suffix, err);
    if (r) {
        return r;
    }
    if (unlink(path) < 0 && errno != ENOENT) {
        return modules_io_error(err, "remove", path);
    }
    return 0;
}

/* Is this the name of a file that was being written: "<id>.so.Ab12Cd", "<variant>.<pid>.<address>",
 * "<variant>.Ab12Cd"? What is done has an id for its name, and after it as many dots. */
static bool is_aside(const char *name, int dots)
{
    const char *dot = strchr(name, '.');
    if (!dot || !modules_is_id(name, (size_t)(dot - name))) {
        return false;
    }
    for (; dot; dot = strchr(dot + 1, '.')) {
        dots--;
    }
    return dots < 0;
}

static void tidy_folder(const char *cache_dir, const char *name, int dots)
{
    char folder[PATH_MAX];
    DIR *d = modules_path(folder, NULL, "%s/%s", cache_dir, name) == 0 ? opendir(folder) : NULL;
    struct stat st;
    time_t now = time(NULL);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (is_aside(e->d_name, dots) &&
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            now - st.st_mtime > ASIDE_SECONDS) {
            unlinkat(dirfd(d), e->d_name, 0);
        }
    }
    if (d) {
        closedir(d);
    }
}

void modules_tidy(const char *cache_dir)
{
    tidy_folder(cache_dir, "modules", 1);
    tidy_folder(cache_dir, "variants", 0);
    tidy_folder(cache_dir, "records", 0);
    tidy_folder(cache_dir, "serving", 0);
}
