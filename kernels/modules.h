/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled modules on disk, shared by every shape, process and daemon that has the same cache
 * directory, so that nothing is compiled twice:
 *
 *   <cache>/modules/<id>.<suffix>     an image, named by its content
 *   <cache>/records/<variant>         what the compiler said of a variant: its image's id,
 *                                     registers, spills, seconds, log; or that it was refused, and
 *                                     why
 *   <cache>/variants/<variant>        a symbolic link to the image, for people and scripts
 *   <cache>/serving/<database>        the images that the bests of a database name
 *   <cache>/compiling                 locks: one byte for each variant that is being compiled
 *
 * All but the last are written aside, fsynced, renamed: losing a race is normal. What is read back
 * is believed only when it still has the hash that it was written with; a damaged file is removed
 * (stderr says so), and counts as not there: the next compile writes it again. An image's mtime is
 * when it was last used.
 */
#ifndef GEMMD_KERNELS_MODULES_H
#define GEMMD_KERNELS_MODULES_H

#include "kernels/device.h"

enum modules_outcome { MODULES_MISS = 1, MODULES_REFUSED = 2 };

/* Sets the image's id and size, and keeps it with all that its `meta` says of its variant. */
int modules_put(const char *cache_dir, struct image *image, const char *suffix, struct error *err);
/* Keeps that a variant was refused: `why`, and of `image` meta (variant and what it was) and log.
 * It holds for this build of gemmd, whose rules are part of the verdict. */
int modules_put_refusal(const char *cache_dir, const struct image *image, const struct error *why,
                        struct error *err);
/* 0; MODULES_MISS; MODULES_REFUSED: err is what it was refused with. */
int modules_find(const char *cache_dir, const char *variant, struct image *out, struct error *err);
/* Whether there is an image, which may be found to be damaged: a look, and no reading. */
bool modules_has(const char *cache_dir, const char *variant);
/* 0 or MODULES_MISS. */
int modules_get(const char *cache_dir, const char *id, struct image *out, struct error *err);
/* A part of a module, not checked against its id: that can only who has the whole. */
struct chunk {
    char *data;         /* owned by who asked: free() */
    size_t n, size;     /* of the part, of the whole */
    const char *suffix; /* static */
};
int modules_read(const char *cache_dir, const char *id, size_t offset, size_t n, struct chunk *out,
                 struct error *err);
/* Whether the folders that are there are nobody else's (proto/trust.h): the cache may have been
 * open to others once. Each use of a folder checks that folder again. */
int modules_check(const char *cache_dir, struct error *err);
/* Removes what writers that were killed left behind, when it is old: others may be writing. */
void modules_tidy(const char *cache_dir);

/* ---- find, or compile once (kernels/modules_make.c) ------------------------------------------ */

enum { MODULES_WAIT_MS = 10000 };
struct modules_order { /* all borrowed */
    struct compiler *compiler;
    const char *cache_dir;
    const struct variant *variant;
    const char *hash; /* variant_hash */
    /* While somebody else compiles it: how long to wait for that before compiling it all the same
     * (a stopped process must not stop others; the second copy is the same bytes). 0: do not wait,
     * ERROR_BUSY. */
    int wait_ms;
};
struct modules_made {
    struct image image; /* owned by who asked; empty after an error */
    bool found;         /* the cache knew it (also a refusal): nothing was compiled */
    bool refused;       /* an error that is the variant's fault, and is kept */
    bool unsaved;       /* compiled, but the disk did not take it: stderr has said why */
    double compile_ms;  /* 0 when found */
};
int modules_make(const struct modules_order *o, struct modules_made *out, struct error *err);
/* The same of what the cache knows; of anything else MODULES_MISS, at once. */
int modules_make_known(const struct modules_order *o, struct modules_made *out, struct error *err);

/* ---- how much it may hold (kernels/modules_limit.c) ------------------------------------------ */

struct modules_usage {
    int64_t modules, refusals; /* files */
    int64_t bytes;             /* on disk, as blocks of 4 KiB: images and records */
    int64_t removed;           /* by this trim */
};
/* Counts; a cache that is not there holds nothing. */
void modules_count(const char *cache_dir, struct modules_usage *out);
/* Tells other trims of this directory which images `database` (an absolute path) serves. */
int modules_serve(const char *cache_dir, const char *database, const char (*ids)[HASH_HEX],
                  size_t n, struct error *err);
/* When there are more than `limit` bytes (0: no limit), removes what was used longest ago until a
 * tenth is free again; never what some database serves, nor what was used in the last
 * MODULES_YOUNG_S: that is in use. */
enum { MODULES_YOUNG_S = 600 };
int modules_trim(const char *cache_dir, int64_t limit, struct modules_usage *out,
                 struct error *err);

#endif
