/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file whose flock(2) says that something is somebody's: a socket's path, a device.
 * The kernel lets go with the process, however that ends, so a file that was left behind is no
 * obstacle; lslocks(8) shows it; and it holds for all who see the directory, in whichever network
 * or process namespace. The file is not removed: another process may just have opened it, and would
 * then lock a file without a name. (But for one whose name nobody else can want:
 * daemon/base/lock.h.)
 *
 * Its text is for people, and for those who are refused: the holder's pid first. Whoever can open
 * it, be it only to read, can take it: so nobody else may.
 */
#ifndef GEMMD_PROTO_LOCKFILE_H
#define GEMMD_PROTO_LOCKFILE_H

#include <stdbool.h>

#include "proto/error.h"

enum { LOCKFILE_HELD = 1 };

/* Takes it without waiting, makes it, for our user alone, when it is not there, and writes our pid
 * and, when `second` is not NULL, a line of it. One of ours that others may open is closed to them.
 * 0: closing *fd lets go. LOCKFILE_HELD: somebody else has it. ERROR_DENIED: no permission, or what
 * is there is a symbolic link, no plain file, or has a second name: it is neither followed nor
 * written to. ERROR_DISK_FULL, ERROR_IO. */
int lockfile_take(const char *path, const char *second, int *fd, struct error *err);

struct lockfile_holder {
    long pid;   /* as it wrote: 0: nothing to be read */
    bool lives; /* such a process is seen from here */
};

/* Who has written last. Who has only just taken it may not have yet: looked for until the process
 * is one that lives, at most `patience_ms`. */
struct lockfile_holder lockfile_holder(const char *path, unsigned patience_ms);

/* What there is to say of who wrote that pid. */
struct lockfile_holder lockfile_of(long pid);

enum { LOCKFILE_NAME_MAX = 160 };
/* "pid 12"; of a pid that is not seen from here, which may be long dead, how to find out. Returns
 * out. */
const char *lockfile_name(const struct lockfile_holder *h, char out[LOCKFILE_NAME_MAX]);

#endif
