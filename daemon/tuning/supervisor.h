/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor: at most one gemmd-runner, and never a trust in it. It is started when a job needs
 * it, speaks over a socket pair (runner/runner.h has the conversation), announces each risky
 * step before taking it, and leaves by itself when idle. When it is silent for longer than its last
 * announcement allows, or stays after its bye, it is killed. Whatever way it ends, the last
 * announcement says what it was doing, and the job goes on with another runner.
 *
 *   NONE -> STARTING (spawned; hello and the run's id awaited) -> IDLE <-> BUSY -> NONE
 *
 * Both ends must be of one build: the order and the trials are no stable interface.
 */
#ifndef GEMMD_DAEMON_TUNING_SUPERVISOR_H
#define GEMMD_DAEMON_TUNING_SUPERVISOR_H

#include "daemon/daemon.h"
#include "daemon/tuning/runner_link.h"
#include "proto/message.h"
#include "proto/wire.h"

enum {
    HELLO_LIMIT_MS = 30 * 1000, /* from spawn to hello */
    ORDER_LIMIT_MS =
        120 * 1000, /* from the order to the first attempt: a device may be slow to open */
    CANCEL_LIMIT_MS = 10 * 1000,
    IDLE_STARTS_MAX = 5, /* runners in a row that left before they had the order */
};

enum runner_state { RUNNER_NONE, RUNNER_STARTING, RUNNER_IDLE, RUNNER_BUSY };

/* The runner ended in mid-job. */
struct death {
    const char *status; /* crashed | hung | device_lost */
    char reason[200];
    bool leaving; /* it had said bye before it got the order: no fault */
    bool outside; /* somebody else killed it: the candidate is not to blame */
};

/* What comes of an order: trials and modules as they are finished, then one of result, error, death
 * or stuck. */
struct supervisor_hooks {
    void (*trial)(void *ctx, int64_t job, struct trial *t); /* t is used up */
    /* What a vendor's library takes: of a key that was tuned earlier, no candidate of any job. */
    void (*baseline)(void *ctx, struct trial *t);
    void (*module)(void *ctx, const struct module *m);
    void (*progress)(void *ctx, int64_t job, const struct progress *p);
    void (*result)(void *ctx, const struct tune_result *r);
    void (*error)(void *ctx, const struct error *e);
    /* `a` is what it was about to do (config empty: nobody to blame). */
    void (*death)(void *ctx, const struct death *why, const struct attempt *a);
    /* It was killed and does not end, or is of another build: nothing can be tuned. `job`: its
     * order; 0: it had none. */
    void (*stuck)(void *ctx, int64_t job, const struct error *e);
};

struct supervisor {
    struct daemon *daemon;                /* borrowed */
    const struct supervisor_hooks *hooks; /* borrowed */
    void *ctx;
    enum runner_state state;
    struct runner_link link;
    bool said_hello, said_bye, killed_hung, cancelling, stopping;
    bool others_wait; /* to be said with the order */
    bool foreign;     /* it is of another build: `failure` says so */
    struct run run;
    bool run_pending;       /* the ledger is asked for run.id */
    int64_t job;            /* of the order under way; 0: none */
    uint32_t request;       /* rpc id of the order */
    struct wire_buf order;  /* owned: not sent yet */
    struct attempt attempt; /* the last one */
    struct error failure;   /* why this runner cannot be used: the job fails */
    struct error lost;      /* the device was lost: the job goes on with another runner */

    uint64_t deaths, starts;
    unsigned idle_starts; /* of runners that left without the order */
    char disturbed[160];  /* what disturbed the last tuning; "": nothing known */
    void (*stopped)(struct supervisor *s);
};

void supervisor_init(struct supervisor *s, struct daemon *d, const struct supervisor_hooks *hooks,
                     void *ctx);
/* Gives an order (the params of `tune`, moved); starts a runner when there is none. The end comes
 * through the hooks, never from within this call. */
void supervisor_tune(struct supervisor *s, int64_t job, struct wire_buf *order);
/* True: the order was withdrawn in time and nothing more comes. False: its end comes as ever. */
bool supervisor_cancel(struct supervisor *s, int64_t job);
/* Other jobs wait for the device: this order's may be set aside. Nothing if it is not under way. */
void supervisor_others_wait(struct supervisor *s, int64_t job);
/* A job that was set aside will not come back: the runner need keep nothing for it. */
void supervisor_forget(struct supervisor *s, int64_t job);
/* Kills the runner and closes everything; then `stopped`. */
void supervisor_stop(struct supervisor *s, void (*stopped)(struct supervisor *s));

const char *runner_state_name(enum runner_state s);

#endif
