/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rule carries most of it: bytes taken + bytes of payload promised + elements owed (each is at
 * least one byte) may never pass the limit. So a header that promises more than can still come is
 * refused when it is read, not when it is believed.
 *
 * Most messages come whole, and are good: those are walked over once with nothing but their depth in
 * mind (whole_message), since what is there in full has promised nothing that did not come. Whatever
 * is not so begins again in the way that can stop anywhere and say why.
 */
#include <string.h>

#include "proto/scan.h"

void scan_init(struct scan *s, size_t limit)
{
    s->limit = limit;
    s->taken = 0;
    s->skip = 0;
    s->owed = 1;
    s->depth = 0;
    s->head_have = 0;
    s->head_need = 0;
}

/* Bytes of the head that begins with this byte, itself counted; 0: refused. */
static uint32_t head_bytes(uint8_t c)
{
    static const uint8_t after[32] = {/* c0 nil, c1 reserved, c2 c3 bool, c4-c6 bin, c7-c9 ext */
                                      1, 0, 1, 1, 2, 3, 5, 0, 0, 0,
                                      /* ca cb real, cc-cf uint, d0-d3 int, d4-d8 ext */
                                      5, 9, 2, 3, 5, 9, 2, 3, 5, 9, 0, 0, 0, 0, 0,
                                      /* d9-db str, dc dd array, de df map */
                                      2, 3, 5, 3, 5, 3, 5};
    return c < 0xc0 || c >= 0xe0 ? 1 : after[c - 0xc0];
}

static uint64_t be(const uint8_t *p, uint32_t n)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < n; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

static int too_large(const struct scan *s, struct error *err)
{
    return error_set(err, ERROR_TOO_LARGE,
                     "the message is, or promises to be, longer than %zu bytes; split it",
                     s->limit);
}

static int open_container(struct scan *s, uint64_t n, struct error *err)
{
    if (s->depth == MESSAGE_DEPTH_MAX) {
        return error_set(err, ERROR_MALFORMED,
                         "the message nests arrays and maps deeper than %d levels",
                         MESSAGE_DEPTH_MAX);
    }
    s->owed += n;
    if (s->owed > s->limit - s->taken) {
        return too_large(s, err);
    }
    s->left[s->depth++] = n;
    return 0;
}

static int open_payload(struct scan *s, uint64_t n, struct error *err)
{
    if (n + s->owed > s->limit - s->taken) {
        return too_large(s, err);
    }
    s->skip = (size_t)n;
    return 0;
}

/* A whole head: what follows it? */
static int take_head(struct scan *s, const uint8_t *head, uint32_t n, struct error *err)
{
    uint8_t c = head[0];
    s->owed--;
    if (s->depth > 0) {
        s->left[s->depth - 1]--;
    }
    if (c < 0x80 || c >= 0xe0) { /* small integers */
        return 0;
    }
    if (c < 0x90) {
        return open_container(s, 2 * (uint64_t)(c & 15), err);
    }
    if (c < 0xa0) {
        return open_container(s, c & 15, err);
    }
    if (c < 0xc0) {
        return open_payload(s, c & 31, err);
    }
    uint64_t v = be(head + 1, n - 1);
    if ((c >= 0xc4 && c <= 0xc6) || (c >= 0xd9 && c <= 0xdb)) {
        return open_payload(s, v, err);
    }
    if (c >= 0xdc) {
        return open_container(s, c >= 0xde ? 2 * v : v, err);
    }
    return 0;
}

/* Collects a head that may come in pieces. Returns the bytes taken from data, or ERROR_*. */
static int feed_head(struct scan *s, const uint8_t *data, size_t n, struct error *err)
{
    if (s->head_have == 0) {
        s->head_need = head_bytes(data[0]);
        if (s->head_need == 0) {
            return error_set(
                err, ERROR_MALFORMED,
                "byte 0x%02x at offset %zu: extension types and reserved bytes are not "
                "used in this protocol",
                data[0], s->taken);
        }
        /* the rest of this head comes on top of one byte per element owed */
        if (s->owed + s->head_need - 1 > s->limit - s->taken) {
            return too_large(s, err);
        }
        if (s->head_need <= n) { /* the usual case: whole and in place */
            s->taken += s->head_need;
            int r = take_head(s, data, s->head_need, err);
            return r < 0 ? r : (int)s->head_need;
        }
    }
    uint32_t want = s->head_need - s->head_have;
    uint32_t take = n < want ? (uint32_t)n : want;
    memcpy(s->head + s->head_have, data, take);
    s->head_have += take;
    s->taken += take;
    if (s->head_have == s->head_need) {
        s->head_have = 0;
        int r = take_head(s, s->head, s->head_need, err);
        return r < 0 ? r : (int)take;
    }
    return (int)take;
}

/* Leaves containers that are full; whether the whole message is. */
static bool ended(struct scan *s)
{
    if (s->skip > 0 || s->head_have > 0) {
        return false;
    }
    while (s->depth > 0 && s->left[s->depth - 1] == 0) {
        s->depth--;
    }
    return s->depth == 0 && s->owed == 0;
}

/* Bytes of the message that begins at p, when it is good and ends within n; else 0. */
static size_t whole_message(const uint8_t *p, size_t n)
{
    uint64_t left[MESSAGE_DEPTH_MAX];
    uint32_t depth = 0;
    for (size_t at = 0; at < n;) {
        uint8_t c = p[at];
        uint32_t head = head_bytes(c);
        if (head == 0 || head > n - at) {
            return 0;
        }
        uint64_t v = c < 0xa0 ? c & 15 : c < 0xc0 ? c & 31 : be(p + at + 1, head - 1);
        at += head;
        if ((c >= 0xa0 && c < 0xc0) || (c >= 0xc4 && c <= 0xc6) || (c >= 0xd9 && c <= 0xdb)) {
            if (v > n - at) {
                return 0;
            }
            at += (size_t)v;
        } else if ((c >= 0x80 && c < 0xa0) || (c >= 0xdc && c <= 0xdf)) {
            if (depth == MESSAGE_DEPTH_MAX) {
                return 0;
            }
            if (v > 0) {
                left[depth++] = c < 0x90 || c >= 0xde ? 2 * v : v;
                continue;
            }
        }
        while (depth > 0 && --left[depth - 1] == 0) {
            depth--;
        }
        if (depth == 0) {
            return at;
        }
    }
    return 0;
}

int scan_feed(struct scan *s, const void *data, size_t n, size_t *used, struct error *err)
{
    const uint8_t *p = data;
    size_t at = s->taken == 0 ? whole_message(p, n < s->limit ? n : s->limit) : 0;
    if (at > 0) {
        *used = at;
        return SCAN_DONE;
    }
    while (at < n) {
        if (s->skip > 0) {
            size_t take = n - at < s->skip ? n - at : s->skip;
            s->skip -= take;
            s->taken += take;
            at += take;
        } else {
            int r = feed_head(s, p + at, n - at, err);
            if (r < 0) {
                return r;
            }
            at += (size_t)r;
        }
        if (ended(s)) {
            scan_init(s, s->limit);
            *used = at;
            return SCAN_DONE;
        }
    }
    *used = n;
    return SCAN_MORE;
}
