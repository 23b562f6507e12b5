/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/base/self.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int self_spawn(const char *const *args, int fd, pid_t *pid, struct error *err)
{
    static const char self[] = "/proc/self/exe";
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setpgroup(&attr, 0);
    int r = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    r = r ? r : posix_spawn_file_actions_adddup2(&files, fd, atoi(SELF_FD));
    r = r ? r : posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDWR, 0);
    r = r ? r : posix_spawn_file_actions_adddup2(&files, STDIN_FILENO, STDOUT_FILENO);
    r = r ? r : posix_spawn(pid, self, &files, &attr, (char **)args, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return r ? error_set(err, ERROR_IO, "cannot start %s: %s", self, strerror(r)) : 0;
}

int self_start(const char *const *args, int *fd, pid_t *pid, struct error *err)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds)) {
        return error_set(err, ERROR_IO, "socketpair: %s", strerror(errno));
    }
    if (fds[1] == atoi(SELF_FD)) { /* dup2 of 3 onto 3 would leave FD_CLOEXEC set */
        int moved = fcntl(fds[1], F_DUPFD_CLOEXEC, fds[1] + 1);
        close(fds[1]);
        fds[1] = moved;
    }
    int r = fds[1] < 0 ? error_set(err, ERROR_IO, "dup: %s", strerror(errno))
                       : self_spawn(args, fds[1], pid, err);
    if (fds[1] >= 0) {
        close(fds[1]);
    }
    if (r) {
        close(fds[0]);
    } else {
        *fd = fds[0];
    }
    return r;
}

void self_ignore_signals(void)
{
    static const int ignored[] = {SIGPIPE, SIGHUP, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        signal(ignored[i], SIG_IGN);
    }
}

void self_begin(int fd)
{
    self_ignore_signals();
    closefrom(fd + 1);
}
