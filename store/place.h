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

/* Absolute, symbolic links followed (two names of one file must not get two locks). *out is
 * malloc'ed. ERROR_STORE: the folder is missing or no folder, the path is no plain file, or another
 * user can change the folder, the file, or the files that SQLite opens beside it (proto/trust.h).
 */
int place_resolve(const char *path, char **out, struct error *err);

/* Makes the file, where it is missing, closed to group and others. SQLite gives the files that it
 * makes the mode of the database. */
void place_create(const char *path);

/* Takes from group and others every right on a database and on the files beside it: a user who can
 * open them for reading can lock them. */
void place_close_to_others(const char *path);

enum { PLACE_LOCKER_MAX = 64 };
/* Names the process that keeps others from the database, by the kernel's list of locks: "pid 12
 * (sqlite3)". Never this process. false: the list shows none. */
bool place_locker(const char *path, char out[PLACE_LOCKER_MAX]);

/* ERROR_STORE when the folder of `path` lies on a network file system: SQLite's WAL needs shared
 * memory and locks that these do not give. */
int place_refuse_network(const char *path, struct error *err);

/* A new, empty file of those who may read and write `like`, and of no others: whoever closed a
 * database to others closed its copies, too. 0, or -1 with errno. */
int place_create_like(const char *path, const struct stat *like);

/* Makes what was made, renamed or removed beside `path` durable. 0, or -1 with errno. */
int place_sync_folder(const char *path);
int place_sync(const char *path); /* the file, too */

/* For tests: fstatfs(2). */
extern int (*place_fstatfs)(int fd, struct statfs *out);

#endif
