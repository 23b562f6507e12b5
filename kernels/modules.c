/* SPDX-License-Identifier: Apache-2.0 */
/* The content of the module cache (modules.h lists the files), by variant and by content id. The
 * record of a variant is authoritative; the link beside it is for people. */
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
#include "proto/trust.h"

void image_deinit(struct image *i)
{
    free(i->data);
    *i = (struct image){0};
}

static int link_variant(const char *cache_dir, const struct image *image, const char *suffix,
                        struct error *err)
{
    char folder[PATH_MAX], target[PATH_MAX], path[PATH_MAX], aside[PATH_MAX];
    int r = modules_folder(cache_dir, "variants", true, folder, err);
    r = r ? r : modules_path(target, err, "../modules/%s.%s", image->meta.id, suffix);
    r = r ? r : modules_path(path, err, "%s/%s", folder, image->meta.variant);
    /* The address of a local variable makes the name unique among threads of this process. */
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
    char folder[PATH_MAX], path[PATH_MAX];
    bool named = image->meta.variant[0];
    hash128_hex(image->data, image->size, image->meta.id);
    image->meta.size = (int64_t)image->size;
    int r = modules_folder(cache_dir, "modules", true, folder, err);
    r = r ? r : modules_path(path, err, "%s/%s.%s", folder, image->meta.id, suffix);
    r = r ? r : modules_write(path, image->data, image->size, err);
    r = r || !named ? r : record_write(cache_dir, image, suffix, NULL, err);
    return r || !named ? r : link_variant(cache_dir, image, suffix, err);
}

int modules_put_refusal(const char *cache_dir, const struct image *image, const struct error *why,
                        struct error *err)
{
    return record_write(cache_dir, image, "", why, err);
}

/* Reads `path`, which is named by `id`. A damaged file is removed and counts as missing. */
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
    /* notes this use, for trims of the cache; fails, without harm, in another user's cache */
    utimensat(AT_FDCWD, path, NULL, 0);
    out->meta.size = (int64_t)out->size;
    return 0;
}

bool modules_has(const char *cache_dir, const char *variant)
{
    char path[PATH_MAX];
    return modules_path(path, NULL, "%s/variants/%s", cache_dir, variant) == 0 &&
           access(path, F_OK) == 0; /* follows the link */
}

bool modules_id(const char *cache_dir, const char *variant, char id[HASH_HEX])
{
    char path[PATH_MAX], target[PATH_MAX];
    if (modules_path(path, NULL, "%s/variants/%s", cache_dir, variant)) {
        return false;
    }
    const ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n < 0) {
        return false;
    }
    target[n] = '\0';
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    const size_t length = strcspn(name, ".");
    if (!modules_is_id(name, length)) {
        return false;
    }
    snprintf(id, HASH_HEX, "%.*s", (int)length, name);
    return access(path, R_OK) == 0;
}

/* When the image is missing, removes the record and the link, too. */
int modules_find(const char *cache_dir, const char *variant, struct image *out, struct error *err)
{
    char suffix[16], name[HASH_HEX + 16], path[PATH_MAX];
    struct image file = {0};
    *out = (struct image){0};
    int r = record_read(cache_dir, variant, out, suffix, err);
    if (r) {
        image_deinit(out);
        return r;
    }
    snprintf(name, sizeof(name), "%s.%s", out->meta.id, suffix);
    r = modules_file(cache_dir, "modules", name, path, err);
    r = r ? r : read_checked(path, out->meta.id, &file, err);
    if (r == MODULES_MISS) {
        modules_forget(cache_dir, variant);
    }
    if (r) {
        image_deinit(out);
        return r;
    }
    out->data = file.data;
    out->size = file.size;
    out->meta.used_s = (int64_t)time(NULL);
    return 0;
}

/* Finds the file of a content id, with any suffix. Tries each known suffix, because the folder
 * is too large to list. */
static int find_file(const char *cache_dir, const char *id, char out[PATH_MAX], const char **suffix,
                     struct error *err)
{
    static const char *const suffixes[] = {"cubin", "so", "replay"};
    char folder[PATH_MAX];
    if (!modules_is_id(id, strlen(id))) {
        return error_set(err, ERROR_INVALID, "\"%s\" is not the id of a module (32 hex digits)",
                         id);
    }
    int r = modules_folder(cache_dir, "modules", false, folder, err);
    for (size_t i = 0; r == 0 && i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        r = modules_path(out, err, "%s/%s.%s", folder, id, suffixes[i]);
        if (r == 0 && access(out, F_OK) == 0) {
            *suffix = suffixes[i];
            return 0;
        }
    }
    return r ? r : errno == ENOENT ? MODULES_MISS : modules_io_error(err, "open", out);
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
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? MODULES_MISS : modules_io_error(err, "open", path);
    }
    r = trust_opened(path, fd, err);
    if (r == 0 && fstat(fd, &st) < 0) {
        r = modules_io_error(err, "read", path);
    } else if (r == 0 && (out->size = (size_t)st.st_size) > offset) {
        out->n = out->size - offset < n ? out->size - offset : n;
        out->data = malloc(out->n);
        if (!out->data) {
            r = error_set(err, ERROR_NO_MEMORY, "no memory for %zu bytes of a module", out->n);
        } else if (lseek(fd, (off_t)offset, SEEK_SET) < 0 ||
                   modules_read_all(fd, out->data, out->n) != (ssize_t)out->n) {
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
