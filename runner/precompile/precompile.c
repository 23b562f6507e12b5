/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling a plan, at the lowest priority of processor and disk. What is in the cache already is
 * passed over, so that it goes on where it was stopped; every image is written whole, so that it
 * may be stopped at any moment. SIGINT and SIGTERM let the compiles that run end and begin no
 * other; a second one ends it at once.
 *
 * What another process compiles is put aside and looked at again at the end: two of these with one
 * cache directory share the work.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runner/base/cache_dir.h"
#include "runner/base/line.h"
#include "runner/compile/apart.h"
#include "runner/compile/builds.h"
#include "runner/precompile/precompile.h"

enum {
    LOOK_MS = 200,
    COMPILE_LIMIT_MS = 300000, /* at this priority a compile may have to wait */
    BLOCK = 4096,
    LOWEST = 19,
};
enum { WHO_PROCESS = 1, CLASS_IDLE = 3, CLASS_SHIFT = 13 }; /* of ioprio_set(2) */

struct slot {
    struct build *build; /* NULL: free */
    uint32_t item;
};

struct precompile {
    const struct precompile_order *order;
    struct precompile_plan plan;
    struct compiler *compiler; /* owned */
    char cache_dir[PATHS_MAX];
    unsigned threads;
    struct builds *builds; /* owned, of a pass */
    struct slot *slots;    /* owned */
    unsigned n_slots;
    uint32_t *later; /* owned: items that others compile */
    uint32_t n_later;
    uint32_t compiled, found, refused, failed;
    int64_t bytes;                 /* of the cache */
    double began_ms, compiling_ms; /* compiling_ms: the plan was made */
    struct line line;
    bool full;
    struct error failure; /* the first that was not a refusal */
};

static volatile sig_atomic_t interrupted;

static void precompile_on_signal(int number)
{
    if (interrupted) {
        line_die(number);
    }
    interrupted = number;
}

static double precompile_clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- saying how it goes --------------------------------------------------------------------- */

static uint32_t precompile_count_done(const struct precompile *w)
{
    return w->compiled + w->found + w->refused + w->failed;
}

static void precompile_draw_line(struct precompile *w)
{
    const double now = precompile_clock_ms();
    const uint32_t made = w->compiled + w->refused, left = w->plan.n - precompile_count_done(w);
    char rest[48] = "";
    if (!line_due(&w->line, now)) {
        return;
    }
    if (interrupted) {
        line_put(&w->line, "precompile %u/%u: ending; once more ends it at once",
                 precompile_count_done(w), w->plan.n);
        return;
    }
    if (made > 0) {
        snprintf(rest, sizeof(rest), ", %.0f s left at most",
                 (now - w->compiling_ms) / 1e3 / made * left);
    }
    line_put(&w->line, "precompile %u/%u: %u compiled, %u were there, %u refused%s",
             precompile_count_done(w), w->plan.n, w->compiled, w->found, w->refused, rest);
}

static void precompile_print_summary(const struct precompile *w)
{
    double seconds = (precompile_clock_ms() - w->began_ms) / 1e3;
    uint32_t left = w->plan.n - precompile_count_done(w);
    if (w->order->json) {
        printf("{\"variants\": %u, \"compiled\": %u, \"found\": %u, \"refused\": %u, "
               "\"failed\": %u, \"left\": %u, \"full\": %s, \"seconds\": %.3f}\n",
               w->plan.n, w->compiled, w->found, w->refused, w->failed, left,
               w->full ? "true" : "false", seconds);
        return;
    }
    printf("%u variants for %s: %u compiled, %u were there, %u refused, %u failed, %u left, in "
           "%.1f s (%s)\n",
           w->plan.n, w->plan.info.arch[0] ? w->plan.info.arch : w->plan.info.name, w->compiled,
           w->found, w->refused, w->failed, left, seconds, w->cache_dir);
    if (w->full && w->failed == 0) {
        printf("the cache directory is full: --cache-max-mib says how much it may hold\n");
    }
}

/* ---- compiling ------------------------------------------------------------------------------ */

static bool precompile_is_stopping(struct precompile *w)
{
    const struct precompile_order *o = w->order;
    w->full = w->full || (o->max_bytes > 0 && w->bytes >= o->max_bytes);
    return interrupted || w->full ||
           (o->seconds > 0 && precompile_clock_ms() - w->compiling_ms >= (double)o->seconds * 1e3);
}

static void precompile_note_failure(struct precompile *w, const struct error *why)
{
    w->failed++;
    if (!w->failure.code) {
        w->failure = *why;
    }
}

/* A refusal is in the cache now, or was; another failure is not: it is tried again next time. */
static void precompile_settle_build(struct precompile *w, const struct build *b, uint32_t item)
{
    if (b->state == BUILD_READY && b->unsaved) {
        struct error why = ERROR_NULL;
        error_set(&why, ERROR_IO, "the cache directory does not take what is compiled");
        precompile_note_failure(w, &why);
        w->full = true; /* the rest would be compiled for nothing */
    } else if (b->state == BUILD_READY) {
        w->found += b->found;
        w->compiled += !b->found;
        w->bytes += b->found ? 0 : ((int64_t)b->image.size + 2 * BLOCK - 1) / BLOCK * BLOCK;
    } else if (b->error.code == ERROR_BUSY) {
        w->later[w->n_later++] = item;
    } else if (b->found) {
        w->found++;
    } else if (b->refused) {
        w->refused++;
    } else {
        precompile_note_failure(w, &b->error);
    }
}

static unsigned precompile_collect_builds(struct precompile *w)
{
    unsigned busy = 0;
    builds_collect(w->builds);
    for (unsigned i = 0; i < w->n_slots; i++) {
        struct slot *s = &w->slots[i];
        if (s->build && s->build->state != BUILD_PENDING) {
            precompile_settle_build(w, s->build, s->item);
            builds_release(w->builds, s->build);
            s->build = NULL;
        }
        busy += s->build != NULL;
    }
    return busy;
}

static void wait_a_little(struct precompile *w)
{
    struct pollfd f = {.fd = builds_fd(w->builds), .events = POLLIN};
    poll(&f, 1, LOOK_MS); /* a signal ends it, too */
    struct build *longest;
    int64_t ms = builds_longest(w->builds, &longest);
    if (ms > COMPILE_LIMIT_MS) {
        builds_give_up(w->builds, longest, ms);
    }
    precompile_draw_line(w);
}

static int precompile_begin_item(struct precompile *w, uint32_t item, struct error *err)
{
    struct variant v;
    const struct precompile_item *it = &w->plan.items[item];
    struct slot *s = w->slots;
    while (s->build) {
        s++;
    }
    s->item = item;
    int r = precompile_plan_variant(&w->plan, it, &v, err);
    return r ? r : builds_want(w->builds, &v, it->hash, NULL, 0, &s->build, err);
}

/* Those not begun are given back, those that run are waited for. */
static void precompile_withdraw_rest(struct precompile *w)
{
    for (unsigned i = 0; i < w->n_slots; i++) {
        if (w->slots[i].build && builds_withdraw(w->builds, w->slots[i].build)) {
            w->slots[i].build = NULL;
        }
    }
    while (precompile_collect_builds(w) > 0) {
        wait_a_little(w);
    }
}

/* `which`: of these items, in this order; NULL: all. */
static int precompile_run_pass(struct precompile *w, const uint32_t *which, uint32_t n,
                               bool impatient, struct error *err)
{
    const struct builds_setup setup = {.compiler = w->compiler,
                                       .cache_dir = w->cache_dir,
                                       .threads = w->threads,
                                       .niceness = LOWEST,
                                       .impatient = impatient,
                                       .note_fd = -1};
    int r = builds_new(&setup, &w->builds, err);
    if (r) {
        return r;
    }
    for (uint32_t i = 0; i < n && r == 0 && !precompile_is_stopping(w);) {
        if (precompile_collect_builds(w) < w->n_slots) {
            r = precompile_begin_item(w, which ? which[i] : i, err);
            i++;
        } else {
            wait_a_little(w);
        }
    }
    while (!precompile_is_stopping(w) && r == 0 && precompile_collect_builds(w) > 0) {
        wait_a_little(w);
    }
    precompile_withdraw_rest(w);
    w->builds = builds_free(w->builds);
    return r;
}

static int compile_all(struct precompile *w, struct error *err)
{
    int r = precompile_run_pass(w, NULL, w->plan.n, true, err);
    uint32_t n = w->n_later, *later = w->later;
    if (r == 0 && n > 0 &&
        !precompile_is_stopping(w)) { /* in place: none of them is put aside again */
        r = precompile_run_pass(w, later, n, false, err);
    }
    return r;
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

/* False: the parent has ended already. */
static bool stay_with(int64_t parent)
{
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == (pid_t)parent;
}

/* Kernels for a GPU that is not here are compiled by the NVRTC that the driver here can take, when
 * there is one: it is the one that the runner will ask for. */
static int open_compiler(struct precompile *w, struct error *err)
{
    const char *spec = w->order->setup.device;
    return apart_open(strncmp(spec, "cuda", 4) == 0 ? "cuda" : spec, &w->compiler, err);
}

static int precompile_allocate(struct precompile *w, struct error *err)
{
    w->n_slots = 2 * w->threads; /* so that no thread waits for us */
    w->slots = calloc(w->n_slots, sizeof(*w->slots));
    w->later = calloc(w->plan.n + 1, sizeof(*w->later));
    return w->slots && w->later ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory to compile");
}

static int precompile_prepare(struct precompile *w, struct error *err)
{
    struct modules_usage usage;
    struct precompile_setup s = w->order->setup;
    s.cache_dir = s.openings ? w->cache_dir : NULL;
    int r = cache_dir_find(w->order->cache_dir, w->cache_dir, err);
    r = r ? r : open_compiler(w, err);
    if (r) {
        return r;
    }
    w->threads = s.threads = cache_dir_threads(w->order->threads);
    s.compiler = w->compiler->ops->version(w->compiler);
    r = precompile_plan_init(&w->plan, &s, err);
    modules_count(w->cache_dir, &usage);
    w->bytes = usage.bytes;
    return r ? r : precompile_allocate(w, err);
}

int precompile_run(struct precompile_order *o)
{
    static struct precompile w;
    struct error err = ERROR_NULL;
    w = (struct precompile){.order = o, .began_ms = precompile_clock_ms()};
    if (o->with_parent && !stay_with(o->with_parent)) {
        return 130;
    }
    be_humble();
    int r = precompile_prepare(&w, &err);
    w.compiling_ms = precompile_clock_ms();
    line_begin(&w.line, o->quiet, w.compiling_ms);
    r = r ? r : compile_all(&w, &err);
    line_end(&w.line);
    if (r) {
        line_fail(&err, o->json);
    } else {
        precompile_print_summary(&w);
        if (w.failed) {
            fprintf(stderr, "gemmd-runner: %u failed, the first: %s\n", w.failed, w.failure.text);
        }
    }
    bool said = line_said();
    apart_quit();
    _exit(r || w.failed || !said ? 1
          : interrupted          ? 128 + interrupted
                                 : 0); /* threads may be lost */
}
