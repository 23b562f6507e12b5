/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are answered later: by the ledger, or in slices. */
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
/* Changes the charge to n requests; `s` is NULL after a disconnect. */
void asked_as(struct asked *a, struct session *s, size_t n);

/* A request that the ledger answers. After a disconnect the answer is dropped. */
struct pending {
    struct ticket ticket;
    struct daemon *d;           /* borrowed */
    struct daemon_parts *parts; /* borrowed */
    int64_t uid;                /* the caller, also after a disconnect */
    struct asked asked;
    struct wire_buf nowhere; /* owned: takes the result after a disconnect */
};
/* Allocates `size` zeroed bytes that begin with a struct pending, and opens the ticket. NULL:
 * error, whose code the method returns. */
void *call_later(struct call *c, size_t size, struct error *err);
/* Charges an answer of at most `bytes` before the answer is read, until the pending ends. So users
 * who read no answers stay within --user-mib. */
void pending_reserve(struct pending *p, size_t bytes);
/* Puts the head of the response. The caller puts the result, then calls pending_drop. */
struct wire_buf *pending_result(struct pending *p);
void pending_drop(struct pending *p); /* ends the request, also after a disconnect, and frees p */
void pending_fail(struct pending *p, const struct error *e);
/* Turns the ledger's reply to a question for p into METHOD_LATER, or into an error and frees p. */
int pending_asked(struct pending *p, int status, struct error *err);

/* A request that may be begun anew, with its message. After a disconnect, or when the client
 * cancels the request, it lives until it begins anew. */
struct parked {
    struct pending pending; /* first */
    size_t len;
    uint8_t *message; /* behind the struct that begins with this */
};
void *call_park(struct call *c, size_t size, struct error *err); /* as call_later */
/* Ends the request unanswered, frees p, and handles the message again, which may park it again. */
void parked_begin_anew(struct parked *p);

/* ---- lists ----------------------------------------------------------------------------------- */

/* The lists that make up an answer. The ledger is asked for each list at most once. */
enum listed {
    LISTED_PAGE, /* a page of any table, as the client asked for it */
    LISTED_BEST,
    LISTED_TRIALS, /* counts of the key's trials: all, with status ok, with status aborted */
    LISTED_OK,
    LISTED_ABORTED,
    LISTED_TRIAL,
    LISTED_RUN,
    LISTED_ELSEWHERE, /* bests of other device classes */
    LISTED_ALL
};

/* A request answered from lists of the ledger. A disconnect cancels the lists. */
struct listing {
    struct pending pending; /* first */
    /* Called after each list has arrived; may ask for more lists. LISTED_ALL: all lists have
     * arrived. Sets `error` to fail the request. May be NULL. */
    void (*listed)(struct listing *l, enum listed part);
    void (*put)(struct listing *l, struct wire_buf *b); /* puts the result */
    unsigned left;
    struct error error; /* error of the first list that failed */
    struct part {
        struct listing *listing;
        struct wire_buf rows; /* owned: an array */
        int64_t total;        /* rows in the table */
    } parts[LISTED_ALL];
};

/* call_later for `size` bytes that begin with a listing. The answer has at most `bytes` bytes. */
void *listing_begin(struct call *c, size_t size, size_t bytes, struct error *err);
void listing_ask(struct listing *l, enum listed part, const char *what, const struct record *filter,
                 size_t bytes);
void listing_ask_row(struct listing *l, enum listed part, const char *what, const char *column,
                     struct value v);
void listing_ask_counts(struct listing *l, const char *key); /* counts of the key's trials */
/* Ends asking; the listing may be freed on return. */
int listing_wait(struct listing *l);
/* Reads the only row of a list that arrived. False: the list has no row, or several. */
bool listing_read_row(const struct listing *l, enum listed part, const struct schema *s, void *out);
/* Puts `trials` and `failed` from listing_ask_counts. */
void listing_put_counts(const struct listing *l, struct wire_buf *b);

#endif
