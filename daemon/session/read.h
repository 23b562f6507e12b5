/* SPDX-License-Identifier: Apache-2.0 */
/* From a session's bytes to messages, and its deadlines (session.h). For the session's own
 * files. */
#ifndef GEMMD_DAEMON_SESSION_READ_H
#define GEMMD_DAEMON_SESSION_READ_H

#include "daemon/session/session.h"

enum { INPUT_BYTES = 64 * 1024 };

void session_listen(struct session *s); /* begins to read */
/* Answers `busy` and hangs up. */
void session_refuse(struct session *s, const struct error *e);
/* polled.ready of a session. */
void session_ready(struct polled *p, enum peer peer);
/* turn.take of a session: false while its user has had his time in this round. */
bool session_take_turn(struct turn *t);
/* Deadlines: called about once a second while any session has one. True: it still has. */
bool session_sweep(struct session *s, uint64_t now_ms);
/* Deadlines come later, by as long as we did not look; none begins after now. */
void session_forgive(struct session *s, uint64_t ms, uint64_t now_ms);

#endif
