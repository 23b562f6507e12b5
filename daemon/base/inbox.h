/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages out of a stream of bytes, from the runner. Like a client's they are scanned before they
 * are decoded. (A client's connection has turns and shares besides: session/session.h.)
 *
 *   reading: room = inbox_room(b); ... ; inbox_put(b, n); while (inbox_next(b, &m, &err) > 0) ...
 */
#ifndef GEMMD_DAEMON_BASE_INBOX_H
#define GEMMD_DAEMON_BASE_INBOX_H

#include <uv.h>

#include "proto/rpc.h"
#include "proto/scan.h"

struct inbox {
    struct scan scan;
    struct wire_buf in;   /* owned: what has come and was not given out */
    size_t at, scanned;   /* of in: given out; seen by the scan beyond that */
    struct wire_doc *doc; /* owned: the message given out last */
    char *room;           /* owned: what is read into */
    size_t room_bytes;
};

/* A new stream, of messages up to `message_max` bytes, read `read_bytes` at a time. May be called
 * again without a close. ERROR_NO_MEMORY: the sentence is the caller's. */
int inbox_open(struct inbox *b, size_t message_max, size_t read_bytes);
void inbox_close(struct inbox *b); /* may be called twice, and on zeros */

uv_buf_t inbox_room(struct inbox *b);
int inbox_put(struct inbox *b, size_t n); /* n bytes were read into it. ERROR_NO_MEMORY */

enum { INBOX_MESSAGE = 1 };
/* INBOX_MESSAGE: *m is borrowed until the next call. 0: more bytes must come. ERROR_MALFORMED,
 * ERROR_TOO_LARGE and what rpc_decode says: nothing more can be expected of the stream. */
int inbox_next(struct inbox *b, struct rpc_message *m, struct error *err);

#endif
