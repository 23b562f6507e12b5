/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mode --precompile: has the compile pool build all variants of all searches, at the lowest
 * priority of processor and disk. First the device's own kernels, which every tuning waits for.
 * Then the searches take turns, so that stopping early leaves every problem its best candidates.
 * With
 * --openings they do not: these searches wait in gemmd's queue, and the first of them begins soon.
 *
 * Variants in the cache are skipped, so that the mode continues where it stopped. Every image is
 * written atomically, so that the mode may be stopped at any moment. SIGINT and SIGTERM let running
 * compiles end and begin no other compile; a second signal ends the process at once.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/device.h"
#include "runner/compile/apart.h"
#include "runner/compile/pool.h"
#include "runner/precompile/precompile.h"

enum {
    LOOK_MS = 200,
    COMPILE_LIMIT_MS = 300000, /* long: at the lowest priority a compile may get no processor */
    BLOCK = 4096,
    LOWEST = 19,
};
enum { WHO_PROCESS = 1, CLASS_IDLE = 3, CLASS_SHIFT = 13 }; /* of ioprio_set(2) */

struct precompile {
    const struct mode_order *mode;
    struct precompile_order *order;
    char cache_dir[PATHS_MAX];
    uint32_t n; /* number of variants that the pool was given */
    uint32_t compiled, found, refused, failed;
    int64_t bytes;                 /* size of the cache directory, with the new images */
    double began_ms, compiling_ms; /* compiling_ms: when the pool had been given all variants */
    struct line line;
    bool full;
    struct error failure; /* the first failure that was not a refusal of a variant */
};

static volatile sig_atomic_t interrupted;

static void precompile_on_signal(int number)
{
    if (interrupted) {
        mode_die(number);
    }
    interrupted = number;
}

/* ---- progress -------------------------------------------------------------------------------- */

static uint32_t precompile_count_done(const struct precompile *w)
{
    return w->compiled + w->found + w->refused + w->failed;
}

static void precompile_draw_line(struct precompile *w)
{
    const double now = device_clock_ms(NULL);
    const uint32_t made = w->compiled + w->refused, left = w->n - precompile_count_done(w);
    char rest[48] = "";
    if (!mode_is_line_due(&w->line, now)) {
        return;
    }
    if (interrupted) {
        mode_put_line(&w->line, "precompile %u/%u: ending; once more ends it at once",
                      precompile_count_done(w), w->n);
        return;
    }
    if (made > 0) {
        snprintf(rest, sizeof(rest), ", %.0f s left at most",
                 (now - w->compiling_ms) / 1e3 / made * left);
    }
    mode_put_line(&w->line, "precompile %u/%u: %u compiled, %u were there, %u refused%s",
                  precompile_count_done(w), w->n, w->compiled, w->found, w->refused, rest);
}

static void precompile_print_summary(const struct precompile *w)
{
    const struct device_info *info = &w->order->setup.info;
    double seconds = (device_clock_ms(NULL) - w->began_ms) / 1e3;
    uint32_t left = w->n - precompile_count_done(w);
    if (w->mode->json) {
        printf("{\"variants\": %u, \"compiled\": %u, \"found\": %u, \"refused\": %u, "
               "\"failed\": %u, \"left\": %u, \"full\": %s, \"seconds\": %.3f}\n",
               w->n, w->compiled, w->found, w->refused, w->failed, left, w->full ? "true" : "false",
               seconds);
        return;
    }
    printf("%u variants for %s: %u compiled, %u were there, %u refused, %u failed, %u left, in "
           "%.1f s (%s)\n",
           w->n, info->arch[0] ? info->arch : info->name, w->compiled, w->found, w->refused,
           w->failed, left, seconds, w->cache_dir);
    if (w->full && w->failed == 0) {
        printf("the cache directory is full: --cache-max-mib says how much it may hold\n");
    }
}

/* ---- compiling ------------------------------------------------------------------------------ */

static bool precompile_is_stopping(struct precompile *w)
{
    const struct precompile_order *o = w->order;
    w->full = w->full || (o->max_mib > 0 && w->bytes >= o->max_mib << 20);
    return interrupted || w->full ||
           (w->mode->seconds > 0 &&
            device_clock_ms(NULL) - w->compiling_ms >= (double)w->mode->seconds * 1e3);
}

static void precompile_note_failure(struct precompile *w, const struct error *why)
{
    w->failed++;
    if (!w->failure.code) {
        w->failure = *why;
    }
}

/* The pool's `done` hook. The cache has recorded refusals; the next --precompile tries other
 * failures again. */
static void precompile_settle_build(void *ctx, const struct build *b)
{
    struct precompile *w = ctx;
    if (b->found) {
        w->found++;
    } else if (b->unsaved) {
        struct error why = ERROR_NULL;
        error_set(&why, ERROR_IO, "the cache directory does not take what is compiled");
        precompile_note_failure(w, &why);
        w->full = true; /* the disk takes no image, so further compiles would be lost */
    } else if (b->state == BUILD_READY) {
        w->compiled++;
        w->bytes += ((int64_t)b->image.size + 2 * BLOCK - 1) / BLOCK * BLOCK;
    } else if (b->refused) {
        w->refused++;
    } else {
        precompile_note_failure(w, &b->error);
    }
}

/* Compiles until all variants are done. After a stop, waits only for the running compiles. */
static void precompile_compile_all(struct precompile *w)
{
    while (compile_pool_pending(w->order->setup.pool) > 0) {
        if (precompile_is_stopping(w)) {
            compile_pool_drop_unheld(w->order->setup.pool);
        }
        compile_pool_wait(w->order->setup.pool, LOOK_MS, COMPILE_LIMIT_MS);
        compile_pool_collect(w->order->setup.pool);
        precompile_draw_line(w);
    }
}

/* ---- the mode ------------------------------------------------------------------------------- */

static void be_humble(void)
{
    setpriority(PRIO_PROCESS, 0, LOWEST);
    syscall(SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE << CLASS_SHIFT);
    struct sigaction stop = {.sa_handler = precompile_on_signal};
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
}

/* Has the kernel kill this process when its parent ends. False: the parent has ended already. */
static bool stay_with(int64_t parent)
{
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == (pid_t)parent;
}

static int precompile_open_all(struct precompile *w, struct error *err)
{
    struct precompile_setup *s = &w->order->setup;
    s->device = w->mode->device;
    s->target = w->mode->target;
    int r = mode_find_cache(w->mode->cache_dir, w->cache_dir, err);
    /* For an absent GPU too, choose the NVRTC that fits this host's driver, if there is a driver:
     * the runner will use the same NVRTC. */
    const char *spec = strncmp(s->device, "cuda", 4) == 0 ? "cuda" : s->device;
    r = r ? r : apart_open(spec, &s->compiler, err);
    r = r || s->info.kind[0] ? r : device_probe(s->device, &s->info, err);
    if (r) {
        return r;
    }
    s->threads = mode_count_threads(w->mode->threads);
    s->cache_dir = w->cache_dir;
    s->rank = RANK_SPACE;
    const struct compile_pool_setup pool = {.compiler = w->order->setup.compiler,
                                            .cache_dir = w->cache_dir,
                                            .threads = s->threads,
                                            .paused = true, /* until all variants are in the heap */
                                            .done = precompile_settle_build,
                                            .ctx = w};
    return compile_pool_new(&pool, &s->pool, err);
}

static int precompile_prepare(struct precompile *w, struct error *err)
{
    struct modules_usage usage;
    int r = precompile_open_all(w, err);
    r = r ? r : precompile_add_problems(w->order, err);
    if (r == 0) {
        w->n = compile_pool_pending(w->order->setup.pool);
        modules_count(w->cache_dir, &usage);
        w->bytes = usage.bytes;
        compile_pool_resume(w->order->setup.pool);
    }
    return r;
}

int precompile_run(const struct mode_order *mode, struct precompile_order *o)
{
    static struct precompile w;
    struct error err = ERROR_NULL;
    w = (struct precompile){.mode = mode, .order = o, .began_ms = device_clock_ms(NULL)};
    if (o->with_parent && !stay_with(o->with_parent)) {
        return 130;
    }
    be_humble();
    int r = precompile_prepare(&w, &err);
    w.compiling_ms = device_clock_ms(NULL);
    mode_begin_line(&w.line, mode->quiet, w.compiling_ms);
    if (r == 0) {
        precompile_compile_all(&w);
    }
    mode_end_line(&w.line);
    if (r) {
        mode_print_error(&err, mode->json);
    } else {
        precompile_print_summary(&w);
        if (w.failed) {
            fprintf(stderr, "gemmd-runner: %u failed, the first: %s\n", w.failed, w.failure.text);
        }
    }
    bool said = mode_flush_output();
    apart_quit();
    _exit(r || w.failed || !said ? 1
          : interrupted          ? 128 + interrupted
                                 : 0); /* not exit(): threads may be lost in a compiler */
}
