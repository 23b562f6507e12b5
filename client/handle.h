/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gemmd: a session with a lock around it, and a table of answers with its own. How every
 * public call begins and ends is here.
 */
#ifndef GEMMD_CLIENT_HANDLE_H
#define GEMMD_CLIENT_HANDLE_H

#include "client/steps.h"
#include "client/table.h"

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
/* This thread has a call of this handle under way, and is not in it (steps.h). False for NULL. */
bool handle_waits(struct gemmd *g);

/* One request, in the lock. `take` (may be NULL) reads its result there, which stays no longer. */
int handle_call(struct gemmd *g, const struct session_request *q,
                int (*take)(void *ctx, const struct wire_obj *result, struct error *err), void *ctx,
                struct error *err);

/* Ends a public call: hands the error to the caller, who may have passed NULL. */
int handle_result(int r, const struct error *e, struct gemmd_error *err);

/* When a call with this deadline_ms must be back; 0: the connection's default, or never. */
int64_t handle_deadline(const struct gemmd *g, int deadline_ms, bool may_take_long);

#endif
