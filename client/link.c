/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the listen queue is full, a non-blocking connect fails at once with EAGAIN, and no poll
 * reports free room. Many jobs that start together are normal, so connect is retried until the
 * deadline.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/clock.h"
#include "client/link.h"
#include "proto/paths.h"

enum { RX_FIRST_BYTES = 16 * 1024, RX_CHUNK_BYTES = 4096 };

/* ---- opening -------------------------------------------------------------------------------- */

static int connect_fault(const char *path, struct error *err)
{
    switch (errno) {
    case ENOENT:
    case ECONNREFUSED:
    case ENOTSOCK:
    case EPROTOTYPE:
        return error_set(err, ERROR_UNREACHABLE, "no gemmd listens on %s", path);
    case EACCES:
    case EPERM:
        return error_set(
            err, ERROR_DENIED,
            "this user may not connect to %s: ask for membership in its group, or start a "
            "gemmd of your own (`gemmctl start`)",
            path);
    default:
        return error_set(err, ERROR_IO, "cannot connect to %s: %s", path, strerror(errno));
    }
}

static int connect_until(int fd, const char *path, int64_t deadline, struct error *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path) + 1);
    int64_t pause = CLOCK_MS;
    while (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        if (errno == EINTR) {
            continue;
        }
        if (errno != EAGAIN) {
            return connect_fault(path, err);
        }
        if (clock_ns() >= deadline) {
            return error_set(err, ERROR_DEADLINE,
                             "the queue of new connections on %s stayed full until the deadline",
                             path);
        }
        clock_sleep(clock_earlier(deadline, clock_ns() + pause));
        pause = pause < 16 * CLOCK_MS ? pause * 2 : pause;
    }
    return 0;
}

/* Avoids descriptors 0 to 2: a job may close a standard stream and still write to it. */
static int make_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), why = errno;
    close(fd);
    errno = why;
    return above;
}

/* Another user can make this user's runtime directory when the folder above is shared (/tmp, or an
 * XDG_RUNTIME_DIR that jobs share). So the listener must be this user or root. Only root makes
 * SYSTEM_RUNTIME_DIR, whose daemons may have a user of their own. */
static int check_server(int fd, const char *path, struct error *err)
{
    struct ucred server;
    socklen_t size = sizeof(server);
    if (strncmp(path, SYSTEM_RUNTIME_DIR "/", strlen(SYSTEM_RUNTIME_DIR "/")) == 0) {
        return 0;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size)) {
        return error_set(err, ERROR_IO, "cannot find out which user listens on %s: %s", path,
                         strerror(errno));
    }
    return server.uid == 0 || server.uid == geteuid()
               ? 0
               : error_set(err, ERROR_DENIED,
                           "user %u listens on %s, not this user; set XDG_RUNTIME_DIR to a "
                           "directory of your own",
                           (unsigned)server.uid, path);
}

int link_open(struct link *l, const char *path, bool given, int64_t deadline, struct error *err)
{
    int r = paths_check_socket(path, err);
    if (r) {
        return r;
    }
    int fd = make_socket();
    if (fd < 0) {
        return error_set(err, ERROR_IO, "cannot make a socket: %s", strerror(errno));
    }
    r = connect_until(fd, path, deadline, err);
    r = r || given ? r : check_server(fd, path, err);
    if (r) {
        close(fd);
        return r;
    }
    link_close(l);
    l->fd = fd;
    scan_init(&l->scan, RESPONSE_BYTES_MAX);
    return 0;
}

bool link_listens(const char *path)
{
    struct link l = LINK_NULL;
    struct error e;
    int r = link_open(&l, path, false, 0, &e);
    link_deinit(&l);
    return r == 0 || r == ERROR_DEADLINE; /* ERROR_DEADLINE: a listener exists, its queue is full */
}

void link_close(struct link *l)
{
    if (l->fd >= 0) {
        close(l->fd);
    }
    l->fd = -1;
    l->rx_len = l->taken = l->scanned = 0;
}

void link_deinit(struct link *l)
{
    link_close(l);
    free(l->rx);
    *l = LINK_NULL;
}

/* ---- sending -------------------------------------------------------------------------------- */

/* Waits until the socket is ready for `events` (poll). 0: ready. CLOCK_PASSED: the deadline passed.
 */
static int link_wait_for(struct link *l, short events, int64_t deadline)
{
    for (;;) {
        struct pollfd p = {.fd = l->fd, .events = events};
        struct timespec left = clock_left(deadline);
        int n = ppoll(&p, 1, deadline == CLOCK_NEVER ? NULL : &left, NULL);
        if (n > 0) {
            return 0;
        }
        if (n == 0 || clock_ns() >= deadline) {
            return CLOCK_PASSED;
        }
    }
}

int link_send(struct link *l, const void *data, size_t n, int64_t deadline, bool *sent,
              struct error *err)
{
    *sent = false;
    for (const char *at = data; n > 0;) {
        ssize_t done = send(l->fd, at, n, MSG_NOSIGNAL);
        if (done >= 0) {
            at += done;
            n -= (size_t)done;
        } else if (errno == EAGAIN) {
            if (link_wait_for(l, POLLOUT, deadline)) {
                link_close(l); /* a part of the message may have been sent */
                return error_set(err, ERROR_DEADLINE, "gemmd did not take the request in time");
            }
        } else if (errno != EINTR) {
            /* the link stays open: gemmd's error message, the reason, may still be read */
            return error_set(err, ERROR_DISCONNECTED,
                             "gemmd closed the connection before the request was sent");
        }
    }
    *sent = true;
    return 0;
}

/* ---- receiving ------------------------------------------------------------------------------ */

static int make_room(struct link *l, struct error *err)
{
    if (l->rx_cap - l->rx_len >= RX_CHUNK_BYTES) {
        return 0;
    }
    size_t cap = l->rx_cap ? l->rx_cap * 2 : RX_FIRST_BYTES;
    uint8_t *rx = realloc(l->rx, cap);
    if (!rx) {
        link_close(l);
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu bytes of an answer", cap);
    }
    l->rx = rx;
    l->rx_cap = cap;
    return 0;
}

/* Scans the received bytes. SCAN_DONE: a whole message of `taken` bytes is in the buffer. */
static int scan_more(struct link *l, struct error *err)
{
    if (l->scanned == l->rx_len) {
        return SCAN_MORE;
    }
    size_t used = 0;
    int r = scan_feed(&l->scan, l->rx + l->scanned, l->rx_len - l->scanned, &used, err);
    if (r == SCAN_MORE) {
        l->scanned = l->rx_len;
    } else if (r == SCAN_DONE) {
        l->taken = l->scanned + used;
        l->scanned = 0;
    }
    return r;
}

static int link_read_some(struct link *l, int64_t deadline, struct error *err)
{
    int r = make_room(l, err);
    if (r) {
        return r;
    }
    if (link_wait_for(l, POLLIN, deadline)) {
        return CLOCK_PASSED;
    }
    ssize_t n = recv(l->fd, l->rx + l->rx_len, l->rx_cap - l->rx_len, 0);
    if (n > 0) {
        l->rx_len += (size_t)n;
        return 0;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    const char *where = l->rx_len > 0 ? " in the middle of an answer" : "";
    link_close(l);
    return error_set(err, ERROR_DISCONNECTED, "gemmd closed the connection%s", where);
}

static int link_fail_unreadable(struct link *l, struct error *err)
{
    error_prefix(err, "the daemon's answer cannot be read");
    link_close(l);
    return err->code;
}

int link_recv_packed(struct link *l, struct pull *out, int64_t deadline, struct error *err)
{
    int r;
    if (l->taken > 0) {
        memmove(l->rx, l->rx + l->taken, l->rx_len - l->taken);
        l->rx_len -= l->taken;
        l->taken = 0;
    }
    while ((r = scan_more(l, err)) == SCAN_MORE) {
        r = link_read_some(l, deadline, err);
        if (r) {
            return r;
        }
    }
    *out = (struct pull){l->rx, l->rx + l->taken};
    return r < 0 ? link_fail_unreadable(l, err) : 0;
}

int link_decode(struct link *l, struct wire_doc *doc, const struct pull *packed,
                struct rpc_message *out, struct error *err)
{
    return rpc_decode(doc, packed->at, pull_left(packed), out, err) < 0
               ? link_fail_unreadable(l, err)
               : 0;
}
