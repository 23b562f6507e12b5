/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of the daemon: prepare, open the ledger, load what is known, listen, run, and end in the
 * reverse order. The end goes in order, too: no new connections, jobs cancelled, runner killed,
 * ledger drained, socket removed.
 */
#ifndef GEMMD_DAEMON_LIFE_H
#define GEMMD_DAEMON_LIFE_H

#include "daemon/base/config.h"
#include "daemon/methods/daemon_parts.h"

/* Runs until told to stop. Returns an exit code. */
int daemon_run(const struct config *c);

/* ---- start.c --------------------------------------------------------------------------------- */

/* What must be settled before there is a loop. */

/* Finds the runner, looks at the device, settles the paths, takes the locks. */
int start_prepare(struct daemon_parts *p, struct error *err);
/* For --print-config: the paths and the device that start_prepare would settle, into the settings,
 * without making or opening anything. On failure what depends on it stays as it is. */
int start_effective(struct config *c, struct config_sources *from, struct error *err);
/* What clients may hold. Raises the limit of open files as far as the connections need it; when the
 * hard limit leaves no room there are fewer, since a runner and the database need files, too. A
 * user's share is what is set, or three quarters of the whole. */
void start_limits(const struct config *c, struct session_limits *out);

/* ---- wiring.c -------------------------------------------------------------------------------- */

/*
 * The wiring: which part is told by which. Parts know only those that they stand on; here the hooks
 * of each are bound to what is above it.
 */

/* Begins all parts but the server. Needs the loop, the cache, daemon.learned. */
void wiring_init(struct daemon_parts *p);
/* What any daemon of the database has changed, this one too: to all whom it concerns. */
void wiring_news(struct daemon_parts *p, const struct ledger_news *n);
/* The server's sessions, and what they say. ctx: the parts. */
extern const struct session_hooks wiring_sessions;

#endif
