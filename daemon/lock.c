/* SPDX-License-Identifier: Apache-2.0 */
/* The two locks, and what is said of their holders (lock.h). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "daemon/lock.h"
#include "daemon/log.h"
#include "proto/paths.h"

enum { HOLDER_LOOKS = 10, ASKERS_MAX = 64 };

/* ---- a path ------------------------------------------------------------------------------------------ */

/* Who holds the lock, 0: it does not say. It may have taken it just now and not have written yet. */
static long holder_of(int fd)
{
    for (int i = 0; i < HOLDER_LOOKS; i++) {
        char text[16] = "";
        long pid = pread(fd, text, sizeof(text) - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
        if (pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM)) {
            return pid;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    return 0;
}

int lock_path(const char *socket_path, int *out, struct error *err)
{
    char path[PATHS_MAX + 8];
    snprintf(path, sizeof(path), "%s.lock", socket_path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return error_set(err, errno == EACCES ? ERROR_DENIED : ERROR_IO, "cannot open %s: %s", path,
                         strerror(errno));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        long pid = holder_of(fd);
        close(fd);
        return error_set(err, ERROR_BUSY,
                         "another gemmd (pid %ld) serves %s; use it, stop it with `gemmctl stop`, "
                         "or give this one another --socket",
                         pid, socket_path);
    }
    /* For the sentence above, and for people. */
    if (ftruncate(fd, 0) < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0) {
        log_warning("%s: cannot write the process id: %s", path, strerror(errno));
    }
    *out = fd;
    return 0;
}

/* ---- a device ---------------------------------------------------------------------------------------- */

static socklen_t name_of(const char *uuid, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "gemmd-device-%s", uuid);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* The kernel knows who listens. */
static int taken(const char *uuid, const struct sockaddr_un *name, socklen_t length,
                 struct error *err)
{
    struct ucred who = {.pid = 0, .uid = (uid_t)-1};
    socklen_t n = sizeof(who);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)name, length) == 0) {
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n);
    }
    if (fd >= 0) {
        close(fd);
    }
    return error_set(err, ERROR_BUSY,
                     "another gemmd (pid %d of user %d) serves device %s; there is one daemon per "
                     "GPU, also when its socket is elsewhere: use that one, or stop it first",
                     (int)who.pid, (int)who.uid, uuid);
}

int lock_device(const char *uuid, int *out, struct error *err)
{
    struct sockaddr_un name;
    socklen_t length = name_of(uuid, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return error_set(err, ERROR_IO, "socket: %s", strerror(errno));
    }
    if (bind(fd, (struct sockaddr *)&name, length) < 0 || listen(fd, ASKERS_MAX) < 0) {
        int why = errno;
        close(fd);
        return why == EADDRINUSE
                   ? taken(uuid, &name, length, err)
                   : error_set(err, ERROR_IO, "cannot lock device %s: %s", uuid, strerror(why));
    }
    *out = fd;
    return 0;
}
