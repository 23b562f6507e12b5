/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session is a client's connection, from accept to the turn that frees it. Three files access its
 * members: sessions.c (all sessions: accept, deadlines, end), read.c (bytes to messages, turns),
 * session.c (output, calls by the rest of the daemon).
 *
 * Reading. The poller reports new input once (`readable`). A session with `reading` set is read at
 * once or in a turn. All sessions read into a shared buffer. Whole messages are handled in place;
 * only an incomplete message is copied into the session's `in`. A session handles at most
 * TURN_REQUESTS requests per turn of the loop. A session with more input goes to the end of the
 * ready list and is not read meanwhile, so a flood slows only its sender.
 *
 * Writing. A turn's answers are collected in `out` and sent at once. Bytes that the socket does not
 * take wait until it has room again. gemmd does not read from a client that does not read its
 * answers. The session closes when the client takes nothing for limits.answer_ms, or when more than
 * OUT_BYTES_MAX wait.
 *
 * Hanging up. After an answer that ends the connection, gemmd first shuts its side of the socket.
 * Further input is read and dropped for a moment, since an immediate close would reset the
 * connection under a client that still sends.
 *
 * Accounts. A session's connection and bytes are charged to its user (base/account.h). gemmd
 * stops reading from all connections of a user over a limit, until the user is below half of it.
 *
 * Half-closed connections. A client that has shut its side still gets its answers. The session ends
 * with the last answer, or when the client closes the other side. Input sent before a full close is
 * handled. But when requests still wait for answers and the session must not be read from now
 * (is_full), it ends at once: nobody takes the answers, and sending the first would end the
 * session.
 *
 * Tickets. A request that is answered later holds a ticket. When the session ends first, each
 * ticket gets `gone`, and a late answer finds session == NULL and is dropped.
 *
 * Lifetime. sessions_accept gives the session to the loop. session_close may be called at any time
 * and twice; the session's next turn frees the memory. Callbacks that come after session_close see
 * `closing` and do nothing.
 */
#ifndef GEMMD_DAEMON_SESSION_SESSION_H
#define GEMMD_DAEMON_SESSION_SESSION_H

#include <sys/types.h>
#include <uv.h>

#include "daemon/base/account.h"
#include "daemon/base/latency.h"
#include "daemon/base/list.h"
#include "daemon/base/poller.h"
#include "daemon/base/tally.h"
#include "daemon/base/turns.h"
#include "proto/problem.h"
#include "proto/rpc.h"
#include "proto/scan.h"
#include "proto/wire.h"

enum {
    TURN_REQUESTS = 20,
    TICKETS_MAX = 256, /* unanswered requests per client; more are `busy` */
    PENDING_MAX = 64,  /* requests per client at the ledger; more stay unread */
    /* with more unsent output, gemmd reads no requests of the client */
    OUT_PAUSE_BYTES = 256 * 1024,
    OUT_BYTES_MAX = 8 * 1024 * 1024,
    HANG_UP_MS = 1000, /* time for the client to read the last answer */
    REFUSED_MAX = 8,   /* the most refused connections at a time that get HANG_UP_MS */
};

enum { ERROR_SLOTS = 40 };

struct session;
struct ticket;

struct session_hooks {
    /* Answers bytes that were not scanned yet, if they are one whole message that was answered
     * before in the same bytes. False: they are not. */
    bool (*known)(void *ctx, struct session *s, const uint8_t *data, size_t n);
    /* Handles a whole message; answers go to s->out. `again`: the message was parked before. */
    void (*message)(void *ctx, struct session *s, const uint8_t *data, size_t n, bool again);
};

struct session_limits {
    unsigned sessions;
    uint64_t message_ms; /* time from the first to the last byte of a message */
    /* time in which the client must take some bytes of answers that wait since the socket is
     * full */
    uint64_t answer_ms;
    struct account_limits user;
};

/* All sessions and their shared state (sessions.c). */
struct sessions {
    struct turns *turns;               /* borrowed */
    struct poller *poller;             /* borrowed */
    const struct session_hooks *hooks; /* borrowed */
    void *ctx;
    uv_timer_t sweep; /* runs while a session has a deadline */
    struct list all;
    /* number of sessions; number of sessions among them that were refused and close soon */
    unsigned n, n_refused;
    unsigned n_subscribed;
    struct session_limits limits;
    struct accounts accounts;
    struct tallies tallies;
    uint64_t quiet_since_ms; /* loop time at which the last session closed */
    uint64_t swept_ms;
    uint8_t *input; /* owned, INPUT_BYTES: shared read buffer */

    uint64_t spent_until_ns; /* the user of the current turn is charged for time up to this */
    /* The cache answered the request of which the user is charged next. That charge's two clock
     * readings are also the hit's latency, so `hits` costs no clock of its own. */
    bool hit;
    struct latency hits;

    uint64_t requests;
    uint64_t errors[ERROR_SLOTS]; /* number of error answers, by error code */
    bool open;                    /* the timer is open */
    void (*stopped)(struct sessions *x);
};

#define FLEET_PIN (INT64_C(1) << 62)

/* A connection. The members that every request needs come first, so that they share cache lines. */
struct session {
    struct polled polled;
    struct sessions *all;    /* borrowed */
    struct account *account; /* account of the client's user; NULL after a failed allocation */
    struct tally *tally;     /* borrowed: counts the answers to this job; NULL: not found yet */
    /* pinned generation (methods/generations.h); from FLEET_PIN on: FLEET_PIN and the pinned number
     * of the fleet (methods/fleet_pins.h); -1: not pinned */
    int64_t pinned;
    int fd;
    enum peer peer;  /* unless PEER_SENDS the client sends no more, and unread bytes may be left */
    bool reading;    /* gemmd may read input now: the session is not full, over a limit or ending */
    bool readable;   /* the socket may have unread input */
    bool refused;    /* the connection is refused, and not charged to the user */
    bool subscribed; /* gets announcements of new answers (methods/announce.c) */
    bool ending;     /* reads no more requests; hangs up after the last answer */
    bool closing;    /* the socket is closed */
    struct turn turn; /* ready while messages are unhandled, or to free the session */

    struct wire_buf out; /* owned: output that the socket has not taken yet */
    uint64_t blocked_ms; /* loop time since which the socket has been full; 0: it is not */
    uint64_t hung_up_ms; /* loop time at which gemmd shut its side (hang_up); 0: it has not */
    size_t charged[ACCOUNT_ASKED]; /* bytes of input and output; `struct asked`
                                       charges requests at the ledger */

    uint8_t *in; /* owned: bytes read and not handled yet */
    size_t in_len, in_cap;
    size_t scanned; /* bytes of the message at in[0] that the scan has checked */
    /* loop time at which the incomplete message in `in` began; 0: `in` has none */
    uint64_t begun_ms;
    unsigned n_tickets;
    unsigned n_pending; /* requests that wait for the ledger (methods/pending.h) */
    struct list tickets;
    struct scan scan;

    struct list link; /* node in all->all */
    uid_t uid;
    pid_t pid;                /* shown to people; another process may have this pid by now */
    char client[64];          /* name from `hello` */
    char job[SERVED_JOB_MAX]; /* from `hello`, else the process group; "": not known yet */
};

/* A request that is answered later, or a client's lease, which gets no answer.
 * Embedded in the owner's struct. */
struct ticket {
    struct list link;        /* node in session->tickets */
    struct session *session; /* borrowed; NULL after the end of the session */
    uint32_t id;
    bool owed; /* an answer is due, so the ticket counts towards TICKETS_MAX */
    /* The session ended. Called once, after the ticket was unlinked; may free the ticket. */
    void (*gone)(struct ticket *t);
    /* Called when the client cancels the request: must fail the ticket with e. NULL: the request
     * cannot be cancelled. */
    void (*cancel)(struct ticket *t, const struct error *e);
};

/* Ends the session: calls `gone` of its tickets at once; its next turn frees the memory. */
void session_close(struct session *s);
/* Schedules a turn that sends `out`. Safe anywhere: the session does not close before that turn. */
void session_poke(struct session *s);
/* Frees a closed session, in its turn. */
void session_free(struct session *s);
/* Handles a parked message again and schedules the answer. */
void session_again(struct session *s, const uint8_t *data, size_t n);
/* True when the client does not read: send only answers, no notifications. */
bool session_is_behind(const struct session *s);
/* Sends a notification, or drops it when the session or its user does not read. */
void session_tell(struct session *s, const void *news, size_t n);
/* Begins or ends the session's subscription to announcements. ERROR_BUSY: the user has as many
 * subscriptions as it may have. */
int session_subscribe(struct session *s, bool on, struct error *err);
void session_charge(struct session *s);
bool session_is_owner(const struct session *s); /* root or the daemon's user */
void session_watch(struct session *s);          /* starts the timer that checks deadlines */
void session_count_error(struct session *s, int code);
/* Finds s->tally, and the job's name if the client has not told one. NULL: no memory. */
struct tally *session_find_tally(struct session *s);
/* Counts n answers of the tier exact for the session's job; s may be NULL. */
static inline void session_count_exact(struct session *s, uint64_t n)
{
    struct tally *x = s ? s->tally ? s->tally : session_find_tally(s) : NULL;
    if (x) {
        tally_count_exact(x, n, turns_now(s->all->turns));
    }
}
/* Counts an answer of any tier to the key of this bucket. */
void session_count_answer(struct session *s, const struct answer *a, const char *key,
                          const struct problem *bucket);

/* Gives a turn to every session of a user, after the user went over or under a limit. */
void sessions_poke_all(struct sessions *x, const struct account *account);
/* Calls `stopped` when sessions_stop was called and all sessions and the timer are closed. */
void sessions_check_stopped(struct sessions *x);

/* Opens a ticket for a request. ERROR_BUSY: the client has TICKETS_MAX. */
int ticket_open(struct ticket *t, struct session *s, uint32_t id, void (*gone)(struct ticket *t),
                struct error *err);
/* Opens a ticket without an answer, for a lease. The limit of leases also limits these tickets. */
void ticket_hold(struct ticket *t, struct session *s, void (*gone)(struct ticket *t));
/* Returns the session's buffer, to append the answer; NULL after the session's end. Then call
 * ticket_close. */
struct wire_buf *ticket_out(struct ticket *t);
/* Ends the ticket and schedules the output (session_poke). The caller frees the ticket. */
void ticket_close(struct ticket *t);
void ticket_fail(struct ticket *t, const struct error *e); /* answers with e, then ticket_close */
/* False: the session has no cancellable request with this id. */
bool ticket_cancel(struct session *s, uint32_t id, const struct error *e);

/* Sends `out`; only session/ calls this. The session may be closing afterwards. */
void session_flush(struct session *s);

/* ---- read.c ---------------------------------------------------------------------------------- */

/* Input and deadlines of a session; only session/ calls these. */

enum { INPUT_BYTES = 64 * 1024 };

/* Answers with the error e (`busy`) and hangs up. */
void session_refuse(struct session *s, const struct error *e);
/* polled.ready of a session. */
void session_ready(struct polled *p, enum peer peer);
/* turn.take of a session. False while the user's time of this round is spent. */
bool session_take_turn(struct turn *t);
/* Checks deadlines, about once a second. True while the session has a deadline. */
bool session_sweep(struct session *s, uint64_t now_ms);
/* Lets the session's deadlines begin anew, after gemmd itself was stopped. */
void session_forgive(struct session *s, uint64_t now_ms);

/* ---- sessions.c ------------------------------------------------------------------------------ */

/* All sessions: accept, deadlines, end. */

/* After ERROR_NO_MEMORY there is nothing to stop or free. */
int sessions_init(struct sessions *x, struct turns *turns, struct poller *poller,
                  const struct session_limits *limits, const struct session_hooks *hooks, void *ctx,
                  struct error *err);
/* Accepts the next connection of the listening socket. SESSIONS_NONE: no connection waits.
 * ERROR_IO, ERROR_NO_MEMORY: the connection is closed. ERROR_BUSY: nothing can be accepted now: the
 * connection stays in the listener's queue until the next call. */
enum { SESSIONS_NONE = 1 };
int sessions_accept(struct sessions *x, int listener, struct error *err);
/* Packs the rows of all tallies as MessagePack arrays of maps (struct served_row), and empties the
 * tallies. Calls `page` for each array of n rows. */
void sessions_pack_tallies(struct sessions *x, void (*page)(void *ctx, const struct wire_buf *rows),
                           void *ctx);
void sessions_stop(struct sessions *x, void (*stopped)(struct sessions *x));
void sessions_deinit(struct sessions *x);

#endif
