/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/base/probe.h"
#include "daemon/tuning/tuning.h"

enum {
    SOON_MS = 20,
    JOBS_MOST = 32,       /* searches that one process gets */
    CANDIDATES_MOST = 16, /* candidates that one process gets: a queued job waits for its end */
    SLICE = 4096,         /* slots of the cache that one look reads */
};

static void on_soon(uv_timer_t *timer);

void precompile_init(struct precompiler *a, struct daemon *d, const struct scheduler *s)
{
    *a = (struct precompiler){.daemon = d, .scheduler = s};
    uv_timer_init(&d->loop, &a->soon);
    a->soon.data = a;
}

void precompile_queued(struct precompiler *a)
{
    const struct daemon *d = a->daemon;
    /* not for the CPU or a replay (tuning.h) */
    bool may = strncmp(d->config->device, "cuda", 4) == 0 && d->config->compile_ahead > 0;
    if (may && !a->runs && !a->stopping && !uv_is_active((uv_handle_t *)&a->soon)) {
        uv_timer_start(&a->soon, on_soon, SOON_MS, 0);
    }
}

void precompile_tick(struct precompiler *a)
{
    if (a->daemon->has_candidates && !a->daemon->config->offline) {
        precompile_queued(a);
    }
}

/* ---- input of the process -------------------------------------------------------------------- */

/* Writes a search, with its restrictions, as a line of JSON. */
static bool precompile_write_line(const struct wire_buf *search, int fd)
{
    char *text = NULL;
    bool written = wire_buf_to_json(search, &text, NULL) == 0 && dprintf(fd, "%s\n", text) > 0;
    free(text);
    return written;
}

/* Writes the confirmation of a candidate: the search of its config alone. False: the entry is no
 * candidate that this daemon could confirm, or a process had it. */
static bool precompile_write_candidate(struct precompiler *a, struct cache_entry *e, int fd)
{
    struct daemon *d = a->daemon;
    struct request *r = &d->scratch->request;
    WIRE_BUF_AUTO search = WIRE_BUF_NULL;
    char key[HASH_HEX];
    if (!e->candidate || e->precompiled) {
        return false;
    }
    e->precompiled = true;
    cache_entry_id(e, key);
    bool can = cache_problem(&d->cache, e, &r->problem, NULL) == 0 &&
               confirm_is_due(d, key, &r->problem, e) && request_default(r, NULL) == 0;
    if (can) {
        snprintf(r->query.strategy, sizeof(r->query.strategy), "given");
        family_stamp_target(d->scratch->answer.stamp, r->query.target);
        r->configs = &d->scratch->answer.config; /* borrowed */
        r->n_configs = 1;
        request_pack(&search, r);
        can = !search.failed && precompile_write_line(&search, fd);
    }
    *r = (struct request){.n_configs = 0};
    return can;
}

/* Writes candidates that no process had yet, from the cache's next slots. */
static unsigned precompile_write_candidates(struct precompiler *a, int fd)
{
    struct daemon *d = a->daemon;
    const struct hash_table *keys = &d->cache.keys;
    unsigned n = 0;
    if (a->at == 0) {
        d->has_candidates = false; /* learn.c sets the flag again when another candidate comes */
    }
    for (size_t i = 0; i < SLICE && n < CANDIDATES_MOST && a->at < keys->capacity; i++) {
        struct cache_entry *e = keys->slots[a->at++];
        n += e && precompile_write_candidate(a, e, fd);
    }
    if (a->at < keys->capacity) {
        d->has_candidates = true;
    } else {
        a->at = 0;
    }
    return n;
}

/* Writes a queued job: its search, or the confirmation of its key's candidate. */
static bool precompile_write_job(struct precompiler *a, struct job *j, int fd)
{
    struct cache_entry *e = cache_find_id(&a->daemon->cache, j->key, NULL);
    if (e && e->candidate && !j->again && !j->pin && !j->restricted) {
        return precompile_write_candidate(a, e, fd);
    }
    return precompile_write_line(&j->search, fd);
}

/* Writes the queued searches that no process had yet, in queue order. */
static unsigned write_searches(struct precompiler *a, int fd)
{
    unsigned n = 0;
    LIST_EACH(struct job, j, &a->scheduler->queue, link) {
        if (n < JOBS_MOST && !j->precompiled) {
            j->precompiled = true;
            n += precompile_write_job(a, j, fd);
        }
    }
    return n;
}

/* ---- the process ----------------------------------------------------------------------------- */

static void precompile_on_closed(uv_handle_t *handle)
{
    struct precompiler *a = handle->data;
    a->runs = false;
    if (!a->stopping && a->scheduler->n_queued > 0) {
        precompile_queued(a); /* for jobs that were queued while the process ran */
    } else if (!a->stopping) {
        precompile_tick(a);
    }
}

static void on_exit_of(uv_process_t *process, int64_t status, int signal)
{
    if (status || signal) {
        log_info("compiling ahead ended early (status %lld, signal %d): the runner compiles",
                 (long long)status, signal);
    }
    uv_close((uv_handle_t *)process, precompile_on_closed);
}

static int precompile_spawn_process(struct precompiler *a, int searches)
{
    struct daemon *d = a->daemon;
    char device[sizeof(d->device.arch) + 8], each[24], parent[24];
    char *expected = probe_device_text(&d->device);
    snprintf(device, sizeof(device), "cuda:%s", d->device.arch);
    snprintf(each, sizeof(each), "%lld", (long long)d->config->compile_ahead);
    snprintf(parent, sizeof(parent), "%lld", (long long)getpid());
    const char *args[] = {d->config->runner,
                          "--precompile",
                          "--problems",
                          "--openings",
                          "--with-parent",
                          parent,
                          "--quiet",
                          "--each",
                          each,
                          "--device",
                          device,
                          "--expect",
                          expected ? expected : "",
                          "--cache-dir",
                          d->cache_dir,
                          NULL};
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_INHERIT_FD, .data.fd = searches}, {.flags = UV_IGNORE}, {.flags = UV_IGNORE}};
    uv_process_options_t o = {.exit_cb = on_exit_of,
                              .file = d->config->runner,
                              .args = (char **)args,
                              .stdio_count = 3,
                              .stdio = stdio};
    a->process.data = a;
    int status = uv_spawn(&d->loop, &a->process, &o);
    free(expected);
    return status;
}

static void precompile_start_searches(struct precompiler *a, int searches, unsigned n)
{
    int status = precompile_spawn_process(a, searches);
    a->runs = true;
    a->starts++;
    if (status < 0) {
        /* libuv requires that the handle is closed also when no process was started */
        log_info("cannot compile ahead: %s; the runner compiles", uv_strerror(status));
        uv_close((uv_handle_t *)&a->process, precompile_on_closed);
        return;
    }
    log_info("compiling ahead for %u problems, process %d", n, (int)a->process.pid);
}

static void on_soon(uv_timer_t *timer)
{
    struct precompiler *a = timer->data;
    int fd = a->runs || a->stopping ? -1 : memfd_create("searches", MFD_CLOEXEC);
    unsigned n = fd >= 0 && a->scheduler->running ? write_searches(a, fd) : 0;
    if (fd >= 0 && n == 0) {
        n = precompile_write_candidates(a, fd);
    }
    if (n > 0 && lseek(fd, 0, SEEK_SET) == 0) {
        precompile_start_searches(a, fd, n);
    }
    if (fd >= 0) {
        close(fd);
    }
}

void precompile_stop(struct precompiler *a)
{
    a->stopping = true;
    uv_close((uv_handle_t *)&a->soon, NULL);
    if (a->runs && !uv_is_closing((uv_handle_t *)&a->process)) { /* else the process has ended */
        uv_process_kill(&a->process, SIGKILL);
        uv_close((uv_handle_t *)&a->process, precompile_on_closed);
    }
}
