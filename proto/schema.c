/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding and decoding are each one walk over the table of fields. Decoding expects fields in the
 * order in which encoding writes them, so each name is compared once; any other order works and
 * costs a search.
 */
#include <math.h>
#include <string.h>

#include "proto/pull.h"
#include "proto/text.h"

static void put_reals(struct wire_buf *b, const void *member)
{
    uint32_t n;
    memcpy(&n, member, sizeof(n));
    /* SCHEMA_MEMBER_REALS declares a count, padding, then the doubles */
    const double *v = (const double *)(const void *)((const char *)member + sizeof(double));
    wire_put_array(b, n);
    for (uint32_t i = 0; i < n; i++) {
        wire_put_real(b, v[i]);
    }
}

static void put_member(struct wire_buf *b, const struct schema_field *f, const void *member)
{
    switch (f->kind) {
    case SCHEMA_INT:
        wire_put_int(b, *(const int64_t *)member);
        break;
    case SCHEMA_REAL:
        isnan(*(const double *)member) ? wire_put_nil(b)
                                       : wire_put_real(b, *(const double *)member);
        break;
    case SCHEMA_FLAG:
        wire_put_bool(b, *(const bool *)member);
        break;
    case SCHEMA_TEXT:
        wire_put_str(b, member);
        break;
    case SCHEMA_RECORD:
        record_pack(b, member);
        break;
    case SCHEMA_REALS:
        put_reals(b, member);
        break;
    }
}

void schema_encode_fields(struct wire_buf *b, const struct schema *s, const void *object)
{
    for (size_t i = 0; i < s->n; i++) {
        wire_put_strn(b, s->fields[i].name, s->fields[i].name_n);
        put_member(b, &s->fields[i], (const char *)object + s->fields[i].offset);
    }
}

void schema_encode(struct wire_buf *b, const struct schema *s, const void *object)
{
    if (!object) {
        wire_put_nil(b);
        return;
    }
    wire_put_map(b, s->n);
    schema_encode_fields(b, s, object);
}

void schema_clear(const struct schema *s, void *object)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct schema_field *f = &s->fields[i];
        void *member = (char *)object + f->offset;
        if (f->kind == SCHEMA_RECORD) {
            record_init(member);
        } else {
            /* a flag, the first byte of a text, a number, or the count of reals becomes zero */
            memset(member, 0, f->kind == SCHEMA_FLAG || f->kind == SCHEMA_TEXT ? 1 : 8);
        }
    }
}

static int schema_refuse_type(const struct schema *s, const struct schema_field *f,
                              const char *wanted, struct error *err)
{
    return error_set(err, ERROR_INVALID, "%s.%s must be %s", s->name, f->name, wanted);
}

static bool get_int(const struct wire_obj *o, int64_t *out)
{
    double real;
    return wire_get_int(o, out) ||
           (wire_type_of(o) == WIRE_REAL && wire_get_real(o, &real) && text_real_is_int(real, out));
}

static int get_text(const struct schema *s, const struct schema_field *f, const struct wire_obj *o,
                    char *out, struct error *err)
{
    const char *text;
    size_t n;
    if (!wire_get_str(o, &text, &n)) {
        return schema_refuse_type(s, f, "text", err);
    }
    if (!wire_copy_str(o, out, f->size)) {
        out[0] = 0;
        return error_set(err, ERROR_INVALID,
                         "%s.%s takes text of at most %zu bytes without zeros, got %zu: '%s'",
                         s->name, f->name, f->size - 1, n, text_show(text, n).text);
    }
    return 0;
}

static int get_record(const struct schema *s, const struct schema_field *f,
                      const struct wire_obj *o, struct record *out, struct error *err)
{
    int r = record_unpack(out, o, err);
    if (r < 0) {
        record_init(out);
        error_prefix(err, "%s.%s", s->name, f->name);
    }
    return r;
}

static int get_reals(const struct schema *s, const struct schema_field *f, const struct wire_obj *o,
                     void *member, struct error *err)
{
    double *v = (double *)(void *)((char *)member + sizeof(double));
    size_t room = f->size / sizeof(double) - 1;
    if (wire_type_of(o) != WIRE_ARRAY || wire_count(o) > room) {
        return error_set(err, ERROR_INVALID, "%s.%s must be an array of at most %zu numbers",
                         s->name, f->name, room);
    }
    uint32_t n = (uint32_t)wire_count(o);
    for (uint32_t i = 0; i < n; i++) {
        if (!wire_get_real(wire_at(o, i), &v[i])) {
            return schema_refuse_type(s, f, "an array of numbers", err);
        }
    }
    memcpy(member, &n, sizeof(n));
    return 0;
}

static int get_member(const struct schema *s, const struct schema_field *f,
                      const struct wire_obj *o, void *member, struct error *err)
{
    if (wire_type_of(o) == WIRE_NIL) {
        if (f->kind == SCHEMA_REAL) {
            *(double *)member = NAN;
        }
        return 0;
    }
    switch (f->kind) {
    case SCHEMA_INT:
        return get_int(o, member) ? 0 : schema_refuse_type(s, f, "an integer of 64 bits", err);
    case SCHEMA_REAL:
        return wire_get_real(o, member) ? 0 : schema_refuse_type(s, f, "a number", err);
    case SCHEMA_FLAG:
        return wire_get_bool(o, member) ? 0 : schema_refuse_type(s, f, "true or false", err);
    case SCHEMA_TEXT:
        return get_text(s, f, o, member, err);
    case SCHEMA_RECORD:
        return get_record(s, f, o, member, err);
    case SCHEMA_REALS:
        break;
    }
    return get_reals(s, f, o, member, err);
}

static int schema_refuse_unknown(const struct schema *s, const char *const *others,
                                 const char *given, size_t n, struct error *err)
{
    struct nearest near;
    nearest_begin(&near, given, n);
    for (; others && *others; others++) {
        nearest_offer(&near, *others);
    }
    for (size_t i = 0; i < s->n; i++) {
        nearest_offer(&near, s->fields[i].name);
    }
    return nearest_refuse(&near, s->name, err);
}

size_t schema_find_field(const struct schema *s, size_t from, const char *name, size_t n)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t at = from + i < s->n ? from + i : from + i - s->n;
        if (s->fields[at].name_n == n && pull_same(s->fields[at].name, name, n)) {
            return at;
        }
    }
    return s->n;
}

/* A decoding under way. */
struct decoding {
    const struct schema *s;
    enum schema_strictness strict;
    const char *const *others;
    void *object;
    uint64_t seen, seen_others; /* a bit per field, and per name of `others` */
    size_t next;                /* index of the field that is expected next */
};

/* Sets the bit of a name. ERROR_CONFLICT when a strict decoding meets a name twice. */
static int mark_seen(const struct decoding *d, uint64_t *seen, size_t at, const char *name,
                     struct error *err)
{
    uint64_t bit = UINT64_C(1) << at;
    if (d->strict == SCHEMA_STRICT && *seen & bit) {
        return error_set(err, ERROR_CONFLICT, "%s.%s is given twice", d->s->name, name);
    }
    *seen |= bit;
    return 0;
}

static int decode_pair(struct decoding *d, const struct wire_obj *key, const struct wire_obj *value,
                       struct error *err)
{
    const struct schema *s = d->s;
    const char *name;
    size_t n;
    if (!wire_get_str(key, &name, &n)) {
        return error_set(err, ERROR_INVALID, "field names of %s must be text", s->name);
    }
    int other = d->others ? text_find(d->others, name, n) : -1;
    if (other >= 0) {
        return mark_seen(d, &d->seen_others, (size_t)other, d->others[other], err);
    }
    size_t at = schema_find_field(s, d->next, name, n);
    if (at == s->n) {
        return d->strict == SCHEMA_STRICT ? schema_refuse_unknown(s, d->others, name, n, err) : 0;
    }
    const struct schema_field *f = &s->fields[at];
    int status = mark_seen(d, &d->seen, at, f->name, err);
    if (status < 0) {
        return status;
    }
    d->next = at + 1;
    return get_member(s, f, value, (char *)d->object + f->offset, err);
}

int schema_decode_beside(const struct schema *s, enum schema_strictness strict,
                         const struct wire_obj *map, const char *const *others, void *object,
                         struct error *err)
{
    struct decoding d = {s, strict, others, object, 0, 0, 0};
    schema_clear(s, object);
    if (map && wire_type_of(map) != WIRE_MAP) {
        return error_set(err, ERROR_INVALID, "%s must be a map of named values", s->name);
    }
    for (size_t i = 0; i < wire_count(map); i++) {
        const struct wire_obj *key, *value;
        wire_pair(map, i, &key, &value);
        int r = decode_pair(&d, key, value, err);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int schema_decode(const struct schema *s, enum schema_strictness strict, const struct wire_obj *map,
                  void *object, struct error *err)
{
    return schema_decode_beside(s, strict, map, NULL, object, err);
}
