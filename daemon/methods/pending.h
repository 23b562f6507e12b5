/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are answered later: after the ledger's answer, or in slices of the loop. */
#ifndef GEMMD_DAEMON_METHODS_PENDING_H
#define GEMMD_DAEMON_METHODS_PENDING_H

#include "daemon/methods/call.h"
#include "proto/schema.h"

/* The charge of a session's question to the ledger, until the ledger has answered. */
struct asked {
    struct sessions *sessions; /* borrowed */
    struct account *account;   /* the charged user, also after a disconnect; NULL: no charge */
    size_t charged;
    size_t reserved; /* bytes of the answer being read, charged as unread output */
};
/* Sets the charge to n requests; `s` NULL: the client has left. */
void asked_as(struct asked *a, struct session *s, size_t n);

/* A request that the ledger answers. After a disconnect the answer is dropped. */
struct pending {
    struct ticket ticket;
    struct daemon *d;           /* borrowed */
    struct daemon_parts *parts; /* borrowed */
    int64_t uid;                /* the caller, also after a disconnect */
    struct asked asked;
    struct wire_buf nowhere; /* owned: receives the result when the client has left */
};
/* Allocates `size` zeroed bytes that begin with a struct pending, and opens the ticket. NULL:
 * error, whose code the method returns. */
void *call_later(struct call *c, size_t size, struct error *err);
/* Charges the user for an answer of at most `bytes` before the ledger reads the answer, until p
 * ends. So users who do not read their answers stay within --user-mib. */
void pending_reserve(struct pending *p, size_t bytes);
/* Puts the head of the response. The caller puts the result, then calls pending_drop. */
struct wire_buf *pending_result(struct pending *p);
void pending_drop(struct pending *p); /* ends the request, also after a disconnect, and frees p */
void pending_fail(struct pending *p, const struct error *e);
/* `status`: the return value of the ledger's function that was called for p. Returns METHOD_LATER;
 * or the error, after it has freed p. */
int pending_asked(struct pending *p, int status, struct error *err);

/* A request that may be begun anew, with its message. After a disconnect, or when the client
 * cancels the request, it lives until it begins anew. */
struct parked {
    struct pending pending; /* first member: its address is the struct's */
    size_t len;
    uint8_t *message; /* lies behind the larger struct, in the same allocation */
};
/* as call_later, and keeps the message */
void *call_park(struct call *c, size_t size, struct error *err);
/* Frees p without an answer and handles the message again, which may park the request again. */
void parked_begin_anew(struct parked *p);

/* ---- lists ----------------------------------------------------------------------------------- */

/* The lists that make up an answer. The ledger is asked for each list at most once. */
enum listed {
    LISTED_PAGE, /* a page of any table, as the client asked for it */
    LISTED_BEST,
    /* this and the next two: counts of the key's trials: all; with status ok; with status
     * aborted */
    LISTED_TRIALS,
    LISTED_OK,
    LISTED_ABORTED,
    LISTED_TRIAL,
    LISTED_RUN,
    LISTED_ELSEWHERE, /* bests of other device classes */
    LISTED_FLEET,     /* the key's numbers in the fleet */
    LISTED_ALL
};

/* A request answered from lists of the ledger. A disconnect cancels the lists. */
struct listing {
    struct pending pending; /* first member: its address is the struct's */
    /* Called after each list has arrived; may ask for more lists. LISTED_ALL: all lists have
     * arrived. Sets `error` to fail the request. May be NULL. */
    void (*listed)(struct listing *l, enum listed part);
    void (*put)(struct listing *l, struct wire_buf *b); /* puts the result */
    unsigned left;
    struct error error; /* error of the first list that failed */
    struct part {
        struct listing *listing;
        struct wire_buf rows; /* owned: the list's rows, a MessagePack array */
        int64_t total;        /* rows of the table that fit the list's filter */
    } parts[LISTED_ALL];
};

/* call_later for `size` bytes that begin with a listing. The answer has at most `bytes` bytes. */
void *listing_begin(struct call *c, size_t size, size_t bytes, struct error *err);
void listing_ask(struct listing *l, enum listed part, const char *what, const struct record *filter,
                 size_t bytes);
void listing_ask_row(struct listing *l, enum listed part, const char *what, const char *column,
                     struct value v);
/* the three LISTED_ counts of trials */
void listing_ask_counts(struct listing *l, const char *key);
/* Call after the last listing_ask. Returns METHOD_LATER; `l` may be freed by then. */
int listing_wait(struct listing *l);
/* Reads the only row of a list that arrived. False: the list has no row, or several. */
bool listing_read_row(const struct listing *l, enum listed part, const struct schema *s, void *out);
/* Puts `trials` and `failed` from listing_ask_counts. */
void listing_put_counts(const struct listing *l, struct wire_buf *b);

#endif
