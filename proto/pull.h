/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a packed message item by item, straight from its bytes: no tree, no memory. For answers,
 * of which a job gets ten thousand at once; what is read once is read as a tree (proto/wire.h),
 * which can be asked in any order.
 *
 * Every call looks at what stands next. True: it was of that kind, and the reader is behind it.
 * False: it is not, or the bytes end before it does; the reader stays. All forms of an item are
 * read, not only the shortest, with the same outcome as by wire_get_*. Nothing reads beyond `end`,
 * whatever the bytes are; that containers end where they should is the scan's to find
 * (proto/scan.h).
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

/* Whether n bytes are the same, by words that may overlap: names are too short for a call. */
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

bool pull_int_long(struct pull *p, int64_t *out); /* pull_int, of more than one byte */

/* False also when it does not fit. */
static inline bool pull_int(struct pull *p, int64_t *out)
{
    if (p->at < p->end && (*p->at < 0x80 || *p->at >= 0xe0)) {
        *out = (int8_t)*p->at++;
        return true;
    }
    return pull_int_long(p, out);
}

/* Integers convert. */
bool pull_real(struct pull *p, double *out);
/* The head; *n elements, or pairs, stand behind it. */
bool pull_array(struct pull *p, size_t *n);
bool pull_map(struct pull *p, size_t *n);
/* Any item with all that is in it. */
bool pull_skip(struct pull *p);
/* The item itself, to be decoded as a tree: a reader of its bytes. */
bool pull_item(struct pull *p, struct pull *item);
/* In the map that stands next: the reader goes to the value of the first such key. */
bool pull_find(struct pull *p, const char *key);

/* Reads what stands beside a schema's fields in a map. False: not of a kind that it takes. */
typedef bool (*pull_beside)(void *ctx, struct pull *p);

/* What schema_decode_beside does with SCHEMA_LENIENT, for maps whose values are of the usual types,
 * and schemas without records and lists of reals. `beside` is told of the one field of that name,
 * once (NULL: there is none). False: this is for schema_decode to look at, and to say what is wrong
 * with it, if anything is; the object may be half filled in, the reader stays. */
bool pull_schema(struct pull *p, const struct schema *s, const char *beside_name,
                 pull_beside beside, void *ctx, void *object);

#endif
