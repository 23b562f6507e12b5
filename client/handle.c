/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork(): the child has copies of our sockets, and of locks that may be held by threads which the
 * child lacks. Before a fork, handle_lock_all waits until no library is being loaded
 * (kernels/loading.h). Then it locks the tables, the device descriptions and the starts under way,
 * so that the child finds consistent copies. In the child every session starts anew. Closing the
 * child's copy of a socket does not disturb the parent's connection.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/clock.h"
#include "client/handle.h"
#include "kernels/loading.h"
#include "proto/build.h"

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gemmd *handles;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* ---- fork ----------------------------------------------------------------------------------- */

static int lock_init(pthread_mutex_t *m)
{
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    /* A callback that uses its own handle gets an error instead of a deadlock. */
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
    int r = pthread_mutex_init(m, &a);
    pthread_mutexattr_destroy(&a);
    return r;
}

static void handle_lock_all(void)
{
    loading_begin();
    pthread_mutex_lock(&handles_lock);
    for (struct gemmd *g = handles; g; g = g->next) {
        pthread_mutex_lock(&g->table.lock);
        pthread_mutex_lock(&g->session.device_lock);
    }
    pthread_mutex_lock(&start_lock);
}

static void unlock_handles(void)
{
    for (struct gemmd *g = handles; g; g = g->next) {
        pthread_mutex_unlock(&g->session.device_lock);
        pthread_mutex_unlock(&g->table.lock);
    }
    pthread_mutex_unlock(&handles_lock);
}

static void handle_unlock_all(void)
{
    pthread_mutex_unlock(&start_lock);
    unlock_handles();
    loading_end(); /* the child resets the loading lock by itself */
}

static void handle_reset(struct gemmd *g)
{
    g->steps.waiting = false;
    if (pthread_mutex_trylock(&g->lock) != 0) {
        /* A thread that the child lacks was inside a call; the buffers may be half changed. Leak
         * the buffers. */
        g->session.link.rx = NULL;
        g->session.link.rx_cap = 0;
        g->session.tx = g->steps.params = WIRE_BUF_NULL;
        g->session.doc = wire_doc_new();
    }
    session_stop_connecting(&g->session);
    link_close(&g->session.link);
    lock_init(&g->lock);
}

static void handle_reset_all(void)
{
    pthread_mutex_unlock(&start_lock);
    for (struct gemmd *g = handles; g; g = g->next) {
        handle_reset(g);
    }
    unlock_handles();
}

static void handle_watch_forks(void)
{
    loading_watch_forks();
    pthread_atfork(handle_lock_all, handle_unlock_all, handle_reset_all);
}

static void handle_enter_list(struct gemmd *g)
{
    pthread_once(&fork_once, handle_watch_forks);
    pthread_mutex_lock(&handles_lock);
    g->next = handles;
    handles = g;
    pthread_mutex_unlock(&handles_lock);
}

static void handle_leave_list(struct gemmd *g)
{
    pthread_mutex_lock(&handles_lock);
    struct gemmd **at = &handles;
    while (*at != g) {
        at = &(*at)->next;
    }
    *at = g->next;
    pthread_mutex_unlock(&handles_lock);
}

/* ---- open and close ------------------------------------------------------------------------- */

enum { OPTIONS_SIZE_MIN = offsetof(struct gemmd_options, generation) };

static int handle_read_options(struct gemmd_options *o, const struct gemmd_options *given,
                               struct error *err)
{
    *o = (struct gemmd_options)GEMMD_OPTIONS_INIT;
    if (!given) {
        return 0;
    }
    int r = ask_read_struct(o, sizeof(*o), given, given->size, OPTIONS_SIZE_MIN, "options", err);
    if (r) {
        return r;
    }
    if (o->deadline_ms < 0) {
        return error_set(err, ERROR_INVALID, "deadline_ms is %d: use 0 (the default, 5000) or more",
                         o->deadline_ms);
    }
    if (o->step_ms < 0) {
        return error_set(err, ERROR_INVALID, "step_ms is %d: use 0 (no steps) or more", o->step_ms);
    }
    return 0;
}

static int handle_new(struct gemmd **out, const struct gemmd_options *options, struct error *err)
{
    struct gemmd_options o;
    int r = handle_read_options(&o, options, err);
    if (r) {
        return r;
    }
    struct gemmd *g = calloc(1, sizeof(*g));
    if (!g) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a handle");
    }
    r = joblock_open(&g->joblock, err);
    r = r ? r : session_init(&g->session, &o, err);
    if (r) {
        joblock_close(g->joblock);
        free(g);
        return r;
    }
    lock_init(&g->lock);
    table_init(&g->table);
    g->step_ms = o.step_ms;
    handle_enter_list(g);
    *out = g;
    return 0;
}

struct gemmd *gemmd_close(struct gemmd *g)
{
    if (g) {
        gemmd_cancel(g);
        handle_leave_list(g);
        session_deinit(&g->session);
        wire_buf_deinit(&g->steps.params);
        table_deinit(&g->table);
        joblock_close(g->joblock);
        pthread_mutex_destroy(&g->lock);
        free(g);
    }
    return NULL;
}

static int handle_open(struct gemmd **out, const struct gemmd_options *options, bool lazy,
                       struct gemmd_error *err)
{
    struct error e;
    struct gemmd *g = NULL;
    int r = out ? handle_new(&g, options, &e)
                : error_set(&e, ERROR_INVALID, "there is no place for the handle (NULL)");
    if (r == 0) {
        g->lazy = lazy;
        r = lazy ? 0 : session_connect(&g->session, handle_deadline(g, 0, false), &e);
    }
    if (out) {
        *out = r == 0 ? g : gemmd_close(g);
    }
    return handle_result(r, &e, err);
}

int gemmd_open_lazy(struct gemmd **out, const struct gemmd_options *options,
                    struct gemmd_error *err)
{
    return handle_open(out, options, true, err);
}

int gemmd_connect(struct gemmd **out, const struct gemmd_options *options, struct gemmd_error *err)
{
    return handle_open(out, options, false, err);
}

/* ---- every call ----------------------------------------------------------------------------- */

int64_t handle_deadline(const struct gemmd *g, int deadline_ms, bool may_take_long)
{
    if (deadline_ms > 0) {
        return clock_after_ms(deadline_ms);
    }
    return may_take_long || !g ? CLOCK_NEVER : clock_after_ms(g->session.default_ms);
}

static int lock_until(pthread_mutex_t *m, int64_t deadline)
{
    int r = pthread_mutex_trylock(m);
    if (r != EBUSY) {
        return r;
    }
    if (deadline == CLOCK_NEVER) {
        return pthread_mutex_lock(m);
    }
    struct timespec t = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    return pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &t);
}

static const char own_call[] =
    "a progress callback may not use the handle that calls it, nor a thread one on which its call "
    "still waits (gemmd_wait, gemmd_cancel)";

bool handle_is_own_call(const struct error *e)
{
    return e->code == ERROR_BUSY && strcmp(e->text, own_call) == 0;
}

int handle_enter(struct gemmd *g, int64_t deadline, struct error *err)
{
    if (!g) {
        return error_set(err, ERROR_INVALID,
                         "there is no handle (NULL): see gemmd_connect and "
                         "gemmd_open_lazy");
    }
    int r = lock_until(&g->lock, deadline);
    if (r == EDEADLK) {
        return error_set(err, ERROR_BUSY, "%s", own_call);
    }
    if (r) {
        return error_set(err, ERROR_BUSY,
                         "another thread's call on this handle did not end in time; "
                         "open a handle per thread that tunes");
    }
    g->session.until = CLOCK_NEVER;
    return 0;
}

void handle_leave(struct gemmd *g)
{
    pthread_mutex_unlock(&g->lock);
}

int handle_call(struct gemmd *g, const char *method, const struct wire_buf *params,
                int64_t deadline,
                int (*take)(void *ctx, const struct wire_obj *result, struct error *err), void *ctx,
                struct error *err)
{
    struct session_request q = {.method = method,
                                .params = params,
                                .deadline = deadline ? deadline : handle_deadline(g, 0, false)};
    const struct wire_obj *result;
    int r = handle_enter(g, q.deadline, err);
    if (r) {
        return r;
    }
    r = session_call(&g->session, &q, err);
    if (r == 0 && take) {
        r = session_decode(&g->session, &q, &result, err);
        r = r ? r : take(ctx, result, err);
    }
    handle_leave(g);
    return r;
}

int handle_result(int r, const struct error *e, struct gemmd_error *err)
{
    if (err) {
        err->code = r;
        if (r < 0) {
            memcpy(err->text, e->text, sizeof(err->text));
        } else {
            err->text[0] = 0;
        }
    }
    return r;
}

/* ---- calls in steps -------------------------------------------------------------------------- */

int steps_begin(struct gemmd *g, const char *method, int64_t deadline, steps_end end,
                struct error *err)
{
    int r = handle_enter(g, deadline, err);
    if (r == 0) {
        struct steps *s = &g->steps;
        s->reported = false;
        s->end = end;
        s->why = ERROR_NULL;
        s->request = (struct session_request){
            .method = method, .params = &s->params, .deadline = deadline, .pack_ctx = g};
        wire_buf_clear(&s->params);
    }
    return r;
}

/* Ends the step at once, so that the caller gets this report before the next report arrives. */
static void keep_report(void *ctx, const struct gemmd_progress *p)
{
    struct gemmd *g = ctx;
    struct steps *s = &g->steps;
    s->report = *p;
    s->reported = true;
    g->session.until = clock_ns();
}

void steps_report(struct gemmd *g)
{
    if (g->step_ms) {
        g->steps.request.progress = keep_report;
        g->steps.request.ctx = g;
    }
}

/* Waits for the end of the request, at most for a step. `r` not 0: a fault that ends the call at
 * once. */
static int steps_advance_request(struct gemmd *g, int r, struct error *err)
{
    struct steps *s = &g->steps;
    g->session.until = g->step_ms ? clock_after_ms(g->step_ms) : CLOCK_NEVER;
    for (bool more = true; more; r = more ? 0 : r) {
        r = r ? r : session_finish(&g->session, &s->request, err);
        s->waiting = r == CLOCK_PASSED;
        if (s->waiting) {
            return GEMMD_WAITING;
        }
        r = s->end(g, r, err);
        more = r == STEPS_MORE;
    }
    handle_leave(g);
    return r;
}

int steps_run(struct gemmd *g, int r, struct error *err)
{
    if (r == 0) {
        session_start(&g->session, &g->steps.request);
    }
    return steps_advance_request(g, r, err);
}

/* True when a call of this thread on this handle has returned GEMMD_WAITING and is not over. False
 * for NULL. */
static bool handle_waits(struct gemmd *g)
{
    if (!g) {
        return false;
    }
    int r = lock_until(&g->lock, clock_ns());
    if (r == 0) {
        handle_leave(g);
    }
    return r == EDEADLK && g->steps.waiting; /* EDEADLK: this thread holds the lock */
}

int gemmd_wait(struct gemmd *g, const struct gemmd_progress **progress, struct gemmd_error *err)
{
    struct error e;
    int r = GEMMD_WAITING;
    if (progress) {
        *progress = NULL;
    }
    if (!handle_waits(g)) {
        r = error_set(&e, ERROR_INVALID,
                      "no call of this thread waits on this handle: gemmd_wait goes on with one "
                      "that returned GEMMD_WAITING");
    } else if (!g->steps.reported) {
        r = steps_advance_request(g, 0, &e);
    }
    if (r == GEMMD_WAITING && g->steps.reported) {
        g->steps.reported = false;
        if (progress) {
            *progress = &g->steps.report;
        }
    }
    return handle_result(r, &e, err);
}

void gemmd_cancel(struct gemmd *g)
{
    if (handle_waits(g)) {
        g->steps.waiting = false;
        session_abandon(&g->session, &g->steps.request);
        handle_leave(g);
    }
}

/* ---- no handle ------------------------------------------------------------------------------- */

const char *gemmd_error_name(int code)
{
    return code == 0 ? "ok" : error_name(code);
}

bool gemmd_error_survives(int code)
{
    return error_survives(code);
}

const char *gemmd_version(void)
{
    return GEMMD_VERSION;
}
