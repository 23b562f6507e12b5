/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon asks the keeper of its database, in order: each request stays here until the keeper
 * has answered it, so that the next keeper can be asked again.
 *
 * A keeper may be there and not answer: stopped, swapped out, stuck at its disk. When something has
 * waited for patience_ms and no answer came in that time, the keeper is *silent*: whoever waits is
 * answered without it (kind->alone), and what must not be lost is kept. The connection stays, and
 * what was sent is not sent again, so a keeper that wakes up carries out everything once; the rest
 * is sent when its first answer comes. Nobody looks for silence while nothing is asked: nothing
 * needs it then.
 */
#ifndef GEMMD_DAEMON_LEDGER_OUTBOX_H
#define GEMMD_DAEMON_LEDGER_OUTBOX_H

#include "daemon/base/list.h"
#include "daemon/ledger/keeper_link.h"
#include "daemon/ledger/ledger.h"

enum { OUTGOING_MAX = 16384 }; /* unanswered; of some kinds more are refused */

struct outgoing;

struct outgoing_kind {
    /* The keeper's answer: err, or result. NULL: nobody waits for it. */
    void (*answer)(struct outgoing *o, const struct wire_obj *result, const struct error *err);
    /* Instead of it, once, when the keeper is silent. NULL: nobody waits. */
    void (*alone)(struct outgoing *o, const struct error *silent);
    /* The keeper's answer to a request that was answered alone; or, at the end, that there is none.
     * NULL: is logged when it is an error. */
    void (*late)(struct outgoing *o, const struct error *err);
    bool kept;     /* is taken while the keeper is silent; others are refused, ERROR_BUSY */
    unsigned most; /* is refused, ERROR_BUSY, while so many wait; 0: never */
};

struct outbox;

/* A request to the keeper. */
struct outgoing {
    struct list link;
    struct outbox *box;               /* borrowed */
    const struct outgoing_kind *kind; /* static */
    uint32_t id;                      /* on the connection; 0: not sent on it */
    uint64_t asked_ms;
    bool done; /* was answered alone */
    union {
        ledger_done_cb done;
        ledger_best_cb best;
        ledger_id_cb id;
        void (*status)(void *ctx, const struct ledger_status *s);
    } cb;
    void *ctx;              /* borrowed, the caller's */
    struct wire_buf params; /* owned */
};

struct outbox {
    struct keeper_link *link; /* borrowed */
    const char *database;     /* borrowed; for sentences */
    uint64_t patience_ms;
    void (*drained)(struct outbox *b); /* while stopping: nothing is left */
    uv_timer_t timer;
    struct list all; /* in their order */
    unsigned n;
    uint32_t last_id;
    uint64_t heard_ms;  /* the last answer */
    uint64_t silent_ms; /* since when the keeper is silent; 0: it is not */
    bool open;          /* the keeper listens to us */
    bool stopping;
};

void outbox_init(struct outbox *b, uv_loop_t *loop, struct keeper_link *link, const char *database,
                 uint64_t patience_ms, void (*drained)(struct outbox *b));

/* NULL: no memory, or this is the end. Its params are put next, then outbox_submit. */
struct outgoing *outgoing_new(struct outbox *b, const struct outgoing_kind *kind, void *ctx);
struct outgoing *outgoing_free(struct outgoing *o); /* NULL in, NULL out */
/* Takes o; NULL is a fault. 0: its answer comes, if somebody waits. ERROR_BUSY: the keeper is
 * silent, or too much waits; ERROR_NO_MEMORY, ERROR_SHUTTING_DOWN. */
int outbox_submit(struct outbox *b, struct outgoing *o);

/* The keeper listens now: all that waits is sent. */
void outbox_open(struct outbox *b);
void outbox_close(struct outbox *b); /* it does not any more */
/* A response. False: the keeper is leaving, the next one is asked again. */
bool outbox_response(struct outbox *b, const struct rpc_message *m);
/* How a request ended. Frees it. */
void outgoing_settle(struct outgoing *o, const struct wire_obj *result, const struct error *err);
/* All requests, in their order, for whoever carries them out now; n counts them until they are
 * settled. */
void outbox_take(struct outbox *b, struct list *out);

/* How long the keeper has been silent; 0: it is not. */
uint64_t outbox_silence_ms(const struct outbox *b);
/* At the end: what is left fails. */
void outbox_fail(struct outbox *b, const struct error *err);
void outbox_deinit(struct outbox *b, uv_close_cb closed); /* of the timer, whose data is b's */

#endif
