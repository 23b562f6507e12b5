/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: one client's connection, from accept to the close callback.
 *
 * Reading. All sessions read into the server's one buffer; whole messages are handled where they
 * lie, and only a message that is not complete yet is copied into the session's own `in`. At most
 * TURN_REQUESTS requests are handled in one turn of the loop; a session with more goes to the end
 * of the server's ready list and is not read from meanwhile, so a flood slows only its sender.
 *
 * Writing. Replies of a turn gather in `out` and leave by one uv_try_write; what the socket does not
 * take is queued. A client that does not read is not read from either, and is closed when
 * nothing was taken by limits.answer_ms, or when more than OUT_BYTES_MAX wait for it.
 *
 * Hanging up. After an answer that ends the connection, our side of the socket is shut first and what
 * the client still sends is read and dropped for a moment: closing at once would reset the connection
 * under a client that is still sending.
 *
 * Accounts. A session's connection and bytes are charged to its user (account.h); a user over its limit
 * is not read from on any connection until it is below half of it.
 *
 * A client that has shut its side of the socket still gets its answers; the session ends with the
 * last of them, or when the client is seen to have closed the other side, too.
 *
 * Tickets. A request that is answered later holds a ticket. When the session ends first, each of
 * its tickets is told (`gone`), and a late answer finds session == NULL and is dropped.
 *
 * Lifetime: session_accept gives the session to the loop. session_close may be called at any time,
 * twice too; the memory is freed in the close callback. `closing` makes late callbacks harmless.
 */
#ifndef GEMMD_DAEMON_SESSION_H
#define GEMMD_DAEMON_SESSION_H

#include <sys/types.h>
#include <uv.h>

#include "daemon/account.h"
#include "daemon/list.h"
#include "proto/rpc.h"
#include "proto/scan.h"
#include "proto/wire.h"

enum {
    TURN_REQUESTS = 20,
    TICKETS_MAX = 256,              /* unanswered requests of one client; more are `busy` */
    PENDING_MAX = 64,               /* of these, at the ledger; above: requests are not taken */
    OUT_PAUSE_BYTES = 256 * 1024,   /* above: requests are not taken */
    OUT_BYTES_MAX = 8 * 1024 * 1024,
    HANG_UP_MS = 1000,              /* for the client to read the last answer */
    REFUSED_MAX = 8,                /* refused connections that are given that time */
};

struct server;
struct ticket;
struct view;

struct session {
    uv_pipe_t pipe;
    struct server *server; /* borrowed */
    struct list link;      /* server->sessions */
    struct list ready;     /* server->ready, when it has unhandled messages */

    struct scan scan;
    uint8_t *in; /* owned: bytes not handled yet */
    size_t in_len, in_cap;
    size_t scanned; /* of the message at in[0]: what the scan has seen */
    uint64_t begun_ms; /* when the incomplete message began; 0: there is none */

    struct wire_buf out;     /* owned: gathered, not given to the socket yet */
    struct wire_buf sending; /* owned: being written by `write` */
    uv_write_t write;
    uint64_t blocked_ms; /* since when the socket takes nothing; 0: it does */

    struct list tickets;
    unsigned n_tickets;
    unsigned n_pending; /* methods.h */

    uid_t uid;
    gid_t gid;
    pid_t pid;             /* for people: it may be another process by now */
    struct account *account; /* a holder; NULL: no memory for it */
    size_t charged[ACCOUNT_ASKED]; /* in and out; what it asks is charged by itself (methods.h) */
    char client[64]; /* as `hello` said */
    struct view *view; /* a holder: the generation it is pinned to; NULL: none */
    uv_shutdown_t shutdown;
    uint64_t hung_up_ms; /* since when; 0: not */
    bool reading, writing;
    bool refused; /* not one of the connections that are counted */
    bool eof;     /* the client sends no more, and may still read */
    bool ending;  /* takes no more requests; hangs up when all answers are written */
    bool closing; /* uv_close was called */
};

/* A request to be answered later. Embedded in what the answer needs. */
struct ticket {
    struct list link;        /* session->tickets */
    struct session *session; /* borrowed; NULL: the client has gone */
    uint32_t id;
    /* The client has gone; called once, after the ticket was unlinked. May free the ticket. */
    void (*gone)(struct ticket *t);
};

/* Takes the next connection of the listening pipe. ERROR_IO, ERROR_NO_MEMORY. */
int session_accept(struct server *server, struct error *err);
/* Answers `busy` and hangs up. */
void session_refuse(struct session *s, const struct error *e);
void session_close(struct session *s);
/* A turn for a session of the ready list. */
void session_turn(struct session *s);
bool session_must_wait(const struct session *s); /* its user has had its time in this round */
/* Deadlines: called about once a second while any session has one. True: it still has. */
bool session_sweep(struct session *s, uint64_t now_ms);
void session_forgive(struct session *s, uint64_t ms); /* later, by as long as we did not look */
/* Gives `out` to the socket. After it the session may be closing. */
void session_flush(struct session *s);
/* `out` leaves in a turn of its own, soon. Safe anywhere: nothing is closed before then. */
void session_poke(struct session *s);
/* It does not take what it was sent: no news on top of that, only answers. */
bool session_is_behind(const struct session *s);
/* Its user is over the limit, or no longer: every session of the user gets a turn. */
void sessions_poke_all(struct server *server, const struct account *account);
bool session_is_owner(const struct session *s); /* root or the daemon's user */

/* ERROR_BUSY when the client has too many already. */
int ticket_open(struct ticket *t, struct session *s, uint32_t id, void (*gone)(struct ticket *t),
                struct error *err);
/* Where the answer goes; NULL: nobody waits any more. Then ticket_close. */
struct wire_buf *ticket_out(struct ticket *t);
/* Ends the ticket; what was put leaves soon (session_poke). The caller frees it. */
void ticket_close(struct ticket *t);
void ticket_fail(struct ticket *t, const struct error *e); /* an error answer, and ticket_close */

#endif
