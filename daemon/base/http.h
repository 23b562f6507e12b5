/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tiny HTTP server for monitoring, on the event loop: GET and HEAD without a body, one request a
 * connection.
 *
 * Clients' hits must not notice it. So everything is limited: connections at a time, answers a
 * second, bytes of a request, and the time of a connection. Connections beyond the limits wait in
 * the kernel's short queue, and gemmd does not even accept them; the kernel refuses or delays the
 * rest.
 */
#ifndef GEMMD_DAEMON_BASE_HTTP_H
#define GEMMD_DAEMON_BASE_HTTP_H

#include <stdbool.h>
#include <uv.h>

#include "daemon/base/poller.h"
#include "proto/error.h"
#include "proto/paths.h"
#include "proto/wire.h"

enum {
    HTTP_CLIENTS_MAX = 8,
    HTTP_PER_SECOND = 50, /* connections that gemmd accepts within a second */
    HTTP_BACKLOG = 16,
    HTTP_REQUEST_BYTES_MAX = 4096,
    /* checked once a second: */
    HTTP_LATE_MS = 1000,  /* from accept until the hook must answer with what it has */
    HTTP_LIMIT_MS = 3000, /* from accept to the last byte taken by the client */
};

struct http;

struct http_client {
    struct polled polled;
    struct http *http; /* borrowed */
    int fd;            /* -1: a free place */
    uint64_t since_ms; /* loop time of accept */
    size_t n;          /* bytes of `request` */
    char request[HTTP_REQUEST_BYTES_MAX + 1];
    const char *path;     /* in `request`; NULL: the request is not complete */
    bool head;            /* HEAD: the answer has no body */
    bool openmetrics;     /* the client accepts application/openmetrics-text */
    bool answered;        /* `rest` is what the socket has not taken yet */
    struct wire_buf rest; /* owned */
};

struct http {
    struct poller *poller; /* borrowed */
    struct polled polled;
    int fd;              /* the listening socket; -1: not listening */
    bool open;           /* the timer is open */
    uv_timer_t timer;    /* runs while a connection is open or waits to be accepted */
    uint64_t second_ms;  /* loop time at which the present second of HTTP_PER_SECOND began */
    unsigned accepted;   /* connections accepted in this second */
    const char *address; /* borrowed */
    struct http_client clients[HTTP_CLIENTS_MAX];
    /* Answers c->path by http_answer, at once or later. `late`: HTTP_LATE_MS have passed, answer
     * now. */
    void (*get)(void *ctx, struct http_client *c, bool late);
    void *ctx;
};

/* Listens on the address (address.h). ERROR_BUSY, ERROR_IO, ERROR_INVALID. */
int http_start(struct http *h, uv_loop_t *loop, struct poller *poller, const char *address,
               void (*get)(void *ctx, struct http_client *c, bool late), void *ctx,
               struct error *err);
void http_answer(struct http_client *c, int code, const char *type, const void *body, size_t n);
/* Closes all connections and handles; does nothing when http_start was not called. */
void http_close(struct http *h);

#endif
