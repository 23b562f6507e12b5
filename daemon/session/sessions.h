/* SPDX-License-Identifier: Apache-2.0 */
/* All sessions: how they come, what they must do in time, and how all of them end. */
#ifndef GEMMD_DAEMON_SESSION_SESSIONS_H
#define GEMMD_DAEMON_SESSION_SESSIONS_H

#include "daemon/session/session.h"

/* ERROR_NO_MEMORY: nothing is open. */
int sessions_init(struct sessions *x, struct turns *turns, struct poller *poller,
                  const struct session_limits *limits, const struct session_hooks *hooks, void *ctx,
                  struct error *err);
/* Takes the next connection of the listening pipe. ERROR_IO, ERROR_NO_MEMORY: it is closed.
 * ERROR_BUSY: it waits, and so do all that come after it, until this is called again. */
int sessions_accept(struct sessions *x, uv_stream_t *listener, struct error *err);
/* Closes all; `stopped` comes when the last handle is closed. */
void sessions_stop(struct sessions *x, void (*stopped)(struct sessions *x));
void sessions_deinit(struct sessions *x);

#endif
