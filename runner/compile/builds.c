/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of builds. A build enters it when it is first wanted and leaves it when nobody holds it,
 * unless it must be remembered: a failure (so that it is not tried again), or an image that the
 * disk did not take. Tables are small (a job's look-ahead, and the failures), so they are lists.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/crash.h"
#include "runner/compile/builds.h"

struct builds {
    struct builds_setup setup;
    struct tasks *pool;  /* owned */
    struct build *first; /* owned list */
    uint32_t lost;
};

/* All that the thread touches. The owner looks at it only before submit and after collect. */
struct work {
    struct task task;          /* first */
    struct builds_setup setup; /* a copy: a lost thread may outlive the table */
    struct build *build;       /* borrowed; the owner's */
    struct variant variant;
    char hash[HASH_HEX];
    struct modules_made made; /* its image: owned until it is moved to the build */
    int status;
    struct error error;
    size_t note_size;
    uint8_t note[]; /* sent when the process dies while this compiles */
};

static struct work *work_free(struct work *w)
{
    if (w) {
        image_deinit(&w->made.image);
        free(w);
    }
    return NULL;
}

static struct build *build_free(struct build *w)
{
    image_deinit(&w->image);
    work_free(w->work);
    free(w);
    return NULL;
}

int builds_new(const struct builds_setup *setup, struct builds **out, struct error *err)
{
    struct builds *b = calloc(1, sizeof(*b));
    if (!b) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the compile pool");
    }
    b->setup = *setup;
    int r = tasks_new(setup->threads, setup->niceness ? setup->niceness : COMPILE_NICENESS,
                      &b->pool, err);
    if (r) {
        free(b);
        return r;
    }
    *out = b;
    return 0;
}

struct builds *builds_free(struct builds *b)
{
    if (!b) {
        return NULL;
    }
    tasks_free(b->pool);
    while (b->first) {
        struct build *w = b->first;
        b->first = w->next;
        assert(w->refs == 0);
        build_free(w);
    }
    free(b);
    return NULL;
}

/* ---- in a pool thread ------------------------------------------------------------------------ */

/* Whoever dies while it compiles says so. */
static void builds_watch_crash(void *ctx, bool compiling)
{
    const struct work *w = ctx;
    if (compiling) {
        crash_note(w->setup.note_fd, w->note, w->note_size);
    } else {
        crash_note(-1, NULL, 0);
    }
}

static struct modules_order builds_module_order(struct work *w)
{
    return (struct modules_order){.compiler = w->setup.compiler,
                                  .cache_dir = w->setup.cache_dir,
                                  .variant = &w->variant,
                                  .hash = w->hash,
                                  .wait_ms = w->setup.impatient ? 0 : MODULES_WAIT_MS,
                                  .watch = builds_watch_crash,
                                  .ctx = w};
}

static void run_work(struct task *t)
{
    struct work *w = (struct work *)t;
    const struct modules_order order = builds_module_order(w);
    w->status = modules_make(&order, &w->made, &w->error);
}

/* ---- in the owner's thread ------------------------------------------------------------------- */

static struct build *builds_find(struct builds *b, const char *hash)
{
    for (struct build *w = b->first; w; w = w->next) {
        if (strcmp(w->hash, hash) == 0) {
            return w;
        }
    }
    return NULL;
}

static void builds_forget(struct builds *b, struct build *w)
{
    struct build **at = &b->first;
    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
    build_free(w);
}

static void lose_work(struct task *t)
{
    work_free((struct work *)t);
}

static struct work *work_new(struct builds *b, const struct variant *v, const char *hash,
                             const void *note, size_t note_size)
{
    struct work *w = calloc(1, sizeof(*w) + note_size);
    if (w) {
        w->task.run = run_work;
        w->task.lost = lose_work;
        w->setup = b->setup;
        w->variant = *v;
        snprintf(w->hash, sizeof(w->hash), "%s", hash);
        w->note_size = note_size;
        if (note_size) {
            memcpy(w->note, note, note_size);
        }
    }
    return w;
}

/* What was made becomes the build's. */
static void builds_settle(struct build *b, struct work *w)
{
    b->state = w->status ? BUILD_FAILED : BUILD_READY;
    b->image = w->made.image;
    w->made.image = (struct image){0};
    b->found = w->made.found;
    b->unsaved = w->made.unsaved;
    b->refused = w->made.refused;
    b->compile_ms = w->made.compile_ms;
    b->error = w->error;
    b->work = work_free(w);
}

/* What the cache knows does not wait for a thread: all may be compiling for minutes what is no
 * longer wanted. */
static void builds_begin_work(struct builds *b, struct build *w, struct work *work)
{
    const struct modules_order order = builds_module_order(work);
    work->status =
        tasks_full(b->pool) ? modules_make_known(&order, &work->made, &work->error) : MODULES_MISS;
    if (work->status == MODULES_MISS) {
        tasks_submit(b->pool, &work->task);
    } else {
        builds_settle(w, work);
    }
}

/* The disk may have room again. */
static void builds_save_image(struct builds *b, struct build *w)
{
    struct error ignored;
    w->unsaved =
        modules_put(b->setup.cache_dir, &w->image, b->setup.compiler->ops->suffix, &ignored) != 0;
}

int builds_want(struct builds *b, const struct variant *v, const char *hash, const void *note,
                size_t note_size, struct build **out, struct error *err)
{
    struct build *w = builds_find(b, hash);
    if (!w) {
        w = calloc(1, sizeof(*w));
        struct work *work = w ? work_new(b, v, hash, note, note_size) : NULL;
        if (!work) {
            free(w);
            return error_set(err, ERROR_NO_MEMORY, "no memory to compile a variant");
        }
        snprintf(w->hash, sizeof(w->hash), "%s", hash);
        w->work = work;
        work->build = w;
        w->next = b->first;
        b->first = w;
        builds_begin_work(b, w, work);
    } else if (w->unsaved) {
        builds_save_image(b, w);
    }
    w->refs++;
    *out = w;
    return 0;
}

void builds_hold(struct build *w)
{
    w->refs++;
}

/* Others than those of a passing shortage. */
static bool must_remember(const struct build *w)
{
    int why = w->error.code;
    bool passing = why == ERROR_BUSY || why == ERROR_NO_MEMORY || why == ERROR_DISK_FULL;
    return (w->state == BUILD_FAILED && !passing) || w->unsaved;
}

void builds_release(struct builds *b, struct build *w)
{
    assert(w->refs > 0);
    if (--w->refs > 0) {
        return;
    }
    if (w->state == BUILD_PENDING ? tasks_withdraw(b->pool, &w->work->task) : !must_remember(w)) {
        builds_forget(b, w);
    }
}

bool builds_withdraw(struct builds *b, struct build *w)
{
    assert(w->refs > 0);
    if (w->refs > 1 || w->state != BUILD_PENDING || !tasks_withdraw(b->pool, &w->work->task)) {
        return false;
    }
    builds_forget(b, w);
    return true;
}

uint32_t builds_collect(struct builds *b)
{
    uint32_t n = 0;
    for (struct task *t; (t = tasks_collect(b->pool)); n++) {
        struct work *work = (struct work *)t;
        struct build *w = work->build;
        builds_settle(w, work);
        if (w->refs == 0 && !must_remember(w)) {
            builds_forget(b, w);
        }
    }
    return n;
}

int builds_fd(const struct builds *b)
{
    return tasks_fd(b->pool);
}

double builds_ran_ms(const struct builds *b, const struct build *w)
{
    return w->state == BUILD_PENDING ? (double)tasks_ran_ms(b->pool, &w->work->task)
                                     : w->compile_ms;
}

int64_t builds_longest(struct builds *b, struct build **build)
{
    struct task *t = NULL;
    int64_t ms = tasks_longest(b->pool, &t);
    *build = t ? ((struct work *)t)->build : NULL;
    return ms;
}

void builds_give_up(struct builds *b, struct build *w, int64_t after_ms)
{
    assert(w->state == BUILD_PENDING);
    const struct variant *v =
        &w->work->variant; /* the thread's, once it is abandoned: a name, and no more */
    if (!tasks_abandon(b->pool, &w->work->task)) {
        return; /* it has just ended: the next collect has it */
    }
    if (b->setup.compiler->ops->stop) {
        b->setup.compiler->ops->stop(b->setup.compiler, v);
    }
    b->lost++;
    w->work = NULL; /* its thread's now */
    w->state = BUILD_FAILED;
    error_set(&w->error, ERROR_HUNG, "the compiler did not end within %lld ms",
              (long long)after_ms);
}

uint32_t builds_lost(const struct builds *b)
{
    return b->lost;
}
