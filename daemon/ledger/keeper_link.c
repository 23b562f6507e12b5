/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the keeper of the database (keeper_link.h). */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/list.h"
#include "daemon/base/log.h"
#include "daemon/ledger/keeper_link.h"
#include "proto/limits.h"

enum { READ_BYTES = 64 * 1024 };

int keeper_link_init(struct keeper_link *l, const struct keeper_link_calls *calls)
{
    *l = (struct keeper_link){.calls = calls};
    return inbox_open(&l->inbox, RESPONSE_BYTES_MAX, READ_BYTES);
}

void keeper_link_deinit(struct keeper_link *l)
{
    inbox_close(&l->inbox);
}

static void closed(uv_handle_t *handle)
{
    struct keeper_link *l = handle->data;
    l->state = LINK_CLOSED;
    l->calls->down(l);
}

void keeper_link_close(struct keeper_link *l)
{
    if (l->state == LINK_CONNECTING || l->state == LINK_OPEN) {
        l->state = LINK_CLOSING;
        uv_close((uv_handle_t *)&l->pipe, closed);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static void take_messages(struct keeper_link *l)
{
    struct rpc_message m;
    struct error err = ERROR_NULL;
    int status = 0;
    while (l->state == LINK_OPEN && (status = inbox_next(&l->inbox, &m, &err)) > 0) {
        l->calls->message(l, &m);
    }
    if (status < 0) {
        log_warning("the keeper of the database sent what is no message: %s", err.text);
        keeper_link_close(l);
    }
}

static void give_buffer(uv_handle_t *handle, size_t wanted, uv_buf_t *buf)
{
    (void)wanted;
    *buf = inbox_room(&((struct keeper_link *)handle->data)->inbox);
}

static void read_some(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct keeper_link *l = stream->data;
    (void)buf;
    if (n < 0 || (n > 0 && inbox_put(&l->inbox, (size_t)n) < 0)) {
        keeper_link_close(l); /* when there was no memory: what was asked is asked again */
    } else if (n > 0) {
        take_messages(l);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

struct sending {
    uv_write_t write;
    struct keeper_link *link; /* borrowed */
    struct wire_buf bytes;    /* owned */
};

static void sent(uv_write_t *write, int status)
{
    struct sending *x = LIST_OF(write, struct sending, write);
    if (status < 0) {
        keeper_link_close(x->link);
    }
    wire_buf_deinit(&x->bytes);
    free(x);
}

void keeper_link_send(struct keeper_link *l, struct wire_buf *bytes)
{
    struct sending *x = l->state == LINK_OPEN && !bytes->failed ? malloc(sizeof(*x)) : NULL;
    if (!x) {
        wire_buf_deinit(bytes);
        keeper_link_close(l); /* nothing may be left out of the order */
        return;
    }
    x->link = l;
    x->bytes = *bytes;
    *bytes = WIRE_BUF_NULL;
    uv_buf_t buf = uv_buf_init((char *)x->bytes.data, (unsigned)x->bytes.len);
    if (uv_write(&x->write, (uv_stream_t *)&l->pipe, &buf, 1, sent) < 0) {
        sent(&x->write, UV_EPIPE);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Whoever listens there gets to hear what this daemon measures, and says what it serves. */
static bool is_trusted(struct keeper_link *l)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t n = sizeof(peer);
    uv_os_fd_t fd;
    return uv_fileno((uv_handle_t *)&l->pipe, &fd) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid());
}

static void connected(uv_connect_t *connecting, int status)
{
    struct keeper_link *l = connecting->handle->data;
    if (l->state != LINK_CONNECTING) {
        return;
    }
    if (status == 0 && !is_trusted(l)) {
        log_warning("the keeper of the database is of another user: not spoken to");
        status = UV_EACCES;
    }
    if (status < 0 || uv_read_start((uv_stream_t *)&l->pipe, give_buffer, read_some) < 0) {
        keeper_link_close(l);
        return;
    }
    l->state = LINK_OPEN;
    l->calls->up(l);
}

void keeper_link_open(struct keeper_link *l, uv_loop_t *loop, const char *path)
{
    uv_pipe_init(loop, &l->pipe, 0);
    l->pipe.data = l;
    l->state = LINK_CONNECTING;
    inbox_open(&l->inbox, RESPONSE_BYTES_MAX, READ_BYTES); /* has its memory */
    uv_pipe_connect(&l->connecting, &l->pipe, path, connected);
}
