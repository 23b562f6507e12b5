/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes MessagePack items in their shortest forms into memory with enough room. Users: the growing
 * buffer (wire.c), keys (key.c), which must give the same bytes without a heap, and libgemmd's
 * requests (client/ask.c).
 */
#ifndef GEMMD_PROTO_PACK_H
#define GEMMD_PROTO_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PACK_HEAD_MAX = 9 }; /* bytes of the longest head or scalar */

static inline uint8_t *pack_be(uint8_t *p, uint8_t tag, uint64_t v, unsigned bytes)
{
    *p++ = tag;
    for (unsigned shift = 8 * bytes; shift > 0;) {
        shift -= 8;
        *p++ = (uint8_t)(v >> shift);
    }
    return p;
}

static inline uint8_t *pack_nil(uint8_t *p)
{
    *p++ = 0xc0;
    return p;
}

static inline uint8_t *pack_bool(uint8_t *p, bool v)
{
    *p++ = v ? 0xc3 : 0xc2;
    return p;
}

static inline uint8_t *pack_uint(uint8_t *p, uint64_t v)
{
    if (v < 0x80) {
        *p++ = (uint8_t)v;
        return p;
    }
    if (v <= UINT8_MAX) {
        return pack_be(p, 0xcc, v, 1);
    }
    if (v <= UINT16_MAX) {
        return pack_be(p, 0xcd, v, 2);
    }
    return v <= UINT32_MAX ? pack_be(p, 0xce, v, 4) : pack_be(p, 0xcf, v, 8);
}

static inline uint8_t *pack_int(uint8_t *p, int64_t v)
{
    if (v >= 0) {
        return pack_uint(p, (uint64_t)v);
    }
    if (v >= -32) {
        *p++ = (uint8_t)v;
        return p;
    }
    if (v >= INT8_MIN) {
        return pack_be(p, 0xd0, (uint64_t)v, 1);
    }
    if (v >= INT16_MIN) {
        return pack_be(p, 0xd1, (uint64_t)v, 2);
    }
    return v >= INT32_MIN ? pack_be(p, 0xd2, (uint64_t)v, 4) : pack_be(p, 0xd3, (uint64_t)v, 8);
}

static inline uint8_t *pack_real(uint8_t *p, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return pack_be(p, 0xcb, bits, 8);
}

/* Write the head of an item; n is at most UINT32_MAX. */
static inline uint8_t *pack_str_head(uint8_t *p, size_t n)
{
    if (n < 32) {
        *p++ = (uint8_t)(0xa0 | n);
        return p;
    }
    if (n <= UINT8_MAX) {
        return pack_be(p, 0xd9, n, 1);
    }
    return n <= UINT16_MAX ? pack_be(p, 0xda, n, 2) : pack_be(p, 0xdb, n, 4);
}

static inline uint8_t *pack_bin_head(uint8_t *p, size_t n)
{
    if (n <= UINT8_MAX) {
        return pack_be(p, 0xc4, n, 1);
    }
    return n <= UINT16_MAX ? pack_be(p, 0xc5, n, 2) : pack_be(p, 0xc6, n, 4);
}

static inline uint8_t *pack_array_head(uint8_t *p, size_t n)
{
    if (n < 16) {
        *p++ = (uint8_t)(0x90 | n);
        return p;
    }
    return n <= UINT16_MAX ? pack_be(p, 0xdc, n, 2) : pack_be(p, 0xdd, n, 4);
}

static inline uint8_t *pack_map_head(uint8_t *p, size_t n)
{
    if (n < 16) {
        *p++ = (uint8_t)(0x80 | n);
        return p;
    }
    return n <= UINT16_MAX ? pack_be(p, 0xde, n, 2) : pack_be(p, 0xdf, n, 4);
}

#endif
