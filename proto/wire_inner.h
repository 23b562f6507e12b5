/* SPDX-License-Identifier: Apache-2.0 */
/* The definition behind `struct wire_obj`, for the files of proto/ that decode on the hit path,
 * where a function call per item would cost more than reading the item. */
#ifndef GEMMD_PROTO_WIRE_INNER_H
#define GEMMD_PROTO_WIRE_INNER_H

#include <msgpack.h>

#include "proto/record.h"
#include "proto/wire.h"

static inline const msgpack_object *wire_in(const struct wire_obj *o)
{
    return (const msgpack_object *)(const void *)o;
}

static inline const struct wire_obj *wire_out(const msgpack_object *o)
{
    return (const struct wire_obj *)(const void *)o;
}

/* msgpack-c gives NULL for empty text and binary, which memcpy and friends do not take. */
static inline const char *wire_chars(const char *ptr)
{
    return ptr ? ptr : "";
}

/* Reads a scalar; its text points into the message. False: o is nil, an array, a map or binary, or
 * an integer beyond int64_t. */
static inline bool wire_scalar(const msgpack_object *o, struct value *v, size_t *text_n)
{
    switch (o->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        v->type = VALUE_BOOL;
        v->flag = o->via.boolean;
        return true;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        v->type = VALUE_INT;
        v->integer = o->via.i64;
        return o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER || o->via.u64 <= INT64_MAX;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        v->type = VALUE_REAL;
        v->real = o->via.f64;
        return true;
    case MSGPACK_OBJECT_STR:
        v->type = VALUE_TEXT;
        v->text = wire_chars(o->via.str.ptr);
        *text_n = o->via.str.size;
        return true;
    default:
        return false;
    }
}

#endif
