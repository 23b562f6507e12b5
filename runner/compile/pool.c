/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of builds, a heap of waiting builds, and threads that take the first build of the heap. A
 * build enters the table when a caller first wants its variant. A build without references leaves
 * the table, unless the pool must remember it: a failure, so that the variant is not compiled
 * again, or an image that could not be written to the cache directory.
 *
 * Only the owner's thread (the runner's main thread) uses the table. The mutex protects the heap,
 * the lists of running and finished work, and the state of each thread. An eventfd wakes the owner,
 * which polls the eventfd together with the socket to gemmd.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/device.h"
#include "runner/compile/pool.h"

enum { NICENESS = 10 /* compiling must not disturb measuring */, BUCKETS = 4096 };
#define PLACE_NONE UINT32_MAX

/* A compile. A thread has it while it runs; the owner reads it only before and after that. */
struct work {
    struct compile_pool *pool; /* borrowed */
    struct build *build;       /* borrowed from the owner's table */
    /* next work in the list `running` (in order of start) or `done` (in order of end) */
    struct work *next;
    bool abandoned; /* the build was given up, so the thread frees the work */
    struct variant variant;
    char hash[HASH_HEX];
    bool patient;             /* true: waits while another process compiles the variant */
    struct modules_made made; /* the compiled image, owned until it is moved to the build */
    int status;
    struct error error;
    int64_t started_ms;
};

struct compile_pool {
    struct compile_pool_setup setup;
    struct build *table[BUCKETS]; /* owned lists, by hash */
    uint32_t pending, lost, number;
    int event;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping;
    unsigned n_threads, busy; /* busy: threads that compile, given-up work included */
    struct build **heap;      /* owned array; borrowed builds */
    uint32_t n_waiting, room;
    struct work *running, *done; /* borrowed lists */
    pthread_t threads[];
};

/* ---- the heap; the caller holds the mutex ---------------------------------------------------- */

static bool compile_pool_goes_before(const struct build *a, const struct build *b)
{
    if (a->rank != b->rank) {
        return a->rank < b->rank;
    }
    return a->turn != b->turn ? a->turn < b->turn : a->number < b->number;
}

/* Puts a build into the heap, from the free place `at` up or down to where the order wants it. */
static void compile_pool_sift_build(struct compile_pool *p, struct build *b, uint32_t at)
{
    struct build **heap = p->heap;
    for (; at > 0 && compile_pool_goes_before(b, heap[(at - 1) / 2]); at = (at - 1) / 2) {
        heap[at] = heap[(at - 1) / 2];
        heap[at]->place = at;
    }
    for (uint32_t child; (child = 2 * at + 1) < p->n_waiting; at = child) {
        child += child + 1 < p->n_waiting && compile_pool_goes_before(heap[child + 1], heap[child]);
        if (!compile_pool_goes_before(heap[child], b)) {
            break;
        }
        heap[at] = heap[child];
        heap[at]->place = at;
    }
    heap[at] = b;
    b->place = at;
}

static bool compile_pool_push_build(struct compile_pool *p, struct build *b)
{
    if (p->n_waiting == p->room) {
        uint32_t room = p->room ? 2 * p->room : 64;
        struct build **heap = realloc(p->heap, room * sizeof(struct build *));
        if (!heap) {
            return false;
        }
        p->heap = heap;
        p->room = room;
    }
    compile_pool_sift_build(p, b, p->n_waiting++);
    pthread_cond_signal(&p->wake);
    return true;
}

static void compile_pool_pull_build(struct compile_pool *p, struct build *b)
{
    struct build *last = p->heap[--p->n_waiting];
    if (last != b) {
        compile_pool_sift_build(p, last, b->place);
    }
    b->place = PLACE_NONE;
}

/* ---- in a thread of the pool ----------------------------------------------------------------- */

static struct modules_order compile_pool_module_order(struct work *w)
{
    return (struct modules_order){.compiler = w->pool->setup.compiler,
                                  .cache_dir = w->pool->setup.cache_dir,
                                  .variant = &w->variant,
                                  .hash = w->hash,
                                  .wait_ms = w->patient ? MODULES_WAIT_MS : 0};
}

static struct work *compile_pool_free_work(struct work *w)
{
    if (w) {
        image_deinit(&w->made.image);
        free(w);
    }
    return NULL;
}

static void compile_pool_append_work(struct work **list, struct work *w)
{
    while (*list) {
        list = &(*list)->next;
    }
    w->next = NULL;
    *list = w;
}

static void compile_pool_unlist_work(struct compile_pool *p, const struct work *w)
{
    struct work **at = &p->running;
    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
}

/* Waits for the first build of the heap and takes its work. NULL: the pool stops. */
static struct work *compile_pool_take_next(struct compile_pool *p)
{
    while ((p->n_waiting == 0 || p->setup.paused) && !p->stopping) {
        pthread_cond_wait(&p->wake, &p->lock);
    }
    if (p->stopping) {
        return NULL;
    }
    struct build *b = p->heap[0];
    compile_pool_pull_build(p, b);
    b->work->started_ms = (int64_t)device_clock_ms(NULL);
    compile_pool_append_work(&p->running, b->work);
    p->busy++;
    return b->work;
}

static void compile_pool_finish_work(struct compile_pool *p, struct work *w)
{
    const uint64_t one = 1;
    compile_pool_unlist_work(p, w);
    compile_pool_append_work(&p->done, w);
    ssize_t n = write(p->event, &one, sizeof(one));
    assert(n == sizeof(one));
    (void)n;
}

static void *compile_pool_run_thread(void *arg)
{
    struct compile_pool *p = arg;
    struct work *w;
    if (getpriority(PRIO_PROCESS, 0) < NICENESS) {
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICENESS);
    }
    pthread_mutex_lock(&p->lock);
    while ((w = compile_pool_take_next(p))) {
        const struct modules_order order = compile_pool_module_order(w);
        pthread_mutex_unlock(&p->lock);
        w->status = modules_make(&order, &w->made, &w->error);
        pthread_mutex_lock(&p->lock);
        p->busy--;
        if (w->abandoned) {
            compile_pool_free_work(w);
        } else {
            compile_pool_finish_work(p, w);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- threads --------------------------------------------------------------------------------- */

int compile_pool_new(const struct compile_pool_setup *setup, struct compile_pool **out,
                     struct error *err)
{
    struct compile_pool *p = calloc(1, sizeof(*p) + setup->threads * sizeof(p->threads[0]));
    if (!p) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the compile pool");
    }
    p->setup = *setup;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = p->event < 0 ? errno : 0;
    while (r == 0 && p->n_threads < setup->threads) {
        r = pthread_create(&p->threads[p->n_threads], NULL, compile_pool_run_thread, p);
        p->n_threads += r == 0;
    }
    if (r) {
        compile_pool_free(p);
        return error_set(err, ERROR_NO_MEMORY, "cannot start %u compile threads: %s",
                         setup->threads, strerror(r));
    }
    *out = p;
    return 0;
}

void compile_pool_resume(struct compile_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->setup.paused = false;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void compile_pool_free_build(struct build *b)
{
    image_deinit(&b->image);
    compile_pool_free_work(b->work);
    free(b);
}

struct compile_pool *compile_pool_free(struct compile_pool *p)
{
    if (!p) {
        return NULL;
    }
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->n_threads; i++) {
        pthread_join(p->threads[i], NULL);
    }
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct build *b = p->table[i], *next; b; b = next) {
            next = b->next;
            assert(b->refs == 0);
            compile_pool_free_build(b);
        }
    }
    if (p->event >= 0) {
        close(p->event);
    }
    free(p->heap);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* The pointer in the table that points to the build of a variant's hash; without a build, the NULL
 * pointer at the end of the list. */
static struct build **compile_pool_find_slot(struct compile_pool *p, const char *hash)
{
    char digits[5];
    snprintf(digits, sizeof(digits), "%.4s", hash);
    struct build **at = &p->table[strtoul(digits, NULL, 16) % BUCKETS];
    while (*at && strcmp((*at)->hash, hash) != 0) {
        at = &(*at)->next;
    }
    return at;
}

/* True for builds that stay in the table without references: ready builds of ranks RANK_HELPER and
 * RANK_OPENING, unsaved images, and failures other than a temporary shortage. */
static bool compile_pool_must_keep(const struct build *b)
{
    if (b->state == BUILD_READY && (b->rank == RANK_HELPER || b->rank == RANK_OPENING)) {
        return true;
    }
    int why = b->error.code;
    bool passing = why == ERROR_BUSY || why == ERROR_NO_MEMORY || why == ERROR_DISK_FULL;
    return (b->state == BUILD_FAILED && !passing) || b->unsaved;
}

/* Called when the last holder has released the build: forgets the build, unless it compiles or must
 * be kept. */
static void compile_pool_let_go(struct compile_pool *p, struct build *b, enum rank rank)
{
    bool forget = false;
    pthread_mutex_lock(&p->lock);
    if (b->state == BUILD_PENDING && b->place != PLACE_NONE) {
        compile_pool_pull_build(p, b);
        p->pending--;
        forget = true;
    }
    b->rank = rank; /* it waits no longer, so no thread compares its rank */
    pthread_mutex_unlock(&p->lock);
    if (forget || (b->state != BUILD_PENDING && !compile_pool_must_keep(b))) {
        *compile_pool_find_slot(p, b->hash) = b->next;
        compile_pool_free_build(b);
    }
}

/* ---- wanting --------------------------------------------------------------------------------- */

static struct build *compile_pool_new_build(struct compile_pool *p,
                                            const struct compile_pool_want *w)
{
    struct build *b = calloc(1, sizeof(*b));
    struct work *work = calloc(1, sizeof(*work));
    if (!b || !work) {
        free(b);
        free(work);
        return NULL;
    }
    snprintf(b->hash, sizeof(b->hash), "%s", w->hash);
    b->rank = w->rank;
    b->turn = w->turn;
    b->number = p->number++;
    b->place = PLACE_NONE;
    b->work = work;
    work->pool = p;
    work->build = b;
    work->variant = *w->variant;
    work->patient = w->rank != RANK_SPACE;
    snprintf(work->hash, sizeof(work->hash), "%s", w->hash);
    return b;
}

/* Moves the results of the build's finished work to the build. */
static void compile_pool_settle_build(struct compile_pool *p, struct build *b)
{
    struct work *w = b->work;
    b->state = w->status ? BUILD_FAILED : BUILD_READY;
    b->image = w->made.image;
    w->made.image = (struct image){0};
    b->found = w->made.found;
    b->unsaved = w->made.unsaved;
    b->refused = w->made.refused;
    b->compile_ms = w->made.compile_ms;
    b->error = w->error;
    b->work = compile_pool_free_work(w);
    p->pending--;
}

/* Starts a build. When all threads are busy, looks into the cache at once: the threads may compile
 * variants that no search wants any more, for minutes. Else, or when the cache lacks the variant,
 * the build waits for a thread. False: no memory. */
static bool compile_pool_begin_build(struct compile_pool *p, struct build *b)
{
    struct work *w = b->work;
    const struct modules_order order = compile_pool_module_order(w);
    pthread_mutex_lock(&p->lock);
    const bool full = !p->setup.paused && (p->n_waiting > 0 || p->busy >= p->setup.threads);
    pthread_mutex_unlock(&p->lock);
    w->status = full && b->rank != RANK_SPACE ? modules_make_known(&order, &w->made, &w->error)
                                              : MODULES_MISS;
    p->pending++;
    if (w->status != MODULES_MISS) {
        compile_pool_settle_build(p, b);
        return true;
    }
    pthread_mutex_lock(&p->lock);
    const bool pushed = compile_pool_push_build(p, b);
    pthread_mutex_unlock(&p->lock);
    p->pending -= !pushed;
    return pushed;
}

/* For a build that is in the table when a caller wants its variant: raises its rank to the
 * caller's, and tries again to write an unsaved image, since the disk may have room again. */
static void compile_pool_want_again(struct compile_pool *p, struct build *b,
                                    const struct compile_pool_want *w)
{
    pthread_mutex_lock(&p->lock);
    if (w->rank < b->rank || (w->rank == b->rank && w->turn < b->turn)) {
        b->rank = w->rank;
        b->turn = w->turn;
        if (b->state == BUILD_PENDING && b->place != PLACE_NONE) {
            compile_pool_sift_build(p, b, b->place);
        }
    }
    pthread_mutex_unlock(&p->lock);
    if (b->unsaved) {
        const char *suffix = p->setup.compiler->ops->suffix;
        b->unsaved = modules_put(p->setup.cache_dir, &b->image, suffix, NULL) != 0;
    }
}

int compile_pool_want(struct compile_pool *p, const struct compile_pool_want *w, struct build **out,
                      struct error *err)
{
    struct build **at = compile_pool_find_slot(p, w->hash), *b = *at;
    if (b) {
        compile_pool_want_again(p, b, w);
    } else {
        b = compile_pool_new_build(p, w);
        if (!b || !compile_pool_begin_build(p, b)) {
            if (b) {
                compile_pool_free_build(b);
            }
            return error_set(err, ERROR_NO_MEMORY, "no memory to compile a variant");
        }
        *at = b;
    }
    if (out) {
        b->refs++;
        *out = b;
    }
    return 0;
}

void compile_pool_hold(struct build *b)
{
    b->refs++;
}

void compile_pool_release(struct compile_pool *p, struct build *b)
{
    assert(b->refs > 0);
    if (--b->refs == 0) {
        compile_pool_let_go(p, b, b->rank);
    }
}

void compile_pool_drop_unheld(struct compile_pool *p)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct build *b = p->table[i], *next; b; b = next) {
            next = b->next;
            if (b->refs == 0 && b->rank != RANK_HELPER) {
                /* with this rank, a build that still compiles leaves the table when it ends */
                compile_pool_let_go(p, b, RANK_SPACE);
            }
        }
    }
}

/* ---- results --------------------------------------------------------------------------------- */

uint32_t compile_pool_pending(const struct compile_pool *p)
{
    return p->pending;
}

static struct work *compile_pool_take_done(struct compile_pool *p)
{
    pthread_mutex_lock(&p->lock);
    struct work *w = p->done;
    if (w) {
        p->done = w->next;
    } else {
        uint64_t count; /* the list is empty: reading the eventfd makes it unreadable again */
        ssize_t n = read(p->event, &count, sizeof(count));
        (void)n;
    }
    pthread_mutex_unlock(&p->lock);
    return w;
}

/* True when the work ended because another process compiles the variant, and no search waits for
 * it. The build is then last in the heap again. */
static bool compile_pool_put_off(struct compile_pool *p, struct work *w)
{
    if (w->status != ERROR_BUSY || w->patient) {
        return false;
    }
    w->patient = true;
    w->started_ms = 0;
    pthread_mutex_lock(&p->lock);
    w->build->turn = UINT32_MAX;
    const bool pushed = compile_pool_push_build(p, w->build);
    pthread_mutex_unlock(&p->lock);
    return pushed;
}

static void compile_pool_tell_done(struct compile_pool *p, const struct build *b)
{
    if (p->setup.done) {
        p->setup.done(p->setup.ctx, b);
    }
}

uint32_t compile_pool_collect(struct compile_pool *p)
{
    uint32_t n = 0;
    for (struct work *w; (w = compile_pool_take_done(p));) {
        struct build *b = w->build;
        if (compile_pool_put_off(p, w)) {
            continue;
        }
        n++;
        compile_pool_settle_build(p, b);
        compile_pool_tell_done(p, b);
        if (b->refs == 0) {
            compile_pool_let_go(p, b, b->rank);
        }
    }
    return n;
}

int compile_pool_fd(const struct compile_pool *p)
{
    return p->event;
}

double compile_pool_ran_ms(struct compile_pool *p, const struct build *b)
{
    if (b->state != BUILD_PENDING) {
        return b->compile_ms;
    }
    pthread_mutex_lock(&p->lock);
    const int64_t since = b->work->started_ms;
    pthread_mutex_unlock(&p->lock);
    return since ? (double)((int64_t)device_clock_ms(NULL) - since) : 0;
}

int64_t compile_pool_longest(struct compile_pool *p, struct build **b)
{
    pthread_mutex_lock(&p->lock);
    const struct work *first = p->running;
    const int64_t ms = first ? (int64_t)device_clock_ms(NULL) - first->started_ms : -1;
    *b = first ? first->build : NULL;
    pthread_mutex_unlock(&p->lock);
    return ms;
}

/* Gives up running work: its thread frees it at the end. False: the work has just ended, and the
 * next compile_pool_collect() gets it. */
static bool compile_pool_abandon_work(struct compile_pool *p, struct work *w)
{
    pthread_mutex_lock(&p->lock);
    const struct work *at = p->running;
    while (at && at != w) {
        at = at->next;
    }
    if (at) {
        compile_pool_unlist_work(p, w);
        w->abandoned = true;
    }
    pthread_mutex_unlock(&p->lock);
    return at != NULL;
}

void compile_pool_give_up(struct compile_pool *p, struct build *b, int64_t after_ms)
{
    const struct compiler_ops *ops = p->setup.compiler->ops;
    /* stop() only compares this address: the thread owns the variant and may free it */
    const struct variant *v = &b->work->variant;
    assert(b->state == BUILD_PENDING);
    if (!compile_pool_abandon_work(p, b->work)) {
        return;
    }
    if (ops->stop) {
        ops->stop(p->setup.compiler, v);
    }
    p->lost++;
    p->pending--;
    b->work = NULL;
    b->state = BUILD_FAILED;
    error_set(&b->error, ERROR_HUNG, "the compiler did not end within %lld ms",
              (long long)after_ms);
    compile_pool_tell_done(p, b);
}

void compile_pool_wait(struct compile_pool *p, int most_ms, int64_t limit_ms)
{
    struct pollfd f = {.fd = p->event, .events = POLLIN};
    struct build *longest;
    poll(&f, 1, most_ms); /* a signal ends poll, too */
    const int64_t ms = compile_pool_longest(p, &longest);
    if (ms > limit_ms) {
        compile_pool_give_up(p, longest, ms);
    }
}

uint32_t compile_pool_lost(const struct compile_pool *p)
{
    return p->lost;
}
