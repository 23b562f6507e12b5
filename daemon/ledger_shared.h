/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of a database that several daemons of this host share (one per GPU). Whoever holds the
 * database's lock is its keeper: it has the local home, and is the only one that writes. The others
 * read the file themselves, and send the keeper what they want written, by the method `ledger` of
 * the ordinary protocol; `follow` makes it tell them what anybody changed.
 *
 * When the keeper goes, whoever gets the lock first is the next one, and the others find it by
 * what it has written into the lock file. A request that was not answered is made again, in its
 * order, to the next keeper or to oneself: it may be carried out twice, which does no harm beyond a
 * second row, and never not at all. Leases of the keeper that went end at once; others' go on.
 *
 * Reads go to the file as it is now: of one's own writes they show what was answered.
 */
#ifndef GEMMD_DAEMON_LEDGER_SHARED_H
#define GEMMD_DAEMON_LEDGER_SHARED_H

#include "daemon/keeper_link.h"
#include "daemon/ledger.h"
#include "daemon/list.h"

enum {
    RETRY_MS = 25,             /* between attempts to find, or to be, the keeper */
    RETRY_FAULT_MS = 1000,     /* when the database cannot be opened */
    FOLLOW_PATIENCE_MS = 2000, /* for the keeper to say that we may follow */
    START_PATIENCE_MS = 5000,
    STOP_PATIENCE_MS = 3000, /* for the keeper to answer what was asked before the end */
    OUTGOING_MAX = 16384,    /* unanswered; more trials are lost, and counted */
};

struct shared;

/* A request to the keeper. */
struct outgoing {
    struct list link;
    struct shared *s; /* borrowed */
    uint32_t id;
    void (*answer)(struct outgoing *o, const struct wire_obj *result, const struct error *err);
    union {
        ledger_done_cb done;
        ledger_best_cb best;
        ledger_id_cb id;
        void (*status)(void *ctx, const struct ledger_status *s);
    } cb;
    void *ctx;              /* borrowed, the caller's */
    struct wire_buf params; /* owned */
};

struct shared {
    struct ledger base;          /* first: a struct ledger * is this */
    struct ledger_config config; /* its texts are owned */
    uv_loop_t *loop;             /* borrowed */
    struct ledger *writer;       /* owned; NULL: another daemon is the keeper */
    struct ledger *reader;       /* owned; NULL: not yet, or never needed */
    struct keeper_link link;
    uv_timer_t timer; /* the next attempt; while stopping: the end of patience */
    struct list outgoing;
    unsigned n_outgoing;
    uint32_t last_id, follow_id;
    char keeper[80]; /* as the keeper calls itself in leases */
    bool following;  /* the keeper listens to us */
    bool ready, stopping, ending;
    uint64_t started_ms;
    int64_t lost_trials;
    struct best *best;    /* owned: what came last */
    struct wire_doc *doc; /* owned */
    unsigned parts;       /* of the end: what is not closed yet */
    void (*stopped)(void *ctx);
    void *stopped_ctx;
};

static inline struct shared *shared_of(struct ledger *l)
{
    return (struct shared *)l;
}

/* What any daemon has changed, or said, to this one. */
void shared_news(struct shared *s, enum ledger_news_kind kind, const char *key,
                 const struct best *best, bool saved);
void shared_said(struct shared *s, const struct wire_obj *said);

/* ---- what the keeper is asked (ledger_follow.c) ---------------------------------------------- */

/* NULL: no memory, or this is the end. Its params are put next, then outgoing_submit. */
struct outgoing *outgoing_new(struct shared *s, void *ctx);
struct outgoing *outgoing_free(struct outgoing *o); /* NULL in, NULL out */
/* Takes o; NULL is a fault. */
int outgoing_submit(struct shared *s, struct outgoing *o);
/* Answers, for outgoing.answer. */
void outgoing_done(struct outgoing *o, const struct wire_obj *result, const struct error *err);
void outgoing_id(struct outgoing *o, const struct wire_obj *result, const struct error *err);
void outgoing_best(struct outgoing *o, const struct wire_obj *result, const struct error *err);
void outgoing_status(struct outgoing *o, const struct wire_obj *result, const struct error *err);

/* ---- the keeper (ledger_follow.c) ------------------------------------------------------------ */

extern const struct keeper_link_calls shared_link_calls;
/* Looks for the keeper, or becomes it, after a while. */
void shared_retry_in(struct shared *s, uint64_t ms);
void shared_timer(uv_timer_t *timer);

/* Closes all parts; called again as each of them is closed (ledger_shared.c). */
void shared_finish(struct shared *s);

#endif
