/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rule for every path that gemmd writes to, locks, or believes (docs/trusted-paths.md): no
 * other user can change the path, or the file at its end.
 *
 * | part                  | owner      | who else may write to it                                 |
 * |-----------------------|------------|----------------------------------------------------------|
 * | a folder above        | root or us | nobody; anybody if it is sticky, as /tmp is              |
 * | the folder of a file  | root or us | nobody; a sticky folder only where the caller allows it  |
 * | a file                | root or us | nobody; it is a plain file                               |
 * | a symbolic link       | root or us | its target follows the same rule; the last part is none  |
 *
 * The private group of an owner other than root counts as the owner: the group has the owner's name
 * and no other member, and the file has no access control list. A user whose primary group it is,
 * is a member, if the name service lists that user; a process asks for the list once. A user that
 * the user namespace of a container does not map counts as root, but not directly inside a sticky
 * folder: there the host's root has no other name.
 *
 * A path that passed stays as it is: below a folder that only root and we can write to, nobody else
 * can put another file into its place. SQLite, a compiler and rename(2) may therefore use the
 * resolved path. ERROR_DENIED: the rule is broken; the sentence names the part and its owner.
 */
#ifndef GEMMD_PROTO_TRUST_H
#define GEMMD_PROTO_TRUST_H

#include <limits.h>
#include <stdbool.h>

#include "proto/error.h"

enum { TRUST_MISSING = 1 }; /* the path is sound so far, and ends before its last part */

enum {
    TRUST_SHARED = 1, /* the last folder may be sticky */
    TRUST_STRICT = 2, /* the last folder: not even the private group may write to it */
};

/* Checks a folder. `make_mode` not 0: creates the missing parts with that mode, as mkdir -p does.
 * `out` (may be NULL): the absolute path without links. 0, TRUST_MISSING, or a fault. */
int trust_folder(const char *path, int flags, unsigned make_mode, char out[PATH_MAX],
                 struct error *err);

/* Checks a file that another program opens by its name, such as SQLite or a compiler. Links of the
 * last part are followed. `out`: the absolute path without links. TRUST_MISSING: the folder is
 * there and the file is not. */
int trust_file(const char *path, int flags, char out[PATH_MAX], struct error *err);

/* Opens a plain file; never waits, as open(2) does for a FIFO. `flags` and `mode` as for open(2);
 * the folder may be sticky. A file that is opened for writing has one name only: another name is
 * another file to somebody. No mode and no umask lets others write to a file that is made.
 * With O_CREAT, a file of ours that was there loses the rights that `mode` lacks. TRUST_MISSING
 * only without O_CREAT. */
int trust_open(const char *path, int flags, unsigned mode, int *fd, struct error *err);

/* The rule for a file that is open already, in a folder that was checked. */
int trust_opened(const char *path, int fd, struct error *err);

#endif
