/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of threads that runs one launch at a time. Threads draw the launch's thread blocks 0..n-1
 * from a counter, which balances uneven work (empty experts, ragged ends).
 *
 * A launch is a "round": the caller fills in the round under the lock and wakes all threads. Each
 * thread joins a round once, and the last thread to leave wakes the caller. Callers on several
 * threads queue.
 *
 * After fork() the child has no pool threads, and perhaps a locked lock: the child starts new
 * threads at its first launch.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/devices/cpu/cpu.h"

/* The stack of a pool thread: kernels keep their tiles on it. */
enum { STACK_BYTES = 4 * 1024 * 1024 };

struct pool {
    pthread_mutex_t callers; /* one round at a time */
    pthread_mutex_t lock;    /* protects the fields below */
    pthread_cond_t begin, end;
    uint64_t round;
    uint32_t active; /* threads still in this round */
    bool stopping, forked;
    void (*run)(void *ctx, uint32_t i);
    void *ctx;
    uint32_t n;
    atomic_uint_fast64_t next;
    uint32_t n_threads;
    pthread_t threads[];
};

static void *cpu_pool_work(void *arg)
{
    struct pool *p = arg;
    uint64_t seen = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->round == seen && !p->stopping) {
            pthread_cond_wait(&p->begin, &p->lock);
        }
        if (p->stopping) {
            break;
        }
        seen = p->round;
        pthread_mutex_unlock(&p->lock);
        for (uint64_t i; (i = atomic_fetch_add(&p->next, 1)) < p->n;) {
            p->run(p->ctx, (uint32_t)i);
        }
        pthread_mutex_lock(&p->lock);
        if (--p->active == 0) {
            pthread_cond_signal(&p->end);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void init_locks(struct pool *p)
{
    pthread_mutex_init(&p->callers, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->begin, NULL);
    pthread_cond_init(&p->end, NULL);
}

static void cpu_pool_start(struct pool *p, uint32_t threads)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    /* pool threads take no signals: signals are for the program's own threads, which may block
     * some */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    p->n_threads = 0;
    while (p->n_threads < threads &&
           pthread_create(&p->threads[p->n_threads], &attr, cpu_pool_work, p) == 0) {
        p->n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
}

struct pool *pool_new(uint32_t threads)
{
    struct pool *p = calloc(1, sizeof(*p) + threads * sizeof(p->threads[0]));
    if (!p) {
        return NULL;
    }
    init_locks(p);
    cpu_pool_start(p, threads);
    return p->n_threads == threads ? p : pool_free(p);
}

void pool_forked(struct pool *p)
{
    init_locks(p);
    p->forked = true;
    p->stopping = false;
    p->round = 0;
}

struct pool *pool_free(struct pool *p)
{
    if (!p) {
        return NULL;
    }
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->begin);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n_threads && !p->forked; i++) {
        pthread_join(p->threads[i], NULL);
    }
    pthread_cond_destroy(&p->end);
    pthread_cond_destroy(&p->begin);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->callers);
    free(p);
    return NULL;
}

void pool_run(struct pool *p, void (*run)(void *ctx, uint32_t i), void *ctx, uint32_t n)
{
    pthread_mutex_lock(&p->callers);
    if (p->forked) {
        p->forked = false;
        cpu_pool_start(p, p->n_threads);
    }
    pthread_mutex_lock(&p->lock);
    p->run = run;
    p->ctx = ctx;
    p->n = n;
    atomic_store(&p->next, 0);
    p->active = p->n_threads;
    p->round++;
    pthread_cond_broadcast(&p->begin);
    while (p->active > 0) {
        pthread_cond_wait(&p->end, &p->lock);
    }
    /* without threads: a forked child that could not start them */
    for (uint32_t i = 0; p->n_threads == 0 && i < n; i++) {
        run(ctx, i);
    }
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&p->callers);
}
