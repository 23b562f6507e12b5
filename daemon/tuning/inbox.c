/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from a stream of bytes (runner_link.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/tuning/runner_link.h"

int inbox_open(struct inbox *b, size_t message_max, size_t read_bytes)
{
    if (b->room_bytes != read_bytes) {
        free(b->room);
        b->room = malloc(read_bytes);
        b->room_bytes = b->room ? read_bytes : 0;
    }
    b->doc = b->doc ? b->doc : wire_doc_new();
    wire_buf_clear(&b->in);
    b->in.failed = false;
    b->at = b->scanned = 0;
    scan_init(&b->scan, message_max);
    return b->room && b->doc ? 0 : ERROR_NO_MEMORY;
}

void inbox_close(struct inbox *b)
{
    wire_buf_deinit(&b->in);
    wire_doc_free(b->doc);
    free(b->room);
    *b = (struct inbox){0};
}

uv_buf_t inbox_room(struct inbox *b)
{
    return uv_buf_init(b->room, (unsigned)b->room_bytes);
}

/* Drops returned messages first. */
int inbox_put(struct inbox *b, size_t n)
{
    if (b->at) {
        memmove(b->in.data, b->in.data + b->at, b->in.len - b->at);
        b->in.len -= b->at;
        b->at = 0;
    }
    wire_put_raw(&b->in, b->room, n);
    return b->in.failed ? ERROR_NO_MEMORY : 0;
}

int inbox_next(struct inbox *b, struct rpc_message *m, struct error *err)
{
    size_t used = 0, seen = b->at + b->scanned;
    if (seen >= b->in.len) {
        return 0;
    }
    int status = scan_feed(&b->scan, b->in.data + seen, b->in.len - seen, &used, err);
    if (status == SCAN_MORE) {
        b->scanned = b->in.len - b->at;
        return 0;
    }
    if (status == SCAN_DONE) {
        size_t n = b->scanned + used;
        *m = (struct rpc_message){0};
        status = rpc_decode(b->doc, b->in.data + b->at, n, m, err);
        b->at += n;
        b->scanned = 0;
    }
    return status < 0 ? status : INBOX_MESSAGE;
}
