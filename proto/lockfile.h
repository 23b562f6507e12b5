/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file whose flock(2) marks the owner of a socket's path or of a device. The kernel releases the
 * lock when the process ends in any way, so a file left behind is no obstacle. lslocks(8) shows the
 * lock. The lock holds for all processes that see the directory, in any network or process
 * namespace. The file is never removed: another process may just have opened the file, and would
 * then lock a file without a name. (Exception: daemon/base/lock.h removes files that no other
 * process opens.)
 *
 * The file's text begins with the holder's pid, for users and for processes that find the lock
 * taken. Any process that can open the file, even for reading only, can lock the file. So no other
 * user may open the file.
 */
#ifndef GEMMD_PROTO_LOCKFILE_H
#define GEMMD_PROTO_LOCKFILE_H

#include <stdbool.h>

#include "proto/error.h"

enum { LOCKFILE_HELD = 1 };

/* Locks the file without waiting. Creates a missing file for the own user only, and writes the pid
 * and, unless `second` is NULL, a line with `second`. Removes other users' access from an own file.
 * 0: closing *fd releases the lock. LOCKFILE_HELD: another process has the lock. ERROR_DENIED: no
 * permission; or the path is a symbolic link, not a plain file, or has a second name. In these
 * cases the path is neither followed nor written to. ERROR_DISK_FULL, ERROR_IO. */
int lockfile_take(const char *path, const char *second, int *fd, struct error *err);

struct lockfile_holder {
    long pid;   /* as written in the file; 0: not readable */
    bool lives; /* a process of this pid is visible here */
};

/* The process that wrote the file last. A new holder may not have written yet: reads again until
 * the process of the file's pid lives, for at most `patience_ms`. */
struct lockfile_holder lockfile_holder(const char *path, unsigned patience_ms);

struct lockfile_holder lockfile_of(long pid);
/* True when the process has ended. A zombie has ended, too: its parent has not waited yet, and in a
 * container without init nobody reaps the zombie. */
bool lockfile_has_ended(long pid);

enum { LOCKFILE_NAME_MAX = 160 };
/* "pid 12"; for a pid that is not visible here, adds how to find the holder. Returns out. */
const char *lockfile_name(const struct lockfile_holder *h, char out[LOCKFILE_NAME_MAX]);

#endif
