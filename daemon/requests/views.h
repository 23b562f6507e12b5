/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: the answers of one generation. A job that pins a generation gets the same answer to a
 * question for its whole life, at every rank, at every daemon of the database, whatever is tuned,
 * pinned or promoted meanwhile. What a key answers under generation G follows from the database
 * alone, whose bests are only ever appended:
 *
 *   the newest row up to G that serves, if it was verified tightly enough for the query; else, for
 * who waits for a tuning however long it takes, the oldest row after G that serves and was; else
 * the analytic default, since every other tier depends on what is known by now.
 *
 * Where the newest row up to G is of a kernel that went into quarantine at the key, there is none.
 * A key whose newest row is not newer than G answers as ever. For others the rows are read from the
 * ledger, once; a user's sessions that are pinned to one generation share what was found, and what
 * comes later is added to it. What is read is charged to the user, as long as the view lives, and
 * beyond the user's share (--user-mib) nothing more is: the request is `busy`. A full disk keeps
 * rows out of the ledger: then what the key answered so far is remembered, and charged as well.
 * Where there is no room for that the key is `busy` until its newest row is saved, and with it
 * those before it: a view may fail to answer, and never answers otherwise than before.
 */
#ifndef GEMMD_DAEMON_REQUESTS_VIEWS_H
#define GEMMD_DAEMON_REQUESTS_VIEWS_H

#include "daemon/base/list.h"
#include "daemon/requests/call.h"
#include "proto/request.h"

enum { VIEW_SLOTS = 256 };

struct account;
struct best;
struct cache_entry;
struct view_key;

struct view {
    struct list link; /* of all views */
    int64_t generation;
    struct account *account; /* a holder: its sessions' user, who is charged */
    unsigned holders;        /* sessions */
    bool lost; /* rows came that the ledger has not, and there was no room for some keys */
    struct view_key *keys[VIEW_SLOTS]; /* owned: chains */
};

/* A user's view of a generation, one of a list of them, with one holder more. NULL: no memory. */
struct view *view_hold(struct list *views, int64_t generation, struct account *account);
struct view *view_drop(struct view *v); /* one less; takes NULL and returns NULL */

enum view_says {
    VIEW_AS_EVER, /* this generation changes nothing for the key */
    VIEW_ANSWERS, /* *answer is it, packed; borrowed */
    VIEW_NOTHING, /* there was no answer then */
    VIEW_UNKNOWN, /* the ledger is to be asked: view_park */
};

/* Why a key that has an answer by now is answered by a default. */
extern const char view_since[];

/* What a view says to a query whose key has this entry (NULL: none); v NULL: not pinned. */
enum view_says view_find(const struct view *v, const struct cache_entry *e, const struct query *q,
                         const struct wire_buf **answer);
/* custom_key, to read, of scratch->request as a whole, in a view (NULL: not pinned). Of a custom op
 * that is the user's own key if that had an answer then, else the shared one if that had; else the
 * one that was answered first. */
int view_key(const struct view *v, struct daemon *d, int64_t uid, struct error *err);
/* A best is about to take the place of `known` (NULL: the key had none) in the cache, which has all
 * keys by now; its problem is scratch->learned. Uses up scratch->hint. */
void views_learning(struct list *views, struct daemon *d, const struct cache_entry *known,
                    const struct best *b, bool saved);
/* The key's rows are gone, old ones too. */
void views_evicted(struct list *views, const char *key);
/* A row of a key that came before its newest is saved now. */
void views_saved(struct list *views, const char *key, int64_t generation);
/* METHOD_LATER: the request is begun anew when the rows of these keys were read. When they could
 * not be, it fails, and the view knows no more of the key than before: the next request reads
 * again. ERROR_BUSY, at once or then, also when the user has its share of what is kept.
 * ERROR_NO_MEMORY, ERROR_BUSY. */
int view_park(struct call *c, char (*keys)[HASH_HEX], size_t n, struct error *err);

#endif
