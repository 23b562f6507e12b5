/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a message's bytes to the method that answers it. A hit that came in the very same bytes
 * before is answered here, without being decoded (cache/memo.h).
 */
#ifndef GEMMD_DAEMON_METHODS_DISPATCH_H
#define GEMMD_DAEMON_METHODS_DISPATCH_H

#include "daemon/session/session.h"

struct daemon_parts;

/* Answers a message that was answered before in the same bytes. False: it is none, or not a whole
 * message; nothing is done. Needs no scan: that the bytes are the same is enough. */
bool dispatch_known(struct daemon_parts *parts, struct session *s, const uint8_t *data, size_t n);
/* Handles one whole message of a session; `again`: it was put off once. Answers go to its `out`;
 * nothing is written yet. */
void dispatch(struct daemon_parts *parts, struct session *s, const uint8_t *data, size_t n,
              bool again);

#endif
