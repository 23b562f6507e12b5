/* SPDX-License-Identifier: Apache-2.0 */
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
#ifndef GEMMD_DAEMON_TUNING_SUPERVISOR_H
#define GEMMD_DAEMON_TUNING_SUPERVISOR_H

#include "daemon/daemon.h"
#include "daemon/tuning/runner_link.h"
#include "proto/message.h"
#include "proto/wire.h"

enum {
    HELLO_LIMIT_MS = 30 * 1000, /* time from spawn to hello */
    ORDER_LIMIT_MS =
        120 * 1000, /* time from the order to the first attempt: opening a device may be slow */
    CANCEL_LIMIT_MS = 10 * 1000,
    IDLE_STARTS_MAX = 5, /* runners in a row that left before they had the order */
};

enum runner_state { RUNNER_NONE, RUNNER_STARTING, RUNNER_IDLE, RUNNER_BUSY };

/* The runner ended in mid-job. */
struct death {
    const char *status; /* crashed | hung | device_lost */
    char reason[200];
    bool leaving; /* the runner said bye before it got the order, which is no fault */
    bool outside; /* a signal from outside killed the runner: the candidate is not to blame */
};

/* Events of an order: trials and modules as they finish, then a result, an error, a death, or
 * stuck. */
struct supervisor_hooks {
    void (*trial)(void *ctx, int64_t job, struct trial *t); /* t may be changed */
    /* A vendor library's time for a key that was tuned earlier, and no candidate of a job. */
    void (*baseline)(void *ctx, struct trial *t);
    void (*module)(void *ctx, const struct module *m);
    void (*progress)(void *ctx, int64_t job, const struct progress *p);
    void (*result)(void *ctx, const struct tune_result *r);
    void (*error)(void *ctx, const struct error *e);
    /* `a` is the announced step (config empty: no candidate to blame). */
    void (*death)(void *ctx, const struct death *why, const struct attempt *a);
    /* The runner was killed and does not end, or is of another build: tuning is impossible. `job`:
     * its order; 0: no order. */
    void (*stuck)(void *ctx, int64_t job, const struct error *e);
};

struct supervisor {
    struct daemon *daemon;                /* borrowed */
    const struct supervisor_hooks *hooks; /* borrowed */
    void *ctx;
    enum runner_state state;
    struct runner_link link;
    bool said_hello, said_bye, killed_hung, cancelling, stopping;
    bool others_wait; /* the message others_wait must be sent after the order */
    bool foreign;     /* the runner is of another build; `failure` has the error */
    struct run run;
    bool run_pending;       /* the ledger has not returned the number of the run (run.id) yet */
    int64_t job;            /* the job of the order that is under way; 0: no order */
    uint32_t request;       /* rpc id of the order */
    struct wire_buf order;  /* owned: not sent yet */
    struct attempt attempt; /* the last attempt */
    struct error failure;   /* why this runner cannot be used: the job fails */
    struct error lost;      /* the device was lost: the job goes on with another runner */

    uint64_t deaths, starts;
    unsigned idle_starts; /* runners in a row that left without the order */
    char disturbed[160];  /* disturbance of the last tuning; "": none known */
    void (*stopped)(struct supervisor *s);
};

void supervisor_init(struct supervisor *s, struct daemon *d, const struct supervisor_hooks *hooks,
                     void *ctx);
/* Gives an order (the params of `tune`, moved); starts a runner if necessary. The hooks report the
 * end, never from within this call. */
void supervisor_tune(struct supervisor *s, int64_t job, struct wire_buf *order);
/* True: the order was withdrawn in time, and no hook follows. False: the end follows as usual. */
bool supervisor_cancel(struct supervisor *s, int64_t job);
/* Tells the runner that other jobs wait for the device, so that it may set the order aside. The
 * call is ignored unless the order is under way. */
void supervisor_others_wait(struct supervisor *s, int64_t job);
/* Tells the runner that a job that was set aside will not come back, so that the runner may drop
 * the job's state. */
void supervisor_forget(struct supervisor *s, int64_t job);
/* Kills the runner and closes all handles; then calls `stopped`. */
void supervisor_stop(struct supervisor *s, void (*stopped)(struct supervisor *s));

const char *runner_state_name(enum runner_state s);

#endif
