/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the parts of a packed message without decoding. For bytes that a scan (proto/scan.h) has
 * accepted: these functions check nothing, but never read beyond n.
 */
#ifndef GEMMD_PROTO_SPAN_H
#define GEMMD_PROTO_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For each first byte of an item: the size of the whole item. 0: the first byte does not tell the
 * size, the item opens an array or map, or the protocol has no such item. */
extern const uint8_t span_steps[256];
enum { SPAN_STEP_MAX = 32 };

/* For each first byte of an item, two parts: under the mask SPAN_HEAD the size of the item's head
 * (0: the protocol has no such item), and the unit of the number in the head: bytes of payload,
 * items of an array, or pairs of a map. */
enum { SPAN_HEAD = 15, SPAN_PAYLOAD = 16, SPAN_ITEMS = 32, SPAN_PAIRS = 64 };
extern const uint8_t span_kinds[256];

/* A big-endian number of `bytes` bytes. */
static inline uint64_t span_read_be(const uint8_t *p, size_t bytes)
{
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

/* The number in a complete head: bytes of payload, or a count of items (two per pair); 0: the head
 * has no such number. */
static inline uint64_t span_count(const uint8_t *p)
{
    uint8_t kind = span_kinds[p[0]], head = kind & SPAN_HEAD;
    if (kind < SPAN_PAYLOAD) {
        return 0;
    }
    uint64_t v = head > 1 ? span_read_be(p + 1, head - 1u) : p[0] & (p[0] < 0xa0 ? 15u : 31u);
    return kind >= SPAN_PAIRS ? 2 * v : v;
}

/* Size of the object at p; 0: the object does not end within n, or is not of the protocol. */
size_t span_of(const uint8_t *p, size_t n);
/* The first pair of the map at p; *count: number of pairs. NULL: not a map. */
const uint8_t *span_map(const uint8_t *p, size_t n, size_t *count);
/* The first element of the array at p; *count: number of elements. NULL: not an array. */
const uint8_t *span_array(const uint8_t *p, size_t n, size_t *count);

#endif
