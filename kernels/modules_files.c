/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the module cache, independent of content. Files are never changed in place: a writer
 * uses a temporary name, fsyncs and renames. Two writers of one module write the same bytes, and a
 * reader sees a whole file or no file. Temporary files of killed writers are removed when old. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/modules_inner.h"
#include "proto/paths.h"
#include "proto/trust.h"

enum {
    IMAGE_BYTES_MAX = 256 * 1024 * 1024,
    ASIDE_SECONDS = 3600, /* age of a temporary file whose writer must be dead */
};

/* ---- paths ----------------------------------------------------------------------------------- */

int modules_io_error(struct error *err, const char *what, const char *path)
{
    int saved = errno;
    if (saved == ENOSPC || saved == EDQUOT || saved == EFBIG) {
        return error_set(err, ERROR_DISK_FULL,
                         "cannot %s %s: %s; free space or set the cache directory elsewhere", what,
                         path, strerror(saved));
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

int modules_folder(const char *cache_dir, const char *name, bool make, char out[PATH_MAX],
                   struct error *err)
{
    char path[PATH_MAX];
    int r = modules_path(path, err, "%s/%s", cache_dir, name);
    if (r == 0 && make && (r = paths_make_dir(cache_dir, 0750, err))) {
        error_prefix(err, "cannot create %s", path);
    }
    r = r ? r : trust_folder(path, TRUST_STRICT, make ? 0755 : 0, out, err);
    return r == TRUST_MISSING ? MODULES_MISS : r;
}

int modules_file(const char *cache_dir, const char *folder, const char *name, char out[PATH_MAX],
                 struct error *err)
{
    char whole[PATH_MAX];
    int r = modules_folder(cache_dir, folder, false, whole, err);
    return r ? r : modules_path(out, err, "%s/%s", whole, name);
}

DIR *modules_open_folder(const char *cache_dir, const char *name)
{
    char whole[PATH_MAX];
    return modules_folder(cache_dir, name, false, whole, NULL) == 0 ? opendir(whole) : NULL;
}

int modules_check(const char *cache_dir, struct error *err)
{
    static const char *const folders[] = {"modules", "records", "variants", "serving"};
    char whole[PATH_MAX];
    int r = 0;
    for (size_t i = 0; r >= 0 && i < sizeof(folders) / sizeof(folders[0]); i++) {
        r = modules_folder(cache_dir, folders[i], false, whole, err);
    }
    return r < 0 ? r : 0;
}

bool modules_is_id(const char *text, size_t n)
{
    return n == HASH_HEX - 1 && strspn(text, "0123456789abcdef") >= n;
}

/* ---- writing --------------------------------------------------------------------------------- */

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
    /* fsync before rename: after a crash no final name may have a partial content. */
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

/* ---- reading --------------------------------------------------------------------------------- */

ssize_t modules_read_all(int fd, char *data, size_t n)
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
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* O_NONBLOCK: the path may be a FIFO */
    if (fd < 0) {
        return errno == ENOENT ? MODULES_MISS : modules_io_error(err, "open", path);
    }
    struct stat st;
    /* the file is checked, too: it may have been written before the folder was closed to other
     * users */
    int r = trust_opened(path, fd, err);
    if (r) {
        close(fd);
        return r;
    }
    if (fstat(fd, &st) < 0 || st.st_size > IMAGE_BYTES_MAX) {
        r = error_set(err, ERROR_IO, "%s is not a module: remove it", path);
    } else if (!(out->data = malloc((size_t)st.st_size + 1))) {
        r = error_set(err, ERROR_NO_MEMORY, "no memory for a module of %lld bytes",
                      (long long)st.st_size);
    } else if (modules_read_all(fd, out->data, (size_t)st.st_size) != st.st_size) {
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

/* ---- removing -------------------------------------------------------------------------------- */

void modules_forget(const char *cache_dir, const char *variant)
{
    static const char *const folders[] = {"records", "variants"};
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        if (modules_file(cache_dir, folders[i], variant, path, NULL) == 0) {
            unlink(path);
        }
    }
}

/* True for names of temporary files: "<id>.so.Ab12Cd", "<variant>.<pid>.<address>",
 * "<variant>.Ab12Cd". Finished files are named by an id and have at most `dots` dots after it. */
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
    DIR *d = modules_open_folder(cache_dir, name);
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
