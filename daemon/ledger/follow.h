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
 * second row, and never not at all. Leases of the keeper that went end at once; others' go on. When
 * the keeper stays and does not answer, outbox.h says what happens.
 *
 * Reads go to the file as it is now: of one's own writes they show what was answered.
 *
 * The parts, each calling only those above it:
 *   outbox   what the keeper was asked and has not answered
 *   heard    what the keeper has in its memory alone
 *   follow   finding the keeper, or becoming it; what it tells; the end
 *   reads    what is read from the file
 *   keep     the ledger's calls as the keeper
 *   ask      the same as one of the others
 *   shared   its beginning
 * The ledger has the one table of calls or the other, and changes it when it becomes the keeper.
 */
#ifndef GEMMD_DAEMON_LEDGER_FOLLOW_H
#define GEMMD_DAEMON_LEDGER_FOLLOW_H

#include "daemon/ledger/heard.h"
#include "daemon/ledger/outbox.h"

struct shared {
    struct ledger base;             /* first: a struct ledger * is this */
    struct ledger_config config;    /* its texts are owned */
    const struct ledger_ops *keeps; /* the calls as the keeper */
    uv_loop_t *loop;                /* borrowed */
    struct ledger *writer;          /* owned; NULL: another daemon is the keeper */
    struct ledger *reader;          /* owned; NULL: not yet, or never needed */
    struct keeper_link link;
    uv_timer_t timer; /* the next attempt; while stopping: the end of patience */
    struct outbox outbox;
    struct heard heard; /* what the keeper has not saved */
    uint32_t follow_id;
    char keeper[80];              /* as the keeper calls itself in leases */
    bool following;               /* the keeper listens to us */
    bool reloading, reload_again; /* the file is read anew; and once more */
    bool reload_due;              /* it could not be: the timer begins it again */
    bool missed;                  /* of what was told, since the file was last read anew */
    unsigned removing;            /* as the keeper: evictions and unpins on their way to the file */
    bool ready, stopping, ending;
    uint64_t started_ms;
    int64_t lost_trials, unsaved;    /* bests that no keeper has yet */
    struct best *best;               /* owned: what came last */
    struct wire_doc *doc;            /* owned */
    unsigned parts;                  /* of the end: what is not closed yet */
    void (*ended)(struct shared *s); /* all parts are closed */
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

/* Begins to look for the keeper, or to be it. config.ready tells of the first success, or fault. */
void follow_start(struct shared *s);
/* The call `stop`: ends all of it, at once or when the keeper has answered the rest; then
 * `ended`. */
void follow_stop(struct ledger *base, void (*stopped)(void *ctx), void *ctx);

extern const struct keeper_link_calls follow_link_calls; /* for shared.link */

#endif
