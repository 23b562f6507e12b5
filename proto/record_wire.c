/* SPDX-License-Identifier: Apache-2.0 */
/* Records as MessagePack: a record is written as its canonical bytes, and read from any map. */
#include "proto/record.h"
#include "proto/text.h"
#include "proto/wire_inner.h"

void value_pack(struct wire_buf *b, const struct value *v)
{
    switch (v->type) {
    case VALUE_NONE:
        wire_put_nil(b);
        break;
    case VALUE_BOOL:
        wire_put_bool(b, v->flag);
        break;
    case VALUE_INT:
        wire_put_int(b, v->integer);
        break;
    case VALUE_REAL:
        wire_put_real(b, v->real);
        break;
    case VALUE_TEXT:
        wire_put_str(b, v->text);
        break;
    }
}

void record_pack_fields(struct wire_buf *b, const struct record *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct value v = record_at(r, i);
        wire_put_str(b, r->fields[i].name);
        value_pack(b, &v);
    }
}

void record_pack(struct wire_buf *b, const struct record *r)
{
    wire_put_map(b, r->n);
    record_pack_fields(b, r);
}

bool value_unpack(const struct wire_obj *o, struct value *v, size_t *text_n)
{
    *text_n = 0;
    return o && wire_scalar(wire_in(o), v, text_n);
}

static int unpack_pair(struct record *r, const struct wire_obj *key, const struct wire_obj *value,
                       struct error *err)
{
    const char *name;
    size_t n;
    if (!wire_get_str(key, &name, &n)) {
        return error_set(err, ERROR_INVALID, "field names must be text");
    }
    if (wire_type_of(value) == WIRE_NIL) {
        return 0;
    }
    if (record_has_n(r, name, n)) {
        return error_set(err, ERROR_CONFLICT, "field '%s' is given twice", text_show(name, n).text);
    }
    struct value v;
    size_t text_n;
    if (!value_unpack(value, &v, &text_n)) {
        return error_set(err, ERROR_INVALID,
                         "field '%s' must be a number (of 64 bits), true, false or text",
                         text_show(name, n).text);
    }
    return record_set_n(r, name, n, &v, text_n, err);
}

int record_unpack_but(struct record *r, const struct wire_obj *map, const char *but,
                      struct error *err)
{
    record_init(r);
    if (wire_type_of(map) != WIRE_MAP) {
        return error_set(err, ERROR_INVALID, "expected a map of named values");
    }
    for (size_t i = 0, met = 0; i < wire_count(map); i++) {
        const struct wire_obj *key, *value;
        wire_pair(map, i, &key, &value);
        bool passed = but && wire_is_str(key, but);
        met += passed;
        if (passed && met == 1) {
            continue;
        }
        int done = passed ? error_set(err, ERROR_CONFLICT, "field '%s' is given twice", but)
                          : unpack_pair(r, key, value, err);
        if (done < 0) {
            return done;
        }
    }
    return 0;
}

int record_unpack(struct record *r, const struct wire_obj *map, struct error *err)
{
    return record_unpack_but(r, map, NULL, err);
}
