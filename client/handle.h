/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gemmd: a session with a lock around it, and a table of answers with its own. How every
 * public call begins and ends is here.
 */
#ifndef GEMMD_CLIENT_HANDLE_H
#define GEMMD_CLIENT_HANDLE_H

#include "client/ask.h"
#include "client/session.h"
#include "client/table.h"

/*
 * A call that may wait for long: as one, or in steps (gemmd_options.step_ms). What it needs until
 * its end stands in the handle, not on the stack of the caller, who is back meanwhile. The handle's
 * lock is held from steps_begin to the end, in steps as in one long call: no other call of the
 * handle comes in between.
 */
struct steps {
    bool waiting; /* the caller is back, and the call is not over */
    bool reported;
    struct gemmd_progress report; /* the last one, while the caller has not been given it */
    char phase[sizeof(((struct progress *)NULL)->phase)];
    char config[sizeof(((struct progress *)NULL)->config)];

    struct wire_buf params; /* request.params, when there are any */
    /* Packs them anew, with the time that is left: while gemmd is `busy`, the request is sent again
     * until `patience`. NULL: `busy` is an answer like others. */
    int (*pack)(struct gemmd *g, struct error *err);
    int64_t patience;
    struct pause pause; /* before it is sent again */
    struct session_request request;
    struct session_sent sent;
    struct pull packed; /* request.packed of those who want it so */
    /* What is made of the result, or of the fault `r`, in the session's lock. */
    int (*end)(struct gemmd *g, int r, const struct wire_obj *result, struct error *err);

    /* For `pack` and `end`. Everything that is pointed to is the caller's, and stays until the
     * end. */
    struct ask ask;
    struct gemmd_acquire acquire;
    struct gemmd_answer *answer;
    enum gemmd_outcome *outcome;
    char **json; /* may be NULL */
};
struct gemmd {
    pthread_mutex_t lock; /* of the session */
    struct session session;
    struct steps steps; /* of the call that holds the lock, when it is one that may wait */
    struct table table;
    int step_ms; /* 0: no steps */
    bool lazy;
    struct gemmd *next, *previous; /* all handles of the process, for fork */
};

/* Takes the session, at the latest when the deadline passes. ERROR_INVALID (g is NULL), ERROR_BUSY
 * (another call holds it, or this thread does: a progress callback, or between two steps). */
int handle_enter(struct gemmd *g, int64_t deadline, struct error *err);
/* Whether it failed since a call of this very thread has the handle: no other answer makes good for
 * that. */
bool handle_is_own_call(const struct error *e);
void handle_leave(struct gemmd *g);
/* This thread has a call of this handle under way, and is not in it (steps.c). False for NULL. */
bool handle_waits(struct gemmd *g);

/* One request, in the lock. `take` (may be NULL) reads its result there, which stays no longer. */
int handle_call(struct gemmd *g, const struct session_request *q,
                int (*take)(void *ctx, const struct wire_obj *result, struct error *err), void *ctx,
                struct error *err);

/* Ends a public call: hands the error to the caller, who may have passed NULL. */
int handle_result(int r, const struct error *e, struct gemmd_error *err);

/* When a call with this deadline_ms must be back; 0: the connection's default, or never. */
int64_t handle_deadline(const struct gemmd *g, int deadline_ms, bool may_take_long);

/* ---- steps.c -------------------------------------------------------------------------------- */

/* Takes the handle (handle_enter), to fill in the above; then follows steps_run. */
int steps_begin(struct gemmd *g, int64_t deadline, struct error *err);
/* The request's progress comes by gemmd_wait, when the handle takes steps. */
void steps_report(struct gemmd *g);
/* Asks and waits; `r`: a fault that is there already. GEMMD_WAITING, or the end: the handle is
 * let go of, and the outcome is that of `end`. */
int steps_run(struct gemmd *g, int r, struct error *err);

#endif
