/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: what is to be tuned, in which order, and who waits for it. One job at a time has
 * the device. Jobs that somebody waits for go before background ones; of each, users take turns,
 * and one user's go in the order they came (rounds.c). A running job that others wait for is set
 * aside between two candidates, behind the next three of them, when it would only wait for
 * compilers or has had its turn (runner/aside.h). A job that nobody waits for any more and that
 * nobody asked for in the background is cancelled.
 *
 * When the device kills job after job, tuning is switched off and hits are served on. After a while
 * it is tried again: the next job's death switches it off for twice as long, its success is the end
 * of it.
 */
#ifndef GEMMD_DAEMON_TUNING_SCHEDULER_H
#define GEMMD_DAEMON_TUNING_SCHEDULER_H

#include <uv.h>

#include "daemon/daemon.h"
#include "daemon/tuning/job.h"

enum {
    QUEUE_MAX = 4096,     /* jobs */
    FAILING_JOBS_MAX = 3, /* jobs in a row that died of the device */
    RETRY_MS_MAX = 3600 * 1000,
};

/* What is above the scheduler does its work. */
struct scheduler_hooks {
    void (*begin)(void *ctx, struct job *j);  /* it has the device: it goes on to scheduler_ended */
    void (*cancel)(void *ctx, struct job *j); /* nobody wants the running job any more */
    /* Nobody waits any more for a job that goes on in the background. */
    void (*left)(void *ctx, struct job *j);
    /* A job that cannot begin at once; again, when somebody begins to wait for it. */
    void (*queued)(void *ctx, struct job *j);
    void (*idle)(void *ctx);           /* there is nothing to do */
    bool (*device_is_free)(void *ctx); /* no runner has it */
    /* A job that does not run, but may have begun, is given up: it is freed next. */
    void (*dropped)(void *ctx, struct job *j);
};

struct scheduler {
    struct daemon *daemon;               /* borrowed */
    const struct scheduler_hooks *hooks; /* borrowed */
    void *ctx;
    struct list queue; /* in the order in which they run, but for background ones (rounds.c) */
    unsigned n_queued;
    struct list leased_out; /* jobs whose keys other daemons have (job_lease.h) */
    unsigned n_leased_out;
    struct job *running; /* owned; NULL: none. daemon.tuning says the same */
    uv_timer_t next;     /* starts the next job, never from within a callback of the last */
    uv_timer_t retry;    /* while `off` may end */
    uint64_t retry_ms;   /* how long the last `off` is; 0: all was well since */
    int64_t last_id;
    uint64_t done, failed, cancelled;
    uint64_t shared;  /* jobs that another daemon's tuning has answered */
    unsigned put_off; /* jobs in a row that found the device in use */
    unsigned failing; /* jobs in a row that died of the device */
    struct error off; /* code != 0: nothing is tuned, and why */
    bool stopping;
};

void scheduler_init(struct scheduler *s, struct daemon *d, const struct scheduler_hooks *hooks,
                    void *ctx);
/* One more, wanted by somebody. */
void scheduler_queue(struct scheduler *s, struct job *j);
/* Somebody of this user waits for a job that was there already: it may come sooner. */
void scheduler_wanted(struct scheduler *s, struct job *j, struct account *user);
/* Somebody waits no more: the job is cancelled, and freed when it does not run, when nobody does,
 * and it is not in the background. */
void scheduler_unwanted(struct scheduler *s, struct job *j);
/* Cancels the jobs whose keys begin so, whoever waits for them, and answers those clients by the
 * error. Returns how many jobs. */
unsigned scheduler_cancel(struct scheduler *s, const char *key, const struct error *why);
/* The next job, soon, unless one runs. */
void scheduler_next(struct scheduler *s);
/* Out of the queue, or of leased_out, and freed. */
void scheduler_drop(struct scheduler *s, struct job *j);
/* Out of the queue, or of leased_out. */
void scheduler_unqueue(struct scheduler *s, struct job *j);
/* The running job leaves the device to the next one: another daemon has its key (job_lease.h). */
void scheduler_step_aside(struct scheduler *s, struct job *j);
/* The running job leaves it to those that wait, and comes after the next few of them; but before
 * any other search of its key, whose winner would answer it. */
void scheduler_set_aside(struct scheduler *s, struct job *j);
/* One that was set aside; NULL: there is none of this number. */
struct job *scheduler_find_aside(struct scheduler *s, int64_t id);
/* Whether a job is queued that is worth it: somebody waits for it, or for neither; its key is
 * another one, and no other daemon's. */
bool scheduler_others_wait(const struct scheduler *s);
/* From leased_out: into the queue again. */
void scheduler_come_back(struct scheduler *s, struct job *j);
/* "on", or why nothing is tuned. */
const char *scheduler_tuning(const struct scheduler *s);

/* The running job has ended (tuning.c): counts it, frees it, starts the next. */
enum job_end {
    JOB_DONE,
    JOB_FAILED,
    JOB_DIED,
    JOB_CANCELLED,
    JOB_SHARED, /* another one's answer */
    JOB_PUT_OFF /* it was for a quiet device, and others use that */
};
void scheduler_ended(struct scheduler *s, struct job *j, enum job_end how);
/* Fails what is queued. Tuning is tried again after --retry-ms and twice as long each time, but not
 * before the runner that was there is gone. */
void scheduler_switch_off(struct scheduler *s, const struct error *why);

/* Fails all jobs with ERROR_SHUTTING_DOWN and closes the timers. The running job is let go: no
 * callback may come for it any more. */
void scheduler_stop(struct scheduler *s);

/* ---- rounds.c -------------------------------------------------------------------------------- */

/*
 * Rounds: whose job is next. Users take turns, so that one who has queued a thousand tunings keeps
 * another one's first waiting for the running job and little more. In each round a user has one
 * job, the first of his that came; the job that has the device is of its user's first round.
 *
 * The queue itself stands in this order, and all that go through it see what runs next: a job is
 * put where it belongs when it comes, and nothing is kept of the past, so who goes and comes again
 * gains nothing. Jobs that somebody waits for and background ones have rounds of their own, as the
 * former go first. One that is set aside stands where the scheduler put it.
 *
 * A job that several users wait for is of the one whose turn comes first: it moves forward when
 * somebody joins whose turn is before.
 */

/* What `j` goes before in the queue, as a job of that user; the queue itself: it is the last.
 * `running` NULL: none is. Of a job that is queued already: a place no later than its own. */
struct list *rounds_place(struct list *queue, const struct job *running, const struct job *j,
                          const struct account *user);

#endif
