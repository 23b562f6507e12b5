/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner's end of the socket to gemmd. Writes block: what is said before a risky thing must
 * have been said before it is done. Reads never block: they happen between steps.
 *
 * When gemmd is gone the runner has nothing left to do, so every call may find `gone` set and does
 * nothing then; runner/inbox.c ends the process.
 */
#ifndef GEMMD_RUNNER_BASE_CHANNEL_H
#define GEMMD_RUNNER_BASE_CHANNEL_H

#include "proto/rpc.h"
#include "proto/scan.h"
#include "proto/schema.h"

struct channel {
    int fd;    /* owned by the process */
    bool gone; /* closed by the peer, or not to be trusted any more */
    struct scan scan;
    size_t scanned; /* bytes of `in` that the scan has seen */
    struct wire_buf in;
    size_t ready;         /* bytes of the message handed out, dropped by the next receive */
    struct wire_doc *doc; /* owned */
    struct wire_buf out;  /* the message being written */
};

int channel_init(struct channel *c, int fd, struct error *err);
void channel_deinit(struct channel *c);

enum { CHANNEL_NOTHING = 1 };
/* The next whole message, borrowed until the next call. CHANNEL_NOTHING: none yet, or gone.
 * ERROR_*: what came is no message (gone is set, but for a bad one within sound bounds). */
int channel_receive(struct channel *c, struct rpc_message *m, struct error *err);
/* Sends c->out and clears it. */
void channel_send(struct channel *c);
/* Sleeps until a message, the other descriptor (-1: none) or the time (-1: none). False: time. */
bool channel_wait(struct channel *c, int other_fd, int timeout_ms);

/* Whole messages. */
void channel_notify(struct channel *c, const char *method, const struct schema *s,
                    const void *object);
void channel_reply(struct channel *c, uint32_t id, const struct schema *s, const void *object);
void channel_reply_error(struct channel *c, uint32_t id, const struct error *e);

#endif
