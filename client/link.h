/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: a non-blocking Unix stream socket, and the bytes that have come but are not yet
 * read. It knows whole messages and deadlines, not what is in the messages.
 *
 * A link that has failed is closed (fd -1): after half a message, sent or received, nothing on the
 * stream can be trusted. A deadline that passes between messages harms nothing.
 */
#ifndef GEMMD_CLIENT_LINK_H
#define GEMMD_CLIENT_LINK_H

#include "proto/rpc.h"
#include "proto/scan.h"

struct link {
    int fd;      /* -1: closed */
    uint8_t *rx; /* owned */
    size_t rx_len, rx_cap;
    size_t taken;   /* bytes of the message handed out last, dropped by the next link_recv */
    size_t scanned; /* bytes after `taken` that the scan has seen */
    struct scan scan;
};
#define LINK_NULL ((struct link){.fd = -1})

enum { LINK_TIMEOUT = 1 };

/* ERROR_UNREACHABLE (nobody listens), ERROR_DENIED, ERROR_DEADLINE (the listener's queue stayed
 * full), ERROR_INVALID (path too long), ERROR_IO. */
int link_open(struct link *l, const char *path, int64_t deadline, struct error *err);
bool link_listens(const char *path); /* whether somebody does, now */
void link_close(struct link *l);     /* keeps the memory; may be called twice */
void link_deinit(struct link *l);

/* ERROR_DISCONNECTED, ERROR_DEADLINE: closed. *sent: whether all of it left. */
int link_send(struct link *l, const void *data, size_t n, int64_t deadline, bool *sent,
              struct error *err);
/* The next message as it came, whole and within its bounds; it stays where it is until the next
 * call. Outcomes as of link_recv. */
int link_recv_packed(struct link *l, struct pull *out, int64_t deadline, struct error *err);
int link_decode(struct link *l, struct wire_doc *doc, const struct pull *packed,
                struct rpc_message *out, struct error *err);
/* The next message, decoded into doc; it points into the link until the next call. LINK_TIMEOUT
 * when the deadline passes; ERROR_DISCONNECTED, ERROR_MALFORMED, ERROR_TOO_LARGE: closed. */
int link_recv(struct link *l, struct wire_doc *doc, struct rpc_message *out, int64_t deadline,
              struct error *err);

#endif
