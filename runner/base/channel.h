/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner's end of the socket to gemmd. Writes block: an `attempt` must be sent before the step
 * that may crash or hang. Reads never block and happen between steps.
 *
 * Without gemmd the runner has nothing to do. Every call does nothing once `gone` is set;
 * runner/serve.c then ends the process.
 */
#ifndef GEMMD_RUNNER_BASE_CHANNEL_H
#define GEMMD_RUNNER_BASE_CHANNEL_H

#include "proto/rpc.h"
#include "proto/scan.h"
#include "proto/schema.h"

struct channel {
    int fd;    /* of the socket, which stays open until the process ends */
    bool gone; /* gemmd has closed the socket, or its bytes are no messages */
    struct scan scan;
    size_t scanned;       /* bytes of `in` that the scan has seen */
    struct wire_buf in;   /* bytes received */
    size_t ready;         /* bytes of the returned message, which the next receive drops */
    struct wire_doc *doc; /* owned */
    struct wire_buf out;  /* the message being written */
};

int channel_init(struct channel *c, int fd, struct error *err);

enum { CHANNEL_NOTHING = 1 };
/* The next whole message, borrowed until the next call. CHANNEL_NOTHING: no whole message yet, or
 * `gone`. ERROR_*: invalid bytes; sets `gone` too, unless the next message can still be found. */
int channel_receive(struct channel *c, struct rpc_message *m, struct error *err);
/* Sends c->out and clears the buffer. */
void channel_send(struct channel *c);
/* Sleeps until a message, input on other_fd (-1: no descriptor) or the timeout (-1: no timeout).
 * False: timeout. */
bool channel_wait(struct channel *c, int other_fd, int timeout_ms);

/* Each sends a whole message: a notification, a result, an error. */
void channel_notify(struct channel *c, const char *method, const struct schema *s,
                    const void *object);
void channel_reply(struct channel *c, uint32_t id, const struct schema *s, const void *object);
void channel_reply_error(struct channel *c, uint32_t id, const struct error *e);

#endif
