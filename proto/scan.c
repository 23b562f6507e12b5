/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main rule: bytes taken + bytes of payload promised + elements owed (each at least one byte)
 * never exceed the limit. So the scan refuses a header that promises more than the limit once the
 * header is read.
 *
 * An item is a head (its type, and a number or a length) and perhaps a payload or elements. Most
 * items are complete and valid. scan_skip_whole walks over such items with one comparison for all
 * bounds, and take_steps over the most frequent of them by their first byte alone. feed_head takes
 * all other items; it can stop at any byte and gives the reason of a refusal.
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

static int too_large(const struct scan *s, struct error *err)
{
    return error_set(err, ERROR_TOO_LARGE,
                     "the message is, or promises to be, longer than %zu bytes; split it",
                     s->limit);
}

/* Takes a complete head: opens its container or payload. */
static int take_head(struct scan *s, const uint8_t *head, struct error *err)
{
    const uint64_t n = span_count(head);
    const bool opens = span_kinds[head[0]] >= SPAN_ITEMS;
    s->owed--;
    if (s->depth > 0) {
        s->left[s->depth - 1]--;
    }
    if (opens && s->depth == MESSAGE_DEPTH_MAX) {
        return error_set(err, ERROR_MALFORMED,
                         "the message nests arrays and maps deeper than %d levels",
                         MESSAGE_DEPTH_MAX);
    }
    if (n + s->owed > s->limit - s->taken) {
        return too_large(s, err);
    }
    if (opens) {
        s->owed += n;
        s->left[s->depth++] = n;
    } else {
        s->skip = (size_t)n;
    }
    return 0;
}

/* Collects a head that may arrive in pieces. Returns the bytes taken from data, or ERROR_*. */
static int feed_head(struct scan *s, const uint8_t *data, size_t n, struct error *err)
{
    if (s->head_have == 0) {
        s->head_need = span_kinds[data[0]] & SPAN_HEAD;
        if (s->head_need == 0) {
            return error_set(
                err, ERROR_MALFORMED,
                "byte 0x%02x at offset %zu: extension types and reserved bytes are not "
                "used in this protocol",
                data[0], s->taken);
        }
        /* `owed` counts a byte for each expected element; this element's head has head_need */
        if (s->owed + s->head_need - 1 > s->limit - s->taken) {
            return too_large(s, err);
        }
    }
    uint32_t want = s->head_need - s->head_have;
    uint32_t take = n < want ? (uint32_t)n : want;
    memcpy(s->head + s->head_have, data, take);
    s->head_have += take;
    s->taken += take;
    if (s->head_have == s->head_need) {
        s->head_have = 0;
        int r = take_head(s, s->head, err);
        return r < 0 ? r : (int)take;
    }
    return (int)take;
}

/* Leaves the containers whose elements have all come. True when the message is complete. */
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

/* Takes items one after the other, at most `most`, while they are complete and valid, and are texts
 * of less than 256 bytes or items of span_steps (span.h). Returns their number. `spare` as in
 * scan_skip_whole.
 *
 * An item's begin is known only after the item before was read: a dozen cycles each. But the maps
 * of a list are much alike, so the length of an item is guessed from the map before. The processor
 * runs far ahead until a check finds a wrong guess. `guesses` has the guesses of a container, by
 * the number of items left. */
static inline uint64_t take_steps(const uint8_t *p, size_t n, uint64_t most,
                                  uint8_t guesses[SCAN_GUESSES], size_t *at, uint64_t *spare)
{
    size_t i = *at, begin = i;
    uint64_t left = most, room = *spare;
    /* A step below this bound cannot pass n or room, so the loop checks neither. */
    size_t bound = n - i < room ? n - i : (size_t)room;
    size_t end = bound > SPAN_STEP_MAX ? begin + bound - SPAN_STEP_MAX : begin;
    for (; left > 0 && i < end; left--) {
        size_t step = span_steps[p[i]], guess = guesses[left % SCAN_GUESSES], next = guess;
        __asm__("" : "+r"(next)); /* else the compiler would use step, and wait for its load */
        if (step == 0) {          /* perhaps a longer text */
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

/* Takes items while they are complete and valid; true at the end of the message. Stops before an
 * item that is invalid or not wholly in p[0..n), which feed_head takes.
 *
 * `spare` is the limit less the bytes taken and a byte per element owed. An item costs all its
 * bytes except the owed byte, and the bytes that the item promises. */
static bool scan_skip_whole(struct scan *s, const uint8_t *p, size_t n, size_t *used)
{
    size_t at = 0;
    uint64_t room = s->limit - s->taken;
    uint64_t spare = room > s->owed ? room - s->owed : 0;
    uint64_t owed = s->owed, left = s->depth > 0 ? s->left[s->depth - 1] : 1;
    bool done = room < owed; /* true only for a limit of 0 bytes */
    while (at < n && !done) {
        uint64_t taken = take_steps(p, n, left, s->guesses[s->depth % 2], &at, &spare);
        owed -= taken;
        left -= taken;
        if (left > 0) {
            uint32_t kind = at < n && !span_steps[p[at]] ? span_kinds[p[at]] : 0;
            uint32_t head = kind & SPAN_HEAD;
            if (head == 0 || head > n - at) {
                break;
            }
            bool open = kind >= SPAN_ITEMS;
            uint64_t v = span_count(p + at); /* least number of bytes that follow the head */
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
