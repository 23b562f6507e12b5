/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are answered later, by the ledger or in slices. */
#ifndef GEMMD_DAEMON_METHODS_PENDING_H
#define GEMMD_DAEMON_METHODS_PENDING_H

#include "daemon/methods/call.h"
#include "proto/schema.h"

/* What is asked of the ledger for a session: charged to it and its user until it is answered. */
struct asked {
    struct sessions *sessions; /* borrowed */
    struct account *account;   /* a holder, also when the client has gone; NULL: nothing is asked */
    size_t charged;
    size_t reserved; /* bytes of the answer that is being read, charged as if they waited unread */
};
void asked_begin(struct asked *a, struct session *s, size_t n); /* as heavy as n requests */
void asked_as(struct asked *a, struct session *s, size_t n);    /* heavier than it began */
void asked_end(struct asked *a, struct session *s);             /* NULL: the client has gone */

/* A request that the ledger answers. The client may have gone meanwhile: then nothing is sent. */
struct pending {
    struct ticket ticket;
    struct daemon *d;           /* borrowed */
    struct daemon_parts *parts; /* borrowed */
    int64_t uid;                /* who asks: the client may have gone when it is written down */
    struct asked asked;
};
/* `size` bytes, zeroed, of which struct pending is the first part. */
int call_later(struct call *c, size_t size, struct pending **out, struct error *err);
/* Charges an answer of at most so many bytes before it is read, until the pending ends: so a user
 * who takes no answers has no more read than may wait (--user-mib). */
void pending_reserve(struct pending *p, size_t bytes);
/* The response's beginning is put; the result goes next, then pending_drop. NULL: nobody waits. */
struct wire_buf *pending_result(struct pending *p);
void pending_drop(struct pending *p); /* ends and frees it */
void pending_free(struct pending *p); /* the same when its ticket is gone: for ticket.gone */
void pending_fail(struct pending *p, const struct error *e);
/* What the ledger said when it was asked for p: METHOD_LATER, or its fault, and p is gone. */
int pending_asked(struct pending *p, int status, struct error *err);
/* Fails it for the session, which is not held up by it any more. Its user is charged, and it lives,
 * until what it asked for has come. */
void pending_cancel(struct pending *p, const struct error *e);

/* A request that may be begun anew: its message is kept. */
struct parked {
    struct pending pending; /* first */
    size_t len;
    uint8_t *message; /* behind the struct that begins with this one */
};
int call_park(struct call *c, size_t size, struct parked **out, struct error *err);
/* Ends it without an answer, and handles its message again, which may park it again. Frees it. */
void parked_begin_anew(struct parked *p);

/* ---- lists ----------------------------------------------------------------------------------- */

/* What a request asks of the ledger's tables, each part once. */
enum listed {
    LISTED_PAGE, /* of any table, for the client */
    LISTED_BEST,
    LISTED_TRIALS, /* of a key, for their number alone; then those that were good, or cut off */
    LISTED_OK,
    LISTED_ABORTED,
    LISTED_TRIAL,
    LISTED_RUN,
    LISTED_ELSEWHERE, /* bests of other classes of devices */
    LISTED_ALL
};

/* A request that lists answer. They are withdrawn when the client goes. */
struct listing {
    struct pending pending; /* first */
    /* A part has come, and may make others worth asking for; LISTED_ALL: there are no more. Sets
     * `error` where the request is to fail. NULL: nothing is to be done. */
    void (*listed)(struct listing *l, enum listed part);
    void (*put)(struct listing *l, struct wire_buf *b); /* the result */
    unsigned left;
    struct error error; /* of the first part that failed */
    struct part {
        struct listing *listing;
        struct wire_buf rows; /* owned: an array */
        int64_t total;        /* rows that there are */
    } parts[LISTED_ALL];
};

/* `size` bytes, zeroed but for the listing that they begin with; an answer has at most `bytes`. */
int listing_begin(struct call *c, size_t size, size_t bytes, struct listing **out,
                  struct error *err);
void listing_ask(struct listing *l, enum listed part, const char *what, const struct record *filter,
                 size_t bytes);
/* One row, where a column is so. */
void listing_ask_row(struct listing *l, enum listed part, const char *what, const char *column,
                     struct value v);
void listing_ask_counts(struct listing *l, const char *key); /* of its trials */
/* All is asked for that is known to be needed. It may be gone after that. */
int listing_wait(struct listing *l);
/* The only row of a part; false: there is none. */
bool listing_read_row(const struct listing *l, enum listed part, const struct schema *s, void *out);
/* `trials` and `failed` of listing_ask_counts. */
void listing_put_counts(const struct listing *l, struct wire_buf *b);

#endif
