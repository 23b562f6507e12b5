/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rule carries most of it: bytes taken + bytes of payload promised + elements owed (each is at
 * least one byte) may never pass the limit. So a header that promises more than can still come is
 * refused when it is read, not when it is believed.
 *
 * Most items come whole, and are good: those are walked over with one comparison for all bounds
 * (scan_skip_whole), the most usual of them by their first byte alone (take_steps). Whatever is not
 * so is taken in the way that can stop anywhere and say why.
 */
#include <string.h>

#include "proto/scan.h"
#include "proto/span.h"

static void scan_begin_message(struct scan *s)
{
    s->taken = 0;
    s->skip = 0;
    s->owed = 1;
    s->depth = 0;
    s->head_have = 0;
    s->head_need = 0;
}

void scan_init(struct scan *s, size_t limit)
{
    s->limit = limit;
    memset(s->guesses, 0, sizeof(s->guesses));
    scan_begin_message(s);
}

/* What begins with a byte: bytes of its head, itself counted (0: refused), and what follows the
 * head. */
enum { HEAD = 15, PAYLOAD = 16, ITEMS = 32, PAIRS = 64 };
#define FOUR(x)    (x), (x), (x), (x)
#define SIXTEEN(x) FOUR(x), FOUR(x), FOUR(x), FOUR(x)
static const uint8_t kinds[256] = {SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1),
                                   SIXTEEN(1), SIXTEEN(1), SIXTEEN(1), SIXTEEN(1 | PAIRS),
                                   SIXTEEN(1 | ITEMS), SIXTEEN(1 | PAYLOAD), SIXTEEN(1 | PAYLOAD),
                                   /* c0 nil, c1 reserved, c2 c3 bool, c4-c6 bin, c7-c9 ext */
                                   1, 0, 1, 1, 2 | PAYLOAD, 3 | PAYLOAD, 5 | PAYLOAD, 0, 0, 0,
                                   /* ca cb real, cc-cf uint, d0-d3 int, d4-d8 ext */
                                   5, 9, 2, 3, 5, 9, 2, 3, 5, 9, 0, 0, 0, 0, 0,
                                   /* d9-db str, dc dd array, de df map */
                                   2 | PAYLOAD, 3 | PAYLOAD, 5 | PAYLOAD, 3 | ITEMS, 5 | ITEMS,
                                   3 | PAIRS, 5 | PAIRS, SIXTEEN(1), SIXTEEN(1)};

static uint32_t scan_count_head(uint8_t c)
{
    return kinds[c] & HEAD;
}

static uint64_t scan_read_be(const uint8_t *p, uint32_t n)
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
    uint64_t v = scan_read_be(head + 1, n - 1);
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
        s->head_need = scan_count_head(data[0]);
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
static bool scan_has_ended(struct scan *s)
{
    if (s->skip > 0 || s->head_have > 0) {
        return false;
    }
    while (s->depth > 0 && s->left[s->depth - 1] == 0) {
        s->depth--;
    }
    return s->depth == 0 && s->owed == 0;
}

/* Of the next `most` items those at the beginning that are of one step, or texts of less than 256
 * bytes, whole and good: how many. `spare` as scan_skip_whole has it.
 *
 * Where an item begins is known when the one before it was looked at: a dozen cycles each. But maps
 * of one list are much alike, so it is guessed from the one before, and the processor is far ahead
 * when a look finds that the guess was good. `guesses` is where those of a container are, by how
 * many items are left of it. */
static inline uint64_t take_steps(const uint8_t *p, size_t n, uint64_t most,
                                  uint8_t guesses[SCAN_GUESSES], size_t *at, uint64_t *spare)
{
    size_t i = *at, begin = i;
    uint64_t left = most, room = *spare;
    /* As long as neither n nor room can be passed by a step they need not be looked at. */
    size_t bound = n - i < room ? n - i : (size_t)room;
    size_t end = bound > SPAN_STEP_MAX ? begin + bound - SPAN_STEP_MAX : begin;
    for (; left > 0 && i < end; left--) {
        size_t step = span_steps[p[i]], guess = guesses[left % SCAN_GUESSES], next = guess;
        __asm__("" : "+r"(next)); /* the compiler is not to know that it is the step */
        if (step == 0) {          /* a longer text, perhaps */
            step = p[i] == 0xd9 ? 2u + p[i + 1] : bound + 1;
            if (step > bound - (i - begin)) {
                break;
            }
        }
        if (step != guess) {
            guesses[left % SCAN_GUESSES] = (uint8_t)step;
            next = step;
        }
        i += next;
    }
    room -= i - begin - (size_t)(most - left);
    while (left > 0 && i < n) {
        uint8_t step = span_steps[p[i]];
        if (step == 0 || step > n - i || step - 1u > room) {
            break;
        }
        room -= step - 1u;
        i += step;
        left--;
    }
    *at = i;
    *spare = room;
    return most - left;
}

/* Takes items as long as they are whole and good, or until the message ends (true). Stops before
 * what is cut off, or is to be refused: that is for the way that can stop anywhere and say why.
 *
 * `spare` is what the limit leaves beside the bytes taken and a byte per element owed. An item
 * costs it all its bytes but the one that it was owed, and what it promises. */
static bool scan_skip_whole(struct scan *s, const uint8_t *p, size_t n, size_t *used)
{
    size_t at = 0;
    uint64_t room = s->limit - s->taken;
    uint64_t spare = room > s->owed ? room - s->owed : 0;
    uint64_t owed = s->owed, left = s->depth > 0 ? s->left[s->depth - 1] : 1;
    bool done = room < owed; /* a limit of nothing */
    while (at < n && !done) {
        uint64_t taken = take_steps(p, n, left, s->guesses[s->depth % 2], &at, &spare);
        owed -= taken;
        left -= taken;
        if (left > 0) {
            uint32_t kind = at < n && !span_steps[p[at]] ? kinds[p[at]] : 0, head = kind & HEAD;
            if (head == 0 || head > n - at) {
                break;
            }
            bool open = kind >= ITEMS;
            uint64_t v =
                head > 1 ? scan_read_be(p + at + 1, head - 1) : p[at] & 15; /* what it promises */
            v <<= kind >= PAIRS;
            if (head - 1 + v > spare || (!open && v > n - at - head) ||
                (open && s->depth == MESSAGE_DEPTH_MAX)) {
                break;
            }
            spare -= head - 1 + v;
            at += head + (open ? 0 : (size_t)v);
            owed--;
            left--;
            if (open) {
                if (s->depth > 0) {
                    s->left[s->depth - 1] = left;
                }
                owed += v;
                left = s->left[s->depth++] = v;
            }
        }
        while (left == 0 && s->depth > 0) {
            left = --s->depth > 0 ? s->left[s->depth - 1] : 0;
        }
        done = owed == 0;
    }
    if (s->depth > 0) {
        s->left[s->depth - 1] = left;
    }
    s->owed = owed;
    s->taken += at;
    *used = at;
    return done && owed == 0;
}

int scan_feed(struct scan *s, const void *data, size_t n, size_t *used, struct error *err)
{
    const uint8_t *p = data;
    for (size_t at = 0; at < n;) {
        if (s->skip > 0) {
            size_t take = n - at < s->skip ? n - at : s->skip;
            s->skip -= take;
            s->taken += take;
            at += take;
        } else {
            size_t whole = 0;
            if (s->head_have == 0 && scan_skip_whole(s, p + at, n - at, &whole)) {
                scan_begin_message(s);
                *used = at + whole;
                return SCAN_DONE;
            }
            at += whole;
            int r = at < n ? feed_head(s, p + at, n - at, err) : 0;
            if (r < 0) {
                return r;
            }
            at += (size_t)r;
        }
        if (scan_has_ended(s)) {
            scan_begin_message(s);
            *used = at;
            return SCAN_DONE;
        }
    }
    *used = n;
    return SCAN_MORE;
}
