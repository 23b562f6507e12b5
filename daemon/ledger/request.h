/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request to the ledger: a heap object that a single thread owns at a time. The loop makes
 * the request, the writer works on it, and the loop answers and frees it. Rows travel in a request
 * as MessagePack: a waiting trial takes a few hundred bytes, not the 12 KiB of a struct trial.
 */
#ifndef GEMMD_DAEMON_LEDGER_REQUEST_H
#define GEMMD_DAEMON_LEDGER_REQUEST_H

#include "daemon/ledger/ledger.h"

struct ledger;
struct request;

enum verb_flags {
    VERB_READ = 1 << 0,    /* may be refused once stopping */
    VERB_GROUP = 1 << 1,   /* a write that can share a transaction */
    VERB_TRIAL = 1 << 2,   /* a trial of a job: counted while queued, and when lost */
    VERB_PAGE = 1 << 3,    /* reads a page of rows: other requests run before the next page */
    VERB_RECORD = 1 << 4,  /* a client's trial: counted while queued */
    VERB_PATIENT = 1 << 5, /* may read the whole file: runs alone, after all waiting requests */
    VERB_BRIEF = 1 << 6,   /* reads a key's rows: a few run among other requests, users in turn */
};

/* A kind of request. */
struct verb {
    unsigned flags;
    const struct schema *row; /* schema of request.row; NULL: the request has no row */
    /* Writer thread. Calls the store and fills the request's results. No other effect: the work may
     * be undone with its group and called again. Returns the status. */
    int (*work)(struct ledger *l, struct request *r, struct error *err);
    /* Writer thread, once, when the status is final. May be NULL. */
    void (*settle)(struct ledger *l, struct request *r);
    void (*answer)(struct ledger *l, struct request *r); /* loop thread; NULL: no answer */
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
    int64_t user;        /* of a list: the user of the client, or LEDGER_OURS */
    struct queue behind; /* in a queue of turns: further requests of the same user */
    union request_cb cb;
    void *ctx; /* borrowed, the caller's */
    int status;
    struct error *err; /* set by request_fail; NULL: none */
    /* owned: the row of the request, then the row of the answer, or the page of a list */
    struct wire_buf row;
    /* ttl_ms, max_bytes or `first` of the call, or the generation that the publisher knew */
    int64_t argument;
    int64_t number; /* set by the writer: an id, a number of rows, or a total */
    /* set by the writer: the number of the last change that this answer includes */
    int64_t heard;
    bool saved;
    bool withdrawn; /* the client has left; under the mutex */
    uint64_t after; /* for a list on another thread: the value of n_carried to wait for */
    union {
        struct trial *trials;
        struct best *bests;
        struct ledger_status *counts;
        void *results; /* owned */
    };
    uint32_t n, n_avoid;     /* number of trials or bests; of quarantined variants */
    char (*avoid)[HASH_HEX]; /* owned */
    /* owned: the filter of a list, packed; mostly a hundredth of the size of a struct record */
    struct wire_buf filter;
    const char *text[4]; /* the texts lie in `tail`; "" when not given */
    char tail[];
};

/* Makes a request with copies of up to four texts (NULL ends the array). NULL: no memory. */
struct request *request_new(const struct verb *verb, void *ctx, const char *const text[4]);
#define TEXTS(...) ((const char *const[4]){__VA_ARGS__})
#define NO_TEXT    TEXTS(NULL)
void request_free(struct request *r);
void request_fail(struct request *r, const struct error *err); /* r->err, also without memory */

void queue_init(struct queue *q);
void queue_push(struct queue *q, struct request *r);
void queue_move(struct queue *to, struct queue *from); /* moves all requests to the end of `to` */
struct request *queue_pop(struct queue *q);            /* NULL: empty */
struct request *queue_remove(struct queue *q, struct request **at);
/* Frees the requests with this text[0]; NULL: all. Returns how many. */
int64_t queue_drop(struct queue *q, const char *name);
int64_t queue_count(const struct queue *q);

/* A queue of turns holds a request of each user, with more requests of that user behind it. So each
 * user waits for at most one request of each other user. Users are few. */
void queue_push_turn(struct queue *q, struct request *r);
struct request *queue_pop_turn(struct queue *q); /* NULL: empty */

#endif
