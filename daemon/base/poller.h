/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop. Clients' sockets are in an epoll of our own, and so are the listening socket and
 * libuv's epoll (uv_backend_fd). libuv runs only when one of its descriptors is ready or one of its
 * timers is due. A request that the cache answers costs a wait, a read and a write, and no call of
 * libuv.
 *
 * Sockets are edge-triggered: each arrival is reported once, and the kernel does not look at all
 * sockets before each wait. A session that does not read until the socket is empty must remember
 * that bytes are left (session.readable).
 */
#ifndef GEMMD_DAEMON_BASE_POLLER_H
#define GEMMD_DAEMON_BASE_POLLER_H

#include <sys/types.h>
#include <uv.h>

#include "proto/error.h"

/* The state of the client's side of the socket. In each state but PEER_HEARD, bytes that the client
 * sent may still be unread. */
enum peer {
    PEER_SENDS,
    PEER_SHUT, /* the peer sends no more bytes, and may still take answers */
    /* PEER_SHUT, and all bytes were read; session/read.c sets this, the poller never does */
    PEER_HEARD,
    /* the peer closed both directions, or the socket failed: answers cannot be delivered */
    PEER_LEFT,
};

/* A socket, embedded in the struct of its owner. After poller_remove the owner must not be freed
 * before a later turn (turns.h): the present wait may have an event of the socket that is not
 * reported yet. */
struct polled {
    /* The socket has bytes to read or connections to accept, has room again (poller_await_room), or
     * the peer closed a direction. Each is reported once. */
    void (*ready)(struct polled *p, enum peer peer);
};

struct poller {
    uv_loop_t *loop; /* borrowed */
    int fd;          /* descriptor of the epoll; -1: not open */
    /* A descriptor in the epoll that ends a wait. With a timeout, each wait would start and stop a
     * timer of the kernel: 0.5 us of a hit. */
    int timer;
    uint64_t timer_ms; /* in uv_now's time; UINT64_MAX: not set */
};

int poller_init(struct poller *p, uv_loop_t *loop, struct error *err); /* ERROR_IO */
void poller_deinit(struct poller *p);
/* Watches fd and calls who->ready. Bytes that are unread already are reported at once. ERROR_IO. */
int poller_add(struct poller *p, int fd, struct polled *who, struct error *err);
/* Sets whether `ready` is also called when the socket has room for output again. */
void poller_await_room(struct poller *p, int fd, struct polled *who, bool await);
/* call before close(fd): a copy of fd in a child process would keep fd in the epoll */
void poller_remove(struct poller *p, int fd);
/* recv and send that do not wait. They are raw system calls: those of the C library are
 * cancellation points, which cost two atomic operations per call as soon as a process has a second
 * thread. */
ssize_t poller_recv(int fd, void *to, size_t size);
ssize_t poller_send(int fd, const void *from, size_t n);
/* Replaces uv_run: returns when the loop has no active handle. */
void poller_run(struct poller *p);

#endif
