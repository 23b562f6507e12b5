/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler decides which job runs. At any time at most one job has the device. Jobs with
 * waiters go before background jobs. Within each kind, users take turns, and a user's jobs run in
 * the order in which they came (rounds.c). A running job is set aside between two candidates when
 * other jobs wait and it would only wait for compilers, or has had its turn (runner/aside.h). Then
 * it goes behind the next three jobs with waiters. A job without waiters that is not in the
 * background is cancelled.
 *
 * When the device kills job after job, tuning is switched off, and hits are still served. Tuning is
 * tried again later: if the next job dies too, tuning is off for twice as long; if that job
 * succeeds, tuning stays on.
 */
#ifndef GEMMD_DAEMON_TUNING_SCHEDULER_H
#define GEMMD_DAEMON_TUNING_SCHEDULER_H

#include <uv.h>

#include "daemon/daemon.h"
#include "daemon/tuning/job.h"

enum {
    QUEUE_MAX = 4096, /* jobs */
    /* after this many jobs in a row that ended by deaths of the runner, tuning is switched off */
    FAILING_JOBS_MAX = 3,
    RETRY_MS_MAX = 3600 * 1000,
};

/* Hooks of the scheduler's owner. */
struct scheduler_hooks {
    void (*begin)(void *ctx, struct job *j);  /* the job gets the device, until scheduler_ended */
    void (*cancel)(void *ctx, struct job *j); /* the running job has no waiters any more */
    /* The last waiter of a background job has left. */
    void (*left)(void *ctx, struct job *j);
    /* A job that cannot begin at once; called again when a waiter joins. */
    void (*queued)(void *ctx, struct job *j);
    void (*idle)(void *ctx);           /* no job is left */
    bool (*device_is_free)(void *ctx); /* no runner has the device */
    /* A job that does not run, but may have begun, is dropped: it is freed next. */
    void (*dropped)(void *ctx, struct job *j);
};

struct scheduler {
    struct daemon *daemon;               /* borrowed */
    const struct scheduler_hooks *hooks; /* borrowed */
    void *ctx;
    struct list queue; /* queued jobs in running order, except for background jobs (rounds.c) */
    unsigned n_queued;
    struct list leased_out; /* jobs whose keys other daemons have leased (job_lease.h) */
    unsigned n_leased_out;
    struct job *running; /* owned; NULL: no job. daemon.tuning has the same state */
    uv_timer_t next;     /* starts the next job outside of the last job's callbacks */
    uv_timer_t retry;    /* tries again while `off` */
    uint64_t retry_ms;   /* how long tuning was off the last time; 0: a job has succeeded since */
    int64_t last_id;
    uint64_t done, failed, cancelled;
    uint64_t shared;  /* jobs answered by another daemon's tuning */
    unsigned put_off; /* jobs in a row that found the device in use */
    unsigned failing; /* number of jobs in a row that ended by deaths of the runner (JOB_DIED) */
    struct error off; /* code != 0: tuning is off, with the reason */
    bool stopping;
};

void scheduler_init(struct scheduler *s, struct daemon *d, const struct scheduler_hooks *hooks,
                    void *ctx);
/* Queues a new job. */
void scheduler_queue(struct scheduler *s, struct job *j);
/* Called when a waiter of `user` joins a job: the job may move forward. */
void scheduler_wanted(struct scheduler *s, struct job *j, struct account *user);
/* Called when a waiter leaves. Cancels a job without waiters that is not in the background; frees
 * the job unless it runs. */
void scheduler_unwanted(struct scheduler *s, struct job *j);
/* Cancels the jobs whose keys begin with `key`, and fails all their waiters with the error. Returns
 * the number of jobs. */
unsigned scheduler_cancel(struct scheduler *s, const char *key, const struct error *why);
/* Starts the next job soon, unless a job runs. */
void scheduler_next(struct scheduler *s);
/* Removes a job from the queue or leased_out, and frees the job. */
void scheduler_drop(struct scheduler *s, struct job *j);
/* Removes a job from the queue or leased_out. */
void scheduler_unqueue(struct scheduler *s, struct job *j);
/* Moves the running job to leased_out: another daemon has its key (job_lease.h). */
void scheduler_step_aside(struct scheduler *s, struct job *j);
/* Puts the running job back into the queue, behind the next few jobs with waiters, but before any
 * other search of its key, which its winner would answer. */
void scheduler_set_aside(struct scheduler *s, struct job *j);
/* Returns the job with this number if it was set aside, else NULL. */
struct job *scheduler_find_aside(struct scheduler *s, int64_t id);
/* True when a queued job is worth setting the running job aside: it has waiters, or neither job
 * has; it has another key, without a lease of another daemon. */
bool scheduler_others_wait(const struct scheduler *s);
/* Moves a job from leased_out back into the queue. */
void scheduler_come_back(struct scheduler *s, struct job *j);
/* Returns "on", or the reason why tuning is off. */
const char *scheduler_tuning(const struct scheduler *s);

/* Called when the running job has ended (tuning.c): counts and frees the job, starts the next. */
enum job_end {
    JOB_DONE,
    JOB_FAILED,
    JOB_DIED,
    JOB_CANCELLED,
    JOB_SHARED, /* answered by another tuning */
    JOB_PUT_OFF /* the job needed a quiet device, and other processes use the device */
};
void scheduler_ended(struct scheduler *s, struct job *j, enum job_end how);
/* Switches tuning off and fails all queued jobs. Tuning is tried again after --retry-ms, each time
 * twice as long, but not before the runner has ended. */
void scheduler_switch_off(struct scheduler *s, const struct error *why);

/* Fails all jobs with ERROR_SHUTTING_DOWN and closes the timers. The running job is freed: none of
 * its callbacks may come any more. */
void scheduler_stop(struct scheduler *s);

/* ---- rounds.c -------------------------------------------------------------------------------- */

/*
 * Rounds decide whose job is next. Users take turns, so that a user with a thousand queued tunings
 * delays another user's first job only by the running job and little more. In each round a user has
 * a single job, the oldest. The running job counts in its user's first round.
 *
 * The queue itself is kept in this order, so that a walk over the queue sees the jobs in running
 * order. A new job is inserted at its place. No history is kept, so a user gains nothing by leaving
 * and coming again. Jobs with waiters and background jobs have separate rounds, since jobs with
 * waiters go first. A job that is set aside keeps the place that the scheduler chose.
 *
 * A job with several users has the turn of the user who comes first: the job moves forward when a
 * user with an earlier turn joins.
 */

/* Finds the place of `j` as a job of `user`: returns the node before which the job belongs, or the
 * queue itself for the end. `running` NULL: no job runs. A job that is queued already never moves
 * back. */
struct list *rounds_place(struct list *queue, const struct job *running, const struct job *j,
                          const struct account *user);

#endif
