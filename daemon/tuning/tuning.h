/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tuning: the jobs, the runner, and the course of the running job. The parts share struct tuning
 * and call each other:
 *
 *   scheduler.c, rounds.c   which job runs
 *   waiters.c               requests that join jobs, and their deadlines
 *   job_lease.c, offers.c   jobs shared among daemons
 *   tuning.c, job_begin.c,  the running job: history from the ledger, the order to the runner,
 *   runner_order.c,         trials, deaths of the runner, making the best durable, answers to the
 *   blame.c, job_end.c      waiters
 *   pauses.c                jobs that use the device only while a training job's GPU pauses
 *   precompile.c            compiling ahead for queued jobs
 *   supervisor.c            the conversation with the runner
 *
 * The ledger's callbacks get no pointer to a job: each is about scheduler.running. A job stays
 * scheduler.running until no callback is pending (scheduler_ended).
 */
#ifndef GEMMD_DAEMON_TUNING_TUNING_H
#define GEMMD_DAEMON_TUNING_TUNING_H

#include <uv.h>

#include "daemon/answers/tiers.h"
#include "daemon/daemon.h"
#include "daemon/tuning/job.h"
#include "daemon/tuning/runner_link.h"
#include "proto/message.h"
#include "proto/wire.h"

enum {
    QUEUE_MAX = 4096, /* queued at once; a further search gets ERROR_BUSY */
    /* after this many jobs in a row that ended by deaths of the runner, tuning is switched off */
    FAILING_JOBS_MAX = 3,
    RETRY_MS_MAX = 3600 * 1000,
};

struct scheduler {
    struct tuning *tuning; /* borrowed: the owner */
    struct list jobs;      /* all jobs */
    /* queued jobs: those with waiters are in running order, and so are background jobs
     * (rounds.c) */
    struct list queue;
    unsigned n_queued;
    unsigned n_leased_out; /* jobs whose keys other daemons have leased (job_lease.c) */
    struct job *running;   /* owned; NULL: no job runs. daemon.tuning is true while a job runs */
    uv_timer_t next;       /* starts the next job when the last job's callback has returned */
    uint64_t retry_ms;     /* how long tuning was off the last time; 0: a job has succeeded since */
    uint64_t retry_at_ms;  /* loop time at which tuning is tried again while `off`; 0: never */
    int64_t last_id;
    uint64_t done, failed, cancelled;
    uint64_t waits;             /* jobs that waited for another daemon's lease of their key */
    uint64_t busy_ms, since_ms; /* time in which earlier jobs ran; loop time of the last change */
    uint64_t shared;            /* jobs answered by the tuning of another job or daemon */
    unsigned put_off;           /* jobs in a row that ended as JOB_PUT_OFF */
    unsigned failing; /* number of jobs in a row that ended by deaths of the runner (JOB_DIED) */
    struct error off; /* code != 0: tuning is off, with the reason */
    bool stopping;
};

enum {
    HELLO_LIMIT_MS = 30 * 1000, /* time from spawn to the runner's `hello` */
    /* time from the order to the runner's first `attempt`: opening a device may be slow */
    ORDER_LIMIT_MS = 120 * 1000,
    CANCEL_LIMIT_MS = 10 * 1000,
    /* runners in a row that leave before they get the order; then the job fails */
    IDLE_STARTS_MAX = 5,
};

enum runner_state { RUNNER_NONE, RUNNER_STARTING, RUNNER_IDLE, RUNNER_BUSY };

struct supervisor {
    struct tuning *tuning; /* borrowed: the owner */
    enum runner_state state;
    struct runner_link link;
    bool said_hello, said_bye, killed_hung, cancelling, stopping;
    bool others_wait; /* the message others_wait must be sent after the order */
    bool foreign;     /* the runner is of another build; `failure` has the error */
    struct run run;
    bool run_pending;       /* the ledger has not returned the number of the run (run.id) yet */
    int64_t job;            /* the job of the order that is under way; 0: no order */
    uint32_t request;       /* rpc id of the order */
    struct wire_buf order;  /* owned: the order until it is sent; then empty */
    struct attempt attempt; /* the runner's last `attempt`: its present step */
    struct error failure;   /* why this runner cannot be used: the job fails */
    struct error lost;      /* the device was lost: the job goes on with another runner */

    uint64_t deaths, starts;
    uint64_t hung;            /* the deaths that were kills of silent runners */
    uint64_t up_ms, since_ms; /* time in which earlier runners lived; loop time of the last start */
    unsigned idle_starts;     /* runners in a row that left without the order */
    char disturbed[160];      /* disturbance of the last tuning's measurements; "": none */
};

struct precompiler {
    struct daemon *daemon;             /* borrowed */
    const struct scheduler *scheduler; /* borrowed */
    /* delays the start of the process by 20 ms: the keys of a layer come in quick succession */
    uv_timer_t soon;
    uv_process_t process;
    bool runs, stopping;
    uint64_t starts;
    size_t at; /* slot of the cache where the search for candidates goes on */
};

struct pauses {
    /* sessions that asked with wait=boundary: their training steps go before tunings */
    struct list sessions;
    struct list requests; /* requests `pause` that wait for the end of the open pause */
    bool bound;           /* the running order keeps to pauses */
    /* loop time since when the runner has work for the device and waits for a pause; 0: it does not
     * wait for a pause */
    uint64_t wanted_ms;
};

struct tuning {
    struct daemon *daemon;     /* borrowed */
    struct tiers *tiers;       /* borrowed */
    struct accounts *accounts; /* borrowed: offers.c charges another daemon's search to its user */
    struct scheduler scheduler;
    struct supervisor supervisor;
    struct precompiler precompiler;
    struct pauses pauses;
    struct {
        bool answers;          /* the last attempt to lease a key found gemmd-fleet attached */
        uint64_t waits, alone; /* keys asked for; keys tuned here since no answer came in time */
        uint64_t confirmed, refused; /* rows of the fleet */
    } fleet;
    uv_timer_t deadlines; /* ends at the earliest deadline of all waiters */
    int64_t last_retried; /* the last job whose lease job_lease_tick tried again */
    /* this daemon serves clients; before that it takes no search of another daemon */
    bool offers_open;
    /* the ledger looks for another daemon's search; it must be asked once more after that */
    bool offers_asking, offers_again;
    /* The rank of the last search of another daemon that this daemon took: so it tries each search
     * once until offers_again_ms (loop time), when it begins with the oldest again. */
    int64_t offers_rank;
    uint64_t offers_again_ms;
    void (*stopped)(struct tuning *x);
};

void tuning_init(struct tuning *x, struct daemon *d, struct tiers *tiers,
                 struct accounts *accounts);
/* Fails all jobs, gives back all leases, and kills the runner and the precompiler. Closes all
 * handles, then calls `stopped`. */
void tuning_stop(struct tuning *x, void (*stopped)(struct tuning *x));

/* ---- waiters.c ------------------------------------------------------------------------------- */

/* Requests and their deadlines. A request joins the job of its search, or makes a new job for the
 * scheduler. When its deadline passes first, the best lower tier answers the request, and the
 * tuning goes on. */

/* How a request joins a search. The daemon's scratch holds the search: `request` with the problem
 * as the client gave it, `bucket`, and `key` with its id. */
struct joining {
    bool pin, again, background;
    bool quiet;     /* the job may run only while no other process uses the device */
    bool in_pauses; /* the job may use the device only in pauses (pauses.c) */
    /* The search is of one given config, a candidate of this generation, which is to be confirmed
     * (confirm.c), with what its row promises; 0: it is not */
    int64_t candidate;
    double promised;
    /* borrowed: the account of the user, which is charged with a new job */
    struct account *account;
    /* The client that waits; NULL: no client. */
    struct session *session;
    uint32_t id;
};

/* Joins the job of this search, or makes a job; changes scratch->request. Errors: ERROR_BUSY,
 * scheduler.off while tuning is off, and errors that show before a search (no valid config; an
 * invalid restriction or given config). */
int waiters_join(struct tuning *x, const struct joining *w, struct error *err);
/* Fills scratch's bucket and key from scratch->request, sets w->account to the account of `uid`,
 * and joins the search's job. No client waits for the job. */
int waiters_join_alone(struct tuning *x, struct joining *w, uid_t uid, struct error *err);
/* Appends the answer of an earlier search with the request and bucket of scratch. Stored are the
 * answers of searches whose winner did not become the key's answer (cache/partials.c). False: no
 * answer is stored, or the request wants a new search (`again`; a given list). */
bool waiters_known(struct daemon *d, struct wire_buf *out);
/* Like waiters_known, but for restricted searches only, and also when the request has `again`: for
 * requests that get an answer at once and do not wait for the new search. */
bool waiters_recall(struct daemon *d, struct answer *out);

/* ---- scheduler.c ----------------------------------------------------------------------------- */

/*
 * The scheduler decides which job runs. At any time at most one job has the device. Jobs with
 * waiters go before background jobs. Within each kind, users take turns, and a user's jobs run in
 * the order in which they came (rounds.c). A running job is set aside between two candidates when
 * other jobs wait, and the running job would only wait for compilers or has had its turn
 * (runner/aside.h). The job then goes behind the next three jobs with waiters. A job without
 * waiters that is not in the background is cancelled.
 *
 * When FAILING_JOBS_MAX jobs in a row end by deaths of their runners, tuning is switched off, and
 * answers in the cache are still served. Tuning is tried again later: if the next job ends so too,
 * tuning is off for twice as long; if that job succeeds, tuning stays on.
 */

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
/* Frees a job that does not run. The job may have begun, and been set aside. */
void scheduler_drop(struct scheduler *s, struct job *j);
/* Takes the device from the running job, since another daemon has leased its key (job_lease.c). */
void scheduler_step_aside(struct scheduler *s, struct job *j);
/* Puts the running job back into the queue, behind the next few jobs with waiters, but before any
 * other job of the same key, since this job's winner may answer that job too. */
void scheduler_set_aside(struct scheduler *s, struct job *j);
/* Returns the job with this number if it was set aside, else NULL. */
struct job *scheduler_find_aside(struct scheduler *s, int64_t id);
/* True when the running job may be set aside for some queued job. That job has waiters, or neither
 * job has waiters; and its key is not the running job's, nor leased by another daemon. */
bool scheduler_others_wait(const struct scheduler *s);
/* Queues a job again after another daemon's lease of its key. */
void scheduler_come_back(struct scheduler *s, struct job *j);
/* Time in which jobs had the device since gemmd's start, of the running job until now. */
uint64_t scheduler_busy_ms(const struct scheduler *s);
/* Returns "on", or the reason why tuning is off. */
const char *scheduler_tuning(const struct scheduler *s);

/* Called when the running job has ended: counts and frees the job, starts the next. */
enum job_end {
    JOB_DONE,
    JOB_FAILED,
    JOB_DIED,
    JOB_CANCELLED,
    JOB_SHARED, /* answered by the tuning of another job or daemon */
    JOB_PUT_OFF /* the job needed a quiet device, and other processes use the device */
};
void scheduler_ended(struct scheduler *s, struct job *j, enum job_end how);
/* Switches tuning off and fails all queued jobs. Tuning is tried again after --retry-ms, then after
 * twice as long each time, but not before the runner has ended. */
void scheduler_switch_off(struct scheduler *s, const struct error *why);

/* Called periodically: tries tuning again while `off`. */
void scheduler_tick(struct scheduler *s);

/* Fails all jobs with ERROR_SHUTTING_DOWN and closes the timer. The running job is freed: none of
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

/* ---- job_lease.c ----------------------------------------------------------------------------- */

/*
 * Single flight across the daemons of a database. Before a job runs here, its key is leased from
 * the ledger. When another daemon has the lease, the job steps aside (JOB_LEASED_OUT), and the
 * device continues with the next job. The job comes back when the key's answer is published, or
 * when the lease ends without an answer.
 *
 * A job that was set aside keeps its lease while it has waiters. Without waiters the lease is given
 * back, so that another daemon with an idle device may tune the key for its own waiters. When the
 * job comes back, it takes the lease again, or was answered meanwhile. A job whose pauses are
 * overdue (pauses.c) gives its lease back, too.
 *
 * While gemmd-fleet is attached to the database (store/fleet.h), the first attempt to lease a key
 * asks the fleet, and the job steps aside until the fleet gives the key to this host, or another
 * host's row comes.
 *
 * Pins and restricted searches are local to this daemon: only searches for a key's answer are
 * leased.
 */

void job_lease_stop(struct tuning *x);
/* Leases the key of the running job. Then calls tuning_leased, or the job steps aside. */
void job_lease_take(struct tuning *x, struct job *j);
/* Called when a job was queued: asks the fleet for its key while another job has the device. */
void job_lease_queued(struct tuning *x, struct job *j);
/* Called once a second: renews the leases of this daemon, and tries again to lease other keys, in
 * turns, since no message tells when a killed daemon's lease ends. */
void job_lease_tick(struct tuning *x);
/* Gives back the job's lease of its key, and takes back the question to the fleet. */
void job_lease_release(struct tuning *x, struct job *j);
/* Called when a job was set aside, or its last waiter has left. */
void job_lease_left(struct tuning *x, struct job *j);
/* Called when any daemon has published a key's answer: answers the jobs that accept the answer.
 * `searched`: the answer is from a search, so it also answers jobs that asked to search again. */
void job_lease_learned(struct tuning *x, const char *key, bool searched);
/* Called when the lease of a key ("": of some key) has ended: its jobs may run here. */
void job_lease_freed(struct tuning *x, const char *key);

/* ---- offers.c -------------------------------------------------------------------------------- */

/* Searches for idle devices. A search that has to wait is also a row of `wanted` in the database,
 * where another daemon of the same device class with an idle device finds it. The search also stays
 * in the local queue. The first daemon to begin the search leases the key (job_lease.c), and its
 * answer is for all daemons. No daemon plans for others. */

void offers_ready(struct tuning *x);                  /* called when the daemon begins to serve */
void offers_queued(struct tuning *x, struct job *j);  /* offers a search that must wait here */
void offers_dropped(struct tuning *x, struct job *j); /* withdraws the offer */
/* Takes the oldest search that another daemon offers, if this daemon is idle. Called when this
 * daemon becomes idle, and when another daemon offers a search. */
void offers_take(struct tuning *x);
/* Called periodically: some searches that were passed over wait again. */
void offers_tick(struct tuning *x);

/* ---- pauses.c -------------------------------------------------------------------------------- */

/*
 * Tuning in pauses. A training job that asks with wait=boundary gets the best lower tier at once.
 * gemmd tunes its keys while the training job's GPU has nothing to do: between two training steps
 * the training job sends `pause`, and waits for at most the time that it grants. Compilers work all
 * the time. The runner keeps its order, and waits before each step on the device until the next
 * pause.
 *
 * A job (of tuning) is bound to pauses while all requests that joined it have wait=boundary, a
 * session that asked so is connected, and no other job waits for the device. Otherwise it goes on
 * as a background job.
 */

enum {
    PAUSES_LATER = 1,
    PAUSES_OVERDUE_MS = 3000, /* longer than most training steps take */
};

/* Adds the session to pauses.sessions until the session ends: the steps of its training job go
 * before tunings of jobs with `in_pauses`. */
void pauses_hold(struct tuning *x, struct session *s);
/* Handles the request `pause` of a training job, which grants `ms`. Answers at once (0) when the
 * runner has no work for a pause, else at the pause's end (PAUSES_LATER). ERROR_BUSY,
 * ERROR_NO_MEMORY. */
int pauses_ask(struct tuning *x, struct session *s, uint32_t id, int64_t ms, struct error *err);
/* Called for each order of the runner: returns whether the runner must keep to pauses with this
 * order. */
bool pauses_bind_order(struct tuning *x, const struct job *j);
/* Called when a job was queued or joined, or a session has ended. If the running order need no
 * longer keep to pauses, tells the runner so. */
void pauses_review(struct tuning *x);
/* Handles the runner's message `quiet`: the runner does not use the device until the next pause.
 * `wants`: it has work for that pause. */
void pauses_on_quiet(struct tuning *x, int64_t job, bool wants);
/* Called when the running order has ended or is free of pauses: ends the open pause. */
void pauses_end(struct tuning *x);
/* True when the job has waited for a pause for so long that other daemons should not wait for its
 * search: its training job may do something else than train. */
bool pauses_are_overdue(const struct tuning *x, const struct job *j);

/* ---- precompile.c ---------------------------------------------------------------------------- */

/*
 * Compiling ahead. While a job has a GPU, a second process compiles the first variants of queued
 * jobs: `gemmd-runner --precompile`, at the lowest priority of processor and disk. These variants
 * are the reference and the strategy's proposals before any measurement, within the restrictions of
 * the search; of a given list, its configs. The process works through the jobs in queue order, so
 * that the next job finds all its variants.
 *
 * The measuring runner does not do this. To list the first variants of a search, a process must
 * draw its rows, build its space and rank the space, which would interrupt the measuring. A fault
 * while compiling ahead would cost the measurement. And a runner that had lowered its priority to
 * compile ahead could not raise it again for the search whose turn comes.
 *
 * While a search measures, decides and ends, most cores of the host are idle. On a GPU, compiling
 * ahead disturbs no measurement. On the CPU a compiler would slow the measured kernel, so nothing
 * is compiled ahead; in replays neither.
 *
 * Candidates of the fleet are compiled ahead too, each with the reference that it is timed beside,
 * also while no job has the GPU: nobody has asked for them, but the first query of a key waits for
 * its confirmation, most of which is compiling. Queued jobs come first.
 *
 * No search waits for this process: a variant is never compiled twice (kernels/modules.h), and the
 * runner compiles the rest.
 */

void precompile_init(struct precompiler *a, struct daemon *d, const struct scheduler *s);
/* call when a job was queued, which may have to wait */
void precompile_queued(struct precompiler *a);
/* Call once a second: compiles candidates ahead if there may be new ones. */
void precompile_tick(struct precompiler *a);
/* kills the process, and does not wait for its end */
void precompile_stop(struct precompiler *a);

/* ---- supervisor.c ---------------------------------------------------------------------------- */

/*
 * The supervisor runs at most one gemmd-runner, and never trusts it. A runner is started when a job
 * needs it. A runner speaks over a socket pair (runner/runner.h has the conversation), announces
 * each risky step before the step, and exits when idle. A runner that is silent for longer than its
 * last announcement allows, or stays after its bye, is killed. After any end, the last announcement
 * names the step, and the job goes on with another runner.
 *
 * NONE -> STARTING (spawned; waits for hello and the run's id) -> IDLE <-> BUSY -> NONE
 *
 * Both ends must be of the same build: the order and the trials are no stable interface.
 */

void supervisor_init(struct supervisor *s, struct tuning *x);
/* Takes over an order (the packed params of the runner's `tune`); starts a runner if necessary. The
 * functions tuning_on_* report the order's end, never from within this call. */
void supervisor_tune(struct supervisor *s, int64_t job, struct wire_buf *order);
/* True: no runner had the order yet, and no tuning_on_* follows. False: the runner was told to
 * cancel, and a tuning_on_* reports the order's end. */
bool supervisor_cancel(struct supervisor *s, int64_t job);
/* Tells the runner that other jobs wait for the device, so that it may set the order aside. The
 * call is ignored unless the order is under way. */
void supervisor_others_wait(struct supervisor *s, int64_t job);
/* Tells the runner that it may use the device for its order for `ms`; 0: no longer; below 0: until
 * the order ends. */
void supervisor_pause(struct supervisor *s, int64_t job, int64_t ms);
/* Tells the runner that a job that was set aside will not come back, so that the runner may drop
 * the job's state. */
void supervisor_forget(struct supervisor *s, int64_t job);
/* Kills the runner and closes all handles; then calls tuning.stopped. */
void supervisor_stop(struct supervisor *s);

const char *runner_state_name(enum runner_state s);
/* Time in which a runner lived since gemmd's start: a runner holds a context of the GPU. */
uint64_t supervisor_up_ms(const struct supervisor *s);

/* ---- tuning.c -------------------------------------------------------------------------------- */

void tuning_begin(struct tuning *x, struct job *j);  /* the job gets the device */
void tuning_cancel(struct tuning *x, struct job *j); /* the job has no waiters any more */
/* Tells the running job to go on: its key is leased, or cannot be leased. */
void tuning_leased(struct tuning *x, struct job *j);
/* Starts the whole search after the verification of the known best has failed, with the error
 * `code`. */
void tuning_search_anew(struct tuning *x, struct job *j, int code, const char *reason);
/* A job was queued: the running job may be set aside. */
void tuning_others(struct tuning *x);

/* Describes the end of a runner before it has answered its order. */
struct death {
    int code; /* ERROR_CRASHED, ERROR_HUNG, ERROR_DEVICE_LOST */
    char reason[200];
    bool leaving; /* the runner said bye before it got the order, which is no fault */
    bool outside; /* a signal from outside killed the runner: the candidate is not to blame */
};

/* Events of the running job's order: trials as they finish, then a result, an error, a death, or
 * stuck. */
void tuning_on_trial(struct tuning *x, int64_t job, struct trial *t); /* t may be changed */
void tuning_on_progress(struct tuning *x, int64_t job, const struct progress *p);
void tuning_on_result(struct tuning *x, const struct tune_result *r);
void tuning_on_error(struct tuning *x, const struct error *e);
/* `a` is the announced step (config empty: no candidate to blame). */
void tuning_on_death(struct tuning *x, const struct death *why, const struct attempt *a);
/* The runner was killed and does not end, or is of another build than gemmd: tuning is impossible.
 * `job`: the job of the order that the runner had; 0: it had no order. */
void tuning_on_stuck(struct tuning *x, int64_t job, const struct error *e);

/* ---- job_begin.c ----------------------------------------------------------------------------- */

/* Preparation of a job before it runs, and the lookup of its key in the cache. */

/* Fills job->request, with budgets, and job->stamp. ERROR_NO_CONFIG, ERROR_NO_MEMORY. */
int tuning_unpack(struct daemon *d, struct job *j, struct error *err);
/* Fills job->stamp and trial_stamp for a target ("": the device's choice) and the request's
 * tolerances. */
int tuning_stamp(struct daemon *d, struct job *j, const char *target, struct error *err);
/* Looks up the key of an unpacked job. True: another job found the answer meanwhile. False: the job
 * must run. If a config must be verified first (with tighter tolerances, or a pin of another kernel
 * version), the job is prepared for that. A job that was set aside keeps its state. */
bool tuning_known(struct daemon *d, struct job *j, struct wire_buf *answer);

/* ---- confirm.c ------------------------------------------------------------------------------- */

/*
 * Candidates are rows of the fleet that this host has not measured. A job whose key has a candidate
 * first confirms it, as it verifies a known best again (job_begin.c): the candidate's config alone
 * is compiled, verified and timed beside the default. A candidate that is wrong, illegal, or slower
 * than its row promises by more than 10 percent is refused, and the job searches.
 */

/* True when the key's entry is a candidate of today's source, target and launch ABI. Its compiler
 * may be another. Fills scratch->answer. */
bool confirm_is_due(struct daemon *d, const char *key, const struct problem *bucket,
                    const struct cache_entry *e);
/* Prepares a job whose request is the confirmation of a candidate (wanted.candidate). */
void confirm_begin(struct job *j);
/* Notes what the candidate promises; `a` is its answer. */
void confirm_prepare(struct job *j, const struct cache_entry *e, const struct answer *a);
/* Ends the confirmation. Refuses the candidate if the error `code` is the config's fault. Does
 * nothing when the job confirms no candidate. */
void confirm_failed(struct tuning *x, struct job *j, int code, const char *reason);
/* Judges the result of a confirmation: 0; ERROR_NO_CONFIG: it is slower than the candidate
 * promises; ERROR_BUSY: it is slower, but was measured badly, which does not speak against the
 * candidate. */
int confirm_judge_result(const struct job *j, const struct tune_result *r, struct error *err);

/* ---- runner_order.c -------------------------------------------------------------------------- */

/* The order for the runner, and the finished trials in it. */

enum {
    /* after so many runner deaths without a working config, the search tries random configs */
    FAVOURITES_MAX = 8,
};

/* true when the kernel ran and its result was right, also when the measurement was stopped early */
bool tuning_worked(const struct trial *t);
/* Writes a trial of the job to the ledger and remembers the trial. Changes `t`. */
void tuning_record(struct tuning *x, struct job *j, struct trial *t);
/* Adds a finished trial to the order, so that it is not repeated. */
void tuning_remember(struct job *j, const struct trial *t);
void tuning_avoid(struct job *j, const char *variant); /* no later runner tries the variant */
/* Drops the finished trials of an order that is too large: measuring again is better than no
 * tuning. False: no trials to drop. */
bool tuning_forget(struct job *j);
/* Packs the params of the runner's `tune`. ERROR_NO_MEMORY; ERROR_INVALID: too many configs. */
int tuning_order(struct tuning *x, struct job *j, struct wire_buf *out, struct error *err);

/* ---- blame.c --------------------------------------------------------------------------------- */

/* Deaths of the runner in a job: the candidate to blame, and the limit of deaths. */

/* Records the candidate of a runner's death as a failed trial, and quarantines its variant. */
void tuning_blame(struct tuning *x, struct job *j, const struct death *why,
                  const struct attempt *a);
/* True: too many deaths, the job is over. A death with a candidate to blame is progress, since the
 * candidate is not tried again. Many such deaths end the search early, with the best so far. The
 * job fails when the deaths named no candidate, when no candidate has worked, or when configs that
 * worked earlier fail now: then the device is to blame. */
bool tuning_too_many(struct job *j, const struct death *why, struct error *err);

/* ---- job_end.c ------------------------------------------------------------------------------- */

/* Counts and frees the job. All waiters must have their answers. */
void tuning_ended(struct tuning *x, struct job *j, enum job_end how);
/* Ends a job without a result: JOB_FAILED, or JOB_DIED by the deaths of its runners. */
void tuning_failed(struct tuning *x, struct job *j, const struct error *e, enum job_end how);
/* The runner has found the best: makes the best durable, then answers the waiters. */
void tuning_finish(struct tuning *x, struct job *j, const struct tune_result *r);

#endif
