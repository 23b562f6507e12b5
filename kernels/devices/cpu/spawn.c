/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the compiler with a deadline and keeps its output. Kills the compiler's process group, which
 * includes the processes that the driver starts (cc1, as, ld). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/devices/cpu/cpu.h"

extern char **environ;

struct spawned {
    const void *owner; /* borrowed: only compared */
    pid_t pid;
    bool ended; /* spawn_end() has killed it */
    struct spawned *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct spawned *running; /* borrowed: each entry is on the stack of its thread */

/* Copies this process's environment and sets TMPDIR to `tmp`, where a killed driver leaves its
 * files. NULL: no memory. */
static char **spawn_make_environment(const char *tmp, char *name, size_t size)
{
    size_t n = 0, kept = 0;
    while (environ[n]) {
        n++;
    }
    char **out = calloc(n + 2, sizeof(*out));
    for (size_t i = 0; out && i < n; i++) {
        if (!tmp || strncmp(environ[i], "TMPDIR=", 7) != 0) {
            out[kept++] = environ[i];
        }
    }
    if (out && tmp) {
        snprintf(name, size, "TMPDIR=%s", tmp);
        out[kept] = name;
    }
    return out;
}

static int spawn_start_program(const char *const argv[], const char *tmp, int out, pid_t *pid)
{
    char name[PATH_MAX + 8];
    char **env = spawn_make_environment(tmp, name, sizeof(name));
    if (!env) {
        return ENOMEM;
    }
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, out, STDERR_FILENO);
    /* The caller may block signals for its event loop, but signals must end the compiler. */
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    int r = posix_spawn(pid, argv[0], &files, &attr, (char *const *)argv, env);
    free(env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return r;
}

/* Keeps the output that fits in the log and discards the rest, until the end of the output. False:
 * the deadline came first. */
static bool spawn_drain_output(int fd, double until, char *log, size_t log_size)
{
    size_t have = 0;
    char rest[4096];
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left = until - device_clock_ms(NULL);
        if (left <= 0 || (poll(&p, 1, (int)left) < 0 && errno != EINTR)) {
            return false;
        }
        if (!p.revents) {
            continue;
        }
        bool full = have + 1 >= log_size;
        ssize_t n = full ? read(fd, rest, sizeof(rest)) : read(fd, log + have, log_size - 1 - have);
        if (n == 0) {
            break;
        }
        have += !full && n > 0 ? (size_t)n : 0;
        log[have] = '\0';
    }
    return true;
}

void spawn_end(const void *owner)
{
    pthread_mutex_lock(&lock);
    for (struct spawned *s = running; s; s = s->next) {
        if (s->owner == owner) {
            s->ended = true;
            kill(-s->pid, SIGKILL);
        }
    }
    pthread_mutex_unlock(&lock);
}

static void spawn_add(struct spawned *s)
{
    pthread_mutex_lock(&lock);
    s->next = running;
    running = s;
    pthread_mutex_unlock(&lock);
}

/* Keeps spawn_end() from killing s. Call before waitpid frees the pid for another process. */
static void spawn_remove(struct spawned *s)
{
    pthread_mutex_lock(&lock);
    struct spawned **at = &running;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    pthread_mutex_unlock(&lock);
}

/* Waits for the exit without taking its status. False: the deadline came first. */
static bool await_exit(pid_t pid, double until)
{
    for (;;) {
        siginfo_t info = {.si_pid = 0};
        int r = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT);
        if ((r == 0 && info.si_pid == pid) || (r < 0 && errno != EINTR)) {
            return true;
        }
        if (device_clock_ms(NULL) >= until) {
            return false;
        }
        /* The output has ended: the exit is near. */
        device_sleep_ms(0.2);
    }
}

int spawn_run(const char *const argv[], const char *tmp, int limit_ms, char *log, size_t log_size,
              int *status, const void *owner, struct error *err)
{
    log[0] = '\0';
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return error_set(err, ERROR_IO, "cannot make a pipe to run %s: %s", argv[0],
                         strerror(errno));
    }
    struct spawned s = {.owner = owner};
    int r = spawn_start_program(argv, tmp, ends[1], &s.pid);
    close(ends[1]);
    if (r) {
        close(ends[0]);
        return error_set(err, ERROR_IO, "cannot run %s: %s", argv[0], strerror(r));
    }
    spawn_add(&s);
    double until = device_clock_ms(NULL) + limit_ms;
    bool done = spawn_drain_output(ends[0], until, log, log_size) && await_exit(s.pid, until);
    close(ends[0]);
    if (!done) {
        kill(-s.pid, SIGKILL);
    }
    spawn_remove(&s);
    /* stays 0 where SIGCHLD is ignored, so that waitpid fails: the output file shows the result */
    *status = 0;
    while (waitpid(s.pid, status, 0) < 0 && errno == EINTR) {
    }
    if (s.ended) {
        return error_set(err, ERROR_CANCELLED, "%s was stopped", argv[0]);
    }
    return done ? 0
                : error_set(err, ERROR_HUNG, "%s did not end within %d s and was killed", argv[0],
                            limit_ms / 1000);
}
