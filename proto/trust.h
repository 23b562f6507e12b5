/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule for every path that gemmd writes to, locks, or relies on (docs/trusted-paths.md): no
 * other user can change the path, or the file at its end. "us": the user that gemmd runs as.
 *
 *   | part                  | owner      | other writers                                          |
 *   |-----------------------|------------|--------------------------------------------------------|
 *   | a folder above        | root or us | none; any if the folder is sticky, as /tmp             |
 *   | the folder of a file  | root or us | none; a sticky folder only if the caller allows that   |
 *   | a file                | root or us | none; a plain file                                     |
 *   | a symbolic link       | root or us | its target follows the rule; the last part is no link  |
 *
 * The private group of an owner other than root counts as the owner: the group has the owner's name
 * and no other member, and the file has no access control list. A user with this primary group is a
 * member, if the name service lists the user; a process reads the list once. A user that a
 * container's user namespace does not map counts as root, but not directly inside a sticky folder:
 * there the file may belong to any user of the host.
 *
 * A checked path stays sound: below a folder that only root and we can write to, no other user can
 * replace a file. SQLite, a compiler and rename(2) may therefore use the resolved path.
 * ERROR_DENIED: the rule is broken; the error message names the part and its owner.
 */
#ifndef GEMMD_PROTO_TRUST_H
#define GEMMD_PROTO_TRUST_H

#include <limits.h>
#include <stdbool.h>

#include "proto/error.h"

enum { TRUST_MISSING = 1 }; /* the existing parts are sound; the last part is missing */

enum {
    TRUST_SHARED = 1, /* the last folder may be sticky */
    TRUST_STRICT = 2, /* the last folder: not even the private group may write to it */
};

/* Checks a folder. `make_mode` not 0: creates the missing parts with that mode, as mkdir -p does.
 * `out` (may be NULL): the absolute path without links. 0, TRUST_MISSING, or a fault. */
int trust_folder(const char *path, int flags, unsigned make_mode, char out[PATH_MAX],
                 struct error *err);

/* Checks a file that another program opens by name, such as SQLite or a compiler. Follows links of
 * the last part. `out`: the absolute path without links. TRUST_MISSING: only the file is
 * missing. */
int trust_file(const char *path, int flags, char out[PATH_MAX], struct error *err);

/* Opens a plain file, without waiting as open(2) does for a FIFO. `flags` and `mode` as for
 * open(2); the folder may be sticky. A file opened for writing must have a single name, since
 * another user may rely on a second name. A new file is never writable by other users, for any mode
 * and umask. With O_CREAT, an existing file of ours loses the rights that `mode` lacks.
 * TRUST_MISSING only without O_CREAT. */
int trust_open(const char *path, int flags, unsigned mode, int *fd, struct error *err);

/* Checks the rule for an open file in a checked folder. */
int trust_opened(const char *path, int fd, struct error *err);

#endif
