/* SPDX-License-Identifier: Apache-2.0 */
/* Functions shared by the files of the module cache. */
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
/* Writes the resolved path of <cache>/<name> to `out`, after the check of proto/trust.h. `make`:
 * creates the folder and its parents, because somebody may have emptied the cache meanwhile.
 * Without `make` a missing folder is MODULES_MISS. */
int modules_folder(const char *cache_dir, const char *name, bool make, char out[PATH_MAX],
                   struct error *err);
/* Writes the path <cache>/<folder>/<name>. The folder is checked as above, but not created. */
int modules_file(const char *cache_dir, const char *folder, const char *name, char out[PATH_MAX],
                 struct error *err);
/* Opens a folder of the cache. NULL: the folder is missing, or not to be trusted. */
DIR *modules_open_folder(const char *cache_dir, const char *name);
int modules_write(const char *path, const void *data, size_t n, struct error *err);
/* Returns bytes read, or -1. */
ssize_t modules_read_all(int fd, char *data, size_t n);
/* Sets only data and size of `out`. 0, MODULES_MISS when the file is missing, or ERROR_*. */
int modules_read_file(const char *path, struct image *out, struct error *err);
void modules_forget(const char *cache_dir, const char *variant); /* record and link */
void modules_damaged(const char *path);                          /* reports to stderr */
bool modules_is_id(const char *text, size_t n);                  /* 32 hex digits */

/* ---- modules_record.c ----------------------------------------------------------------------- */

/* Writes a variant's record. `suffix`: of the image. `why`: NULL, or why the variant was
 * refused. */
int record_write(const char *cache_dir, const struct image *image, const char *suffix,
                 const struct error *why, struct error *err);
/* Sets meta and log of `out`, and the image's suffix. 0, MODULES_REFUSED and *err, or MODULES_MISS.
 * Removes a damaged record, or a refusal of another build, together with the link. */
int record_read(const char *cache_dir, const char *variant, struct image *out, char suffix[16],
                struct error *err);

#endif
