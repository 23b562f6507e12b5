/* SPDX-License-Identifier: Apache-2.0 */
/* Implements sd_notify and LISTEN_FDS as systemd's man pages describe them (notify.h). */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/notify.h"

enum { FIRST_FD = 3 };

void notify_send(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(to.sun_path)) {
        return;
    }
    memcpy(to.sun_path, path, strlen(path));
    if (path[0] == '@') {
        to.sun_path[0] = 0;
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return;
    }
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    ssize_t sent = sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to, n);
    (void)sent; /* it is no error when the service manager does not listen */
    close(fd);
}

/* True when the value of a *_PID variable is this process's pid, or the variable is not set. */
static bool is_ours(const char *pid)
{
    return !pid || strtol(pid, NULL, 10) == (long)getpid();
}

uint64_t notify_watchdog_ms(void)
{
    const char *us = getenv("WATCHDOG_USEC");
    unsigned long long period = us && is_ours(getenv("WATCHDOG_PID")) ? strtoull(us, NULL, 10) : 0;
    /* the variable was for gemmd: the runner must not inherit the variable */
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return period && period < 2000 ? 1 : period / 2000;
}

int notify_listen_fd(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    if (!pid || !n || !is_ours(pid) || strcmp(n, "1") != 0) {
        return -1;
    }
    /* the variable was for gemmd: the runner must not inherit the variable */
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    return fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC) < 0 ? -1 : FIRST_FD;
}
