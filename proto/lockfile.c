/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "proto/lockfile.h"
#include "proto/trust.h"

enum { LOOK_MS = 20, OURS_ALONE = 0600 };

/* Writes this process's pid and `second`, for users and for the errors of processes that find the
 * lock taken. A full disk is no error: the lock holds without the text. */
static void lockfile_write_owner(int fd, const char *second)
{
    if (ftruncate(fd, 0) == 0) {
        dprintf(fd, "%ld\n", (long)getpid());
        if (second) {
            dprintf(fd, "%s\n", second);
        }
    }
}

int lockfile_take(const char *path, const char *second, int *fd, struct error *err)
{
    if (trust_open(path, O_RDWR | O_CREAT, OURS_ALONE, fd, err)) {
        return error_prefix(err, "cannot make the lock file %s", path);
    }
    if (flock(*fd, LOCK_EX | LOCK_NB) < 0) {
        int status = errno == EWOULDBLOCK
                         ? LOCKFILE_HELD
                         : error_set(err, ERROR_IO, "cannot lock %s: %s", path, strerror(errno));
        close(*fd);
        *fd = -1;
        return status;
    }
    lockfile_write_owner(*fd, second);
    return 0;
}

struct lockfile_holder lockfile_of(long pid)
{
    bool lives = pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
    return (struct lockfile_holder){.pid = pid, .lives = lives};
}

bool lockfile_has_ended(long pid)
{
    char path[40], text[512];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    const char *state = strrchr(text, ')'); /* behind the program's name, which may hold any byte */
    return state && state[1] ? state[2] == 'Z' || state[2] == 'X'
                             : kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

static struct lockfile_holder lockfile_read_holder(const char *path)
{
    char text[32] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    if (fd >= 0) {
        close(fd);
    }
    return lockfile_of(n > 0 ? strtol(text, NULL, 10) : 0);
}

struct lockfile_holder lockfile_holder(const char *path, unsigned patience_ms)
{
    struct lockfile_holder h = lockfile_read_holder(path);
    for (unsigned ms = 0; !h.lives && ms < patience_ms; ms += LOOK_MS) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000 * 1000}, NULL);
        h = lockfile_read_holder(path);
    }
    return h;
}

const char *lockfile_name(const struct lockfile_holder *h, char out[LOCKFILE_NAME_MAX])
{
    if (h->lives) {
        snprintf(out, LOCKFILE_NAME_MAX, "pid %ld", h->pid);
    } else {
        snprintf(out, LOCKFILE_NAME_MAX,
                 "a process that is not seen from here: in another container, or "
                 "one that only holds the lock; `lslocks` says which");
    }
    return out;
}
