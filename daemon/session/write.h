/* SPDX-License-Identifier: Apache-2.0 */
/* The way out of a session (session.h). For the session's own files. */
#ifndef GEMMD_DAEMON_SESSION_WRITE_H
#define GEMMD_DAEMON_SESSION_WRITE_H

#include "daemon/session/session.h"

/* Gives `out` to the socket. After it the session may be closing. */
void session_flush(struct session *s);

#endif
