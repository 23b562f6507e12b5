/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gemmd: a session with a lock, and a table of answers with another lock. Declares how every
 * public call begins and ends.
 */
#ifndef GEMMD_CLIENT_HANDLE_H
#define GEMMD_CLIENT_HANDLE_H

#include "client/ask.h"
#include "client/joblock.h"
#include "client/session.h"
#include "client/table.h"

/* Makes the outcome of a call from steps.request.result, or from the fault `r`. Called with the
 * handle's lock. STEPS_MORE: the call goes on with another request, which is in steps.request. */
enum { STEPS_MORE = 32 };
typedef int (*steps_end)(struct gemmd *g, int r, struct error *err);

/*
 * A call that may wait for long, in a single piece or in steps (gemmd_options.step_ms). The handle
 * stores the call's state, because between steps the caller's stack is gone. The thread holds the
 * handle's lock from steps_begin to the end, also between steps, so no other call of the handle
 * interferes.
 */
struct steps {
    bool waiting;                 /* the call returned GEMMD_WAITING, and is not over */
    bool reported;                /* `report` is new: gemmd_wait has not returned it */
    struct gemmd_progress report; /* the last progress of the tuning */

    struct session_request request;
    struct wire_buf params; /* request.params */
    steps_end end;

    /* Arguments for request.pack and `end`. The caller owns the memory behind the pointers, which
     * stays valid until the call ends. */
    struct ask ask;
    struct error why; /* the daemon's fault, when `ask` now asks for a lower tier; else code 0 */
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
    int step_ms;             /* 0: no steps */
    struct joblock *joblock; /* owned: the lock file that alone answers; NULL: none */
    bool lazy;               /* opened by gemmd_open_lazy: falls back without a flag */
    struct gemmd *next;      /* list of all handles of the process, for fork (handle.c) */
};

/* Locks the session; waits for the lock until the deadline. ERROR_INVALID: g is NULL. ERROR_BUSY:
 * another thread's call still holds the lock, or this thread's own does (in a progress callback, or
 * between two steps). */
int handle_enter(struct gemmd *g, int64_t deadline, struct error *err);
/* True for the ERROR_BUSY of a handle that a call of this same thread holds: a mistake of the
 * caller, and no reason for a fallback. */
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

/* The point in time (clock.h) at which a call with this deadline_ms must return. deadline_ms 0: the
 * handle's default deadline, or for a call that may take long never. */
int64_t handle_deadline(const struct gemmd *g, int deadline_ms, bool may_take_long);

/* Enters the handle (handle_enter), and fills in the usual parts of g->steps.request. The caller
 * then fills in the rest of g->steps and calls steps_run. */
int steps_begin(struct gemmd *g, const char *method, int64_t deadline, steps_end end,
                struct error *err);
/* Has gemmd_wait return the request's progress, when the handle has step_ms. */
void steps_report(struct gemmd *g);
/* Sends the request and waits for its end, or for step_ms. `r` not 0: an earlier fault; sends
 * nothing. Returns GEMMD_WAITING, or leaves the handle and returns the result of `end`. */
int steps_run(struct gemmd *g, int r, struct error *err);

/* ---- get.c ---------------------------------------------------------------------------------- */

/* Answers from the table of answers already received. False: the table lacks the answer, or may not
 * answer the query. `query` has the size of this library's struct; NULL: the defaults. */
bool get_look_up(struct gemmd *g, const struct gemmd_problem *problem,
                 const struct gemmd_query *query, struct gemmd_answer *out);
/* Puts an answer into the table. False: the table may not keep it (ask_is_plain, answer_is_final).
 * `problem`: the caller's, already checked. */
bool get_keep(struct gemmd *g, const struct gemmd_query *query, const struct gemmd_problem *problem,
              const struct gemmd_answer *answer);

/* Answers by the handle's lock file (g->joblock), and puts the answer into the table. */
int get_locked(struct gemmd *g, const struct ask *a, struct gemmd_answer *out, struct error *err);

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
