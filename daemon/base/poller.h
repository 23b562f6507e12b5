/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop, with the clients' sockets around libuv: they are in an epoll of our own, and so is
 * libuv's (uv_backend_fd), which gets its turn when one of its descriptors is ready or a timer is
 * due. A request that the cache answers so costs a wait, a read and a write, and nothing of libuv.
 *
 * Sockets are edge-triggered: told once of what came, and the kernel need not look at all of them
 * again before each wait. Who is told and does not read everything has to remember it.
 */
#ifndef GEMMD_DAEMON_BASE_POLLER_H
#define GEMMD_DAEMON_BASE_POLLER_H

#include <sys/types.h>
#include <uv.h>

#include "proto/error.h"

/* How much of the socket the peer has closed, as far as is known. What came before may not be read
 * yet, but for PEER_HEARD. */
enum peer {
    PEER_SENDS,
    PEER_SHUT,  /* it sends nothing more, and may still take answers */
    PEER_HEARD, /* and all that it sent was read. The poller never tells this: who reads sets it */
    PEER_LEFT,  /* it closed both directions, or there is a fault: nobody takes an answer */
};

/* A socket. Embedded in what it belongs to, which must live until the closing callback of a libuv
 * handle that was closed after poller_remove. */
struct polled {
    /* There is something to read, or the peer closed a direction. Each is told once. */
    void (*ready)(struct polled *p, enum peer peer);
};

struct poller {
    uv_loop_t *loop; /* borrowed */
    int fd;          /* -1: not open */
};

int poller_init(struct poller *p, uv_loop_t *loop, struct error *err); /* ERROR_IO */
void poller_deinit(struct poller *p);
/* ERROR_IO. `ready` comes at once when there is something already. */
int poller_add(struct poller *p, int fd, struct polled *who, struct error *err);
void poller_remove(struct poller *p, int fd); /* before it is closed: a child may have a copy */
/* recv and send that do not wait. Neither is a point of cancellation: these cost two atomic
 * operations each as soon as a process has a second thread. */
ssize_t poller_recv(int fd, void *to, size_t size);
ssize_t poller_send(int fd, const void *from, size_t n);
/* In place of uv_run: until no handle of the loop is active. */
void poller_run(struct poller *p);

#endif
