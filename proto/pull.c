/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields are expected in the order of the map before, then in that of the schema. Names and texts
 * are a dozen bytes: a call of memcmp or memcpy for each would cost more than all the rest.
 */
#include <assert.h>
#include <math.h>

#include "proto/pull.h"
#include "proto/span.h"

/* ---- items ----------------------------------------------------------------------------------- */

/* Bytes behind the first one, when it begins a number and all of it is there; 0: no such thing. */
static size_t number_bytes(const struct pull *p, uint8_t first, uint8_t last)
{
    if (p->at == p->end || *p->at < first || *p->at > last) {
        return 0;
    }
    size_t bytes = (size_t)1 << ((*p->at - first) & 3);
    return bytes < pull_left(p) ? bytes : 0;
}

/* The sign of a number of so many bytes, spread over the others. */
static int64_t sign_extended(uint64_t v, size_t bytes)
{
    unsigned unused = 64 - 8 * (unsigned)bytes;
    uint64_t sign = UINT64_C(1) << (63 - unused);
    return (int64_t)((v ^ sign) - sign);
}

bool pull_int_long(struct pull *p, int64_t *out)
{
    size_t bytes = number_bytes(p, 0xcc, 0xd3);
    if (bytes == 0) {
        return false;
    }
    uint64_t v = pull_be(p->at + 1, bytes);
    if (*p->at >= 0xd0) {
        *out = sign_extended(v, bytes);
    } else if (v <= INT64_MAX) {
        *out = (int64_t)v;
    } else {
        return false;
    }
    p->at += 1 + bytes;
    return true;
}

static bool pull_float(struct pull *p, double *out)
{
    if (pull_left(p) >= 9 && *p->at == 0xcb) {
        uint64_t bits = pull_be64(p->at + 1);
        memcpy(out, &bits, sizeof(bits));
        p->at += 9;
        return true;
    }
    if (pull_left(p) >= 5 && *p->at == 0xca) {
        uint32_t bits = (uint32_t)pull_be(p->at + 1, 4);
        float v;
        memcpy(&v, &bits, sizeof(bits));
        *out = v;
        p->at += 5;
        return true;
    }
    return false;
}

bool pull_real(struct pull *p, double *out)
{
    int64_t v;
    if (pull_float(p, out)) {
        return true;
    }
    if (pull_int(p, &v)) {
        *out = (double)v;
        return true;
    }
    if (pull_left(p) >= 9 && *p->at == 0xcf) { /* beyond int64_t */
        *out = (double)pull_be(p->at + 1, 8);
        p->at += 9;
        return true;
    }
    return false;
}

/* Heads of containers: `fix` with a count in the low four bits, or 2 and 4 bytes behind `wide`. */
static bool pull_head(struct pull *p, uint8_t fix, uint8_t wide, size_t *n)
{
    if (p->at < p->end && (*p->at & 0xf0) == fix) {
        *n = *p->at++ & 15;
        return true;
    }
    size_t bytes = p->at == p->end ? 0 : *p->at == wide ? 2 : *p->at == wide + 1 ? 4 : 0;
    if (bytes == 0 || bytes >= pull_left(p)) {
        return false;
    }
    *n = (size_t)pull_be(p->at + 1, bytes);
    p->at += 1 + bytes;
    return true;
}

bool pull_array(struct pull *p, size_t *n)
{
    return pull_head(p, 0x90, 0xdc, n);
}

bool pull_map(struct pull *p, size_t *n)
{
    return pull_head(p, 0x80, 0xde, n);
}

bool pull_skip(struct pull *p)
{
    size_t n = span_of(p->at, pull_left(p));
    p->at += n;
    return n > 0;
}

bool pull_item(struct pull *p, struct pull *item)
{
    *item = *p;
    bool is = pull_skip(p);
    item->end = p->at;
    return is;
}

bool pull_find(struct pull *p, const char *key)
{
    struct pull in = *p;
    size_t pairs, n;
    const char *name;
    if (!pull_map(&in, &pairs)) {
        return false;
    }
    for (; pairs > 0; pairs--) {
        bool is_text = pull_str(&in, &name, &n);
        if (is_text && strlen(key) == n && memcmp(name, key, n) == 0) {
            *p = in;
            return true;
        }
        if ((!is_text && !pull_skip(&in)) || !pull_skip(&in)) {
            return false;
        }
    }
    return false;
}

/* ---- schemas --------------------------------------------------------------------------------- */

/* Not 0 when one of the bytes is. */
static inline uint64_t zeros_in(uint64_t word)
{
    return (word - UINT64_C(0x0101010101010101)) & ~word & UINT64_C(0x8080808080808080);
}

/* Ones in a word's bytes behind the first n, n from 1 to 7. */
static uint64_t pull_mask_behind(size_t n)
{
    const bool little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    return little ? ~UINT64_C(0) << 8 * n : ~UINT64_C(0) >> 8 * n;
}

/* Of a text whose length is in its first byte, or in the one behind it: *n and *head. */
static inline bool short_text(const uint8_t *at, size_t left, size_t *head, size_t *n)
{
    bool in_one = left > 0 && (at[0] & 0xe0) == 0xa0, in_two = left > 1 && at[0] == 0xd9;
    *head = in_one ? 1 : 2;
    *n = in_one ? at[0] & 31 : in_two ? at[1] : 0;
    return (in_one || in_two) && *n <= left - *head;
}

/* Text, terminated, as wire_copy_str would; false: it does not fit, or holds a zero. By words where
 * both sides have room for the last one, since a call for a dozen bytes costs more than they do. */
static bool pull_copy_text(struct pull *p, char *out, size_t size)
{
    struct pull in = *p;
    const char *text;
    size_t n, head, at = 0;
    if (short_text(in.at, pull_left(&in), &head, &n)) {
        text = (const char *)in.at + head;
        in.at += head + n;
    } else if (!pull_str(&in, &text, &n)) {
        return false;
    }
    if (n >= size) {
        return false;
    }
    size_t whole = (n + 7) / 8 * 8;
    if (whole <= size && whole - n <= pull_left(&in)) {
        uint64_t word, zeros = 0;
        for (; at + 8 <= n; at += 8) {
            memcpy(&word, text + at, 8);
            memcpy(out + at, &word, 8);
            zeros |= zeros_in(word);
        }
        if (at < n) {
            memcpy(&word, text + at, 8);
            memcpy(out + at, &word, 8);
            zeros |= zeros_in(word | pull_mask_behind(n - at));
        }
        if (zeros) {
            return false;
        }
    } else if (memchr(text, 0, n)) {
        return false;
    } else {
        memcpy(out, text, n);
    }
    out[n] = 0;
    *p = in;
    return true;
}

static bool take_member(struct pull *p, const struct schema_field *f, void *member)
{
    switch (f->kind) {
    case SCHEMA_INT:
        return pull_int(p, member);
    case SCHEMA_REAL:
        return pull_real(p, member);
    case SCHEMA_FLAG:
        return pull_bool(p, member);
    case SCHEMA_TEXT:
        return pull_copy_text(p, member, f->size);
    case SCHEMA_RECORD:
    case SCHEMA_REALS:
        break;
    }
    return false;
}

/* Before anything was read into it, or nil: nothing is known of it. */
static void clear_member(const struct schema_field *f, void *member, bool is_nil)
{
    if (f->kind == SCHEMA_TEXT) {
        *(char *)member = 0;
    } else if (f->kind == SCHEMA_REAL) {
        *(double *)member = is_nil ? NAN : 0;
    } else {
        memset(member, 0, f->size);
    }
}

static bool is_field(const struct schema_field *f, const char *name, size_t n)
{
    return f->name_n == n && pull_same(f->name, name, n);
}

/* The field of that name, looked for from `from` on; s->n: none. */
static size_t pull_find_field(const struct schema *s, size_t from, const char *name, size_t n)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t at = from + i < s->n ? from + i : from + i - s->n;
        if (is_field(&s->fields[at], name, n)) {
            return at;
        }
    }
    return s->n;
}

static bool pull_read_value(struct pull *p, const struct schema_field *f, void *object, bool again)
{
    void *member = (char *)object + f->offset;
    if (!pull_nil(p)) {
        return take_member(p, f, member);
    }
    if (!again || f->kind == SCHEMA_REAL) {
        clear_member(f, member, true);
    }
    return true;
}

/* A map under way. */
struct walk {
    const struct schema *s;
    const char *name; /* of what stands beside */
    size_t name_n;
    pull_beside beside;
    void *ctx;
    bool told;
    void *object;
    struct pull_fields *fields;
    size_t last; /* the field before, counted from 1; 0: none yet */
};

/* The field of that name: mostly the one that came there the time before. */
static size_t field_of(struct walk *w, const char *name, size_t n)
{
    size_t guess = w->fields->next[w->last];
    if (is_field(&w->s->fields[guess], name, n)) {
        return guess;
    }
    return pull_find_field(w->s, w->last < w->s->n ? w->last : 0, name, n);
}

static bool take_beside(struct walk *w, struct pull *p)
{
    bool again = w->told;
    w->told = true;
    return !again && w->beside(w->ctx, p);
}

static bool pull_read_pair(struct walk *w, struct pull *p)
{
    const char *name;
    size_t n;
    if (!pull_str(p, &name, &n)) {
        return false;
    }
    if (w->beside && n == w->name_n && pull_same(name, w->name, n)) {
        return take_beside(w, p);
    }
    size_t at = field_of(w, name, n);
    if (at == w->s->n) {
        return pull_skip(p);
    }
    uint64_t bit = UINT64_C(1) << at;
    bool taken = pull_read_value(p, &w->s->fields[at], w->object, w->fields->seen & bit);
    w->fields->seen |= bit;
    w->fields->next[w->last] = (uint8_t)at;
    w->last = at + 1;
    return taken;
}

/* Text of less than 256 bytes into a member, as pull_copy_text, where there is room to copy by
 * words. NULL: it is not so. Else what comes behind it. */
static inline const uint8_t *short_text_to(const uint8_t *at, const uint8_t *end, char *out,
                                           size_t size)
{
    bool in_one = (at[0] & 0xe0) == 0xa0;
    size_t n = in_one ? at[0] & 31 : at[1];
    const uint8_t *text = at + (in_one ? 1 : 2);
    size_t read = n < 8 ? 8 : n;
    if ((!in_one && at[0] != 0xd9) || n >= size || read > size || read > (size_t)(end - text)) {
        return NULL;
    }
    if (n > 16) { /* a call of two is worth it */
        memcpy(out, text, n);
        out[n] = 0;
        return memchr(text, 0, n) ? NULL : text + n;
    }
    uint64_t first, last = ~UINT64_C(0);
    memcpy(&first, text, 8);
    memcpy(out, &first, 8);
    if (n >= 8) {
        memcpy(&last, text + n - 8, 8);
        memcpy(out + n - 8, &last, 8);
    } else if (n > 0) {
        first |= pull_mask_behind(n);
    } else {
        first = last;
    }
    out[n] = 0;
    return zeros_in(first) | zeros_in(last) ? NULL : text + n;
}

/* As many of the next pairs as are usual: of the field that came there the time before, with a
 * value that is known by its first byte. How many. */
static size_t pull_read_usual(struct walk *w, struct pull *p, size_t most)
{
    const struct schema_field *fields = w->s->fields;
    const uint8_t *at = p->at, *end = p->end;
    const uint8_t *next = w->fields->next;
    char *object = w->object;
    uint64_t seen = w->fields->seen;
    size_t last = w->last, left = most;
    for (; left > 0; left--) {
        size_t guess = next[last];
        const struct schema_field *f = &fields[guess];
        size_t n = f->name_n;
        if (n > 31 || (size_t)(end - at) < n + 10 || at[0] != (0xa0 | n) ||
            !pull_same(f->name, (const char *)at + 1, n)) {
            break;
        }
        const uint8_t *value = at + 1 + n;
        if (f->kind == SCHEMA_REAL && *value == 0xcb) {
            uint64_t bits = pull_be64(value + 1);
            memcpy(object + f->offset, &bits, sizeof(bits));
            value += 9;
        } else if (f->kind == SCHEMA_TEXT) {
            value = short_text_to(value, end, object + f->offset, f->size);
        } else if (f->kind == SCHEMA_INT && (*value < 0x80 || *value == 0xcd || *value == 0xce)) {
            size_t bytes = *value < 0x80 ? 0 : (size_t)2 << (*value - 0xcd);
            int64_t v = bytes == 0 ? *value : (int64_t)(pull_be64(value + 1) >> (64 - 8 * bytes));
            memcpy(object + f->offset, &v, sizeof(v));
            value += 1 + bytes;
        } else if (f->kind == SCHEMA_FLAG && (*value & 0xfe) == 0xc2) {
            object[f->offset] = (char)(*value & 1);
            value++;
        } else {
            break;
        }
        if (!value) {
            break;
        }
        at = value;
        seen |= UINT64_C(1) << guess;
        last = guess + 1;
    }
    p->at = at;
    w->fields->seen = seen;
    w->last = last;
    return most - left;
}

bool pull_schema(struct pull *p, const struct schema *s, const char *name, pull_beside beside,
                 void *ctx, void *object, struct pull_fields *fields)
{
    assert(s->n >= 1 && s->n <= 64);
    struct walk w = {s, name, name ? strlen(name) : 0, beside, ctx, false, object, fields, 0};
    struct pull in = *p;
    size_t pairs;
    fields->seen = 0;
    if (!pull_map(&in, &pairs)) {
        return false;
    }
    while ((pairs -= pull_read_usual(&w, &in, pairs)) > 0) {
        if (!pull_read_pair(&w, &in)) {
            return false;
        }
        pairs--;
    }
    uint64_t all = ~UINT64_C(0) >> (64 - s->n);
    for (size_t i = 0; fields->seen != all && i < s->n; i++) {
        if (!(fields->seen >> i & 1)) {
            clear_member(&s->fields[i], (char *)object + s->fields[i].offset, false);
        }
    }
    *p = in;
    return true;
}
