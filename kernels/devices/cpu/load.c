/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads shared objects from memory (memfd and dlopen: no other process can swap a file between
 * check and use), and the launch backend over them.
 *
 * Jobs that launch through kernels/launcher.h share one pool, from the first module's load to the
 * last module's unload; the device of gemmd-runner has a pool of its own. A fork waits while a
 * thread creates or ends the shared pool: the child would get a pool whose threads are stopping.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/devices/cpu/cpu.h"
#include "kernels/loading.h"

static int write_image(int fd, const void *image, size_t size)
{
    for (const char *at = image; size > 0;) {
        ssize_t n = write(fd, at, size);
        if (n <= 0) {
            return -1;
        }
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

enum { PATH_LENGTH = 128 };

/* dlopen identifies objects by the text of their path, and a closed descriptor's number is used
 * again. So each module spells the path in a unique way, a number in binary: 0 is "/.", 1 "//". */
static void name_module(int fd, char out[PATH_LENGTH])
{
    static atomic_uint modules;
    size_t n = (size_t)snprintf(out, PATH_LENGTH, "/proc/self");
    for (unsigned bit = 0, number = atomic_fetch_add(&modules, 1); bit < 32; bit++) {
        memcpy(out + n, number >> bit & 1 ? "//" : "/.", 2);
        n += 2;
    }
    snprintf(out + n, PATH_LENGTH - n, "/fd/%d", fd);
}

int cpu_module_open(const void *image, size_t size, struct cpu_module *m, struct error *err)
{
    *m = (struct cpu_module){0};
    int fd = memfd_create("gemmd-module", MFD_CLOEXEC);
    if (fd < 0) {
        return error_set(err, ERROR_NO_MEMORY, "cannot make a file in memory for a module: %s",
                         strerror(errno));
    }
    if (write_image(fd, image, size) < 0) {
        close(fd);
        return error_set(err, ERROR_NO_MEMORY, "cannot write a module of %zu bytes to memory: %s",
                         size, strerror(errno));
    }
    char path[PATH_LENGTH];
    name_module(fd, path);
    loading_begin();
    m->dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    loading_end();
    close(fd); /* closed at once: a process may hold thousands of modules */
    if (!m->dl) {
        const char *text = dlerror();
        return error_set(err, ERROR_INVALID, "the module cannot be loaded: %s",
                         text ? text : "unknown reason");
    }
    return 0;
}

void cpu_module_close(struct cpu_module *m)
{
    if (m->dl) {
        loading_close(m->dl);
    }
    *m = (struct cpu_module){0};
}

struct call {
    void (*entry)(const void *params, uint32_t block);
    const void *params;
};

static void call_block(void *ctx, uint32_t block)
{
    const struct call *c = ctx;
    c->entry(c->params, block);
}

int cpu_module_launch(struct cpu_module *m, const struct launch *l, struct error *err)
{
    struct call call = {.entry = l->cpu_entry, .params = l->params};
    if (!call.entry) {
        void *symbol = dlsym(m->dl, l->entry);
        if (!symbol) {
            return error_set(err, ERROR_INVALID, "the module has no entry \"%s\"", l->entry);
        }
        memcpy(&call.entry, &symbol, sizeof(symbol)); /* POSIX allows this; ISO C has no cast */
    }
    pool_run(m->pool, call_block, &call, l->grid[0]);
    return 0;
}

/* ---- the backend ----------------------------------------------------------------------------- */

/* The mutex is recursive, since the fork handlers may be registered twice: a child forked
 * between pthread_atfork and the end of pthread_once repeats the pthread_once. */
static pthread_mutex_t shared_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct pool *shared_pool;
static unsigned shared_users;

static void cpu_load_before_fork(void)
{
    loading_begin(); /* the loading lock comes first in the lock order (kernels/loading.h) */
    pthread_mutex_lock(&shared_lock);
}

static void cpu_load_after_fork(void)
{
    pthread_mutex_unlock(&shared_lock);
    loading_end();
}

/* Initialises the mutex again instead of unlocking it: the mutex's owner is the parent's thread,
 * and the child's thread has another id. (kernels/loading.c does the same.) */
static void cpu_load_after_fork_child(void)
{
    if (shared_pool) {
        pool_forked(shared_pool);
    }
    shared_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

static void cpu_load_watch_forks(void)
{
    loading_watch_forks();
    pthread_atfork(cpu_load_before_fork, cpu_load_after_fork, cpu_load_after_fork_child);
}

static struct pool *shared_pool_get(struct error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, cpu_load_watch_forks);
    pthread_mutex_lock(&shared_lock);
    if (!shared_pool) {
        int threads = cpu_threads("cpu", err);
        shared_pool = threads > 0 ? pool_new((uint32_t)threads) : NULL;
    }
    shared_users += shared_pool ? 1 : 0;
    struct pool *pool = shared_pool;
    pthread_mutex_unlock(&shared_lock);
    return pool;
}

static void shared_pool_put(void)
{
    pthread_mutex_lock(&shared_lock);
    if (--shared_users == 0) {
        shared_pool = pool_free(shared_pool);
    }
    pthread_mutex_unlock(&shared_lock);
}

static int backend_info(struct device_info *out, struct error *err)
{
    return cpu_describe("cpu", out, err);
}

static int backend_load(const void *image, size_t size, void **handle, struct error *err)
{
    *handle = NULL;
    struct cpu_module *m = calloc(1, sizeof(*m));
    if (!m) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a module");
    }
    int r = cpu_module_open(image, size, m, err);
    if (r) {
        free(m);
        return r;
    }
    m->pool = shared_pool_get(err);
    if (!m->pool) {
        cpu_module_close(m);
        free(m);
        return error_set(err, ERROR_NO_MEMORY, "cannot start the threads that run kernels");
    }
    *handle = m;
    return 0;
}

static void backend_unload(void *handle)
{
    struct cpu_module *m = handle;
    cpu_module_close(m);
    free(m);
    shared_pool_put();
}

static int backend_launch(void *handle, const struct launch *l, void *stream, struct error *err)
{
    return cpu_module_launch(handle, l, err);
}

const struct launch_backend cpu_launch_backend = {
#if defined(__aarch64__)
    .elf_machine = EM_AARCH64,
#else
    .elf_machine = EM_X86_64,
#endif
    .info = backend_info,
    .load = backend_load,
    .unload = backend_unload,
    .launch = backend_launch,
};
