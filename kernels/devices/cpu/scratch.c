/* SPDX-License-Identifier: Apache-2.0 */
/* The C compiler's folders, below $TMPDIR or /tmp. A process that is killed while it compiles
 * leaves its folder. (The runner compiles in child processes: runner/compile/apart.h.) The next
 * process that opens a compiler removes folders that are older than any compile may take. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/devices/cpu/cpu.h"
#include "proto/trust.h"

#define PREFIX "gemmd-cc-"

static const char *cpu_scratch_tmp_dir(void)
{
    const char *tmp = getenv("TMPDIR");
    return tmp && *tmp ? tmp : "/tmp";
}

int scratch_make(char folder[PATH_MAX], struct error *err)
{
    char tmp[PATH_MAX];
    int r = trust_folder(cpu_scratch_tmp_dir(), TRUST_SHARED, 0, tmp, err);
    if (r < 0) {
        return error_prefix(err, "no place to compile in (TMPDIR sets it)");
    }
    if (r == TRUST_MISSING || snprintf(folder, PATH_MAX, "%s/" PREFIX "XXXXXX", tmp) >= PATH_MAX) {
        return error_set(err, ERROR_IO, "no place to compile in: TMPDIR is \"%.200s\", which %s",
                         cpu_scratch_tmp_dir(), r ? "is not there" : "is too long");
    }
    if (!mkdtemp(folder)) {
        return error_set(err, errno == ENOSPC ? ERROR_DISK_FULL : ERROR_IO,
                         "cannot make a temporary directory %s to compile in: %s", folder,
                         strerror(errno));
    }
    return 0;
}

/* Empties the folder through its descriptor: a file or link that has replaced the folder at its
 * path loses nothing. */
void scratch_remove(const char *folder)
{
    struct stat st;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 || fstat(fd, &st) || st.st_uid != geteuid() ? NULL : fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        unlinkat(fd, e->d_name, 0); /* removes only files, and fails for "." and ".." */
    }
    if (d) {
        closedir(d);
    } else if (fd >= 0) {
        close(fd);
    }
    rmdir(folder);
}

void scratch_sweep(int older_s)
{
    char tmp[PATH_MAX], path[PATH_MAX + NAME_MAX + 2];
    struct stat st;
    DIR *d = trust_folder(cpu_scratch_tmp_dir(), TRUST_SHARED, 0, tmp, NULL) ? NULL : opendir(tmp);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof(path), "%s/%s", tmp, e->d_name);
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0 && lstat(path, &st) == 0 &&
            st.st_uid == geteuid() && st.st_mtime + older_s < time(NULL)) {
            scratch_remove(path);
        }
    }
    if (d) {
        closedir(d);
    }
}
