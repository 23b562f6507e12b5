/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few threads that run tasks in the order they came, for one owner thread. A task belongs to its
 * owner before submit and after collect, and to the pool in between.
 *
 * A task that never ends (a compiler in a loop cannot be stopped from outside) is abandoned: its
 * thread is given up for the life of the process, and another takes its place.
 */
#ifndef GEMMD_RUNNER_COMPILE_TASKS_H
#define GEMMD_RUNNER_COMPILE_TASKS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

struct tasks;

struct task {                     /* embedded first */
    void (*run)(struct task *t);  /* in a pool thread */
    void (*lost)(struct task *t); /* in its thread, when it ends after all though abandoned */
    struct task *next;            /* the pool's */
    int64_t started_ms;           /* the pool's */
};

/* `niceness` is that of the threads, relative to nothing: compiling must not disturb measuring. */
int tasks_new(unsigned threads, int niceness, struct tasks **out, struct error *err);
/* Waits for running tasks (not for abandoned ones); queued ones are never run. */
struct tasks *tasks_free(struct tasks *p);

void tasks_submit(struct tasks *p, struct task *t);
/* Whether a task that is submitted now would have to wait. */
bool tasks_full(struct tasks *p);
/* Takes a task back before it has begun. False: it runs, or is done. */
bool tasks_withdraw(struct tasks *p, struct task *t);
/* The next finished task, or NULL. */
struct task *tasks_collect(struct tasks *p);
/* Readable when tasks_collect may have something. */
int tasks_fd(const struct tasks *p);
/* Milliseconds since the longest-running task began, and the task; -1 when none runs. The task
 * may finish meanwhile: it stays valid until the owner collects it. */
int64_t tasks_longest(struct tasks *p, struct task **task);
/* Milliseconds since a task began; 0: it waits still. */
int64_t tasks_ran_ms(struct tasks *p, const struct task *task);
/* Gives up on a running task: it is never collected, and its memory is its thread's, which calls
 * lost() if it ever ends. False: it has finished after all, collect it. */
bool tasks_abandon(struct tasks *p, struct task *t);

#endif
