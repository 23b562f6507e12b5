/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gemmd: a session with a lock, and a table of answers with another lock. Declares how every
 * public call begins and ends.
 */
#ifndef GEMMD_CLIENT_HANDLE_H
#define GEMMD_CLIENT_HANDLE_H

#include "client/ask.h"
#include "client/session.h"
#include "client/table.h"

/* Makes the outcome of a call from steps.request.result, or from the fault `r`; with the lock. */
typedef int (*steps_end)(struct gemmd *g, int r, struct error *err);

/*
 * A call that may wait for long, in a single piece or in steps (gemmd_options.step_ms). The handle
 * stores the call's state, because between steps the caller's stack is gone. The handle's lock is
 * held from steps_begin to the end, also between steps, so no other call of the handle interferes.
 */
struct steps {
    bool waiting; /* the call returned to the caller, and is not over */
    bool reported;
    struct gemmd_progress report; /* the last progress, until the caller gets the report */

    struct session_request request;
    struct wire_buf params; /* request.params */
    steps_end end;

    /* Arguments for request.pack and `end`. The caller owns the memory behind the pointers, which
     * stays valid until the call ends. */
    struct ask ask;
    struct gemmd_acquire acquire;
    struct gemmd_answer *answer;
    enum gemmd_outcome *outcome;
    char **json; /* may be NULL */
};
struct gemmd {
    pthread_mutex_t lock; /* protects the session */
    struct session session;
    struct steps steps; /* state of the call that holds the lock, when that call may wait */
    struct table table;
    int step_ms; /* 0: no steps */
    bool lazy;
    struct gemmd *next; /* list of all handles of the process, for fork */
};

/* Locks the session, at the latest at the deadline. ERROR_INVALID (g is NULL), ERROR_BUSY (another
 * call holds the lock, or this thread does: in a progress callback, or between two steps). */
int handle_enter(struct gemmd *g, int64_t deadline, struct error *err);
/* True when `e` says that a call of this same thread holds the handle: no reason for a fallback. */
bool handle_is_own_call(const struct error *e);
void handle_leave(struct gemmd *g);
/* Makes a request, with the lock. params may be NULL; deadline 0: the default. `take` (may be NULL)
 * reads the result, valid only in `take`. */
int handle_call(struct gemmd *g, const char *method, const struct wire_buf *params,
                int64_t deadline,
                int (*take)(void *ctx, const struct wire_obj *result, struct error *err), void *ctx,
                struct error *err);

/* Ends a public call: copies the error to the caller's `err`, which may be NULL. */
int handle_result(int r, const struct error *e, struct gemmd_error *err);

/* When a call with this deadline_ms must return; 0: the connection's default, or never. */
int64_t handle_deadline(const struct gemmd *g, int deadline_ms, bool may_take_long);

/* Enters the handle (handle_enter), and fills in the usual parts of g->steps.request. The caller
 * then fills in the rest of g->steps and calls steps_run. */
int steps_begin(struct gemmd *g, const char *method, int64_t deadline, steps_end end,
                struct error *err);
/* With step_ms, sends the request's progress to gemmd_wait. */
void steps_report(struct gemmd *g);
/* Sends the request and waits; `r`: an earlier fault. Returns GEMMD_WAITING, or leaves the handle
 * and returns the result of `end`. */
int steps_run(struct gemmd *g, int r, struct error *err);

/* ---- get.c ---------------------------------------------------------------------------------- */

/* Answers from the table. `query` has the size of this library's struct; NULL: the defaults. */
bool get_look_up(struct gemmd *g, const struct gemmd_problem *problem,
                 const struct gemmd_query *query, struct gemmd_answer *out);
/* Puts a final answer into the table; false: not final. `problem`: the caller's, already
 * checked. */
bool get_keep(struct gemmd *g, const struct gemmd_query *query, const struct gemmd_problem *problem,
              const struct gemmd_answer *answer);

/* Returns 0 when the daemon may be used, or ERROR_UNREACHABLE with the reason why not. */
int get_may_ask(const struct gemmd *g, const struct gemmd_query *q, struct error *err);
/* Replaces the fault *err by the model's answer, when the caller allows that, and the fault is of
 * the daemon, its device or the way to it (`unreached`), not a mistake of the caller or a finding
 * about the configs of the query. Returns 0 or the fault. The handle need not be entered. */
int get_or_default(struct gemmd *g, const struct ask *a, bool unreached, struct gemmd_answer *out,
                   struct error *err);

/* The deadline to send to the daemon: a little shorter than the caller's, so that the answer
 * arrives in time. deadline_ms: the caller's value; 0: no deadline. */
int64_t get_told_ms(int deadline_ms, int64_t deadline);

#endif
