/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs `gemmd-runner --probe` once, before the loop begins. It is a process of its own, since a
 * probe loads the GPU's driver, and a driver may hang. The runner writes one MessagePack map: the
 * device, or (with an exit status other than 0) an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/base/probe.h"
#include "proto/rpc.h"
#include "proto/scan.h"

enum { KILLED_LIMIT_MS = 2000, LOOK_MS = 1, PROBE_BYTES_MAX = 16 * 1024 };

static int64_t probe_now_ms(void)
{
    return (int64_t)(uv_hrtime() / 1000000);
}

static int spawn_probe(const char *runner, const char *device, int out_fd, pid_t *pid,
                       struct error *err)
{
    const char *args[] = {runner, "--probe", "--device", device, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_fd, 1);
    int why = posix_spawn(pid, runner, &actions, NULL, (char **)args, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (why) {
        return error_set(err, ERROR_IO,
                         "cannot start the runner %s: %s; it is installed beside gemmd, "
                         "GEMMD_RUNNER or --runner names another",
                         runner, strerror(why));
    }
    return 0;
}

/* Reads until end of file or until the time `until`. Returns the number of bytes read; < 0: the
 * time is over. */
static ssize_t probe_read_all(int fd, int64_t until, uint8_t *out, size_t size)
{
    size_t n = 0;
    for (;;) {
        int64_t left = until - probe_now_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&p, 1, (int)left) == 0) {
            return -1;
        }
        ssize_t got = read(fd, out + n, size - n);
        if (got > 0) {
            n += (size_t)got;
        } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
            return (ssize_t)n;
        }
        if (n == size) {
            return (ssize_t)n;
        }
    }
}

/* Waits for the end of the process. False: the process has not ended by `until`. */
static bool probe_await_end(pid_t pid, int64_t until, int *ended)
{
    for (;;) {
        pid_t r = waitpid(pid, ended, WNOHANG);
        if (r == pid || (r < 0 && errno != EINTR)) {
            return true;
        }
        if (probe_now_ms() >= until) {
            return false;
        }
        poll(NULL, 0, LOOK_MS);
    }
}

static int probe_give_up(pid_t pid, const char *device, int64_t limit_ms, struct error *err)
{
    int ended;
    kill(pid, SIGKILL);
    if (probe_await_end(pid, probe_now_ms() + KILLED_LIMIT_MS, &ended)) {
        return error_set(err, ERROR_NO_DEVICE,
                         "device %s did not answer within %lld ms: is its driver stuck?", device,
                         (long long)limit_ms);
    }
    return error_set(
        err, ERROR_NO_DEVICE,
        "device %s did not answer within %lld ms, and process %d, which was killed for "
        "it, does not end: its driver hangs; see dmesg and reset the device",
        device, (long long)limit_ms, (int)pid);
}

/* Decodes the runner's map: the device, or the error. */
static int read_device(const uint8_t *data, size_t n, bool ok, struct device_info *out,
                       struct error *err)
{
    struct scan scan;
    size_t used = 0;
    scan_init(&scan, PROBE_BYTES_MAX);
    struct wire_doc *doc = wire_doc_new();
    const struct wire_obj *map = NULL;
    int status;
    if (!doc) {
        status = error_set(err, ERROR_NO_MEMORY, "no memory to start");
    } else if (n == 0 || scan_feed(&scan, data, n, &used, NULL) != SCAN_DONE || used != n ||
               wire_decode(doc, data, n, &map, NULL) < 0) {
        status = error_set(err, ERROR_INTERNAL,
                           "the runner's --probe wrote %zu bytes that are no "
                           "answer; is it a gemmd-runner of this build?",
                           n);
    } else if (!ok) {
        status = rpc_get_error(map, err);
    } else {
        status = schema_decode(&device_info_schema, SCHEMA_LENIENT, map, out, err);
    }
    wire_doc_free(doc);
    return status;
}

int probe_device(const char *runner, const char *device, int64_t limit_ms, struct device_info *out,
                 struct error *err)
{
    int64_t until = probe_now_ms() + limit_ms;
    int fds[2];
    pid_t pid;
    if (pipe2(fds, O_CLOEXEC) < 0) {
        return error_set(err, ERROR_IO, "pipe: %s", strerror(errno));
    }
    int status = spawn_probe(runner, device, fds[1], &pid, err);
    close(fds[1]);
    if (status < 0) {
        close(fds[0]);
        return status;
    }
    uint8_t data[PROBE_BYTES_MAX];
    ssize_t n = probe_read_all(fds[0], until, data, sizeof(data));
    close(fds[0]);
    int ended = 0;
    if (n < 0 || !probe_await_end(pid, until, &ended)) {
        return probe_give_up(pid, device, limit_ms, err);
    }
    if (WIFSIGNALED(ended)) {
        return error_set(err, ERROR_NO_DEVICE,
                         "looking at device %s killed the runner by signal %d (%s)", device,
                         WTERMSIG(ended), strsignal(WTERMSIG(ended)));
    }
    return read_device(data, (size_t)n, WEXITSTATUS(ended) == 0, out, err);
}

char *probe_device_text(const struct device_info *device)
{
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    char *text;
    schema_encode(&packed, &device_info_schema, device);
    return wire_buf_to_json(&packed, &text, NULL) == 0 ? text : NULL;
}
