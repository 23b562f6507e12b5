/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wiring: which part is told by which. Parts know only those that they stand on; here the hooks
 * of each are bound to what is above it.
 */
#ifndef GEMMD_DAEMON_WIRING_H
#define GEMMD_DAEMON_WIRING_H

#include "daemon/methods/daemon_parts.h"

/* Begins all parts but the server. Needs the loop, the cache, daemon.learned. */
void wiring_init(struct daemon_parts *p);
/* What any daemon of the database has changed, this one too: to all whom it concerns. */
void wiring_news(struct daemon_parts *p, const struct ledger_news *n);
/* The server's sessions, and what they say. ctx: the parts. */
extern const struct session_hooks wiring_sessions;

#endif
