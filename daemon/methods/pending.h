/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are answered later, by the ledger or in slices. */
#ifndef GEMMD_DAEMON_METHODS_PENDING_H
#define GEMMD_DAEMON_METHODS_PENDING_H

#include "daemon/methods/call.h"

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
void pending_end(struct pending *p);  /* without an answer by it: the request is begun anew */
void pending_fail(struct pending *p, const struct error *e);
/* Lists are asked of the ledger for it: they are withdrawn when the client goes. */
void pending_lists(struct pending *p);
/* Fails it for the session, which is not held up by it any more. Its user is charged, and it lives,
 * until what it asked for has come. */
void pending_cancel(struct pending *p, const struct error *e);

#endif
