/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounding scan: finds the end of a MessagePack object, over any split of the byte stream,
 * without decoding and without memory of its own. The scan refuses objects that could hurt a
 * decoder:
 *   - more bytes than the limit, as received and as promised by lengths (ERROR_TOO_LARGE)
 *   - more elements promised by array and map headers than bytes remain below the limit (an
 *     element has at least one byte): five bytes that announce 2^29 elements are refused at
 *     once (ERROR_TOO_LARGE)
 *   - nesting deeper than MESSAGE_DEPTH_MAX (ERROR_MALFORMED)
 *   - extension types and the reserved byte 0xc1, which the protocol never uses (ERROR_MALFORMED)
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
    size_t skip;   /* payload bytes of a string or binary still to skip */
    uint64_t owed; /* elements that heads have announced and that have not begun, of all levels */
    uint32_t depth;
    uint64_t left[MESSAGE_DEPTH_MAX]; /* elements that are still to come, of each open container */
    uint8_t head[9];                  /* bytes of a head that the end of the data has cut */
    uint32_t head_have, head_need;
    /* For speed only (take_steps in scan.c): lengths of the items of the container before, by even
     * or odd depth and by the number of items left. */
    uint8_t guesses[2][SCAN_GUESSES];
};

void scan_init(struct scan *s, size_t limit);
/* Scans data[0..n). SCAN_DONE: the message ends at *used (<= n) bytes into data, and the scan is
 * ready for the next message. SCAN_MORE: the message continues after all n bytes. ERROR_TOO_LARGE,
 * ERROR_MALFORMED: the rest of the stream cannot be trusted. */
int scan_feed(struct scan *s, const void *data, size_t n, size_t *used, struct error *err);

#endif
