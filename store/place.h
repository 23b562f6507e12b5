/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a database may live: its real path, and the kind of file system.
 */
#ifndef GEMMD_STORE_PLACE_H
#define GEMMD_STORE_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "proto/error.h"

/* Resolves `path` to an absolute path without symbolic links: two names of a file must not get two
 * locks. *out is malloc'ed. ERROR_STORE: the folder is missing or no folder; the path is no plain
 * file; or another user can change the folder, the file, or the files that SQLite opens beside the
 * file (proto/trust.h). */
int place_resolve(const char *path, char **out, struct error *err);

/* Makes a missing file, closed to group and others. SQLite gives the mode of the database to the
 * files beside the database. */
void place_create(const char *path);

/* Takes the rights of group and others away from a database and the files beside the database: a
 * user who can open these files for reading can lock them. */
void place_close_to_others(const char *path);

enum { PLACE_LOCKER_MAX = 64 };
/* Finds the process that locks the database in the kernel's list of locks, never this process: "pid
 * 12 (sqlite3)". false: no process found. */
bool place_locker(const char *path, char out[PLACE_LOCKER_MAX]);

/* ERROR_STORE when the folder of `path` lies on a network file system: SQLite's WAL needs shared
 * memory and locks, which these file systems lack. */
int place_refuse_network(const char *path, struct error *err);

/* Makes a new, empty file with the owner and mode of `like`: when a database was closed to other
 * users, so are its copies. Returns 0, or -1 with errno. */
int place_create_like(const char *path, const struct stat *like);

/* Makes all changes of names in the folder of `path` durable. Returns 0, or -1 with errno. */
int place_sync_folder(const char *path);
int place_sync(const char *path); /* the file, too */

/* For tests: fstatfs(2). */
extern int (*place_fstatfs)(int fd, struct statfs *out);

#endif
