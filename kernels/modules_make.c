/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gets a variant from the cache, or compiles it and stores the image.
 *
 * One process compiles a variant while others wait: a runner and `gemmctl precompile`, or the
 * daemons of eight GPUs. The lock is one byte, at the variant's hash, of <cache>/compiling. A
 * variant needs no lock file of its own, and the kernel releases the lock however its owner dies.
 * The lock belongs to an open file description (F_OFD_SETLK), so it also excludes threads of one
 * process.
 *
 * The lock only saves work. A process without the lock (no folder, a file system without locks, or
 * a long wait) compiles anyway: both write the same names, and whole files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/modules_inner.h"
#include "proto/trust.h"

enum { LOOK_MS = 10 };

/* ---- the lock ------------------------------------------------------------------------------- */

static int open_locks(const char *cache_dir)
{
    char path[PATH_MAX], folder[PATH_MAX];
    int fd;
    if (modules_path(path, NULL, "%s/compiling", cache_dir)) {
        return -1;
    }
    if (trust_open(path, O_RDWR | O_CREAT, 0600, &fd, NULL) &&
        modules_folder(cache_dir, "modules", true, folder, NULL) == 0) {
        trust_open(path, O_RDWR | O_CREAT, 0600, &fd, NULL);
    }
    return fd;
}

static off_t modules_lock_place(const char *hash)
{
    char digits[16];
    snprintf(digits, sizeof(digits), "%.15s", hash);
    return (off_t)strtoll(digits, NULL, 16);
}

/* 1: locked; 0: another process holds the lock; -1: the file system has no locks. */
static int modules_try_lock(int fd, const char *hash)
{
    struct flock byte = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = modules_lock_place(hash), .l_len = 1};
    if (fcntl(fd, F_OFD_SETLK, &byte) == 0) {
        return 1;
    }
    return errno == EAGAIN || errno == EACCES ? 0 : -1;
}

/* Takes the variant's lock, or waits for it. True when the caller may compile: with the lock,
 * without locks, or after wait_ms. The caller closes *fd, which unlocks. */
static bool modules_claim(const struct modules_order *o, int *fd)
{
    double until = device_clock_ms(NULL) + o->wait_ms;
    *fd = open_locks(o->cache_dir);
    int r = *fd < 0 ? -1 : modules_try_lock(*fd, o->hash);
    while (r == 0 && device_clock_ms(NULL) < until) {
        device_sleep_ms(LOOK_MS);
        r = modules_try_lock(*fd, o->hash);
    }
    return r != 0 || o->wait_ms > 0;
}

/* ---- making --------------------------------------------------------------------------------- */

/* An unreadable cache is MODULES_MISS, too. */
int modules_make_known(const struct modules_order *o, struct modules_made *out, struct error *err)
{
    struct error why = ERROR_NULL;
    *out = (struct modules_made){.found = false};
    int r = modules_find(o->cache_dir, o->hash, &out->image, &why);
    out->found = r == 0 || r == MODULES_REFUSED;
    if (r == 0) {
        module_describe(&out->image.meta, o->variant, o->compiler->ops->version(o->compiler));
        return 0;
    }
    return r == MODULES_REFUSED ? error_set(err, why.code, "%s", why.text) : MODULES_MISS;
}

static void modules_keep_made(const struct modules_order *o, struct modules_made *out,
                              const struct error *refused)
{
    struct error why = ERROR_NULL;
    int r = refused ? modules_put_refusal(o->cache_dir, &out->image, refused, &why)
                    : modules_put(o->cache_dir, &out->image, o->compiler->ops->suffix, &why);
    /* the image can be measured, but is not in the cache: no client can get it, and no process
     * will find it again */
    if (r) {
        out->unsaved = !refused;
        fprintf(stderr, "variant %s is not cached: %s\n", o->hash, why.text);
    }
}

static int modules_compile(const struct modules_order *o, struct modules_made *out,
                           struct error *err)
{
    struct error why = ERROR_NULL;
    double began = device_clock_ms(NULL);
    int r = o->compiler->ops->compile(o->compiler, o->variant, &out->image, &why);
    struct module *m = &out->image.meta;
    module_describe(m, o->variant, o->compiler->ops->version(o->compiler));
    m->compile_ms = m->compile_ms > 0 ? m->compile_ms : device_clock_ms(NULL) - began;
    if (r == 0) {
        out->compile_ms = m->compile_ms;
        modules_keep_made(o, out, NULL);
        return 0;
    }
    out->refused = out->image.refused;
    if (out->refused) {
        modules_keep_made(o, out, &why);
    }
    image_deinit(&out->image);
    return error_set(err, r, "%s", why.text);
}

int modules_make(const struct modules_order *o, struct modules_made *out, struct error *err)
{
    int fd;
    int r = modules_make_known(o, out, err);
    if (r != MODULES_MISS) {
        return r;
    }
    if (!modules_claim(o, &fd)) {
        close(fd);
        return error_set(err, ERROR_BUSY, "another process is compiling variant %s", o->hash);
    }
    r = modules_make_known(o, out, err); /* the lock's last owner may have made the image */
    r = r == MODULES_MISS ? modules_compile(o, out, err) : r;
    if (fd >= 0) {
        close(fd);
    }
    return r;
}
