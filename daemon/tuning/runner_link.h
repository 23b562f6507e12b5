/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runner's process and the socket to it: started, written to, read, watched, killed. What the
 * messages mean, and what follows from an end, is its owner's affair (supervisor.h).
 *
 * What it sends is scanned and decoded like a client's bytes: a kernel may have written over the
 * runner's memory. And it gets a turn like a client's: a piece of it is read, then the others, so
 * that a runner that floods keeps nobody waiting.
 *
 * Silence is time in which this process was there to hear. The watchdog runs in slices, so that an
 * absence (SIGSTOP, a frozen container) is seen at its end; the runner may have been stopped with
 * us, and once it gets its whole time again. And since libuv looks at timers before it reads, what
 * lies unread is heard before the runner is said to be silent.
 *
 * A runner has ended once both its exit status and the end of the socket are there: the last words
 * on the socket decide whom to blame, so they must have been read.
 */
#ifndef GEMMD_DAEMON_TUNING_RUNNER_LINK_H
#define GEMMD_DAEMON_TUNING_RUNNER_LINK_H

#include <uv.h>

#include "daemon/base/turns.h"
#include "proto/rpc.h"
#include "proto/scan.h"

/* ---- inbox.c --------------------------------------------------------------------------------- */

/*
 * Messages out of a stream of bytes, from the runner. Like a client's they are scanned before they
 * are decoded. (A client's connection has turns and shares besides: session/session.h.)
 *
 *   reading: room = inbox_room(b); ... ; inbox_put(b, n); while (inbox_next(b, &m, &err) > 0) ...
 */

struct inbox {
    struct scan scan;
    struct wire_buf in;   /* owned: what has come and was not given out */
    size_t at, scanned;   /* of in: given out; seen by the scan beyond that */
    struct wire_doc *doc; /* owned: the message given out last */
    char *room;           /* owned: what is read into */
    size_t room_bytes;
};

/* A new stream, of messages up to `message_max` bytes, read `read_bytes` at a time. May be called
 * again without a close. ERROR_NO_MEMORY: the sentence is the caller's. */
int inbox_open(struct inbox *b, size_t message_max, size_t read_bytes);
void inbox_close(struct inbox *b); /* may be called twice, and on zeros */

uv_buf_t inbox_room(struct inbox *b);
int inbox_put(struct inbox *b, size_t n); /* n bytes were read into it. ERROR_NO_MEMORY */

enum { INBOX_MESSAGE = 1 };
/* INBOX_MESSAGE: *m is borrowed until the next call. 0: more bytes must come. ERROR_MALFORMED,
 * ERROR_TOO_LARGE and what rpc_decode says: nothing more can be expected of the stream. */
int inbox_next(struct inbox *b, struct rpc_message *m, struct error *err);

/* ---- runner_link.c --------------------------------------------------------------------------- */

struct runner_link;

struct runner_link_hooks {
    void (*message)(struct runner_link *l, const struct rpc_message *m); /* m is borrowed */
    /* It cannot be used: it sent what is no message, or there is no memory to hear it. */
    void (*fault)(struct runner_link *l, int code, const char *text);
    /* It was silent for longer than the last runner_link_watch allowed. */
    void (*silent)(struct runner_link *l);
    /* It was killed and does not end. */
    void (*stuck)(struct runner_link *l);
    void (*ended)(struct runner_link *l);  /* another may be started */
    void (*closed)(struct runner_link *l); /* after runner_link_close */
};

struct runner_link {
    uv_loop_t *loop;                       /* borrowed */
    struct turns *turns;                   /* borrowed */
    const struct runner_link_hooks *hooks; /* borrowed */
    uv_process_t process;
    uv_pipe_t pipe;
    uv_timer_t watchdog;
    uint64_t limit_ms, left_ms; /* of the watch; left after the slice that runs */
    uint64_t due_ms;            /* the end of that slice, loop time */
    bool forgiven;              /* an absence of ours, in this watch */
    bool expired;               /* and not watched anew since */
    struct inbox inbox;         /* open while there is a runner */
    struct chore resume;        /* reads on in a later turn */
    unsigned open_handles;      /* of process and pipe, until their close callbacks */
    bool running;               /* from its start until `ended` */
    bool exited, eof;           /* both must have come before it has ended */
    bool closing;
    bool killed; /* SIGKILL was sent: the watchdog waits for the end */
    bool deaf;   /* what it says does not matter any more */
    int exit_status, exit_signal;
};

void runner_link_init(struct runner_link *l, uv_loop_t *loop, struct turns *turns,
                      const struct runner_link_hooks *hooks);
/* Starts file with args (NULL at the end), the socket as its descriptor 3. Also after an error
 * `ended` comes. ERROR_BUSY: what is scarce now need not be later; ERROR_IO. */
int runner_link_start(struct runner_link *l, const char *file, const char *const args[],
                      struct error *err);
/* Takes the bytes. ERROR_NO_MEMORY; a runner that takes nothing is noticed by its end. */
int runner_link_send(struct runner_link *l, struct wire_buf *bytes);
/* Silence is a fault after so long; 0: it is none. */
void runner_link_watch(struct runner_link *l, uint64_t limit_ms);
/* `stuck`, if it does not end within so long. */
void runner_link_kill(struct runner_link *l, uint64_t limit_ms);
/* Nothing more is read: it has ended when it exits, or (abandon) as far as we are concerned now. */
void runner_link_forget(struct runner_link *l);
void runner_link_abandon(struct runner_link *l);
/* When none is running. */
void runner_link_close(struct runner_link *l);

#endif
