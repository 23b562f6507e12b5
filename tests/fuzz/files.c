/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary files for fuzz targets whose tested function reads a path (fuzz.h). */
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

static char folder[64];
static pid_t owner;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_folder(void)
{
    if (getpid() == owner) {
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}

const char *fuzz_folder(void)
{
    if (!folder[0]) {
        snprintf(folder, sizeof(folder), "%s/gemmd-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        CHECK(mkdtemp(folder));
        owner = getpid();
        atexit(remove_folder);
    }
    return folder;
}

const char *fuzz_file(const char *name, const void *data, size_t n)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", fuzz_folder(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    close(fd);
    return path;
}
