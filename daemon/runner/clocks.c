/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/runner/clocks.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/device.h"

extern char **environ;

enum { CHILD_FD = 3, PATIENCE_MS = 5000 };
#define DONE "locked"

/* ---- the child ------------------------------------------------------------------------------- */

static void on_signal(int number)
{
    (void)number; /* read() returns, which is all */
}

static void await_end(int fd)
{
    char byte;
    ssize_t n;
    do {
        n = read(fd, &byte, 1);
    } while (n > 0);
}

int clocks_child(const char *uuid, int64_t mhz, int fd)
{
    static const int stops[] = {SIGTERM, SIGINT, SIGHUP};
    const struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */
    struct error err = ERROR_NULL;
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
        sigaction(stops[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    int r = device_set_clocks(uuid, mhz, &err);
    const char *answer = r ? err.text : DONE;
    bool heard = write(fd, answer, strlen(answer)) > 0 && shutdown(fd, SHUT_WR) == 0;
    if (r) {
        return 1;
    }
    if (heard) {
        await_end(fd);
    }
    r = device_set_clocks(uuid, 0, &err);
    if (r) {
        fprintf(stderr, "gemmd-runner: %s; nvidia-smi --reset-gpu-clocks gives them back\n",
                err.text);
    }
    return r ? 1 : 0;
}

/* ---- the runner's side ------------------------------------------------------------------------ */

static int start(const char *uuid, int64_t mhz, int fd, struct error *err)
{
    char clock[24], self[] = "/proc/self/exe", end[8];
    snprintf(clock, sizeof(clock), "%lld", (long long)mhz);
    snprintf(end, sizeof(end), "%d", CHILD_FD);
    const char *args[] = {"gemmd-runner", "--hold-clocks", clock, "--device", uuid,
                          "--fd",         end,             NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    pid_t pid;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, fd, CHILD_FD);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID); /* a terminal's signals are not for it */
    int r = posix_spawn(&pid, self, &files, &attr, (char **)args, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return r ? error_set(err, ERROR_IO, "cannot start %s: %s", self, strerror(r)) : 0;
}

/* What the child says, up to its end of file. */
static int hear(int fd, struct error *err)
{
    char text[sizeof(err->text)];
    size_t have = 0;
    ssize_t n = 1;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (n > 0 && have + 1 < sizeof(text) && poll(&p, 1, PATIENCE_MS) > 0) {
        n = read(fd, text + have, sizeof(text) - 1 - have);
        have += n > 0 ? (size_t)n : 0;
    }
    text[have] = '\0';
    if (strcmp(text, DONE) == 0) {
        return 0;
    }
    return error_set(err, ERROR_DENIED, "the clocks could not be locked: %.200s",
                     have ? text : "nothing was heard of it");
}

int clocks_hold(const char *uuid, int64_t mhz, struct error *err)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds)) {
        return error_set(err, ERROR_IO, "socketpair: %s", strerror(errno));
    }
    if (fds[1] == CHILD_FD) { /* dup2 to itself would leave it closed in the child */
        int moved = dup(fds[1]);
        close(fds[1]);
        fds[1] = moved;
    }
    int r = start(uuid, mhz, fds[1], err);
    close(fds[1]);
    r = r ? r : hear(fds[0], err);
    if (r) {
        close(fds[0]);
    }
    return r; /* else fds[0] stays open for the life of the process */
}
