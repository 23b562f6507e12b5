/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call that may wait for long: as one, or in steps (gemmd_options.step_ms). What it needs until
 * its end stands in the handle, not on the stack of the caller, who is back meanwhile. The handle's
 * lock is held from steps_begin to the end, in steps as in one long call: no other call of the
 * handle comes in between.
 */
#ifndef GEMMD_CLIENT_STEPS_H
#define GEMMD_CLIENT_STEPS_H

#include "client/ask.h"
#include "client/session.h"

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

/* Takes the handle (handle_enter), to fill in the above; then follows steps_run. */
int steps_begin(struct gemmd *g, int64_t deadline, struct error *err);
/* The request's progress comes by gemmd_wait, when the handle takes steps. */
void steps_report(struct gemmd *g);
/* Asks and waits; `r`: a fault that is there already. GEMMD_WAITING, or the end: the handle is
 * let go of, and the outcome is that of `end`. */
int steps_run(struct gemmd *g, int r, struct error *err);

#endif
