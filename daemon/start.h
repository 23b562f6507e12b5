/* SPDX-License-Identifier: Apache-2.0 */
/* What must be settled before there is a loop. */
#ifndef GEMMD_DAEMON_START_H
#define GEMMD_DAEMON_START_H

#include "daemon/methods/daemon_parts.h"

/* Finds the runner, looks at the device, settles the paths, takes the locks. */
int start_prepare(struct daemon_parts *p, struct error *err);
/* For --print-config: the paths and the device that start_prepare would settle, into the settings,
 * without making or opening anything. On failure what depends on it stays as it is. */
int start_effective(struct config *c, struct config_sources *from, struct error *err);
/* What clients may hold. Raises the limit of open files as far as the connections need it; when the
 * hard limit leaves no room there are fewer, since a runner and the database need files, too. A
 * user's share is what is set, or three quarters of the whole. */
void start_limits(const struct config *c, struct session_limits *out);

#endif
