/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runner's process and its socket: start, write, read, watch, kill. The owner (supervisor.c)
 * interprets the messages and the end of a runner.
 *
 * Messages are scanned and decoded like a client's bytes: a kernel may have overwritten the
 * runner's memory. The link also has turns like a client: it reads a piece, then other clients have
 * their turn, so that a flood of messages delays no client.
 *
 * Only time in which gemmd could read counts as the runner's silence. The watchdog runs in slices,
 * so that after a pause of gemmd (SIGSTOP, a frozen container) it sees that the slice took too
 * long. The runner may have been paused too, so it gets the whole limit again, once. libuv handles
 * timers before it reads, so unread messages are read before the runner counts as silent.
 *
 * A runner has ended when both its exit status and the end of the socket have come: the last
 * messages decide which candidate is to blame, so all must have been read.
 */
#ifndef GEMMD_DAEMON_TUNING_RUNNER_LINK_H
#define GEMMD_DAEMON_TUNING_RUNNER_LINK_H

#include <uv.h>

#include "daemon/base/turns.h"
#include "proto/rpc.h"
#include "proto/scan.h"

enum { RUNNER_LINK_READ_BYTES = 16 * 1024 };

struct runner_link;

struct runner_link_hooks {
    void (*message)(struct runner_link *l, const struct rpc_message *m); /* m is borrowed */
    /* The runner cannot be used: it sent an invalid message, or memory is missing. */
    void (*fault)(struct runner_link *l, int code, const char *text);
    /* The runner was silent for longer than the last runner_link_watch allowed. */
    void (*silent)(struct runner_link *l);
    /* The runner was killed and does not end. */
    void (*stuck)(struct runner_link *l);
    void (*ended)(struct runner_link *l); /* the runner has ended, and another may be started */
    /* called after runner_link_close, when all handles are closed */
    void (*closed)(struct runner_link *l);
};

struct runner_link {
    uv_loop_t *loop;                       /* borrowed */
    struct turns *turns;                   /* borrowed */
    const struct runner_link_hooks *hooks; /* borrowed */
    uv_process_t process;
    uv_pipe_t pipe;
    uv_timer_t watchdog;
    /* the limit of the watch; the part of the limit that is left after the current slice */
    uint64_t limit_ms, left_ms;
    uint64_t due_ms;    /* loop time at which the current slice ends */
    bool forgiven;      /* this watch has begun again once, after a pause of gemmd */
    bool expired;       /* the limit has passed, and no new watch has begun */
    struct scan scan;   /* state of the scan of the messages */
    struct wire_buf in; /* owned: bytes of messages that were not handed out yet */
    /* offset in `in` of the next message; number of that message's bytes that were scanned
     * already */
    size_t at, scanned;
    struct wire_doc *doc; /* owned: the last message, decoded */
    char room[RUNNER_LINK_READ_BYTES];
    struct chore resume; /* reads the next piece in a later turn */
    /* open handles among process and pipe: each counts until its close callback */
    unsigned open_handles;
    bool running;     /* true from start until `ended` */
    bool exited, eof; /* the runner has ended when both are true */
    bool closing;
    bool killed; /* SIGKILL was sent, and the watchdog waits for the runner's end */
    bool deaf;   /* further messages are ignored */
    int exit_status, exit_signal;
};

void runner_link_init(struct runner_link *l, uv_loop_t *loop, struct turns *turns,
                      const struct runner_link_hooks *hooks);
/* Starts `file` with args (NULL at the end) and the socket as descriptor 3. `ended` is called also
 * after an error. ERROR_BUSY: a temporary shortage; ERROR_IO. */
int runner_link_start(struct runner_link *l, const char *file, const char *const args[],
                      struct error *err);
/* Sends the bytes and frees them. ERROR_NO_MEMORY. A write error shows by the runner's end. */
int runner_link_send(struct runner_link *l, struct wire_buf *bytes);
/* Sets the silence limit; 0: silence is no fault. */
void runner_link_watch(struct runner_link *l, uint64_t limit_ms);
/* Kills the runner. Calls `stuck` if it does not end within limit_ms. */
void runner_link_kill(struct runner_link *l, uint64_t limit_ms);
/* Ignore further messages. After forget, `ended` is called when the process has exited; after
 * abandon, at once. */
void runner_link_forget(struct runner_link *l);
void runner_link_abandon(struct runner_link *l);
/* Closes the handles. Call only while no runner is running. */
void runner_link_close(struct runner_link *l);

#endif
