/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/base/clocks.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/device.h"
#include "runner/base/self.h"

enum { PATIENCE_MS = 5000 };
#define DONE "locked"

/* ---- the child ------------------------------------------------------------------------------- */

static void clocks_on_signal(int number)
{
    (void)number; /* the handler only makes read() end with EINTR */
}

static void clocks_await_end(int fd)
{
    char byte;
    ssize_t n;
    do {
        n = read(fd, &byte, 1);
    } while (n > 0);
}

int clocks_child(const char *uuid, int64_t mhz, int fd)
{
    static const int stops[] = {SIGTERM, SIGINT};
    const struct sigaction action = {.sa_handler = clocks_on_signal}; /* no SA_RESTART */
    struct error err = ERROR_NULL;
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
        sigaction(stops[i], &action, NULL);
    }
    self_begin(fd);
    int r = device_set_clocks(uuid, mhz, &err);
    const char *answer = r ? err.text : DONE;
    bool heard = write(fd, answer, strlen(answer)) > 0 && shutdown(fd, SHUT_WR) == 0;
    if (r) {
        return 1;
    }
    if (heard) {
        clocks_await_end(fd);
    }
    r = device_set_clocks(uuid, 0, &err);
    if (r) {
        fprintf(stderr, "gemmd-runner: %s; nvidia-smi --reset-gpu-clocks resets them\n", err.text);
    }
    return r ? 1 : 0;
}

/* ---- the runner's side ----------------------------------------------------------------------- */

/* Reads the child's answer, up to end of file. */
static int clocks_read_answer(int fd, struct error *err)
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
                     have ? text : "the child process did not answer");
}

int clocks_hold(const char *uuid, int64_t mhz, struct error *err)
{
    char clock[24];
    int fd;
    pid_t pid;
    snprintf(clock, sizeof(clock), "%lld", (long long)mhz);
    const char *const args[] = {"gemmd-runner", "--hold-clocks", clock,   "--device",
                                uuid,           "--fd",          SELF_FD, NULL};
    int r = self_start(args, &fd, &pid, err);
    if (r) {
        return r;
    }
    r = clocks_read_answer(fd, err);
    if (r) {
        close(fd);
    }
    /* on success fd stays open for the life of this process: when fd closes, the child resets the
     * clocks */
    return r;
}
