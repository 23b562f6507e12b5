/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/devices/cpu/scratch.h"
#include "proto/trust.h"

#define PREFIX "gemmd-cc-"

static const char *tmp_dir(void)
{
    const char *tmp = getenv("TMPDIR");
    return tmp && *tmp ? tmp : "/tmp";
}

int scratch_make(char folder[PATH_MAX], struct error *err)
{
    char tmp[PATH_MAX];
    int r = trust_folder(tmp_dir(), TRUST_SHARED, 0, tmp, err);
    if (r < 0) {
        return error_prefix(err, "no place to compile in (TMPDIR sets it)");
    }
    if (r == TRUST_MISSING || snprintf(folder, PATH_MAX, "%s/" PREFIX "XXXXXX", tmp) >= PATH_MAX) {
        return error_set(err, ERROR_IO, "no place to compile in: TMPDIR is \"%.200s\", which %s",
                         tmp_dir(), r ? "is not there" : "is too long");
    }
    if (!mkdtemp(folder)) {
        return error_set(err, errno == ENOSPC ? ERROR_DISK_FULL : ERROR_IO,
                         "cannot make a temporary directory %s to compile in: %s", folder,
                         strerror(errno));
    }
    return 0;
}

void scratch_remove(const char *folder)
{
    char path[PATH_MAX + NAME_MAX + 2];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        unlink(path); /* there are only files; "." and ".." it leaves alone */
    }
    if (d) {
        closedir(d);
    }
    rmdir(folder);
}

void scratch_sweep(int older_s)
{
    char path[PATH_MAX];
    struct stat st;
    DIR *d = opendir(tmp_dir());
    for (struct dirent *e; d && (e = readdir(d));) {
        int n = snprintf(path, sizeof(path), "%s/%s", tmp_dir(), e->d_name);
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0 && n < PATH_MAX &&
            lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
            st.st_mtime + older_s < time(NULL)) {
            scratch_remove(path);
        }
    }
    if (d) {
        closedir(d);
    }
}
