/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "proto/pull.h"

/* ---- items ----------------------------------------------------------------------------------- */

/* For a complete number with a first byte in [first, last]: how many bytes follow that byte. 0: the
 * item is another, or incomplete. */
static size_t number_bytes(const struct pull *p, uint8_t first, uint8_t last)
{
    if (p->at == p->end || *p->at < first || *p->at > last) {
        return 0;
    }
    size_t bytes = (size_t)1 << ((*p->at - first) & 3);
    return bytes < pull_left(p) ? bytes : 0;
}

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
    uint64_t v = span_read_be(p->at + 1, bytes);
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
        uint64_t bits = span_read_be(p->at + 1, 8);
        memcpy(out, &bits, sizeof(bits));
        p->at += 9;
        return true;
    }
    if (pull_left(p) >= 5 && *p->at == 0xca) {
        uint32_t bits = (uint32_t)span_read_be(p->at + 1, 4);
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
        *out = (double)span_read_be(p->at + 1, 8);
        p->at += 9;
        return true;
    }
    return false;
}

static bool pull_head(struct pull *p, const uint8_t *behind)
{
    p->at = behind ? behind : p->at;
    return behind;
}

bool pull_array(struct pull *p, size_t *n)
{
    return pull_head(p, span_array(p->at, pull_left(p), n));
}

bool pull_map(struct pull *p, size_t *n)
{
    return pull_head(p, span_map(p->at, pull_left(p), n));
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

/* Copies text and a final zero, as wire_copy_str does. False: too long, or the text holds a zero.
 */
static bool pull_copy_text(struct pull *p, char *out, size_t size)
{
    struct pull in = *p;
    const char *text;
    size_t n;
    if (!pull_str(&in, &text, &n) || n >= size || memchr(text, 0, n)) {
        return false;
    }
    memcpy(out, text, n);
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

static bool pull_read_value(struct pull *p, const struct schema_field *f, void *member)
{
    if (!pull_nil(p)) {
        return take_member(p, f, member);
    }
    if (f->kind == SCHEMA_REAL) {
        *(double *)member = NAN;
    }
    return true;
}

bool pull_schema(struct pull *p, const struct schema *s, const char *beside_name,
                 pull_beside beside, void *ctx, void *object)
{
    struct pull in = *p;
    size_t pairs, n, next = 0, beside_n = beside ? strlen(beside_name) : 0;
    const char *name;
    bool told = false;
    schema_clear(s, object);
    if (!pull_map(&in, &pairs)) {
        return false;
    }
    for (; pairs > 0; pairs--) {
        if (!pull_str(&in, &name, &n)) {
            return false;
        }
        bool is_beside = beside && n == beside_n && pull_same(name, beside_name, n);
        size_t at = is_beside ? s->n : schema_find_field(s, next, name, n);
        if (is_beside ? told || !beside(ctx, &in)
            : at < s->n
                ? !pull_read_value(&in, &s->fields[at], (char *)object + s->fields[at].offset)
                : !pull_skip(&in)) {
            return false;
        }
        told = told || is_beside;
        next = at < s->n ? at + 1 : next;
    }
    *p = in;
    return true;
}
