/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A variant from the cache, or else from the compiler, and then into the cache.
 *
 * One process compiles a variant, others wait for it: a runner and `gemmctl precompile`, the
 * daemons of eight GPUs. The lock is one byte, at the variant's hash, of <cache>/compiling: nothing
 * to create or to clean up for a variant, and the kernel lets go of it however its owner dies. It
 * is an open file description's lock (F_OFD_SETLK), so that threads of one process exclude one
 * another, too.
 *
 * The lock saves work, and nothing depends on it. Who cannot have it (no folder, a file system
 * without locks), or has waited for long enough, compiles: both write the same names, and whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/modules_inner.h"
#include "proto/trust.h"

enum { LOOK_MS = 10 };

static double modules_clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

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

/* 1: it is ours; 0: somebody else's; -1: there are no locks here. */
static int modules_try_lock(int fd, const char *hash)
{
    struct flock byte = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = modules_lock_place(hash), .l_len = 1};
    if (fcntl(fd, F_OFD_SETLK, &byte) == 0) {
        return 1;
    }
    return errno == EAGAIN || errno == EACCES ? 0 : -1;
}

/* Whether the caller may go on; *fd: to be closed, which lets go. */
static bool modules_claim(const struct modules_order *o, int *fd)
{
    double until = modules_clock_ms() + o->wait_ms;
    *fd = open_locks(o->cache_dir);
    int r = *fd < 0 ? -1 : modules_try_lock(*fd, o->hash);
    while (r == 0 && modules_clock_ms() < until) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        r = modules_try_lock(*fd, o->hash);
    }
    return r != 0 || o->wait_ms > 0;
}

/* ---- making --------------------------------------------------------------------------------- */

/* What the variant says of its module: compilers and older caches may leave it out. */
static void modules_describe(const struct modules_order *o, struct module *m)
{
    const struct variant *v = o->variant;
    snprintf(m->variant, sizeof(m->variant), "%s", o->hash);
    snprintf(m->family, sizeof(m->family), "%s", v->family);
    snprintf(m->target, sizeof(m->target), "%s", v->arch);
    snprintf(m->compiler, sizeof(m->compiler), "%s", o->compiler->ops->version(o->compiler));
    snprintf(m->flags, sizeof(m->flags), "%.*s", (int)sizeof(m->flags) - 1, v->options);
    snprintf(m->source, sizeof(m->source), "%s", v->source_hash);
    snprintf(m->entry, sizeof(m->entry), "%s", v->entry);
    m->used_s = (int64_t)time(NULL);
    m->created_s = m->created_s ? m->created_s : m->used_s;
}

/* MODULES_MISS also of a cache that cannot be read. */
int modules_make_known(const struct modules_order *o, struct modules_made *out, struct error *err)
{
    struct error why = ERROR_NULL;
    *out = (struct modules_made){.found = false};
    int r = modules_find(o->cache_dir, o->hash, &out->image, &why);
    out->found = r == 0 || r == MODULES_REFUSED;
    if (r == 0) {
        modules_describe(o, &out->image.meta);
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
    if (r) { /* it can be measured, but not handed out or found again */
        out->unsaved = !refused;
        fprintf(stderr, "variant %s is not cached: %s\n", o->hash, why.text);
    }
}

static int modules_compile(const struct modules_order *o, struct modules_made *out,
                           struct error *err)
{
    struct error why = ERROR_NULL;
    double began = modules_clock_ms();
    int r = o->compiler->ops->compile(o->compiler, o->variant, &out->image, &why);
    struct module *m = &out->image.meta;
    modules_describe(o, m);
    m->compile_ms = m->compile_ms > 0 ? m->compile_ms : modules_clock_ms() - began;
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
    r = modules_make_known(o, out, err); /* whom we waited for may have made it */
    r = r == MODULES_MISS ? modules_compile(o, out, err) : r;
    if (fd >= 0) {
        close(fd);
    }
    return r;
}
