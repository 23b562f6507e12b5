/* SPDX-License-Identifier: Apache-2.0 */
/* sd_notify and LISTEN_FDS as their man pages describe them (notify.h). */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/notify.h"

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
    (void)sent; /* a service manager that does not listen is no fault of ours */
    close(fd);
}

int notify_listen_fd(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    if (!pid || !n || strtol(pid, NULL, 10) != (long)getpid() || strcmp(n, "1") != 0) {
        return -1;
    }
    unsetenv("LISTEN_PID"); /* the runner is not meant */
    unsetenv("LISTEN_FDS");
    return fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC) < 0 ? -1 : FIRST_FD;
}
