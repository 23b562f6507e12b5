/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the parts of a packed message lie, without decoding it. For bytes that a scan
 * (proto/scan.h) has found to be a message: nothing here is a check, but nothing reads beyond n
 * either.
 */
#ifndef GEMMD_PROTO_SPAN_H
#define GEMMD_PROTO_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of an item that its first byte tells, payload and all; 0: it does not, or the item
 * opens a container, or is nothing of ours. */
extern const uint8_t span_steps[256];
enum { SPAN_STEP_MAX = 32 };

/* What begins with a byte: bytes of its head, itself counted (0: nothing of ours), and what the
 * number in the head counts. */
enum { SPAN_HEAD = 15, SPAN_PAYLOAD = 16, SPAN_ITEMS = 32, SPAN_PAIRS = 64 };
extern const uint8_t span_kinds[256];

/* A big-endian number of so many bytes. */
static inline uint64_t span_read_be(const uint8_t *p, size_t bytes)
{
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

/* The number in a head that is whole: a length, of items two for each pair; 0: it has none. */
static inline uint64_t span_count(const uint8_t *p)
{
    uint8_t kind = span_kinds[p[0]], head = kind & SPAN_HEAD;
    if (kind < SPAN_PAYLOAD) {
        return 0;
    }
    uint64_t v = head > 1 ? span_read_be(p + 1, head - 1u) : p[0] & (p[0] < 0xa0 ? 15u : 31u);
    return kind >= SPAN_PAIRS ? 2 * v : v;
}

/* Bytes of the object that begins at p; 0: it does not end within n, or is nothing of ours. */
size_t span_of(const uint8_t *p, size_t n);
/* Where the first pair of the map at p is; *count: how many there are. NULL: no map. */
const uint8_t *span_map(const uint8_t *p, size_t n, size_t *count);
/* Where the first element of the array at p is; *count: how many there are. NULL: no array. */
const uint8_t *span_array(const uint8_t *p, size_t n, size_t *count);

#endif
