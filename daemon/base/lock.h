/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ownership of a socket's path and of a device.
 *
 * The holder of the lock file "<path>.lock" (proto/lockfile.h) owns a path. A daemon takes it
 * before it unlinks a stale socket, so that two daemons cannot both believe that they own one path.
 *
 * A GPU belongs to the process that holds two locks, which it takes in this order. Each covers a
 * case that the other misses:
 *
 * - The lock file "<runtime dir>/device-<uuid>.lock", in any place of the socket. People see this
 * file, and containers that share the directory find the same file.
 *
 * - The abstract socket name "gemmd-device-<uuid>". Users with separate runtime directories meet at
 * this name, as long as they share the network namespace.
 *
 * Neither name contains the device class: the class has the power limit, which may change while a
 * daemon runs.
 */
#ifndef GEMMD_DAEMON_BASE_LOCK_H
#define GEMMD_DAEMON_BASE_LOCK_H

#include "proto/error.h"

/* Locks a socket's path. *out becomes a descriptor that holds the lock; closing the descriptor
 * releases the lock. ERROR_BUSY: another process holds the lock, and the error message names it;
 * ERROR_IO, ERROR_DENIED, ERROR_DISK_FULL. */
int lock_path(const char *socket_path, int *out, struct error *err);

/* Checks that the lock file of `*fd` still exists at its path. If not, makes the file, takes the
 * lock anew and replaces `*fd`. Errors as for lock_path; *fd then stays. Does not wait for a holder
 * to end. */
int lock_path_again(const char *socket_path, int *fd, struct error *err);

/* Removes the lock file. The caller holds the lock, and the path contains the caller's pid, so no
 * other process wants this path. */
void lock_path_remove(const char *socket_path);

struct device_lock {
    int file, name; /* descriptors; -1: not held */
};
#define DEVICE_LOCK_NULL ((struct device_lock){-1, -1})

/* Takes both locks of a device. The text of the lock file names `socket_path` for people. Errors as
 * for lock_path; then no lock is held. */
int lock_device(const char *uuid, const char *socket_path, struct device_lock *out,
                struct error *err);
void lock_device_end(struct device_lock *l); /* may be called twice */

#endif
