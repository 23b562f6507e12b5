/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop. Clients' sockets are in an epoll of our own, and so are the listening socket and
 * libuv's epoll (uv_backend_fd). libuv runs when one of its descriptors is ready or a timer is due.
 * A request that the cache answers costs a wait, a read and a write, and no libuv call.
 *
 * Sockets are edge-triggered: each arrival is reported once, and the kernel does not look at all
 * sockets before each wait. A session that does not read everything must remember that data is
 * left.
 */
#ifndef GEMMD_DAEMON_BASE_POLLER_H
#define GEMMD_DAEMON_BASE_POLLER_H

#include <sys/types.h>
#include <uv.h>

#include "proto/error.h"

/* The peer's side of the socket. Except in PEER_HEARD, earlier bytes may still be unread. */
enum peer {
    PEER_SENDS,
    PEER_SHUT, /* the peer sends no more bytes, and may still take answers */
    /* the peer is PEER_SHUT, and all its bytes were read; set by the reader, never by the poller */
    PEER_HEARD,
    PEER_LEFT, /* the peer closed both directions, or the socket failed: answers go nowhere */
};

/* A socket, embedded in its owner. After poller_remove the owner must live until a turn of the loop
 * (turns.h): the socket may be among the events that are being reported. */
struct polled {
    /* The socket has bytes to read or connections to accept, has room again (poller_await_room), or
     * the peer closed a direction. Each is reported once. */
    void (*ready)(struct polled *p, enum peer peer);
};

struct poller {
    uv_loop_t *loop; /* borrowed */
    int fd;          /* -1: not open */
};

int poller_init(struct poller *p, uv_loop_t *loop, struct error *err); /* ERROR_IO */
void poller_deinit(struct poller *p);
/* ERROR_IO. Unread bytes are reported at once. */
int poller_add(struct poller *p, int fd, struct polled *who, struct error *err);
/* Sets whether `ready` is also called when the socket has room for output again. */
void poller_await_room(struct poller *p, int fd, struct polled *who, bool await);
/* call before close(fd): a child process may have a copy of fd */
void poller_remove(struct poller *p, int fd);
/* recv and send that do not wait. As raw system calls they are no cancellation points, which cost
 * two atomic operations per call as soon as a process has a second thread. */
ssize_t poller_recv(int fd, void *to, size_t size);
ssize_t poller_send(int fd, const void *from, size_t n);
/* Replaces uv_run: returns when the loop has no active handle. */
void poller_run(struct poller *p);

#endif
