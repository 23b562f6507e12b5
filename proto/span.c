/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "proto/span.h"

#define FOUR(x)    (x), (x), (x), (x)
#define SIXTEEN(x) FOUR(x), FOUR(x), FOUR(x), FOUR(x)
#define TEXTS(n)   (n), (n) + 1, (n) + 2, (n) + 3, (n) + 4, (n) + 5, (n) + 6, (n) + 7
const uint8_t span_steps[256] = {SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1),
                                 SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(0), SIXTEEN(0),
                                 TEXTS(1), TEXTS(9), TEXTS(17), TEXTS(25),
                                 /* c0 nil, c2 c3 bool, ca cb real, cc-cf uint, d0-d3 int */
                                 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 5, 9, 2, 3, 5, 9, 2, 3, 5, 9, 0, 0,
                                 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, SIXTEEN(1), SIXTEEN(1)};

struct head {
    size_t bytes; /* of the head and its payload; 0: it does not fit */
    size_t items; /* objects that follow as its content */
};

static size_t span_read_be(const uint8_t *p, size_t n)
{
    size_t v = 0;
    for (size_t i = 0; i < n; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

/* Lengths stand behind the first byte, in `width` bytes. */
static struct head span_make_head(const uint8_t *p, size_t n, size_t width, size_t payload,
                                  size_t items)
{
    if (n <= width) {
        return (struct head){0, 0};
    }
    size_t v = span_read_be(p + 1, width);
    return (struct head){1 + width + v * payload, v * items};
}

static struct head span_read_head(const uint8_t *p, size_t n)
{
    uint8_t c = p[0];
    if (c < 0x80 || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3) {
        return (struct head){1, 0};
    }
    if (c < 0xc0) {
        return c < 0x90   ? (struct head){1, 2 * (size_t)(c & 15)}
               : c < 0xa0 ? (struct head){1, c & 15}
                          : (struct head){1 + (size_t)(c & 31), 0};
    }
    switch (c) {
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return span_make_head(p, n, (size_t)1 << (c - 0xc4), 1, 0);
    case 0xd9:
    case 0xda:
    case 0xdb:
        return span_make_head(p, n, (size_t)1 << (c - 0xd9), 1, 0);
    case 0xdc:
    case 0xdd:
        return span_make_head(p, n, (size_t)2 << (c - 0xdc), 0, 1);
    case 0xde:
    case 0xdf:
        return span_make_head(p, n, (size_t)2 << (c - 0xde), 0, 2);
    case 0xca:
        return (struct head){5, 0};
    case 0xcb:
        return (struct head){9, 0};
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        return (struct head){1 + ((size_t)1 << (c - 0xcc)), 0};
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return (struct head){1 + ((size_t)1 << (c - 0xd0)), 0};
    default:
        return (struct head){0, 0};
    }
}

size_t span_of(const uint8_t *p, size_t n)
{
    size_t at = 0;
    for (size_t left = 1; left > 0; left--) {
        while (left > 0 && at < n && span_steps[p[at]]) {
            at += span_steps[p[at]];
            left--;
        }
        if (left == 0) {
            break;
        }
        if (at >= n) {
            return 0;
        }
        struct head h = span_read_head(p + at, n - at);
        if (h.bytes == 0 || h.bytes > n - at) {
            return 0;
        }
        at += h.bytes;
        left += h.items;
    }
    return at <= n ? at : 0;
}

/* Behind the head of a container of that kind (0x80 map, 0x90 array): where its items begin. */
static const uint8_t *items_of(const uint8_t *p, size_t n, uint8_t fix, uint8_t wide, size_t *items)
{
    if (n == 0 || ((p[0] & 0xf0) != fix && p[0] != wide && p[0] != wide + 1)) {
        return NULL;
    }
    struct head h = span_read_head(p, n);
    *items = h.items;
    return h.bytes ? p + h.bytes : NULL;
}

const uint8_t *span_array(const uint8_t *p, size_t n, size_t *count)
{
    return items_of(p, n, 0x90, 0xdc, count);
}

const uint8_t *span_map(const uint8_t *p, size_t n, size_t *count)
{
    const uint8_t *at = items_of(p, n, 0x80, 0xde, count);
    *count /= 2;
    return at;
}

bool span_named(const uint8_t **p, const uint8_t *end, const char *name)
{
    const uint8_t *at = *p;
    size_t n = strlen(name), length = span_of(at, (size_t)(end - at));
    *p = at + length;
    return length == n + 1 && at[0] == (0xa0 | n) && memcmp(at + 1, name, n) == 0;
}

const uint8_t *span_find(const uint8_t *p, size_t n, const char *key, size_t *length)
{
    size_t items = 0, key_n = strlen(key); /* shorter than 32: its head is one byte */
    const uint8_t *at = items_of(p, n, 0x80, 0xde, &items), *end = p + n;
    for (; at && items >= 2; items -= 2) {
        size_t name = span_of(at, (size_t)(end - at));
        size_t value = name ? span_of(at + name, (size_t)(end - at) - name) : 0;
        if (value == 0) {
            return NULL;
        }
        if (name == key_n + 1 && at[0] == (0xa0 | key_n) && memcmp(at + 1, key, key_n) == 0) {
            *length = value;
            return at + name;
        }
        at += name + value;
    }
    return NULL;
}
