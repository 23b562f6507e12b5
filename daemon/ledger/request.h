/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request to the local ledger: one heap object that one thread owns at a time. It is made on the
 * loop, moved to the writer, worked on there, moved back, answered and freed on the loop. Rows
 * travel in it as MessagePack, so a waiting trial costs its own few hundred bytes and not the 12
 * KiB of a struct trial.
 */
#ifndef GEMMD_DAEMON_LEDGER_REQUEST_H
#define GEMMD_DAEMON_LEDGER_REQUEST_H

#include "daemon/ledger/ledger.h"

struct local;
struct request;

enum verb_flags {
    VERB_READ = 1 << 0,   /* may be refused once stopping */
    VERB_GROUP = 1 << 1,  /* a write that can share a transaction */
    VERB_TRIAL = 1 << 2,  /* counted: queued, and lost */
    VERB_PAGE = 1 << 3,   /* its answer asks for the next one: others come first */
    VERB_RECORD = 1 << 4, /* counted: queued */
    VERB_PATIENT =
        1 << 5, /* may read the whole file, for a person: all others go first, and it alone */
    VERB_BRIEF = 1 << 6, /* reads a key's rows, for a job: some go with all others, in turns */
};

/* What a request asks for. */
struct verb {
    unsigned flags;
    const struct schema *row; /* of request.row; NULL: none */
    /* Writer thread. Calls the store and fills the request's results; no other effect, since it may
     * be undone with its group and called again. Returns the status. */
    int (*work)(struct local *l, struct request *r, struct error *err);
    /* Writer thread, once, when the status is final. May be NULL. */
    void (*settle)(struct local *l, struct request *r);
    void (*answer)(struct local *l, struct request *r); /* loop thread; NULL: nobody waits */
    void (*release)(struct request *r);                 /* the results that it owns; NULL: none */
};

struct queue {
    struct request *first, **last;
};

union request_cb {
    ledger_done_cb done;
    ledger_load_cb load;
    ledger_best_cb best;
    ledger_id_cb id;
    ledger_history_cb history;
    ledger_list_cb list;
    void (*status)(void *ctx, const struct ledger_status *s);
};

struct request {
    struct request *next;
    const struct verb *verb;
    int64_t user;        /* of lists: for whom; LEDGER_OURS: for the daemon itself */
    struct queue behind; /* in a queue of turns: the same user's others */
    union request_cb cb;
    void *ctx; /* borrowed, the caller's */
    int status;
    struct error *err;   /* by request_fail; NULL: none */
    struct wire_buf row; /* owned: a row going in, or coming back; the page of a list */
    int64_t argument;    /* ttl_ms, max_bytes, first; the generation known to who publishes */
    int64_t number;      /* coming back: id, rows, total */
    int64_t heard;       /* coming back: the last change that it tells of, or comes after */
    bool saved;
    bool withdrawn; /* nobody waits for it any more; under the home's mutex */
    uint64_t after; /* of a list in a home of its own: the writer's n_carried, with what came before
                       the list */
    union {         /* results and large arguments; owned */
        struct {
            struct trial *trials;
            char (*avoid)[HASH_HEX];
            uint32_t n, n_avoid;
        } history;
        struct {
            struct best *bests;
            uint32_t n;
        } page;
        struct wire_buf filter; /* of a list, packed: mostly a hundredth of a struct record */
        struct ledger_status *counts;
    };
    const char *text[4]; /* in `tail`; "" when not given */
    char tail[];
};

/* Up to four texts, NULL at the end when fewer; copied. NULL: no memory. */
struct request *request_new(const struct verb *verb, void *ctx, const char *const text[4]);
#define TEXTS(...) ((const char *const[4]){__VA_ARGS__})
#define NO_TEXT    TEXTS(NULL)
void request_free(struct request *r);
void request_fail(struct request *r, const struct error *err); /* r->err, with memory or without */

void queue_init(struct queue *q);
void queue_push(struct queue *q, struct request *r);
void queue_move(struct queue *to, struct queue *from); /* all of them, behind what is there */
struct request *queue_pop(struct queue *q);            /* NULL: it is empty */

/* A queue of turns: it holds one request of each user, with that user's others behind it; so a user
 * of many keeps another one waiting for one at a time. Users are few. */
void queue_push_turn(struct queue *q, struct request *r);
struct request *queue_pop_turn(struct queue *q); /* NULL: it is empty */

#endif
