/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to another daemon's socket: whole messages in, whole messages out, and word of its
 * end. It knows nothing of what is said (follow.c does).
 *
 *   CLOSED -> (open) CONNECTING -> up -> OPEN -> down -> CLOSED
 *
 * `down` comes once for every open, also when nobody listened; then it may be opened again, from
 * within that callback too.
 */
#ifndef GEMMD_DAEMON_LEDGER_KEEPER_LINK_H
#define GEMMD_DAEMON_LEDGER_KEEPER_LINK_H

#include <uv.h>

#include "daemon/base/inbox.h"

struct keeper_link;

struct keeper_link_calls {
    void (*up)(struct keeper_link *l);
    /* Borrowed for the length of the call. */
    void (*message)(struct keeper_link *l, const struct rpc_message *m);
    void (*down)(struct keeper_link *l);
};

enum keeper_link_state { LINK_CLOSED, LINK_CONNECTING, LINK_OPEN, LINK_CLOSING };

struct keeper_link {
    uv_pipe_t pipe;
    uv_connect_t connecting;
    const struct keeper_link_calls *calls; /* borrowed */
    enum keeper_link_state state;
    struct inbox inbox;
};

/* ERROR_NO_MEMORY. `l` is zeroed by it. */
int keeper_link_init(struct keeper_link *l, const struct keeper_link_calls *calls);
void keeper_link_deinit(struct keeper_link *l); /* CLOSED */
/* Connects to a socket; only to our own user's or root's. */
void keeper_link_open(struct keeper_link *l, uv_loop_t *loop, const char *path);
/* Takes the bytes of a message; when it is not open they are dropped. */
void keeper_link_send(struct keeper_link *l, struct wire_buf *bytes);
void keeper_link_close(struct keeper_link *l); /* `down` follows, unless it is closed already */

#endif
