/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a packed message item by item, straight from its bytes: builds no tree and allocates no
 * memory. Meant for answers, of which a job may read ten thousand at once. Other messages are
 * decoded as a tree (proto/wire.h), which gives items in any order.
 *
 * Every call looks at the next item. True: the item had the wanted type, and the reader has moved
 * behind it. False: the item has another type, or the bytes end within it; the reader has not
 * moved. The calls read all forms of an item, not only the shortest, with the same outcome as
 * wire_get_*. No call reads beyond `end`, for any bytes; the scan (proto/scan.h) checks that
 * containers end properly.
 */
#ifndef GEMMD_PROTO_PULL_H
#define GEMMD_PROTO_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/schema.h"
#include "proto/span.h"

struct pull {
    const uint8_t *at, *end; /* borrowed */
};

static inline size_t pull_left(const struct pull *p)
{
    return (size_t)(p->end - p->at);
}

static inline bool pull_nil(struct pull *p)
{
    bool is = p->at < p->end && *p->at == 0xc0;
    p->at += is;
    return is;
}

static inline bool pull_bool(struct pull *p, bool *out)
{
    bool is = p->at < p->end && (*p->at & 0xfe) == 0xc2;
    if (is) {
        *out = *p->at++ & 1;
    }
    return is;
}

/* The text points into the message; not terminated. */
static inline bool pull_str(struct pull *p, const char **out, size_t *n)
{
    if (p->at == p->end) {
        return false;
    }
    uint8_t c = *p->at;
    size_t head = (c & 0xe0) == 0xa0       ? 1
                  : c >= 0xd9 && c <= 0xdb ? 1 + ((size_t)1 << (c - 0xd9))
                                           : 0;
    if (head == 0 || head > pull_left(p)) {
        return false;
    }
    size_t length = head == 1 ? c & 31 : (size_t)span_read_be(p->at + 1, head - 1);
    if (length > pull_left(p) - head) {
        return false;
    }
    *out = (const char *)p->at + head;
    *n = length;
    p->at += head + length;
    return true;
}

/* True when n bytes are equal. Compares the first and the last word, which may overlap: for short
 * names a call of memcmp would cost more. */
static inline bool pull_same(const char *a, const char *b, size_t n)
{
    uint64_t x, y, x2, y2;
    if (n >= 8 && n <= 16) {
        memcpy(&x, a, 8);
        memcpy(&y, b, 8);
        memcpy(&x2, a + n - 8, 8);
        memcpy(&y2, b + n - 8, 8);
        return x == y && x2 == y2;
    }
    if (n >= 4 && n < 8) {
        uint32_t v, w, v2, w2;
        memcpy(&v, a, 4);
        memcpy(&w, b, 4);
        memcpy(&v2, a + n - 4, 4);
        memcpy(&w2, b + n - 4, 4);
        return v == w && v2 == w2;
    }
    if (n > 0 && n < 4) {
        return a[0] == b[0] && a[n / 2] == b[n / 2] && a[n - 1] == b[n - 1];
    }
    return memcmp(a, b, n) == 0;
}

bool pull_int_long(struct pull *p, int64_t *out); /* pull_int, for more than one byte */

/* False also when the integer does not fit into int64_t. */
static inline bool pull_int(struct pull *p, int64_t *out)
{
    if (p->at < p->end && (*p->at < 0x80 || *p->at >= 0xe0)) {
        *out = (int8_t)*p->at++;
        return true;
    }
    return pull_int_long(p, out);
}

/* Reads a real or an integer. */
bool pull_real(struct pull *p, double *out);
/* Reads the head of an array or map; *n elements, or pairs, follow. */
bool pull_array(struct pull *p, size_t *n);
bool pull_map(struct pull *p, size_t *n);
/* Skips any item with its content. */
bool pull_skip(struct pull *p);
/* Skips any item; *item is a reader of that item's bytes alone, for a later look. */
bool pull_item(struct pull *p, struct pull *item);
/* Moves the reader into the next map, to the value of the first key that equals `key`. */
bool pull_find(struct pull *p, const char *key);

/* Reads the value of a field that the schema lacks. False: a value of the wrong type. */
typedef bool (*pull_beside)(void *ctx, struct pull *p);

/* Fast form of schema_decode_beside with SCHEMA_LENIENT, for schemas without records and lists of
 * reals. Calls `beside` once for the value of the field `beside_name` (NULL: no such field). False:
 * a value has an unexpected type or size. The caller must then decode the map by schema_decode,
 * which reports the error; the object may be half filled, the reader has not moved. */
bool pull_schema(struct pull *p, const struct schema *s, const char *beside_name,
                 pull_beside beside, void *ctx, void *object);

#endif
