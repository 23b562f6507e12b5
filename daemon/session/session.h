/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: one client's connection, from accept to the close callback. Four files know it from
 * inside: sessions.c (all of them: accept, deadlines, the end), read.c (bytes to messages,
 * turns), write.c (the way out), session.c (what the rest of the daemon does with one).
 *
 * Reading. The poller tells once of what has come (`readable`), and it is read when the session is
 * to be read from (`reading`): at once, or in a turn. All sessions read into one shared buffer;
 * whole messages are handled where they lie, and only a message that is not complete yet is copied
 * into the session's own `in`. At most TURN_REQUESTS requests are handled in one turn of the loop;
 * a session with more goes to the end of those that are ready and is not read from meanwhile, so a
 * flood slows only its sender.
 *
 * Writing. Replies of a turn gather in `out` and leave by one send; what the socket does not take
 * is queued by libuv, whose pipe the socket is, too. A client that does not read is not read from
 * either, and is closed when nothing was taken by limits.answer_ms, or when more than OUT_BYTES_MAX
 * wait for it.
 *
 * Hanging up. After an answer that ends the connection, our side of the socket is shut first and
 * what the client still sends is read and dropped for a moment: closing at once would reset the
 * connection under a client that is still sending.
 *
 * Accounts. A session's connection and bytes are charged to its user (base/account.h); a user over
 * its limit is not read from on any connection until it is below half of it.
 *
 * A client that has shut its side of the socket still gets its answers; the session ends with the
 * last of them, or when the client closes the other side, too. What a client sent before it closed
 * both is handled. But a session that is not to be read from now, and of which requests wait, ends
 * at once: nobody takes the answers of these, and the first one would end it.
 *
 * Tickets. A request that is answered later holds a ticket. When the session ends first, each of
 * its tickets is told (`gone`), and a late answer finds session == NULL and is dropped.
 *
 * Lifetime: sessions_accept gives the session to the loop. session_close may be called at any time,
 * twice too; the memory is freed in the close callback. `closing` makes late callbacks harmless.
 */
#ifndef GEMMD_DAEMON_SESSION_SESSION_H
#define GEMMD_DAEMON_SESSION_SESSION_H

#include <sys/types.h>
#include <uv.h>

#include "daemon/base/account.h"
#include "daemon/base/list.h"
#include "daemon/base/poller.h"
#include "daemon/base/turns.h"
#include "proto/rpc.h"
#include "proto/scan.h"
#include "proto/wire.h"

enum {
    TURN_REQUESTS = 20,
    TICKETS_MAX = 256,            /* unanswered requests of one client; more are `busy` */
    PENDING_MAX = 64,             /* of these, at the ledger; above: requests are not taken */
    OUT_PAUSE_BYTES = 256 * 1024, /* above: requests are not taken */
    OUT_BYTES_MAX = 8 * 1024 * 1024,
    HANG_UP_MS = 1000, /* for the client to read the last answer */
    REFUSED_MAX = 8,   /* refused connections that are given that time */
};

enum { ERROR_SLOTS = 40 };

struct session;
struct ticket;

/* What is above the sessions hears of them. */
struct session_hooks {
    /* True: this is a whole message that was answered before in the same bytes, and is again. It
     * need not have been scanned. */
    bool (*known)(void *ctx, struct session *s, const uint8_t *data, size_t n);
    /* A whole message: answers go to the session's `out`. `again`: it was put off once. */
    void (*message)(void *ctx, struct session *s, const uint8_t *data, size_t n, bool again);
};

struct session_limits {
    unsigned sessions;
    uint64_t message_ms; /* from a message's first byte to its last */
    uint64_t answer_ms;  /* for answers to be taken when the socket is full */
    struct account_limits user;
};

/* All sessions, and what they share (sessions.c). */
struct sessions {
    struct turns *turns;               /* borrowed */
    struct poller *poller;             /* borrowed */
    const struct session_hooks *hooks; /* borrowed */
    void *ctx;
    uv_timer_t sweep; /* runs while a session has a deadline */
    struct list all;
    unsigned n, n_refused; /* the latter are among the former, and leave */
    struct session_limits limits;
    struct accounts accounts;
    uint64_t quiet_since_ms; /* without sessions since */
    uint64_t swept_ms;
    uint8_t *input; /* owned, INPUT_BYTES: what sessions read into */

    uint64_t spent_until_ns; /* up to here the session whose turn is on was charged */

    uint64_t requests;
    uint64_t errors[ERROR_SLOTS]; /* answers by error (session_count_error) */
    bool open;                    /* the timer is not closed yet */
    void (*stopped)(struct sessions *x);
};

/* What every request needs comes first. */
struct session {
    struct polled polled;
    struct sessions *all;    /* borrowed */
    struct account *account; /* a holder; NULL: no memory for it */
    int64_t pinned; /* the generation that its answers are of (methods/generations.h); -1: none */
    int fd;         /* of `pipe` */
    enum peer peer; /* not PEER_SENDS: it is read until the end is found */
    bool reading;   /* it is to be read from */
    bool readable;  /* there may be something to read */
    bool writing;
    bool refused;     /* not one of the connections that are counted */
    bool ending;      /* takes no more requests; hangs up when all answers are written */
    bool closing;     /* uv_close was called */
    struct turn turn; /* when it has unhandled messages */

    struct wire_buf out;           /* owned: gathered, not given to the socket yet */
    struct wire_buf sending;       /* owned: being written by `write` */
    uint64_t blocked_ms;           /* since when the socket takes nothing; 0: it does */
    uint64_t hung_up_ms;           /* since when; 0: not */
    size_t charged[ACCOUNT_ASKED]; /* in and out; what it asks, and has had read, is charged by
                                      itself */

    uint8_t *in; /* owned: bytes not handled yet */
    size_t in_len, in_cap;
    size_t scanned;    /* of the message at in[0]: what the scan has seen */
    uint64_t begun_ms; /* when the incomplete message began; 0: there is none */
    unsigned n_tickets;
    unsigned n_pending; /* methods/pending.h */
    struct list tickets;
    struct scan scan;

    struct list link; /* all->all */
    uv_pipe_t pipe;
    uv_write_t write;
    uv_shutdown_t shutdown;

    uid_t uid;
    gid_t gid;
    pid_t pid;       /* for people: it may be another process by now */
    char client[64]; /* as `hello` said */
};

/* A request to be answered later; or what a client holds for a while and is owed no answer for.
 * Embedded in what the answer needs. */
struct ticket {
    struct list link;        /* session->tickets */
    struct session *session; /* borrowed; NULL: the client has gone */
    uint32_t id;
    bool owed; /* an answer: it counts against TICKETS_MAX */
    /* The client has gone; called once, after the ticket was unlinked. May free the ticket. */
    void (*gone)(struct ticket *t);
    /* Its client wants it no more: it is to be failed with this. NULL: it cannot be cancelled. */
    void (*cancel)(struct ticket *t, const struct error *e);
};

/* Ends it: its tickets are told at once, its memory goes in the close callback. */
void session_close(struct session *s);
/* `out` leaves in a turn of its own, soon. Safe anywhere: nothing is closed before then. */
void session_poke(struct session *s);
/* Handles a message anew that was put off, and sees to it that the answer leaves. */
void session_again(struct session *s, const uint8_t *data, size_t n);
/* It does not take what it was sent: no news on top of that, only answers. */
bool session_is_behind(const struct session *s);
/* News, which nobody waits for: left out when the session, or its user, does not take what it
 * has. */
void session_tell(struct session *s, const void *news, size_t n);
/* What it holds is charged to its user. */
void session_charge(struct session *s);
bool session_is_owner(const struct session *s); /* root or the daemon's user */
void session_watch(struct session *s);          /* it has a deadline now */
void session_count_error(struct session *s, int code);

/* Its user is over the limit, or no longer: every session of the user gets a turn. */
void sessions_poke_all(struct sessions *x, const struct account *account);
/* Calls `stopped` when nothing is open any more. */
void sessions_check_stopped(struct sessions *x);

/* ERROR_BUSY when the client has too many already. */
int ticket_open(struct ticket *t, struct session *s, uint32_t id, void (*gone)(struct ticket *t),
                struct error *err);
/* One that no answer is owed for: a lease, a subscription. What bounds these, bounds their tickets.
 */
void ticket_hold(struct ticket *t, struct session *s, void (*gone)(struct ticket *t));
/* Where the answer goes; NULL: nobody waits any more. Then ticket_close. */
struct wire_buf *ticket_out(struct ticket *t);
/* Ends the ticket; what was put leaves soon (session_poke). The caller frees it. */
void ticket_close(struct ticket *t);
void ticket_fail(struct ticket *t, const struct error *e); /* an error answer, and ticket_close */
/* False: the session has no such request, or it cannot be cancelled. */
bool ticket_cancel(struct session *s, uint32_t id, const struct error *e);

/* ---- write.c --------------------------------------------------------------------------------- */

/* The way out of a session, for session/ alone. */

/* Gives `out` to the socket. After it the session may be closing. */
void session_flush(struct session *s);

/* ---- read.c ---------------------------------------------------------------------------------- */

/* From a session's bytes to messages, and its deadlines, for session/ alone. */

enum { INPUT_BYTES = 64 * 1024 };

void session_begin_reading(struct session *s); /* begins to read */
/* Answers `busy` and hangs up. */
void session_refuse(struct session *s, const struct error *e);
/* polled.ready of a session. */
void session_ready(struct polled *p, enum peer peer);
/* turn.take of a session: false while its user has had his time in this round. */
bool session_take_turn(struct turn *t);
/* Deadlines: called about once a second while any session has one. True: it still has. */
bool session_sweep(struct session *s, uint64_t now_ms);
/* Deadlines come later, by as long as we did not look; none begins after now. */
void session_forgive(struct session *s, uint64_t ms, uint64_t now_ms);

/* ---- sessions.c ------------------------------------------------------------------------------ */

/* All sessions: how they come, what they must do in time, and how all of them end. */

/* ERROR_NO_MEMORY: nothing is open. */
int sessions_init(struct sessions *x, struct turns *turns, struct poller *poller,
                  const struct session_limits *limits, const struct session_hooks *hooks, void *ctx,
                  struct error *err);
/* Takes the next connection of the listening pipe. ERROR_IO, ERROR_NO_MEMORY: it is closed.
 * ERROR_BUSY: it waits, and so do all that come after it, until this is called again. */
int sessions_accept(struct sessions *x, uv_stream_t *listener, struct error *err);
/* Closes all; `stopped` comes when the last handle is closed. */
void sessions_stop(struct sessions *x, void (*stopped)(struct sessions *x));
void sessions_deinit(struct sessions *x);

#endif
