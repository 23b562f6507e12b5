/* SPDX-License-Identifier: Apache-2.0 */
/* Finds whole messages in the bytes of the socket. gemmd made the socket, so it may be blocking or
 * non-blocking: reads pass MSG_DONTWAIT, and writes poll when they would block. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "runner/base/channel.h"

enum { READ_BYTES = 64 * 1024 };

int channel_init(struct channel *c, int fd, struct error *err)
{
    *c = (struct channel){.fd = fd, .doc = wire_doc_new()};
    scan_init(&c->scan, RUNNER_MESSAGE_BYTES_MAX);
    fcntl(fd, F_SETFD, FD_CLOEXEC); /* children of the runner must not inherit the socket */
    return c->doc ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory for messages");
}

static void channel_read_bytes(struct channel *c)
{
    static uint8_t bytes[READ_BYTES]; /* static: only the main thread calls this function */
    while (!c->gone) {
        ssize_t n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n > 0) {
            wire_put_raw(&c->in, bytes, (size_t)n);
            c->gone = c->in.failed;
        } else if (n == 0) {
            c->gone = true;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            c->gone = true;
        }
    }
}

/* Looks for the end of a message in the bytes read so far. */
static int find_end(struct channel *c, size_t *end, struct error *err)
{
    if (c->scanned == c->in.len) {
        return CHANNEL_NOTHING;
    }
    size_t used;
    int r = scan_feed(&c->scan, c->in.data + c->scanned, c->in.len - c->scanned, &used, err);
    if (r < 0) {
        c->gone = true;
        return r;
    }
    if (r == SCAN_MORE) {
        c->scanned = c->in.len;
        return CHANNEL_NOTHING;
    }
    *end = c->scanned + used;
    c->scanned = 0;
    return 0;
}

int channel_receive(struct channel *c, struct rpc_message *m, struct error *err)
{
    if (c->ready) {
        memmove(c->in.data, c->in.data + c->ready, c->in.len - c->ready);
        c->in.len -= c->ready;
        c->ready = 0;
    }
    int r = find_end(c, &c->ready, err);
    if (r == CHANNEL_NOTHING) {
        channel_read_bytes(c);
        r = find_end(c, &c->ready, err);
    }
    return r ? r : rpc_decode(c->doc, c->in.data, c->ready, m, err);
}

void channel_send(struct channel *c)
{
    for (size_t at = 0; at < c->out.len && !c->gone && !c->out.failed;) {
        ssize_t n = send(c->fd, c->out.data + at, c->out.len - at, MSG_NOSIGNAL);
        if (n >= 0) {
            at += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            poll(&(struct pollfd){.fd = c->fd, .events = POLLOUT}, 1, -1);
        } else if (errno != EINTR) {
            c->gone = true;
        }
    }
    /* a message that cannot be encoded also ends the channel: gemmd would misread the silence */
    c->gone = c->gone || c->out.failed;
    wire_buf_clear(&c->out);
}

bool channel_wait(struct channel *c, int other_fd, int timeout_ms)
{
    if (c->gone) {
        return true;
    }
    struct pollfd p[2] = {{.fd = c->fd, .events = POLLIN}, {.fd = other_fd, .events = POLLIN}};
    return poll(p, 2, timeout_ms) != 0; /* poll ignores a negative descriptor */
}

void channel_notify(struct channel *c, const char *method, const struct schema *s,
                    const void *object)
{
    rpc_put_notify(&c->out, method);
    schema_encode(&c->out, s, object);
    channel_send(c);
}

void channel_reply(struct channel *c, uint32_t id, const struct schema *s, const void *object)
{
    rpc_put_result(&c->out, id);
    schema_encode(&c->out, s, object);
    channel_send(c);
}

void channel_reply_error(struct channel *c, uint32_t id, const struct error *e)
{
    rpc_put_error(&c->out, id, e);
    channel_send(c);
}
