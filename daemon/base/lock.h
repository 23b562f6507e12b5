/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who owns a socket's path and a device.
 *
 * A path belongs to whoever holds the lock file "<path>.lock" (proto/lockfile.h). It is taken
 * before a stale socket is unlinked, so that two daemons cannot both believe they own one path.
 *
 * A GPU belongs to whoever holds two things, of which each sees what the other cannot, taken in
 * this order:
 *
 * - The lock file "<runtime dir>/device-<uuid>.lock", wherever the socket is: it is what people
 *   see, and what containers that share the directory agree on.
 *
 * - The abstract socket name "gemmd-device-<uuid>": users with a runtime directory each agree on
 *   that, as long as they share the network namespace.
 *
 * The device's class is in neither name: it tells the power limit, which may change while a daemon
 * runs.
 */
#ifndef GEMMD_DAEMON_BASE_LOCK_H
#define GEMMD_DAEMON_BASE_LOCK_H

#include "proto/error.h"

/* Gives a descriptor that is the lock; closing it lets go. ERROR_BUSY: another one has it, the
 * sentence says who; ERROR_IO, ERROR_DENIED, ERROR_DISK_FULL. */
int lock_path(const char *socket_path, int *out, struct error *err);

/* `fd` is such a lock whose file may have been removed, or be another one by now: then it is made
 * and taken anew, and is `fd` from then on. Faults as above: `fd` stays what it was. Does not
 * wait. */
int lock_path_again(const char *socket_path, int *fd, struct error *err);

/* While it is held, of a path that nobody else can want, as it has our pid in it: removes the
 * file. */
void lock_path_remove(const char *socket_path);

struct device_lock {
    int file, name; /* descriptors; -1: not held */
};
#define DEVICE_LOCK_NULL ((struct device_lock){-1, -1})

/* The same for a device. `socket_path`: for people, in the lock file. On a fault nothing is
 * held. */
int lock_device(const char *uuid, const char *socket_path, struct device_lock *out,
                struct error *err);
void lock_device_end(struct device_lock *l); /* may be called twice */

#endif
