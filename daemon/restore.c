/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd --restore FILE (`gemmctl restore`): puts a backup in the place of the database, while no
 * daemon runs, and ends. Prints two lines: "database PATH" and "replaced PATH", or "replaced" alone
 * when no file was in the place.
 *
 * Root acts as the owner of the database's folder: the new file, the lock file and the replaced
 * file must belong to the user that gemmd runs as.
 */
#include <errno.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/ledger/ledger.h"
#include "daemon/life.h"

static int restore_become_owner(const char *database, struct error *err)
{
    char dir[PATHS_MAX];
    struct stat st;
    snprintf(dir, sizeof(dir), "%s", database);
    const char *folder = dirname(dir);
    if (stat(folder, &st)) {
        return error_set(err, ERROR_IO, "the database's folder %s: %s", folder, strerror(errno));
    }
    if (st.st_uid == geteuid()) {
        return 0;
    }
    if (geteuid() != 0) {
        return error_set(err, ERROR_DENIED,
                         "database %s: only the owner of its folder (user %u) and root may restore "
                         "it",
                         database, (unsigned)st.st_uid);
    }
    if (setgroups(0, NULL) || setgid(st.st_gid) || setuid(st.st_uid)) {
        return error_set(err, ERROR_IO, "cannot become user %u: %s", (unsigned)st.st_uid,
                         strerror(errno));
    }
    return 0;
}

int restore_run(struct config *c, struct config_sources *from, const char *copy, struct error *err)
{
    char aside[PATH_MAX];
    int r = start_settle_database(c, from, err);
    r = r ? r : restore_become_owner(c->database, err);
    if (r == 0 && access(copy, R_OK)) {
        r = error_set(err, ERROR_IO, "the copy %s: user %u cannot read it: %s", copy,
                      (unsigned)geteuid(), strerror(errno));
    }
    r = r ? r : ledger_replace_file(c->database, copy, c->force_network_fs, aside, err);
    if (r == 0) {
        printf("database %s\nreplaced%s%s\n", c->database, aside[0] ? " " : "", aside);
    }
    return r;
}
