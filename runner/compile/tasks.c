/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads and two lists under one mutex: tasks waiting, tasks finished. An eventfd wakes the owner,
 * who sleeps in poll() together with the socket. Each worker shows in its slot what it runs, so
 * that the owner can tell which task has run too long.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runner/compile/tasks.h"

struct worker {
    struct tasks *pool; /* borrowed */
    struct task *task;  /* borrowed: what it runs; NULL: nothing */
    pthread_t thread;
    bool abandoned; /* the thread ends itself, detached, and frees this */
};

struct tasks {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int event;
    int niceness;
    bool stopping;
    unsigned lost; /* threads that were given up and have not come back */
    unsigned n;
    struct worker **workers; /* owned */
    struct task *waiting, **waiting_end;
    struct task *done, **done_end;
};

static int64_t tasks_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void tasks_finish_task(struct tasks *p, struct task *t)
{
    t->next = NULL;
    *p->done_end = t;
    p->done_end = &t->next;
    uint64_t one = 1;
    ssize_t n = write(p->event, &one, sizeof(one));
    assert(n == sizeof(one));
    (void)n;
}

/* Called locked. NULL: the pool stops. */
static struct task *next_task(struct tasks *p)
{
    while (!p->waiting && !p->stopping) {
        pthread_cond_wait(&p->wake, &p->lock);
    }
    if (p->stopping) {
        return NULL;
    }
    struct task *t = p->waiting;
    p->waiting = t->next;
    if (!p->waiting) {
        p->waiting_end = &p->waiting;
    }
    t->started_ms = tasks_now_ms();
    return t;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct tasks *p = w->pool;
    if (getpriority(PRIO_PROCESS, 0) < p->niceness) {
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), p->niceness);
    }
    pthread_mutex_lock(&p->lock);
    while (!w->abandoned && (w->task = next_task(p))) {
        struct task *t = w->task;
        pthread_mutex_unlock(&p->lock);
        t->run(t);
        pthread_mutex_lock(&p->lock);
        if (!w->abandoned) {
            w->task = NULL;
            tasks_finish_task(p, t);
        }
    }
    struct task *lost = w->abandoned ? w->task : NULL;
    p->lost -= lost != NULL;
    pthread_mutex_unlock(&p->lock);
    if (lost) {
        lost->lost(lost);
        free(w);
    }
    return NULL;
}

static int start_worker(struct tasks *p, unsigned i)
{
    struct worker *w = calloc(1, sizeof(*w));
    if (!w) {
        return ENOMEM;
    }
    w->pool = p;
    int r = pthread_create(&w->thread, NULL, worker_main, w);
    if (r) {
        free(w);
        return r;
    }
    p->workers[i] = w;
    return 0;
}

static void stop_workers(struct tasks *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->n; i++) {
        if (p->workers[i]) {
            pthread_join(p->workers[i]->thread, NULL);
            free(p->workers[i]);
        }
    }
}

int tasks_new(unsigned threads, int niceness, struct tasks **out, struct error *err)
{
    struct tasks *p = calloc(1, sizeof(*p));
    struct worker **workers = calloc(threads, sizeof(*workers));
    if (!p || !workers) {
        free(p);
        free(workers);
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u compile threads", threads);
    }
    p->workers = workers;
    p->n = threads;
    p->niceness = niceness;
    p->waiting_end = &p->waiting;
    p->done_end = &p->done;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = p->event < 0 ? errno : 0;
    for (unsigned i = 0; r == 0 && i < threads; i++) {
        r = start_worker(p, i);
    }
    if (r) {
        tasks_free(p);
        return error_set(err, ERROR_NO_MEMORY, "cannot start %u compile threads: %s", threads,
                         strerror(r));
    }
    *out = p;
    return 0;
}

struct tasks *tasks_free(struct tasks *p)
{
    if (!p) {
        return NULL;
    }
    stop_workers(p);
    if (p->event >= 0) {
        close(p->event);
    }
    free(p->workers);
    pthread_mutex_lock(&p->lock);
    bool lost = p->lost > 0;
    pthread_mutex_unlock(&p->lock);
    if (!lost) { /* else a thread that was given up may still come back to this memory */
        pthread_cond_destroy(&p->wake);
        pthread_mutex_destroy(&p->lock);
        free(p);
    }
    return NULL;
}

void tasks_submit(struct tasks *p, struct task *t)
{
    t->next = NULL;
    t->started_ms = 0;
    pthread_mutex_lock(&p->lock);
    *p->waiting_end = t;
    p->waiting_end = &t->next;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

bool tasks_full(struct tasks *p)
{
    bool full = true;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < p->n && !p->waiting && full; i++) {
        full = !p->workers[i] || p->workers[i]->task; /* NULL: one that could not be replaced */
    }
    pthread_mutex_unlock(&p->lock);
    return full;
}

bool tasks_withdraw(struct tasks *p, struct task *t)
{
    bool found = false;
    pthread_mutex_lock(&p->lock);
    for (struct task **at = &p->waiting; *at && !found;) {
        if (*at == t) {
            *at = t->next;
            found = true;
            if (!*at) {
                p->waiting_end = at;
            }
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

struct task *tasks_collect(struct tasks *p)
{
    pthread_mutex_lock(&p->lock);
    struct task *t = p->done;
    if (t) {
        p->done = t->next;
        if (!p->done) {
            p->done_end = &p->done;
        }
    } else {
        uint64_t count; /* the list is empty: nothing to wake for */
        ssize_t n = read(p->event, &count, sizeof(count));
        (void)n;
    }
    pthread_mutex_unlock(&p->lock);
    return t;
}

int tasks_fd(const struct tasks *p)
{
    return p->event;
}

int64_t tasks_longest(struct tasks *p, struct task **task)
{
    int64_t longest = -1, now = tasks_now_ms();
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < p->n; i++) {
        struct task *t = p->workers[i] ? p->workers[i]->task : NULL;
        if (t && now - t->started_ms > longest) {
            longest = now - t->started_ms;
            *task = t;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return longest;
}

int64_t tasks_ran_ms(struct tasks *p, const struct task *task)
{
    pthread_mutex_lock(&p->lock);
    int64_t ms = task->started_ms ? tasks_now_ms() - task->started_ms : 0;
    pthread_mutex_unlock(&p->lock);
    return ms;
}

bool tasks_abandon(struct tasks *p, struct task *t)
{
    bool found = false;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < p->n && !found; i++) {
        struct worker *w = p->workers[i];
        if (w && w->task == t) {
            found = true;
            w->abandoned = true;
            p->lost++;
            pthread_detach(w->thread);
            p->workers[i] = NULL;
            start_worker(p, i); /* when that fails, one thread less compiles */
        }
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}
