/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the module cache share. */
#ifndef GEMMD_KERNELS_MODULES_INNER_H
#define GEMMD_KERNELS_MODULES_INNER_H

#include <dirent.h>
#include <limits.h>
#include <sys/types.h>

#include "kernels/modules.h"

/* ---- modules_files.c ------------------------------------------------------------------------ */

int modules_path(char out[PATH_MAX], struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int modules_io_error(struct error *err, const char *what, const char *path);
/* <cache>/<name>, which is nobody else's by the rule of proto/trust.h; `out` is its resolved path.
 * `make`: with those above it, for somebody may have emptied the cache while we run. Without `make`
 * MODULES_MISS where it is not there. */
int modules_folder(const char *cache_dir, const char *name, bool make, char out[PATH_MAX],
                   struct error *err);
/* <cache>/<folder>/<name>, the folder as above, not made. */
int modules_file(const char *cache_dir, const char *folder, const char *name, char out[PATH_MAX],
                 struct error *err);
/* NULL: it is not there, or not to be trusted. */
DIR *modules_open_folder(const char *cache_dir, const char *name);
int modules_write(const char *path, const void *data, size_t n, struct error *err);
/* Returns bytes read, or -1. */
ssize_t modules_read_all(int fd, char *data, size_t n);
/* Into data and size of `out`, nothing else. 0, MODULES_MISS when it is not there, or ERROR_*. */
int modules_read_file(const char *path, struct image *out, struct error *err);
void modules_forget(const char *cache_dir, const char *variant); /* record and link */
void modules_damaged(const char *path);                          /* says so, to stderr */
bool modules_is_id(const char *text, size_t n);                  /* 32 hex digits */

/* ---- modules_record.c ----------------------------------------------------------------------- */

/* `suffix`: of the image. `why`: NULL, or why there is none. */
int record_write(const char *cache_dir, const struct image *image, const char *suffix,
                 const struct error *why, struct error *err);
/* Into meta and log of `out`, and the image's suffix. 0, MODULES_REFUSED and *err; MODULES_MISS. A
 * record that is damaged, or a refusal of another build, is removed, and the link. */
int record_read(const char *cache_dir, const char *variant, struct image *out, char suffix[16],
                struct error *err);

#endif
