/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: what is to be tuned, in which order, and who waits for it. One job at a time has
 * the device. Jobs that somebody waits for go before background ones, each in the order they came;
 * a waiting client does not interrupt a running job. A job that nobody waits for any more and that
 * nobody asked for in the background is cancelled.
 *
 * When the device kills job after job, tuning is switched off and hits are served on. After a while it
 * is tried again: the next job's death switches it off for twice as long, its success is the end of it.
 */
#ifndef GEMMD_DAEMON_SCHEDULER_H
#define GEMMD_DAEMON_SCHEDULER_H

#include <uv.h>

#include "daemon/job.h"
#include "daemon/tiers.h"

enum {
    QUEUE_MAX = 4096,       /* jobs */
    FAILING_JOBS_MAX = 3,   /* jobs in a row that died of the device */
    RETRY_MS_MAX = 3600 * 1000,
};

/* What is above the scheduler does its work. */
struct scheduler_hooks {
    void (*begin)(void *ctx, struct job *j);  /* it has the device: it goes on to scheduler_ended */
    void (*cancel)(void *ctx, struct job *j); /* nobody wants the running job any more */
    void (*queued)(void *ctx, struct job *j); /* a job that cannot begin at once */
    void (*idle)(void *ctx);                  /* there is nothing to do */
    bool (*device_is_free)(void *ctx);        /* no runner has it */
};

struct scheduler {
    struct daemon *daemon; /* borrowed */
    struct tiers *tiers;   /* borrowed */
    const struct scheduler_hooks *hooks; /* borrowed */
    void *ctx;
    struct list queue;
    unsigned n_queued;
    struct list elsewhere; /* jobs whose keys other daemons have (elsewhere.h) */
    unsigned n_elsewhere;
    struct job *running;   /* owned; NULL: none. daemon.tuning says the same */
    uv_timer_t deadlines;  /* the earliest of all waiters */
    uv_timer_t next;       /* starts the next job, never from within a callback of the last */
    uv_timer_t retry;      /* while `off` may end */
    uint64_t retry_ms;     /* how long the last `off` is; 0: all was well since */
    int64_t last_id;
    uint64_t done, failed, cancelled;
    uint64_t shared;       /* jobs that another daemon's tuning has answered */
    unsigned failing;      /* jobs in a row that died of the device */
    struct error off;      /* code != 0: nothing is tuned, and why */
    bool stopping;
};

/* How a request wants its search. */
struct wanted {
    struct request *request;       /* problem = the true one; used up */
    const struct problem *bucket;
    const struct key *key;         /* with id */
    bool pin, again, background;
    struct account *account; /* whose it is: borrowed, charged when it becomes a job */
    /* Whom to answer; NULL: nobody. */
    struct session *session;
    uint32_t id;
};

void scheduler_init(struct scheduler *s, struct daemon *d, struct tiers *t,
                    const struct scheduler_hooks *hooks, void *ctx);
/* Joins the job that does this search, or makes one. Errors: ERROR_BUSY, what `off` says, and what
 * can be known to fail beforehand (no valid config; a restriction or a given config that is wrong).
 */
int scheduler_want(struct scheduler *s, const struct wanted *w, struct error *err);
/* The next job, soon, unless one runs. */
void scheduler_next(struct scheduler *s);
/* Out of the queue, or from elsewhere. */
void scheduler_unqueue(struct scheduler *s, struct job *j);
/* The waiter of a connection's request, NULL: none. */
struct waiter *scheduler_find(struct scheduler *s, const struct session *session, uint32_t id);
/* Takes a waiter out of its job with an error answer. */
void scheduler_drop(struct scheduler *s, struct waiter *w, const struct error *e);

/* The running job leaves the device to the next one: another daemon has its key (elsewhere.h). */
void scheduler_step_aside(struct scheduler *s, struct job *j);
/* From there: into the queue again. */
void scheduler_come_back(struct scheduler *s, struct job *j);
/* "on", or why nothing is tuned. */
const char *scheduler_tuning(const struct scheduler *s);

/* The running job has ended (tuning.c): counts it, frees it, starts the next. */
enum job_end { JOB_DONE, JOB_FAILED, JOB_DIED, JOB_CANCELLED, JOB_SHARED /* another one's answer */ };
void scheduler_ended(struct scheduler *s, struct job *j, enum job_end how);
/* Fails what is queued. Tuning is tried again after --retry-ms and twice as long each time, but not
 * before the runner that was there is gone. */
void scheduler_switch_off(struct scheduler *s, const struct error *why);

/* Fails all jobs with ERROR_SHUTTING_DOWN and closes the timers. The running job is let go: no
 * callback may come for it any more. */
void scheduler_stop(struct scheduler *s);

#endif
