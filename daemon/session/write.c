/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a session: replies gather in `out`, and are written as far as the socket takes them.
 * The rest waits for room, within bounds. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/base/log.h"
#include "daemon/session/session.h"

enum { OUT_KEEP_BYTES = 16 * 1024 }; /* kept by an idle session */

/* The client takes no more answers: drops them. The reader still handles the client's last input,
 * and closes the session at its end. */
static void session_drop_output(struct session *s)
{
    s->peer = PEER_LEFT;
    wire_buf_deinit(&s->out);
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
    if (shutdown(s->fd, SHUT_WR) < 0) {
        session_close(s);
    }
}

/* Sends as much as the socket takes. The deadline of a rest begins when the client took some. */
static void session_send_output(struct session *s)
{
    ssize_t n = s->peer == PEER_LEFT ? -1 : poller_send(s->fd, s->out.data, s->out.len);
    if (s->peer == PEER_LEFT || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        session_drop_output(s);
    } else {
        session_count_sent(s, n > 0 ? (size_t)n : 0);
    }
    const bool rest = s->out.len > 0;
    if (rest != (s->blocked_ms > 0)) {
        poller_await_room(s->all->poller, s->fd, &s->polled, rest);
    }
    if (!rest) {
        s->blocked_ms = 0;
    } else if (n > 0 || !s->blocked_ms) {
        s->blocked_ms = turns_now(s->all->turns);
        session_watch(s);
    }
}

void session_flush(struct session *s)
{
    if (s->closing) {
        return;
    }
    if (s->out.len && !s->out.failed) {
        session_send_output(s);
    }
    if (s->out.failed || s->out.len > OUT_BYTES_MAX) {
        log_warning("client pid %d: %s: hung up on", (int)s->pid,
                    s->out.failed ? "no memory for its answers" : "too many answers wait for it");
        session_close(s);
    } else if (s->ending && !s->out.len) {
        hang_up(s);
    }
}
