/* SPDX-License-Identifier: Apache-2.0 */
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

const uint8_t span_kinds[256] = {
    SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1),
    SIXTEEN(1 | SPAN_PAIRS), SIXTEEN(1 | SPAN_ITEMS), SIXTEEN(1 | SPAN_PAYLOAD),
    SIXTEEN(1 | SPAN_PAYLOAD),
    /* c0 nil, c1 reserved, c2 c3 bool, c4-c6 bin, c7-c9 ext */
    1, 0, 1, 1, 2 | SPAN_PAYLOAD, 3 | SPAN_PAYLOAD, 5 | SPAN_PAYLOAD, 0, 0, 0,
    /* ca cb real, cc-cf uint, d0-d3 int, d4-d8 ext */
    5, 9, 2, 3, 5, 9, 2, 3, 5, 9, 0, 0, 0, 0, 0,
    /* d9-db str, dc dd array, de df map */
    2 | SPAN_PAYLOAD, 3 | SPAN_PAYLOAD, 5 | SPAN_PAYLOAD, 3 | SPAN_ITEMS, 5 | SPAN_ITEMS,
    3 | SPAN_PAIRS, 5 | SPAN_PAIRS, SIXTEEN(1), SIXTEEN(1)};

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
        size_t kind = span_kinds[p[at]], head = kind & SPAN_HEAD;
        if (head == 0 || head > n - at) {
            return 0;
        }
        uint64_t v = span_count(p + at);
        at += head;
        if (kind >= SPAN_ITEMS) {
            left += v;
        } else if (v <= n - at) {
            at += v;
        } else {
            return 0;
        }
    }
    return at <= n ? at : 0;
}

/* Returns the first item in the container at p; NULL: p is no container of this kind (SPAN_ITEMS,
 * SPAN_PAIRS). */
static const uint8_t *items_of(const uint8_t *p, size_t n, uint8_t kind, size_t *items)
{
    size_t head = n > 0 && span_kinds[p[0]] & kind ? span_kinds[p[0]] & SPAN_HEAD : 0;
    if (head == 0 || head > n) {
        return NULL;
    }
    *items = span_count(p);
    return p + head;
}

const uint8_t *span_array(const uint8_t *p, size_t n, size_t *count)
{
    return items_of(p, n, SPAN_ITEMS, count);
}

const uint8_t *span_map(const uint8_t *p, size_t n, size_t *count)
{
    const uint8_t *at = items_of(p, n, SPAN_PAIRS, count);
    *count = at ? *count / 2 : 0;
    return at;
}
