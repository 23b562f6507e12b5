/* SPDX-License-Identifier: Apache-2.0 */
/* Schema versions of the file, and the way from one to the next. docs/store.md tells ops. */
#ifndef GEMMD_STORE_VERSION_H
#define GEMMD_STORE_VERSION_H

#include <sys/stat.h>

#include "store/db.h"

enum { VERSION_APPLICATION_ID = 0x67656d6d }; /* "gemm", in the file's header */

/* Tables and views of version 1, NULL at the end; never changed after a release. */
extern const char *const version1_sql[];
extern const char *const version2_sql[]; /* from 1 to 2, and so on */
extern const char *const version3_sql[];
extern const char *const version4_sql[];

enum version_state { VERSION_CURRENT = 0, VERSION_EMPTY = 1, VERSION_OLD = 2 };

/* What a file is by its application id and `user_version`; `empty`: it has no tables. ERROR_STORE:
 * newer than this program, or another program's. */
int version_judge(const char *path, int64_t id, int64_t version, bool empty, struct error *err);
/* The same of the open file. */
int version_of(struct db *db, int64_t *version, struct error *err);
/* From `version` to STORE_SCHEMA_VERSION, each step in one transaction, after writing
 * "<path>.v<version>.bak" when the file is not empty. */
int version_migrate(struct db *db, int64_t version, bool empty, struct error *err);
/* A complete copy in one file, synced to disk, for whoever may read `like`; `path` must not
 * exist. */
int version_copy_to(struct db *db, const char *path, const struct stat *like, struct error *err);

#endif
