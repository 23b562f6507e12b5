/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounding scan: finds where one MessagePack object ends, over any split of the byte stream,
 * without decoding it and without memory of its own, and refuses what could hurt a decoder:
 *   - more bytes than the limit, counted as they come and as lengths promise them
 *   - more elements promised by array and map headers than bytes remain below the limit (an
 *     element is at least one byte): five bytes announcing 2^29 elements are refused at once
 *     (both ERROR_TOO_LARGE)
 *   - nesting deeper than MESSAGE_DEPTH_MAX
 *   - extension types and the reserved byte 0xc1: the protocol has no use for them (both
 *     ERROR_MALFORMED)
 */
#ifndef GEMMD_PROTO_SCAN_H
#define GEMMD_PROTO_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/limits.h"

enum { SCAN_DONE = 0, SCAN_MORE = 1 };
enum { SCAN_GUESSES = 64 };

struct scan {
    size_t limit;  /* bytes of one message */
    size_t taken;  /* bytes of the message seen so far */
    size_t skip;   /* payload bytes of a string or binary still to pass over */
    uint64_t owed; /* elements announced and not yet begun, all levels */
    uint32_t depth;
    uint64_t left[MESSAGE_DEPTH_MAX]; /* elements left, per open container */
    uint8_t head[9];                  /* a header split over two reads */
    uint32_t head_have, head_need;
    /* How long items were in the containers before, even and odd depths; only to guess by. */
    uint8_t guesses[2][SCAN_GUESSES];
};

void scan_init(struct scan *s, size_t limit);
/* Looks at data[0..n). SCAN_DONE: the message ends at *used (<= n) bytes into data, and the scan is
 * ready for the next one. SCAN_MORE: all n bytes belong to it and more must come.
 * ERROR_TOO_LARGE, ERROR_MALFORMED: the stream cannot be trusted from here on. */
int scan_feed(struct scan *s, const void *data, size_t n, size_t *used, struct error *err);

#endif
