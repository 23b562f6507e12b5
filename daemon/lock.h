/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who owns a socket's path and a device.
 *
 * A path belongs to whoever holds the flock on "<path>.lock". The lock is taken before a stale socket is
 * unlinked, and never unlinked itself, so that two daemons cannot both believe they own one path.
 *
 * A GPU belongs to whoever listens on the abstract socket name made of its UUID: that needs no directory
 * that all daemons share, and the kernel frees it with the process. Any user of the host can take such
 * a name, but not secretly: whoever is refused is told the holder's pid and uid by the kernel. The name
 * is one per network namespace; containers with one each do not see each other's.
 */
#ifndef GEMMD_DAEMON_LOCK_H
#define GEMMD_DAEMON_LOCK_H

#include "proto/error.h"

/* Each gives a descriptor that is the lock; closing it lets go. ERROR_BUSY: another one has it, the
 * sentence says who; ERROR_IO, ERROR_DENIED. */
int lock_path(const char *socket_path, int *out, struct error *err);
int lock_device(const char *uuid, int *out, struct error *err);

#endif
