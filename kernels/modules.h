/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled modules on disk, shared by every shape, process and daemon with the same cache
 * directory, so that each variant is compiled once:
 *
 *   <cache>/modules/<id>.<suffix>     an image, named by its content
 *   <cache>/records/<variant>         the compiler's report on the variant, or its refusal
 *   <cache>/variants/<variant>        a symbolic link to the image, for people and scripts
 *   <cache>/serving/<database>        ids of the images that a database's bests name
 *   <cache>/compiling                 locks: one byte for each variant that a process compiles
 *
 * All files but the last are written under a temporary name, fsynced, renamed: losing a race is
 * normal. A file is used only when its content still has the recorded hash. A damaged file is
 * removed with a line on stderr and counts as missing; the next compile writes it again. An image's
 * mtime is its last use.
 */
#ifndef GEMMD_KERNELS_MODULES_H
#define GEMMD_KERNELS_MODULES_H

#include "kernels/device.h"

enum modules_outcome { MODULES_MISS = 1, MODULES_REFUSED = 2 };

/* Sets the image's id and size, and stores the image with its `meta`. */
int modules_put(const char *cache_dir, struct image *image, const char *suffix, struct error *err);
/* Stores the refusal of a variant: `why`, and the meta and log of `image`. A refusal holds for this
 * build of gemmd only, because gemmd's own rules are part of the verdict. */
int modules_put_refusal(const char *cache_dir, const struct image *image, const struct error *why,
                        struct error *err);
/* 0; MODULES_MISS; MODULES_REFUSED, and the refusal in err. */
int modules_find(const char *cache_dir, const char *variant, struct image *out, struct error *err);
/* True when the image file exists. Reads nothing: the image may be damaged. */
bool modules_has(const char *cache_dir, const char *variant);
/* Writes the id of a variant's image, as its link says; reads no file. False: no image. */
bool modules_id(const char *cache_dir, const char *variant, char id[HASH_HEX]);
/* 0 or MODULES_MISS. */
int modules_get(const char *cache_dir, const char *id, struct image *out, struct error *err);
/* Some bytes of a module's file. The content is not compared with the id, which needs all bytes. */
struct chunk {
    char *data;         /* owned by the caller: free() */
    size_t n, size;     /* bytes of this part; bytes of the whole module */
    const char *suffix; /* static */
};
int modules_read(const char *cache_dir, const char *id, size_t offset, size_t n, struct chunk *out,
                 struct error *err);
/* Checks that the cache's existing folders belong to nobody else (proto/trust.h), because the cache
 * may have been open to others once. Each use of a folder checks that folder again. */
int modules_check(const char *cache_dir, struct error *err);
/* Removes old temporary files of killed writers. Younger files may belong to running writers. */
void modules_tidy(const char *cache_dir);

/* ---- find, or compile once (kernels/modules_make.c) ------------------------------------------ */

enum { MODULES_WAIT_MS = 10000 };
struct modules_order { /* all borrowed */
    struct compiler *compiler;
    const char *cache_dir;
    const struct variant *variant;
    const char *hash; /* variant_hash */
    /* While another process compiles the variant: how long to wait before compiling anyway. A
     * stopped process must not stop others; both copies have the same bytes. 0: ERROR_BUSY at once.
     */
    int wait_ms;
};
struct modules_made {
    struct image image; /* owned by the caller; empty after an error */
    bool found;         /* the cache had the image or the refusal: nothing was compiled */
    bool refused;       /* the error is the variant's fault, and is stored */
    bool unsaved;       /* the image was compiled, but not stored; stderr has the reason */
    double compile_ms;  /* 0 when found */
};
int modules_make(const struct modules_order *o, struct modules_made *out, struct error *err);
/* Gets a variant from the cache only: returns MODULES_MISS at once for an unknown variant. */
int modules_make_known(const struct modules_order *o, struct modules_made *out, struct error *err);

/* ---- size limit (kernels/modules_limit.c) ---------------------------------------------------- */

struct modules_usage {
    int64_t modules, refusals; /* numbers of files */
    int64_t bytes;             /* on disk, as blocks of 4 KiB: images and records */
    int64_t removed;           /* files that this trim removed */
};
/* Counts files and bytes of the cache; a missing cache counts as empty. */
void modules_count(const char *cache_dir, struct modules_usage *out);
/* Writes the list of images that `database` (an absolute path) serves, so that trims of this
 * cache by other processes keep these images. */
int modules_serve(const char *cache_dir, const char *database, const char (*ids)[HASH_HEX],
                  size_t n, struct error *err);
/* Above `limit` bytes (0: no limit), removes the least recently used files until the cache is a
 * tenth below the limit. Keeps images that a database serves, and files used in the last
 * MODULES_YOUNG_S. */
enum { MODULES_YOUNG_S = 600 };
int modules_trim(const char *cache_dir, int64_t limit, struct modules_usage *out,
                 struct error *err);

#endif
