/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a session: replies gather in `out`, are written at once if the socket takes them, and
 * else queued within bounds. */
#include <errno.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/session/session.h"

enum { OUT_KEEP_BYTES = 16 * 1024 }; /* kept by an idle session */

/* The client takes no more answers: drops them. The reader still handles the client's last input,
 * and closes the session at its end. */
static void session_drop_output(struct session *s)
{
    s->peer = PEER_LEFT;
    s->blocked_ms = 0;
    wire_buf_deinit(&s->out);
}

static void session_on_written(uv_write_t *write, int status)
{
    struct session *s = write->data;
    s->writing = false;
    wire_buf_deinit(&s->sending);
    if (s->closing) {
        return;
    }
    s->blocked_ms = 0;
    if (status < 0) {
        session_drop_output(s);
    }
    session_poke(s); /* first waiting answers, then requests */
}

/* Moves the rest of `out` to libuv's queue; one write at a time. */
static void session_queue_output(struct session *s)
{
    s->sending = s->out;
    s->out = WIRE_BUF_NULL;
    uv_buf_t buf = uv_buf_init((char *)s->sending.data, (unsigned)s->sending.len);
    s->write.data = s;
    s->writing = true;
    s->blocked_ms = turns_now(s->all->turns);
    session_watch(s);
    if (uv_write(&s->write, (uv_stream_t *)&s->pipe, &buf, 1, session_on_written) < 0) {
        s->writing = false;
        session_close(s);
    }
}

static void session_count_sent(struct session *s, size_t n)
{
    if (n < s->out.len) {
        /* Rare, since only a slow client leaves a rest: moving the rest costs less than keeping an
         * offset. */
        s->out.len -= n;
        memmove(s->out.data, s->out.data + n, s->out.len);
    } else if (s->out.cap > OUT_KEEP_BYTES) {
        wire_buf_deinit(&s->out);
    } else {
        wire_buf_clear(&s->out);
    }
}

static void hang_up(struct session *s)
{
    if (s->hung_up_ms) {
        return;
    }
    s->hung_up_ms = turns_now(s->all->turns);
    session_watch(s);
    if (uv_shutdown(&s->shutdown, (uv_stream_t *)&s->pipe, NULL) < 0) {
        session_close(s);
    }
}

void session_flush(struct session *s)
{
    if (s->closing) {
        return;
    }
    if (!s->writing && s->out.len && !s->out.failed) {
        ssize_t n = s->peer == PEER_LEFT ? -1 : poller_send(s->fd, s->out.data, s->out.len);
        if (s->peer == PEER_LEFT || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            session_drop_output(s);
        } else {
            session_count_sent(s, n > 0 ? (size_t)n : 0);
        }
        if (s->out.len) {
            session_queue_output(s);
        }
    }
    if (s->out.failed || s->out.len > OUT_BYTES_MAX) {
        log_warning("client pid %d: %s: hung up on", (int)s->pid,
                    s->out.failed ? "no memory for its answers" : "too many answers wait for it");
        session_close(s);
    } else if (s->ending && !s->writing) {
        hang_up(s);
    }
}
